"""Driver of ``runtime.core.alarms``: fires the alarm of one object and keeps the keeper's index in step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from runtime.core import alarms
from runtime.core.alarms import Slot
from runtime.errors import PerdureError
from runtime.instance import Instance
from runtime.object import AlarmInfo
from runtime.storage.alarm import read_slot, write_slot
from runtime.storage.store import Session
from runtime.stretch import stepped

__all__ = ["AlarmRunner"]

log = logging.getLogger("perdure")

ANNOUNCE_SECONDS = 20.0
# A keeper that does not answer is told again after this, doubling.
ANNOUNCE_AGAIN_SECONDS = 1.0
ANNOUNCE_AGAIN_SECONDS_MAX = 30.0
# More changes of the slot than any life makes.
VERSIONS_A_LIFE = 2**32


class AlarmRunner:
    """The alarm of one host. ``fire`` is what the keeper calls; its answer is the slot as it then is."""

    def __init__(self, host: Instance) -> None:
        self._host = host
        self._run: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the handler runs now."""
        return self._run is not None

    def resume(self) -> None:
        """After a start: tell the keeper what the slot says; a handler that a death interrupted runs again (D27)."""
        store = self._host.store
        assert store is not None
        slot = read_slot(store)
        if self._host.platform.keeping is None:
            return
        if slot.running_at_ms is not None:
            self._spawn(self._fire_again())
        elif slot.at_ms is not None:
            self.announce_later()

    def announce_later(self) -> None:
        """Tell the keeper the committed slot, in the background."""
        self._spawn(self._announced())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(_logged(work, str(self._host.id)))
        self._host.spawned.add(task)
        task.add_done_callback(self._host.spawned.discard)

    async def _fire_again(self) -> None:
        await self.fire()
        await self._announced()

    async def _announced(self) -> None:
        """Tell the keeper the committed slot, until it knows: nobody else will."""
        pause = ANNOUNCE_AGAIN_SECONDS
        while True:
            try:
                return await self.announce(ANNOUNCE_SECONDS)
            except PerdureError as error:
                self._host.check()
                log.warning("%s: the keeper does not know its alarm, next try in %g s: %s", self._host.id, pause, error)
                await self._host.platform.clock.sleep(pause)
                pause = min(pause * 2, ANNOUNCE_AGAIN_SECONDS_MAX)

    async def announce(self, timeout: float, session: Session | None = None) -> None:
        """Tell the keeper the slot as the open stretch, or ``session``, is about to commit it (D30)."""
        session, keeping = session or self._host.store, self._host.platform.keeping
        assert session is not None
        assert keeping is not None
        at_ms, version = self._told(read_slot(session))
        await keeping.set_alarm(self._host.activation, at_ms, version, timeout=timeout)

    async def fire(self) -> tuple[int | None, int]:
        """Run the handler if the slot is due; returns when the keeper should come again, and the slot's version.

        If it runs already, this waits for its end: an answer in the middle would only bring the keeper back at once.
        """
        host = self._host
        store = host.store
        assert store is not None
        if self._run is not None:
            await asyncio.shield(self._run)
            host.check()
        slot = read_slot(store)
        if self._run is None and alarms.is_exhausted(slot):
            log.error(
                "%s: its alarm was dropped: its process has ended in the handler, also in the last retry", host.id
            )
            slot = alarms.failed(slot, host.platform.clock.now_ms())
            self._write(slot)
            await host.gates.durable()
        if self._run is None and alarms.is_due(slot, host.platform.clock.now_ms()):
            self._run = asyncio.get_running_loop().create_future()
            try:
                slot = await self._handled(alarms.begin(slot))
            finally:
                self._run.set_result(None)
                self._run = None
        return self._told(slot)

    async def _handled(self, slot: Slot) -> Slot:
        """Run the handler; the slot after it."""
        host = self._host
        store = host.store
        assert store is not None
        self._write(slot)
        await host.gates.durable()
        try:
            assert host.object is not None
            await stepped(host.object.alarm(AlarmInfo(retry_count=slot.retry_count)), host.gates)
            after = alarms.finished(read_slot(store))
        except Exception as error:
            host.check()
            after = alarms.failed(read_slot(store), host.platform.clock.now_ms())
            fate = "it is tried again" if after.retry_count else "it was dropped after its last retry"
            log.exception("%s: its alarm raised %s; %s", host.id, type(error).__name__, fate)
        self._write(after)
        await host.gates.durable()
        return after

    def _told(self, slot: Slot) -> tuple[int | None, int]:
        """The slot as the keeper is told: when to come, and a number that grows with each change of the slot.

        The life's epoch leads it. A life may die between telling the keeper and its commit; the next one then counts
        the slot's own version from a lower number.
        """
        assert self._host.lease is not None
        return _next_ms(slot), self._host.lease.durable_epoch() * VERSIONS_A_LIFE + slot.version

    def _write(self, slot: Slot) -> None:
        store = self._host.store
        assert store is not None
        self._host.check()
        write_slot(store, slot)
        self._host.gates.wrote(confirmed=True)


def _next_ms(slot: Slot) -> int | None:
    """When the keeper should come: at the slot's time, or, for a run under way, at the time that it had."""
    times = [at for at in (slot.at_ms, slot.running_at_ms) if at is not None]
    return min(times) if times else None


async def _logged(work: Coroutine[Any, Any, Any], name: str) -> None:
    try:
        await work
    except Exception as error:
        log.warning("%s: the keeper could not be told about the alarm: %s", name, error)
