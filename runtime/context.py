"""``self.ctx`` of an object: its storage, its time, and what it may ask of its host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from runtime.calls import current_call
from runtime.clock import Clock
from runtime.errors import UsageError
from runtime.ids import ObjectId
from runtime.instance import Lease, OwnedInstance, Service
from runtime.storage.migrations import migrate
from runtime.storage.storage import Gate, Storage
from runtime.storage.store import Store
from runtime.stub import make_stub

__all__ = ["Context"]

T = TypeVar("T")
log = logging.getLogger("perdure")

# D5: the platform's bound on work after the reply.
WAIT_UNTIL_SECONDS_MAX = 900.0


class SubAgentStorage(Storage):
    """The storage of a sub-agent: all but the alarm slot, of which there is one a root (runtime D29)."""

    def set_alarm(self, when: float | datetime, *, allow_unconfirmed: bool = False) -> Awaitable[None]:
        """Refused.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "a sub-agent has no alarm of its own: set it in the root and let its handler call this agent, "
            "or run the work as a fiber"
        )

    def get_alarm(self) -> Awaitable[float | None]:
        """None: there is no slot."""
        return _nothing()

    def delete_alarm(self, *, allow_unconfirmed: bool = False) -> Awaitable[None]:
        """Without effect: there is no slot. That of the framework, which keeps the agent awake, is not the user's."""
        return _nothing()


class Context:
    """What an object sees of its host.

    Attributes:
        id: The object's address.
        storage: The object's durable data.
        store: The database under ``storage``, for journals; user code wants ``storage``.
        clock: Where time comes from.
        folder: The folder of the object's files.
    """

    def __init__(self, host: OwnedInstance) -> None:
        self._host = host
        assert host.store is not None
        self.store: Store = host.store
        # The alarm slot, for the framework: in a sub-agent, user code has none.
        self.slot: Storage = host.storage
        # The instance's gates are its storage's gate; the seam shows only what contexts use of them.
        self.storage: Storage = (
            host.storage if host.id.parent is None else SubAgentStorage(host.store, cast("Gate", host.gates))
        )
        self.id: ObjectId = host.id
        self.clock: Clock = host.platform.clock
        self.folder: Path = host.folder
        # For the framework alone (the keeper): below what a Context promises.
        self.caller = host.platform.caller

    @property
    def name(self) -> str:
        """The object's own name."""
        return self.id.name

    def migrate(self, component: str, steps: Sequence[str]) -> None:
        """Bring the tables of one component up to date; on return they are on disk."""
        migrate(self.store, component, steps, self._host.versions)

    async def block_concurrency_while(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run ``fn``; no other event is delivered until it ends.

        Raises:
            ObjectReset: It took over 30 s. Whatever ``fn`` raises resets the object too.

        Source: https://developers.cloudflare.com/durable-objects/api/state/#blockconcurrencywhile
        """
        return await self._host.gates.block(fn)

    def wait_until(self, work: Coroutine[Any, Any, Any]) -> None:
        """Keep the object alive for ``work``, at most 15 minutes; its error is logged."""
        task = asyncio.create_task(self._bounded(work))
        self._host.background.add(task)
        task.add_done_callback(self._host.background.discard)

    async def _bounded(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        timer = asyncio.create_task(self.clock.sleep(WAIT_UNTIL_SECONDS_MAX))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                log.warning("%s: wait_until was ended after %g s", self.id, WAIT_UNTIL_SECONDS_MAX)
            elif not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s: wait_until raised", self.id, exc_info=error)
        finally:
            task.cancel()
            timer.cancel()

    def abort(self, reason: str) -> None:
        """Reset the object: memory and uncommitted writes are lost, pending callers get the reason.

        Raises:
            ObjectReset: Always, to leave the running method.
        """
        self._host.reset(str(reason))
        self._host.check()

    async def keep_alive(self) -> Lease:
        """Hold the object awake. While any lease is held, its death is noticed and it is created again at once."""
        return await self._host.keep_alive()

    def progressed(self) -> None:
        """Durable progress was made: the pause before the next re-creation starts anew from nothing."""
        self._host.progressed()

    async def flush(self) -> None:
        """Make everything written so far durable, before something leaves the process."""
        await self._host.gates.durable()

    def writing(self) -> None:
        """Something is about to be written through ``store`` for which replies must wait, without flush or commit.

        Raises:
            ObjectReset: The instance has ended.
        """
        self._host.check()
        self._host.gates.wrote(confirmed=True)

    def commit(self) -> None:
        """Make everything written so far durable, on return; for writes that promise just that."""
        self._host.gates.commit_now()

    def stub(self, cls: type[T], object_id: ObjectId) -> T:
        """A stub of any object."""
        return make_stub(cls, object_id, self._host.platform.caller)

    def get(self, cls: type[T], name: str) -> T:
        """A stub of a root object."""
        return self.stub(cls, ObjectId.root(cls.__name__, name))

    def service(self, cls: type, name: str) -> Service | None:
        """The node's service ``name``, hosting an instance of ``cls``; None where there are no nodes (simulation)."""
        made = self._host.platform.service
        return None if made is None else made(cls, name)

    def derive_key(self, what: str) -> str | None:
        """Inside a call with an idempotency key, a key for a call made from it; else None."""
        context = current_call.get()
        return context.derive(what) if context is not None and context.key else None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start background work of the object; it ends with the instance and keeps nothing awake."""
        task = asyncio.create_task(work, name=name)
        self._host.spawned.add(task)
        task.add_done_callback(self._host.spawned.discard)
        return task


async def _nothing() -> None:
    """What an empty slot holds."""
