"""``DurableObject``: what user code derives from.

An object is addressed by class and name and lives for ever; the Python instance is only its present life. Memory may
be lost between any two events, storage is kept. Methods run on one event loop: while one awaits, others may run.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from runtime.calls import idempotent, not_callable
from runtime.context import Context
from runtime.errors import UsageError
from runtime.options import ObjectOptions, merged_options

__all__ = ["AlarmInfo", "DurableObject"]


class AlarmInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an alarm handler is told: how often this alarm was tried before."""

    retry_count: int = 0

    @property
    def is_retry(self) -> bool:
        """Whether an earlier try raised or was interrupted."""
        return self.retry_count > 0


class DurableObject:
    """Base of all durable objects; derive, add ``async`` methods, and call them through a stub.

    Attributes:
        options: Overrides of ``ObjectOptions`` by name, checked when the class is defined.
        ctx: Storage, time and what the object may ask of its host.
    """

    options: ClassVar[dict[str, object]] = {}
    options_type: ClassVar[type[ObjectOptions]] = ObjectOptions

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        merged_options(cls)

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    @property
    def name(self) -> str:
        """The object's own name; there in the constructor too."""
        return self.ctx.id.name

    @not_callable
    async def boot(self) -> None:
        """Start the object, once per life, before any other event. The default runs ``on_start``."""
        await self.on_start()

    @not_callable
    async def on_start(self) -> None:
        """Called once per life before the first event; override it to load or create state."""

    @not_callable
    async def alarm(self, info: AlarmInfo) -> None:
        """Called at the time of ``storage.set_alarm``, at least once; override it."""
        raise UsageError(f"{type(self).__name__} has set an alarm but defines no alarm() method; add one.")

    @idempotent
    async def perdure_started(self) -> bool:
        """True once the object has started; for callers that want its start-up and nothing else."""
        return True
