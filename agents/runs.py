"""The two ends of a run: what is written before its first step, and what behind its last.

Each end is one stretch, so one commit. The beginning stores the user's messages, the repairs of the transcript (turns
A4), the head of the stream and the fiber with its snapshot (recovery T1, T2): from then on a crash finds the run. The
end stores the assistant message, the outcome, and removes the fiber: from then on nothing revives it.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec

from agents.core.chunks import Finish, Start, ToolOutputError
from agents.core.repair import INTERRUPTED_TEXT, keep_outcomes, repair_transcript
from agents.core.transcript import MessageBuilder, is_settled
from agents.core.turn import FinishTurn
from agents.recovery import FIBER_PREFIX, TurnFibers, has_content, snapshot_of
from agents.sessions.messages import UIMessage, is_tool_part, message_from_object
from agents.sessions.session import Session
from agents.streams import StreamLog, StreamWriter
from agents.submissions import ChatRequest, Outcome, Status, Submission, Submissions
from agents.turns import Turn
from runtime import Context

__all__ = ["Run", "Runs"]

CHANGED = "The conversation changed while the turn was interrupted, so it was not continued."

_replace = msgspec.structs.replace
_request_decoder = msgspec.json.Decoder(ChatRequest)
_ENDS: dict[str, tuple[Status, Outcome]] = {
    "completed": ("completed", "done"),
    "aborted": ("aborted", "aborted"),
    "error": ("error", "error"),
}


class Run:
    """A turn in its slot.

    Attributes:
        row: Its submission as it is stored.
        turn: What the steps work on.
        stream: What it has shown.
        fiber_id: Its fiber; empty without recovery.
        repaired: Calls of its message whose outcome the stream does not have yet.
        abort_reason: Why it is to stop; None while nobody wants that.
        has_setup: The agent was asked, and answered.
    """

    def __init__(self, row: Submission, turn: Turn, stream: StreamLog, fiber_id: str, repaired: list[str]) -> None:
        self.row = row
        self.turn = turn
        self.stream = stream
        self.fiber_id = fiber_id
        self.repaired = repaired
        self.abort_reason: str | None = None
        self.has_setup = False
        self.is_begun = False
        self.is_ending = False
        self.task: asyncio.Task[None] | None = None

    def abort(self, reason: str) -> None:
        """Stop the turn, unless it is at its end already."""
        if self.abort_reason is None and not self.is_ending:
            self.abort_reason = reason
            # A task that is cancelled before its first step never runs, and the turn's end would not be written.
            if self.task is not None and self.is_begun:
                self.task.cancel()

    def open_stream(self) -> None:
        """Put on the stream what goes before the first step."""
        if self.row.first_number == 1:
            self.turn.put(Start(self.row.message_id))
        for call_id in self.repaired:
            self.turn.put(ToolOutputError(call_id, INTERRUPTED_TEXT))


class Runs:
    """Begins and ends the runs of one agent."""

    def __init__(self, ctx: Context, session: Session, submissions: Submissions, fibers: TurnFibers) -> None:
        self._ctx = ctx
        self._session = session
        self._submissions = submissions
        self._fibers = fibers

    def begin(self, row: Submission, stream: StreamLog, *, is_recovered: bool) -> Run | None:
        """Write the start of a run; None if there is nothing to run, and then the row is final.

        Args:
            row: The pending submission.
            stream: Its stream, with what earlier runs have shown.
            is_recovered: Whether recovery takes over when the process dies.
        """
        aborted: str | None = None
        if row.kind == "new":
            row, aborted = self._accept(row)
            if row.is_final:
                return None
        before = self._session.get_history()
        history, changed = repair_transcript(before)
        for message in changed:
            self._session.update_message(message)
        builder = MessageBuilder(row.message_id or uuid4().hex)
        repaired: list[str] = []
        if row.kind == "continue":
            if not history or history[-1].id != row.message_id:
                self.end(row, "aborted", CHANGED)
                return None
            message = history.pop()
            builder = MessageBuilder(message.id, message.parts, metadata=message.metadata, is_continuation=True)
            repaired = _open_calls(before[-1])
        row = self._started(row, builder, history, stream.number + 1)
        fiber_id = ""
        if is_recovered:
            fiber_id = self._fibers.begin(FIBER_PREFIX + row.request_id, snapshot_of(row, history))
        run = Run(row, self._turn(row, builder, history, stream), stream, fiber_id, repaired)
        run.turn.store_failures = lambda failures: self.update(run, model_failures=failures)
        run.abort_reason = aborted
        return run

    def update(self, run: Run, **changes: object) -> None:
        """Change the row of a run."""
        run.row = self._submissions.save(_replace(run.row, **changes))

    async def finish(self, run: Run, finish: FinishTurn, *, keeps_reasoning: bool) -> Submission:
        """Write the end of a run; on return it is durable, and nobody was told yet."""
        turn = run.turn
        if finish.outcome == "completed":
            turn.put(Finish(finish.finish_reason))
        turn.builder.finish()
        await turn.durable()
        turn.writer.close()
        message = turn.builder.message()
        if not keeps_reasoning:
            shown = [part for part in message.parts if part.get("type") != "reasoning"]
            message = _replace(message, parts=shown)
        if has_content(message.parts):
            self._session.save_message(keep_outcomes(message, self._session.get_message(message.id)))
        row = _replace(run.row, number=run.stream.number, owes_response=run.has_setup)
        row = self.end(row, finish.outcome, finish.text)
        if run.fiber_id:
            self._fibers.end(run.fiber_id)
        await self._ctx.flush()
        return row

    def end(self, row: Submission, outcome: str, text: str) -> Submission:
        """Make a row final."""
        status, shown = _ENDS[outcome]
        now = self._ctx.clock.now_ms()
        return self._submissions.save(
            _replace(row, status=status, outcome=shown, error=text, request=b"", ended_at_ms=now)
        )

    def _accept(self, row: Submission) -> tuple[Submission, str | None]:
        """Store what was asked; returns the reason if its signal had fired before."""
        try:
            request = _request_decoder.decode(row.request)
            messages = [message_from_object(message) for message in request.messages]
        except msgspec.DecodeError as error:
            return self.end(row, "error", f"The request cannot be read: {error}"), None
        for message in messages:
            self._session.append_message(message)
        return _replace(row, client_tools=request.client_tools), request.aborted

    def _started(
        self, row: Submission, builder: MessageBuilder, history: list[UIMessage], first_number: int
    ) -> Submission:
        started = _replace(
            row,
            status="running",
            request=b"",
            message_id=builder.message_id,
            parent_id=history[-1].id if history else None,
            begin_parts=len(builder.parts),
            first_number=first_number,
            attempts=_replace(row.attempts, has_begun=True),
            started_at_ms=row.started_at_ms or self._ctx.clock.now_ms(),
        )
        return self._submissions.save(started)

    def _turn(self, row: Submission, builder: MessageBuilder, history: list[UIMessage], stream: StreamLog) -> Turn:
        ctx = self._ctx
        return Turn(
            request_id=row.request_id,
            history=history,
            builder=builder,
            writer=StreamWriter(ctx.store, stream, row.request_id, ctx.clock.now_ms, ctx.progressed),
            clock=ctx.clock,
            flush=ctx.flush,
            failures=row.model_failures,
        )


def _open_calls(message: UIMessage) -> list[str]:
    """The calls that the repair gives an outcome."""
    return [
        str(part.get("toolCallId"))
        for part in message.parts
        if is_tool_part(part) and not is_settled(part) and part.get("state") != "approval-responded"
    ]
