"""Runs fibers and looks after those that a death interrupted; the driver of ``fibers.core.scan``.

A fiber's row is on disk before its function runs and gone when it has returned or raised, so a row that belongs to
nobody alive is work that was interrupted. A scan at boot and at every alarm hands each such row to a handler: the
framework's own by the prefix of its name, all others to the user's hook. Functions are never run again by themselves:
only the hook knows what that would do twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar
from uuid import uuid4

from fibers.core.scan import backoff_ms, is_dropped, is_out_of_time
from fibers.fiber import FiberContext, current_fiber
from fibers.journal import FIBER_STEPS, FiberJournal, to_json
from fibers.records import FiberOptions, RecoveredFiber
from runtime import Context, Lease
from runtime.errors import UsageError

__all__ = ["FIBER_STEPS", "FiberRunner"]

T = TypeVar("T")
Handler = Callable[[RecoveredFiber], Awaitable[None]]
Emit = Callable[[str, dict[str, object]], None]

log = logging.getLogger("perdure")


def _silent(kind: str, payload: dict[str, object]) -> None:
    """The default sink of events."""


class FiberRunner:
    """The fibers of one object.

    Args:
        ctx: The object's context; its tables must be made with ``FIBER_STEPS``.
        on_recovered: The user's hook.
        options: Times.
        emit: Gets events: their type and payload.
        keep_alive: Takes a lease for each fiber; the context's own by default.
    """

    def __init__(
        self,
        ctx: Context,
        on_recovered: Handler,
        options: FiberOptions | None = None,
        emit: Emit = _silent,
        keep_alive: Callable[[], Awaitable[Lease]] | None = None,
    ) -> None:
        self._ctx = ctx
        self._on_recovered = on_recovered
        self._options = options or FiberOptions()
        self._emit = emit
        self._keep_alive = keep_alive or ctx.keep_alive
        self._journal = FiberJournal(ctx.store)
        self._handlers: dict[str, Handler] = {}
        self._live: set[str] = set()
        self._scans_without_progress = 0
        self._is_scanning = False

    @property
    def live(self) -> int:
        """How many fibers run in this life."""
        return len(self._live)

    def register(self, prefix: str, handler: Handler) -> None:
        """Let the framework handle fibers whose name begins with ``prefix``; they come before the user's."""
        self._handlers[prefix] = handler

    # Running

    async def run(self, name: str, fn: Callable[[FiberContext], Awaitable[T]]) -> T:
        """Run ``fn`` as a fiber; its result or exception is the caller's (recovery F1).

        Raises:
            UsageError: The name is no text or blank.
        """
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"a fiber's name must be text that is not blank, not {name!r:.80}")
        fiber_id = self.begin(name)
        try:
            await self._ctx.flush()
            lease = await self._keep_alive()
        except BaseException:
            self._live.discard(fiber_id)
            raise
        self._emit("fiber:run:started", {"fiberId": fiber_id, "name": name})
        try:
            with self.entered(fiber_id, name) as context:
                result = await fn(context)
        except BaseException as error:
            self.end(fiber_id)
            self._emit("fiber:run:failed", {"fiberId": fiber_id, "name": name, "error": str(error)})
            raise
        finally:
            self._live.discard(fiber_id)
            lease.release()
        self.end(fiber_id)
        self._emit("fiber:run:completed", {"fiberId": fiber_id, "name": name})
        return result

    def begin(self, name: str, frame: object = None) -> str:
        """Write the row of a fiber into the caller's stretch; returns the fiber's id.

        For the framework's own fibers, which end and commit with other writes; ``frame`` is what their handler needs.
        """
        fiber_id = uuid4().hex
        text = None if frame is None else to_json(frame, "the frame")
        self._journal.insert(fiber_id, name, text, self._ctx.clock.now_ms())
        self._live.add(fiber_id)
        return fiber_id

    def end(self, fiber_id: str) -> None:
        """Remove the row in the caller's stretch."""
        self._journal.delete(fiber_id)
        self._live.discard(fiber_id)

    @contextlib.contextmanager
    def entered(self, fiber_id: str, name: str) -> Generator[FiberContext, None, None]:
        """Let the running code, and tasks that it starts, be inside this fiber (recovery F5)."""
        context = FiberContext(fiber_id, name, self, self._stash)
        token = current_fiber.set(context)
        try:
            yield context
        finally:
            current_fiber.reset(token)

    def stash(self, data: Any) -> None:
        """Replace the snapshot of the innermost fiber that the running code is in.

        Raises:
            UsageError: Outside of a fiber of this object, or no JSON.
        """
        fiber = current_fiber.get()
        if fiber is None or fiber.owner is not self:
            raise UsageError("stash() needs a fiber around it: call it inside run_fiber(name, fn)")
        self._stash(fiber.id, data)

    def _stash(self, fiber_id: str, data: Any) -> None:
        try:
            text = to_json(data, "the snapshot")
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"stash() takes JSON: {error}. The earlier snapshot stays.") from None
        if fiber_id not in self._live:
            return
        self._journal.stash(fiber_id, text)
        self._ctx.commit()
        self._ctx.progressed()

    # Scanning

    async def scan(self) -> int | None:
        """Hand over what was interrupted; milliseconds until the next scan is due, None if nothing is left.

        Not re-entrant: a second call during a scan returns at once.
        """
        if self._is_scanning:
            return None
        self._is_scanning = True
        try:
            return await self._scan()
        finally:
            self._is_scanning = False

    async def _scan(self) -> int | None:
        began = self._ctx.clock.now_ms()
        rows = [row for row in self._journal.rows() if row.id not in self._live]
        rows.sort(key=lambda row: self._handler(row) is None)  # framework fibers first (recovery F15)
        has_progress, left = False, 0
        for number, row in enumerate(rows):
            deadline = round(self._options.recovery_scan_deadline * 1000)
            if is_out_of_time(began, self._ctx.clock.now_ms(), deadline):
                left += len(rows) - number
                break
            is_done = await self._recover(row)
            has_progress = has_progress or is_done
            left += not is_done
        if not left:
            self._scans_without_progress = 0
            return None
        self._scans_without_progress = 0 if has_progress else self._scans_without_progress + 1
        interval = round(self._options.keep_alive_interval * 1000)
        return backoff_ms(interval, max(self._scans_without_progress, 1))

    def _handler(self, row: RecoveredFiber) -> Handler | None:
        return next((handler for prefix, handler in self._handlers.items() if row.name.startswith(prefix)), None)

    async def _recover(self, row: RecoveredFiber) -> bool:
        """One row; whether it is gone."""
        payload: dict[str, object] = {"fiberId": row.id, "name": row.name}
        self._emit("fiber:run:interrupted", payload)
        self._emit("fiber:recovery:detected", payload)
        handler = self._handler(row)
        try:
            if handler is None:
                await self._on_recovered(row)
            elif not await self._bounded(row, handler):
                return False
        except Exception as error:
            return self._failed(row, error)
        self._journal.delete(row.id)
        await self._ctx.flush()
        self._emit("fiber:recovery:handled", payload)
        return True

    async def _bounded(self, row: RecoveredFiber, handler: Handler) -> bool:
        """Wait for a framework handler only so long; it goes on, and its row stays until it has ended."""
        task = self._ctx.spawn(_called(handler, row), f"recovery of {row.name}")
        timer = asyncio.ensure_future(self._ctx.clock.sleep(self._options.recovery_hook_timeout))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if task.done():
            task.result()
            return True
        self._live.add(row.id)
        task.add_done_callback(lambda done: self._ended_late(row, done))
        return False

    def _ended_late(self, row: RecoveredFiber, task: asyncio.Task[None]) -> None:
        self._live.discard(row.id)
        if not task.cancelled() and task.exception() is None:
            self._ctx.spawn(self._forget(row), f"end of {row.name}")

    async def _forget(self, row: RecoveredFiber) -> None:
        self._journal.delete(row.id)

    def _failed(self, row: RecoveredFiber, error: Exception) -> bool:
        payload: dict[str, object] = {"fiberId": row.id, "name": row.name, "error": str(error)}
        age_ms_max = round(self._options.recovery_max_age * 1000)
        if is_dropped(round(row.created_at * 1000), self._ctx.clock.now_ms(), age_ms_max):
            self._journal.delete(row.id)
            self._emit("fiber:recovery:skipped", {**payload, "reason": "max_age_exceeded"})
            log.warning("fiber %r was given up: its recovery raised %s, and it is too old", row.name, error)
            return True
        self._emit("fiber:recovery:failed", payload)
        log.error("the recovery of fiber %r raised; it is tried again", row.name, exc_info=error)
        return False


async def _called(handler: Handler, row: RecoveredFiber) -> None:
    await handler(row)
