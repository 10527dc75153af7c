"""Runs fibers. A fiber's row is on disk before its function runs and gone when it has returned or raised.

So a row that belongs to nobody alive is work that was interrupted; ``fibers.scan`` looks after those. Functions are
never run again by themselves: only the hook knows what that would do twice.

    begin: row in the caller's stretch -> alarm, watch, commit -> the function -> row removed in its last stretch

The row joins what the caller wrote just before, and goes with what the function wrote last: either is one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar
from uuid import uuid4

from fibers.fiber import FiberContext, current_fiber
from fibers.journal import FIBER_STEPS, FiberJournal, to_json
from fibers.records import FiberOptions
from fibers.scan import Emit, Handler, Scanner
from runtime import Context, Lease
from runtime.errors import PerdureError, UsageError

__all__ = ["FIBER_STEPS", "FiberRunner"]

T = TypeVar("T")


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
        self._emit = emit
        self._keep_alive = keep_alive or ctx.keep_alive
        self._journal = FiberJournal(ctx.store)
        self._live: dict[str, str] = {}  # names by id
        self._scanner = Scanner(
            ctx,
            self._journal,
            self._live.__contains__,
            on_recovered,
            options or FiberOptions(),
            emit,
            self._keep_alive,
        )

    @property
    def live(self) -> int:
        """How many fibers run in this life."""
        return len(self._live)

    def register(self, prefix: str, handler: Handler) -> None:
        """Let the framework handle fibers whose name begins with ``prefix``; they come before the user's."""
        self._scanner.register(prefix, handler)

    async def scan(self, *, is_starting: bool = False) -> int | None:
        """Hand over what was interrupted; milliseconds until the next scan is due, None if nothing is left.

        Not re-entrant: a second call during a scan returns at once.

        Args:
            is_starting: Whether the object's start-up waits for it, and with it every caller. Then no handler is
                waited for until the start-up is over time; those that take longer go on in the background.
        """
        return await self._scanner.scan(is_starting=is_starting)

    async def run(self, name: str, fn: Callable[[FiberContext], Awaitable[T]]) -> T:
        """Run ``fn`` as a fiber; its result or exception is the caller's (recovery F1).

        Raises:
            UsageError: The name is no text or blank.
        """
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"a fiber's name must be text that is not blank, not {name!r:.80}")
        fiber_id = self.begin(name)
        lease: Lease | None = None
        try:
            lease = await self._keep_alive()
            await self._ctx.flush()
            with self.entered(fiber_id, name) as context:
                result = await fn(context)
            self._ctx.writing()
            self.end(fiber_id)
            return result
        except (Exception, asyncio.CancelledError) as error:
            # Anything else ends the process or the coroutine, not the work: that was interrupted, and its row stays.
            self._give_up(fiber_id, error)
            raise
        finally:
            self._live.pop(fiber_id, None)
            if lease is not None:
                lease.release()

    def _give_up(self, fiber_id: str, error: BaseException) -> None:
        with contextlib.suppress(PerdureError):  # the instance has ended, and its storage with it: the row stays
            self._ctx.writing()
            self._ended(fiber_id, "fiber:run:failed", {"error": str(error)})

    def begin(self, name: str, frame: object = None) -> str:
        """Write the row of a fiber into the caller's stretch; returns the fiber's id.

        For the framework's own fibers, which end and commit with other writes; ``frame`` is what their handler needs.
        """
        fiber_id = uuid4().hex
        text = None if frame is None else to_json(frame, "the frame")
        self._journal.insert(fiber_id, name, text, self._ctx.clock.now_ms())
        self._live[fiber_id] = name
        self._emit("fiber:run:started", {"fiberId": fiber_id, "fiberName": name, "managed": False})
        return fiber_id

    def end(self, fiber_id: str) -> None:
        """Remove the row in the caller's stretch; one that is gone is no error."""
        self._ended(fiber_id, "fiber:run:completed", {})

    def _ended(self, fiber_id: str, kind: str, more: dict[str, object]) -> None:
        self._journal.delete(fiber_id)
        name = self._live.pop(fiber_id, None)
        if name is not None:
            self._emit(kind, {"fiberId": fiber_id, "fiberName": name, "managed": False, **more})

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
            UsageError: Outside of a fiber of this object, inside ``transaction_sync``, or no JSON.
        """
        fiber = current_fiber.get()
        if fiber is None or fiber.owner is not self:
            raise UsageError("stash() needs a fiber around it: call it inside run_fiber(name, fn)")
        self._stash(fiber.id, data)

    def _stash(self, fiber_id: str, data: Any) -> None:
        text = to_json(data, "what stash() is given")
        if fiber_id not in self._live:
            return
        if self._ctx.storage.is_in_transaction_sync:
            raise UsageError(
                "stash() is on disk on return, and would take with it what transaction_sync may yet undo: "
                "call it behind the transaction; both are one commit unless something is awaited in between"
            )
        self._ctx.writing()
        self._journal.stash(fiber_id, text)
        self._ctx.commit()
        self._ctx.progressed()
