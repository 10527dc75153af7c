"""``DurableObject``: what user code derives from, and the context that its methods see.

An object is addressed by class and name and lives for ever; the Python instance is only its present life. Memory may
be lost between any two events, storage is kept. Methods run on one event loop: while one awaits, others may run.
"""

from __future__ import annotations

import contextvars
import hashlib
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec

from runtime.errors import UnknownMethod, UsageError
from runtime.options import ObjectOptions, merged_options

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Sequence
    from pathlib import Path

    from runtime.clock import Clock
    from runtime.ids import ObjectId
    from runtime.storage.storage import Storage
    from runtime.storage.store import Store

__all__ = [
    "AlarmInfo",
    "CallContext",
    "Context",
    "DurableObject",
    "Lease",
    "caller_side",
    "current_call",
    "idempotent",
    "is_idempotent",
    "method_of",
    "not_callable",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AlarmInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an alarm handler is told: how often this alarm was tried before."""

    retry_count: int = 0

    @property
    def is_retry(self) -> bool:
        """Whether an earlier try raised or was interrupted."""
        return self.retry_count > 0


class Lease(Protocol):
    """Keeps an object awake and watched until released."""

    def release(self) -> None:
        """Let go; a second call does nothing."""
        ...


class CallContext:
    """The call that the running code serves; ``key`` is its idempotency key, if it has one."""

    __slots__ = ("_ordinals", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self._ordinals = itertools.count(1)

    def derive(self, what: str) -> str:
        """A key for the next call made from inside this one; equal again when this call is repeated."""
        text = f"{self.key}\x00{next(self._ordinals)}\x00{what}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


current_call: contextvars.ContextVar[CallContext | None] = contextvars.ContextVar("current_call", default=None)


class Context(Protocol):
    """``self.ctx`` of an object: its storage, its time, and what it may ask of its host."""

    @property
    def id(self) -> ObjectId:
        """The object's address."""
        ...

    @property
    def storage(self) -> Storage:
        """The object's durable data."""
        ...

    @property
    def store(self) -> Store:
        """The database under ``storage``, for journals; user code wants ``storage``."""
        ...

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of the object's files."""
        ...

    def migrate(self, component: str, steps: Sequence[str]) -> None:
        """Bring the tables of one component up to date; on return they are on disk."""
        ...

    async def block_concurrency_while(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run ``fn``; no other event is delivered until it ends.

        Raises:
            ObjectReset: It raised, or took over 30 s: the object is reset.
            Source: https://developers.cloudflare.com/durable-objects/api/state/
        """
        ...

    def wait_until(self, work: Coroutine[Any, Any, Any]) -> None:
        """Keep the object alive for ``work``, at most 15 minutes; its error is logged."""
        ...

    def abort(self, reason: str) -> None:
        """Reset the object: memory and uncommitted writes are lost, pending callers get the reason.

        Raises:
            ObjectReset: Always, to leave the running method.
        """
        ...

    async def keep_alive(self) -> Lease:
        """Hold the object awake. While any lease is held, its death is noticed and it is created again at once."""
        ...

    def progressed(self) -> None:
        """Durable progress was made; the pause before the next re-creation starts anew from nothing."""
        ...

    async def flush(self) -> None:
        """Make everything written so far durable, before something leaves the process."""
        ...

    def stub(self, cls: type[T], object_id: ObjectId) -> T:
        """A stub of any object."""
        ...

    def get(self, cls: type[T], name: str) -> T:
        """A stub of a root object."""
        ...

    def derive_key(self, what: str) -> str | None:
        """Inside a call with an idempotency key, a key for a call made from it; else None."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> Task[Any]:
        """Start background work of the object; it ends with the instance and keeps nothing awake."""
        ...


def idempotent(function: F) -> F:
    """Declare that a method may run twice: a stub repeats its call when the object died in the middle of it."""
    function.__perdure_idempotent__ = True  # type: ignore[attr-defined]
    return function


def not_callable(function: F) -> F:
    """Declare that a method is a hook, which no stub reaches."""
    function.__perdure_hook__ = True  # type: ignore[attr-defined]
    return function


class caller_side:  # noqa: N801  # a decorator, used like property
    """A method that runs where it is called: ``self`` is the stub there, or the object itself inside of it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        return self.function if instance is None else self.function.__get__(instance)


def is_idempotent(cls: type, method: str) -> bool:
    """Whether the method is declared to be repeatable."""
    return getattr(getattr(cls, method, None), "__perdure_idempotent__", False)


def method_of(cls: type, method: str) -> Callable[..., Any]:
    """The remotely callable function of that name.

    Raises:
        UnknownMethod: No such method, a private one, a hook, or something that is no method.
    """
    found = inspect.getattr_static(cls, method, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if method.startswith("_") or found is None:
        near = [name for name in dir(cls) if not name.startswith("_") and name[:3] == method[:3]]
        hint = f" Did you mean {' or '.join(near[:3])}?" if near and not method.startswith("_") else ""
        raise UnknownMethod(f"{cls.__name__} has no public method {method!r}.{hint}")
    if not inspect.isfunction(found) or getattr(found, "__perdure_hook__", False):
        raise UnknownMethod(f"{cls.__name__}.{method} cannot be called from outside: it is no method or a hook.")
    return found


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
