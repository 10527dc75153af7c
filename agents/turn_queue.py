"""One turn at a time: takes submissions in order, gives each its slot, and tells who waits (turns Q1-Q5).

    accepted -> slot: the run begins in one commit -> steps -> the run ends in one commit -> shown -> hook

Readers see the end of a turn only when it is stored, so whoever has seen it finds the message (turns C2). Hooks run
behind that, one after another and outside of the slot, so that they may start turns themselves (turns H9).

A turn runs in a task of its own. ``cancel`` cancels that task and marks why; a cancellation without a mark is the end
of the instance, on which nothing is written: the next instance finds the fiber and recovers (``agents.recovery``).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from typing import Protocol

import msgspec

from agents.core.turn import FinishTurn
from agents.errors import UnknownTurn
from agents.prompts import Prompting, WorkspaceTools, prepare
from agents.recovery import FIBER_PREFIX, TurnFibers, interrupt, recover
from agents.retention import sweep
from agents.runs import Run, Runs
from agents.sessions.messages import UIMessage, message_to_object
from agents.sessions.session import Session
from agents.streams import END_ONLY, Ending, StreamLog
from agents.submissions import Submission, Submissions
from agents.turns import current_turn, error_text, run_steps
from fibers import RecoveredFiber
from runtime import Context, Lease
from runtime.errors import ObjectReset, StorageFailed

__all__ = ["Awake", "ChatAgent", "ChatResponse", "TurnQueue"]

log = logging.getLogger("perdure")

_replace = msgspec.structs.replace


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What ``on_chat_response`` is told (turns H9).

    Attributes:
        message: The assistant message; without parts if the turn brought none.
        request_id: The run that ended the turn.
        continuation: Whether that run continued an earlier one.
        status: completed, error or aborted.
        error: The text of the error.
    """

    message: UIMessage
    request_id: str
    continuation: bool
    status: str
    error: str | None = None


class ChatAgent(Prompting, Protocol):
    """The agent whose turns these are."""

    chat_recovery: bool

    def on_chat_response(self, response: ChatResponse) -> Awaitable[None] | None:
        """A turn has ended."""
        ...


class Awake(Protocol):
    """What keeps an agent awake, and wakes it; ``agents.keepalive.KeepAlive`` is one."""

    async def acquire(self) -> Lease:
        """Hold the agent awake and watched."""
        ...

    async def wake_at(self, at_ms: int | None) -> None:
        """Have an alarm at that time too, in place of the one that was asked for before."""
        ...


