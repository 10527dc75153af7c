"""Driver of ``runtime.core.gates``: what may pass into one object, and what must be durable before anything leaves.

Input. While the object blocks (``block_concurrency_while``, its start-up included) or waits for its own storage, no
other event reaches it. New calls wait in the mailbox, coroutines that waited for something else stay suspended where
they are, although what they waited for has come; ``opened`` is where they wait.

Output. A stretch that wrote ends with a commit before control returns to the loop (see ``runtime.stretch``). Only one
kind of write takes longer: a change of the alarm, which the keeper must know before the commit (runtime D30). For that
time the object *holds*: it awaits its storage, so nothing else of it runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from runtime.alarms import ANNOUNCE_SECONDS, AlarmRunner
from runtime.core.gates import InputGate, Limits
from runtime.core.lifecycle import State
from runtime.errors import PerdureError
from runtime.instance import OwnedInstance
from runtime.storage.store import Session
from runtime.stretch import Committed, plain_task

__all__ = ["Gates"]

T = TypeVar("T")
log = logging.getLogger("perdure")

# D11: start-up and block_concurrency_while may take this long before the object is reset.
BLOCK_SECONDS_MAX = 30.0

# Which block the running code is inside of; tasks that it starts are, too.
_block: contextvars.ContextVar[object | None] = contextvars.ContextVar("perdure_block", default=None)


class Gates:
    """The gates of one instance.

    Args:
        host: The instance.
        alarms: Its alarm, which is announced before a commit that changes it.
        admit: Lets calls pass that waited in the mailbox.
    """

    def __init__(self, host: OwnedInstance, alarms: AlarmRunner, admit: Callable[[list[int]], None]) -> None:
        self.input = InputGate(Limits())
        self._host = host
        self._alarms = alarms
        self._admit = admit
        self._blocks: list[object] = []
        self._held: asyncio.Task[None] | None = None
        self._suspended: list[asyncio.Future[None]] = []
        self._has_confirmed = self._has_unconfirmed = self._is_alarm_changed = False

    # Input

    @property
    def is_closed(self) -> bool:
        """Whether the running code must wait before it goes on."""
        if self._held is None and not self._blocks:
            return False
        if self._host.state not in (State.STARTING, State.ACTIVE):
            return False
        return self._held is not None or _block.get() is not self._blocks[-1]

    def opened(self) -> Generator[Any, None, None]:
        """Wait for a change of ``is_closed``; in order of arrival."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._suspended.append(waiting)
        yield from waiting

    def _open(self) -> None:
        suspended, self._suspended = self._suspended, []
        for waiting in suspended:
            if not waiting.done():
                waiting.set_result(None)

    async def block(self, fn: Callable[[], Awaitable[T]]) -> T:
        """``block_concurrency_while`` (D11)."""
        self.input.hold()
        try:
            return await self.limited(self._alone(fn))
        except Exception as error:
            if self._host.state is not State.RESET:
                self._host.reset(f"block_concurrency_while raised {type(error).__name__}: {error}")
            raise
        finally:
            self.release()

    async def _alone(self, fn: Callable[[], Awaitable[T]]) -> T:
        block = object()
        _block.set(block)
        self._blocks.append(block)
        try:
            return await fn()
        finally:
            self._blocks.remove(block)
            self._open()

    async def limited(self, work: Awaitable[T]) -> T:
        """Await ``work``; the object is reset when it takes longer than D11 allows."""
        task = asyncio.ensure_future(work)
        # No coroutine of the object may be needed to see that the time is over: all of them may be suspended.
        timer = plain_task(self._overdue())
        try:
            return await task
        finally:
            timer.cancel()
            task.cancel()

    async def _overdue(self) -> None:
        await self._host.platform.clock.sleep(BLOCK_SECONDS_MAX)
        self._host.reset(f"start-up or block_concurrency_while took longer than {BLOCK_SECONDS_MAX:g} s")

    def release(self) -> None:
        """Undo one ``input.hold`` and let pass who may."""
        self._admit(self.input.release())

    # Output

    @property
    def is_holding(self) -> bool:
        """Whether a commit waits for the keeper."""
        return self._held is not None

    @property
    def is_dirty(self) -> bool:
        """Whether a commit is due before anything else may run or leave."""
        store = self._host.store
        return self._held is not None or (store is not None and store.is_open_transaction)

    def end(self) -> Generator[Any, None, None]:
        """Commit the stretch that just ended."""
        if self._held is None:
            if self._has_unconfirmed and not self._has_confirmed and not self._is_alarm_changed:
                # Nobody waits for these writes: the next turn of the loop commits.
                asyncio.get_running_loop().call_soon(self._commit_later)
                return
            if not self._is_alarm_changed or self._host.platform.keeping is None:
                self._commit()
                return
            self._held = plain_task(self._announce_and_commit())
            self._held.add_done_callback(self._release_soon)
        committed = Committed()
        self._held.add_done_callback(lambda held: _settle(committed, held))
        yield from committed

    async def _announce_and_commit(self) -> None:
        # Code that was resumed meanwhile may have set the alarm again.
        while self._is_alarm_changed:
            self._is_alarm_changed = False
            await self.announce()
        self._commit()

    def _release_soon(self, held: asyncio.Task[None]) -> None:
        # The turn after this one: those who wait for the commit itself are woken in this one, and come first.
        asyncio.get_running_loop().call_soon(self._release_held)

    def _release_held(self) -> None:
        self._held = None
        self._open()

    async def announce(self, session: Session | None = None) -> None:
        """Tell the keeper the alarm slot as the open stretch, or ``session``, is about to commit it."""
        if self._host.platform.keeping is None:
            return
        try:
            await self._alarms.announce(ANNOUNCE_SECONDS, session)
        except Exception as error:
            self._host.reset(f"the keeper could not be told about the alarm: {error}")
            raise

    def _commit_later(self) -> None:
        if self.is_dirty and self._held is None:
            try:
                self._commit()
            except PerdureError:
                log.exception("%s: an unconfirmed write was lost", self._host.id)

    def commit_now(self) -> None:
        """Commit the stretch so far, without waiting for anything.

        If it changed the alarm, the keeper is told afterwards; a death in between is made good at the next start,
        which tells it again (``AlarmRunner.resume``).
        """
        self.check()
        is_announcement_due = self._is_alarm_changed and self._host.platform.keeping is not None
        if self._host.store is not None and self._host.store.is_open_transaction:
            self._commit()
            if is_announcement_due:
                self._alarms.announce_later()

    def _commit(self) -> None:
        store = self._host.store
        assert store is not None
        self._has_confirmed = self._has_unconfirmed = self._is_alarm_changed = False
        try:
            store.commit()
        except BaseException as error:
            self.lost(error)
            raise

    def lost(self, error: BaseException) -> None:
        """A write could not be made durable: the instance ends, with all that it holds back (D9)."""
        self._host.reset(f"a write could not be made durable: {error}")

    # What the storage asks of its host

    def check(self) -> None:
        """Raise ``ObjectReset`` once the instance has ended."""
        self._host.check()

    def wrote(self, *, confirmed: bool) -> None:
        """A write joined the stretch. Writes that are not reported (journals) count as confirmed."""
        self._has_confirmed = self._has_confirmed or confirmed
        self._has_unconfirmed = self._has_unconfirmed or not confirmed

    async def durable(self) -> None:
        """Resolves when all earlier writes are durable."""
        self.check()
        if self.is_dirty:
            self._has_confirmed = True
            await _Flush(self)

    def alarm(self, at_ms: int | None) -> None:
        """The alarm slot changed in this stretch."""
        self._is_alarm_changed = True


def _settle(committed: Committed, held: asyncio.Task[None]) -> None:
    error = asyncio.CancelledError() if held.cancelled() else held.exception()
    if committed.done():
        return
    if error is None:
        committed.set_result(None)
    else:
        committed.set_exception(error)
        committed.exception()  # whoever still waits gets it; if nobody does, the reset has told


class _Flush:
    """Awaiting it ends the stretch."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._gates.end()
