"""Looks after the fibers that a death interrupted; the driver of ``fibers.core.scan``.

A scan, at boot and at every alarm, hands each row that nobody alive owns to a handler: the framework's own by the
prefix of its name, all others to the user's hook. A row is handled when its handler has returned, and not before:

    nobody's --scan--> being handled --returned--> gone
       ^                  |      |
       +------raised------+      +--takes long--> handled in the background: owned, a lease held, ends as above

A handler that is waited for no longer is never started a second time beside itself. Its object stays awake and
watched, so that idleness does not end it half-way to begin it again at the next alarm.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable

from fibers.core.scan import backoff_ms, deadline_ms, is_dropped, is_out_of_time, wait_ms
from fibers.journal import FiberJournal
from fibers.records import FiberOptions, RecoveredFiber
from runtime import Context, Lease

__all__ = ["Emit", "Handler", "Scanner"]

Handler = Callable[[RecoveredFiber], Awaitable[None] | None]
Emit = Callable[[str, dict[str, object]], None]

log = logging.getLogger("perdure")


class Scanner:
    """The scans of one object.

    Args:
        ctx: The object's context.
        journal: The rows.
        is_live: Whether a fiber runs in this life.
        on_recovered: The user's hook.
        options: Times.
        emit: Gets events: their type and payload.
        keep_alive: Takes a lease for a handler that goes on in the background.
    """

    def __init__(
        self,
        ctx: Context,
        journal: FiberJournal,
        is_live: Callable[[str], bool],
        on_recovered: Handler,
        options: FiberOptions,
        emit: Emit,
        keep_alive: Callable[[], Awaitable[Lease]],
    ) -> None:
        self._ctx = ctx
        self._journal = journal
        self._is_live = is_live
        self._on_recovered = on_recovered
        self._options = options
        self._emit = emit
        self._keep_alive = keep_alive
        self._handlers: dict[str, Handler] = {}
        self._late: set[str] = set()
        self._scans_without_progress = 0
        self._is_scanning = False

    def register(self, prefix: str, handler: Handler) -> None:
        """Let the framework handle fibers whose name begins with ``prefix``; they come before the user's."""
        self._handlers[prefix] = handler

    async def scan(self, *, is_starting: bool) -> int | None:
        """See ``FiberRunner.scan``."""
        if self._is_scanning:
            return None
        self._is_scanning = True
        try:
            left = await self._scan(is_starting)
        finally:
            self._is_scanning = False
        interval = round(self._options.keep_alive_interval * 1000)
        return backoff_ms(interval, self._scans_without_progress) if left else None

    async def _scan(self, is_starting: bool) -> int:
        """How many rows are left, those in the background included."""
        began, options = self._now_ms(), self._options
        rows = [row for row in self._journal.rows() if not self._is_live(row.id)]
        waiting = [row for row in rows if row.id not in self._late]
        waiting.sort(key=lambda row: self._handler(row) is None)  # framework fibers first (recovery F15)
        deadline = deadline_ms(_ms(options.recovery_scan_deadline), is_starting=is_starting)
        handled = 0
        for row in waiting:
            if is_out_of_time(began, self._now_ms(), deadline):
                self._emit("fiber:recovery:skipped", {**self._payload(row), "reason": "scan_deadline_exceeded"})
                break
            wait = wait_ms(
                _ms(options.recovery_hook_timeout),
                self._now_ms() - began,
                is_framework=self._handler(row) is not None,
                is_starting=is_starting,
            )
            handled += await self._recover(row, wait)
        left = len(rows) - handled
        if handled or not left:
            self._scans_without_progress = 0
        elif waiting:  # with all rows in the background, there was nothing to get done
            self._scans_without_progress += 1
        return left

    def _handler(self, row: RecoveredFiber) -> Handler | None:
        return next((handler for prefix, handler in self._handlers.items() if row.name.startswith(prefix)), None)

    async def _recover(self, row: RecoveredFiber, wait: int | None) -> bool:
        """One row; whether it is gone."""
        for kind in ("fiber:recovery:detected", "fiber:run:interrupted", "fiber:recovery:attempt"):
            self._emit(kind, self._payload(row))
        task = self._ctx.spawn(_called(self._handler(row) or self._on_recovered, row), f"recovery of {row.name}")
        if await self._has_ended(task, wait):
            return await self._settle(row, task)
        await self._let_go_on(row, task)
        return False

    async def _has_ended(self, task: asyncio.Task[None], wait: int | None) -> bool:
        if wait is None:
            await asyncio.wait({task})
            return True
        timer = asyncio.ensure_future(self._ctx.clock.sleep(wait / 1000))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return task.done()

    async def _let_go_on(self, row: RecoveredFiber, task: asyncio.Task[None]) -> None:
        try:
            lease = await self._keep_alive()
        except BaseException:
            task.cancel()  # unowned, the next scan would start it again beside itself
            raise
        log.warning("%s: the recovery of fiber %r takes long; it goes on in the background", self._ctx.id, row.name)
        self._late.add(row.id)
        self._ctx.spawn(self._end_late(row, task, lease), f"end of the recovery of {row.name}")

    async def _end_late(self, row: RecoveredFiber, task: asyncio.Task[None], lease: Lease) -> None:
        try:
            await asyncio.wait({task})
            if await self._settle(row, task):
                self._scans_without_progress = 0
        finally:
            self._late.discard(row.id)
            lease.release()

    async def _settle(self, row: RecoveredFiber, task: asyncio.Task[None]) -> bool:
        """Do with a row as its handler ended; whether it is gone."""
        if task.cancelled():
            return False  # the life ends, and the next one finds the row
        error = task.exception()
        if isinstance(error, Exception):
            return self._failed(row, error)
        if error is not None:
            raise error
        self._journal.delete(row.id)
        await self._ctx.flush()
        self._emit("fiber:recovery:handled", self._payload(row))
        return True

    def _failed(self, row: RecoveredFiber, error: Exception) -> bool:
        self._emit("fiber:recovery:failed", {**self._payload(row), "error": str(error), "reason": "handler_error"})
        if not is_dropped(round(row.created_at * 1000), self._now_ms(), _ms(self._options.recovery_max_age)):
            log.error("the recovery of fiber %r raised; it is tried again", row.name, exc_info=error)
            return False
        self._journal.delete(row.id)
        self._emit("fiber:recovery:skipped", {**self._payload(row), "reason": "max_age_exceeded"})
        log.error("the recovery of fiber %r raised; it is too old to be tried again", row.name, exc_info=error)
        return True

    def _payload(self, row: RecoveredFiber) -> dict[str, object]:
        return {
            "fiberId": row.id,
            "fiberName": row.name,
            "managed": False,
            "recoveryReason": row.recovery_reason,
            "elapsedMs": self._now_ms() - round(row.created_at * 1000),
        }

    def _now_ms(self) -> int:
        return self._ctx.clock.now_ms()


async def _called(handler: Handler, row: RecoveredFiber) -> None:
    try:
        result = handler(row)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not this task was cancelled, but one that the handler awaited; left alone it would pass for the life's end.
        raise RuntimeError("the handler awaited something that was cancelled") from error


def _ms(seconds: float) -> int:
    """Milliseconds of a limit; 0 is none."""
    return 0 if math.isinf(seconds) else round(seconds * 1000)