class TurnQueue:
    """The turns of one agent.

    Args:
        agent: Whose turns.
        ctx: Its context.
        session: Its conversation.
        fibers: The fibers of its turns.
        awake: The agent's leases and its alarm.
    """

    def __init__(
        self,
        agent: ChatAgent,
        ctx: Context,
        session: Session,
        fibers: TurnFibers,
        awake: Awake,
    ) -> None:
        self._agent = agent
        self._ctx = ctx
        self._awake = awake
        self._session = session
        self._submissions = Submissions(ctx.store, ctx.clock.now_ms)
        self._fibers = fibers
        fibers.register(FIBER_PREFIX, self._recover)
        self._runs = Runs(ctx, session, self._submissions, fibers)
        self._workspace_tools = WorkspaceTools()
        self._logs: dict[str, StreamLog] = {}
        self._run: Run | None = None
        self._wake = asyncio.Event()
        self._lease: Lease | None = None
        self._responses: deque[Submission] = deque()
        self._is_responding = False
        self._is_started = False

    # Accepting and following

    async def accept(self, request: bytes | None, request_id: str) -> StreamLog:
        """The stream of a turn, which is accepted if it is not known yet; durable before anything leaves the object.

        Raises:
            UnknownTurn: There is no such turn and no request for one.
        """
        row = self._submissions.get(request_id)
        if row is None and request is None:
            raise UnknownTurn(f"there is no turn {request_id!r}; it was never started, or ended over a day ago")
        if row is None or not row.is_final:
            # Watched before the turn exists: then nothing can be accepted and forgotten.
            await self._stay_awake()
            row = self._submissions.get(request_id)
        if row is None:
            assert request is not None
            row = self._submissions.add(request_id, request)
            await self._ctx.flush()
        self._wake.set()
        return self._stream(row)

    async def follow(self, request: bytes | None, request_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """Accept a turn if it is not known, then the items of its stream behind ``after``; see ``StreamLog.follow``.

        Raises:
            UnknownTurn: There is no such turn and no request for one.
        """
        stream = await self.accept(request, request_id)
        async with contextlib.aclosing(stream.follow(after)) as items:
            async for item in items:
                yield self._with_message(stream) if after >= END_ONLY else item

    def _stream(self, row: Submission) -> StreamLog:
        if row.is_final:
            return StreamLog(self._ctx.store, row.root, row.number, _ending(row))
        stream = self._logs.get(row.root)
        if stream is None:
            stream = self._logs[row.root] = StreamLog(self._ctx.store, row.root, row.number)
        return stream

    def _with_message(self, stream: StreamLog) -> bytes:
        assert stream.ending is not None, f"turn {stream.root} has not ended"
        message = self._session.get_message(stream.ending.message_id)
        value = message_to_object(message) if message is not None else None
        return msgspec.json.encode(_replace(stream.ending, message=value))

    async def _stay_awake(self) -> None:
        if self._lease is None:
            lease = await self._awake.acquire()
            if self._lease is None:
                self._lease = lease
            else:
                lease.release()

    def open_turns(self) -> list[str]:
        """The request ids of turns that have not ended, in order."""
        return [row.root for row in (*self._submissions.running(), *self._submissions.pending())]

    # Cancelling

    async def cancel(self, request_id: str, reason: str) -> None:
        """Abort a turn, wherever its chain stands; an id that is not known, or a turn that is over, is no error."""
        row = self._submissions.get(request_id)
        if row is None or row.is_final:
            return
        run = self._run
        if run is None or run.row.root != row.root:
            row = _replace(row, is_cancelled=True, owes_response=row.started_at_ms > 0)
            row = self._runs.end(row, "aborted", reason)
            await self._ctx.flush()
            self._show_end(row)
        elif not run.is_ending:
            self._runs.update(run, is_cancelled=True, error=reason)
            run.abort(reason)
            await self._ctx.flush()

    async def abort_all(self) -> None:
        """Abort the turn in its slot; the queue stays (turns X1)."""
        if self._run is not None:
            await self.cancel(self._run.row.root, "all requests were aborted")

    # Recovery

    async def _recover(self, fiber: RecoveredFiber) -> None:
        """Take over an interrupted run; what it becomes and the end of its fiber are one stretch (recovery W7)."""
        request_id = fiber.name.removeprefix(FIBER_PREFIX)
        row = self._submissions.get(request_id)
        if row is not None and row.status == "running" and row.request_id == request_id:
            store, now = self._ctx.store, self._ctx.clock.now_ms()
            if self._agent.chat_recovery is False:
                interrupt(store, self._session, self._submissions, row, now)
            else:
                row = recover(store, self._session, self._submissions, row, fiber.frame, now)
                if row.is_final:
                    self._respond(row)
        self._fibers.end(fiber.id)
        await self._ctx.flush()

    async def start(self) -> None:
        """Begin to take turns: once a life, when all fibers of interrupted runs were looked at."""
        for row in self._submissions.running():  # they have no fiber
            interrupt(self._ctx.store, self._session, self._submissions, row, self._ctx.clock.now_ms())
        self._responses.extendleft(reversed(self._submissions.owing()))
        self._is_started = True
        self._begin_responding()
        await self.sweep()
        self._ctx.spawn(self._take_turns(), "chat turns")

    async def sweep(self) -> None:
        """Remove what is not kept any more, and see to the next sweep (recovery S1)."""
        await self._awake.wake_at(sweep(self._ctx.store, self._submissions, self._ctx.clock.now_ms))

    # The slot

    async def _take_turns(self) -> None:
        while True:
            row = next(iter(self._submissions.pending()), None)
            if row is None:
                self._wake.clear()
                await self._rest()
                await self._wake.wait()
                continue
            try:
                await self._stay_awake()
                await self._take(row.root)
            except Exception as error:
                # What a turn itself raises became its outcome: here the storage failed, and nothing can be promised.
                log.exception("%s: turn %s could not be stored", self._ctx.id, row.root)
                self._ctx.abort(f"turn {row.root} could not be stored: {error}")

    async def _rest(self) -> None:
        """The queue is empty: what kept the agent awake is let go."""
        await self.sweep()
        if self._lease is not None and not self._is_responding and not self._submissions.pending():
            self._lease.release()
            self._lease = None

    async def _take(self, root: str) -> None:
        """Give a submission its slot and wait until it is over."""
        row = self._submissions.get(root)
        if row is None or row.status != "pending":  # cancelled meanwhile
            return
        mark = self._ctx.store.mark()
        try:
            run = self._runs.begin(row, self._stream(row), is_recovered=self._agent.chat_recovery is not False)
        except (ObjectReset, StorageFailed):
            raise
        except Exception as error:
            # Left pending, it would be first in the queue for ever, and nothing behind it would have its turn.
            log.warning("%s: turn %s could not begin", self._ctx.id, root, exc_info=error)
            self._ctx.store.rollback(mark)
            self._runs.end(row, "error", error_text(error))
            run = None
        self._run = run
        await self._ctx.flush()
        if run is None:
            row = self._submissions.get(root)
            assert row is not None
            self._show_end(row)
            return
        run.task = asyncio.create_task(self._execute(run), name=f"turn {root}")
        try:
            await run.task
        finally:
            self._run = None
        row = self._submissions.get(root)
        assert row is not None
        assert row.is_final, f"turn {root} left its slot as {row.status}"
        self._show_end(row)

    async def _execute(self, run: Run) -> None:
        """Run a turn to its end, whatever that is, and store it."""
        current_turn.set(self._ctx.id)
        run.is_begun = True
        agent = self._agent
        try:
            if run.abort_reason is not None:
                finish = FinishTurn(outcome="aborted", text=run.abort_reason)
            else:
                with self._inside(run):
                    finish = await self._steps(run)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if run.abort_reason is None or task is None:
                raise
            task.uncancel()
            finish = FinishTurn(outcome="aborted", text=run.abort_reason)
        except Exception as error:
            log.warning("%s: turn %s failed", self._ctx.id, run.row.root, exc_info=error)
            finish = FinishTurn(outcome="error", text=error_text(error))
        run.is_ending = True
        await self._runs.finish(run, finish, keeps_reasoning=agent.send_reasoning)

    def _inside(self, run: Run) -> contextlib.AbstractContextManager[object]:
        """Where the turn's code runs: in its fiber, if it has one, so that tools may stash."""
        if not run.fiber_id:
            return contextlib.nullcontext()
        return self._fibers.entered(run.fiber_id, FIBER_PREFIX + run.row.request_id)

    async def _steps(self, run: Run) -> FinishTurn:
        run.open_stream()
        inference = await prepare(self._agent, self._workspace_tools, run.row.client_tools)
        run.has_setup = True
        return await run_steps(run.turn, inference)

    def _show_end(self, row: Submission) -> None:
        """Tell the readers of a turn, then the hook."""
        stream = self._logs.pop(row.root, None)
        if stream is not None:
            stream.finish(_ending(row))
        if row.owes_response:
            self._respond(row)

    # The hook

    def _respond(self, row: Submission) -> None:
        self._responses.append(row)
        self._begin_responding()

    def _begin_responding(self) -> None:
        if self._responses and self._is_started and not self._is_responding:
            self._is_responding = True
            self._ctx.spawn(self._call_hook(), "on_chat_response")

    async def _call_hook(self) -> None:
        """Call the hook for each turn that ended, one after another; the object stays awake for it.

        What a turn owes is part of its end, and paid in the commit of the hook's last writes: one that a death
        interrupts is called again (FR-05).
        """
        await self._stay_awake()
        while self._responses:
            row = self._responses.popleft()
            try:
                answer = self._agent.on_chat_response(self._response(row))
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("%s: on_chat_response raised", self._ctx.id)
            paid = self._submissions.get(row.root)
            if paid is not None:
                self._submissions.save(_replace(paid, owes_response=False))
        self._is_responding = False
        self._wake.set()

    def _response(self, row: Submission) -> ChatResponse:
        message = self._session.get_message(row.message_id)
        return ChatResponse(
            message=message if message is not None else UIMessage(row.message_id, "assistant", []),
            request_id=row.request_id,
            continuation=row.kind == "continue",
            status=row.status,
            error=row.error if row.status == "error" else None,
        )


def _ending(row: Submission) -> Ending:
    assert row.outcome is not None, f"turn {row.root} is {row.status} without an outcome"
    return Ending(
        end=row.outcome,
        error=row.error,
        request_id=row.request_id,
        message_id=row.message_id,
        number=row.number,
    )
