"""What becomes of a turn whose process died: the glue from its fiber to ``core.interruption``.

The fiber's row says that a run was interrupted. The run's frames are replayed into the message that it was writing
(recovery T6, T7), ``core.interruption`` decides, and what it decides is written in one stretch, so in one commit: the
partial message, the submission in its next state, and the end of the fiber. A crash before it leaves everything as it
was, one behind it finds a submission in the queue. A retry or continuation is a run of the same submission with the
next number: events go on behind the last one that was journalled, and what readers saw is never taken back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from agents.core.chunks import JsonObject
from agents.core.interruption import (
    Attempts,
    Choice,
    Continue,
    Decision,
    GiveUp,
    Leaf,
    Retry,
    Settle,
    Snapshot,
    Stream,
    count_attempt,
    decide,
)
from agents.core.repair import INTERRUPTED_TEXT, keep_outcomes
from agents.core.streams import unpack
from agents.core.transcript import MessageBuilder, is_settled, rebuild
from agents.sessions.messages import UIMessage
from agents.sessions.session import Session
from agents.streams import stored_frames
from agents.submissions import Submission, Submissions
from fibers import RecoveredFiber
from runtime import Store

__all__ = ["FIBER_PREFIX", "ChatSnapshot", "TurnFibers", "interrupt", "recover", "snapshot_of"]

FIBER_PREFIX = "cf:chat:"

_replace = msgspec.structs.replace

# Chunks that show progress (recovery R3). Ends, starts of inputs and the outcomes that repair invents show none.
PROGRESS = frozenset(
    (
        "text-start",
        "text-delta",
        "reasoning-start",
        "reasoning-delta",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
    )
)
GIVEN_UP = "The turn was given up: it was interrupted {count} times in a row without any progress ({reason})."
NOT_RECOVERED = "The agent's process ended during the turn, and its recovery is switched off (chat_recovery = False)."
UNFINISHED = "The agent's recovery hook chose not to continue the interrupted turn."


class TurnFibers(Protocol):
    """The fibers of an agent, as far as its turns use them; ``fibers.FiberRunner`` is one."""

    def register(self, prefix: str, handler: Callable[[RecoveredFiber], Awaitable[None]]) -> None:
        """Let a handler have the interrupted fibers whose names begin so."""
        ...

    def begin(self, name: str, frame: object = None) -> str:
        """Write the row of a fiber in the caller's stretch; returns its id."""
        ...

    def end(self, fiber_id: str) -> None:
        """Remove the row in the caller's stretch; one that is gone is no error."""
        ...

    def entered(self, fiber_id: str, name: str) -> AbstractContextManager[object]:
        """Let the running code be inside this fiber, so that it may stash."""
        ...


class ChatSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The first snapshot of a turn's fiber (recovery T1)."""

    version: int = 1
    request_id: str
    recovery_root_request_id: str
    continuation: bool
    latest_message_id: str = ""
    latest_message_role: str = ""
    latest_user_message_id: str = ""
    started_at_ms: int = 0
    last_body: JsonObject | None = None
    last_client_tools: list[JsonObject] | None = None


def snapshot_of(row: Submission, history: Iterable[UIMessage]) -> JsonObject:
    """The snapshot for a run that is about to start; its message is not in the history.

    It is the frame of the fiber, beside what user code stashes, so neither overwrites the other (T1).
    """
    messages = list(history)
    leaf = messages[-1] if messages else None
    user = next((message for message in reversed(messages) if message.role == "user"), None)
    snapshot = ChatSnapshot(
        request_id=row.request_id,
        recovery_root_request_id=row.root,
        continuation=row.kind == "continue",
        # A continuation's message is the latest one already, without what this run will add to it.
        latest_message_id=row.message_id if row.kind == "continue" else leaf.id if leaf else "",
        latest_message_role="assistant" if row.kind == "continue" else leaf.role if leaf else "",
        latest_user_message_id=user.id if user else "",
        started_at_ms=row.started_at_ms,
        last_client_tools=row.client_tools,
    )
    return msgspec.to_builtins(snapshot)  # type: ignore[no-any-return]  # a Struct becomes a dict


class _Wreck:
    """What an interrupted run left behind."""

    def __init__(self, store: Store, session: Session, row: Submission) -> None:
        self.stored = session.get_message(row.message_id)
        begin_parts = self.stored.parts[: row.begin_parts] if self.stored is not None else []
        chunks = [chunk for frame in stored_frames(store, row.root, row.first_number) for chunk in unpack(frame)]
        self.builder: MessageBuilder = rebuild(
            begin_parts,
            chunks,
            message_id=row.message_id,
            metadata=self.stored.metadata if self.stored is not None else None,
            is_continuation=row.kind == "continue",
        )
        self.number = row.first_number - 1 + len(chunks)
        self.progress = row.progress + sum(map(_is_progress, chunks))

    @property
    def stream(self) -> Stream:
        parts = self.builder.parts
        return Stream(
            state="ended" if self.builder.is_finished else "active",
            message_id=self.builder.message_id,
            has_parts=has_content(parts),
            has_settled_tool=any(is_settled(part) for part in parts),
        )

    def persist(self, session: Session) -> None:
        """Store the partial message; repeatable without doubling or losing it."""
        self.builder.finish()
        session.save_message(keep_outcomes(self.builder.message(), self.stored))


def recover(
    store: Store,
    session: Session,
    submissions: Submissions,
    row: Submission,
    snapshot: object,
    now_ms: int,
    choose: Callable[[], Choice] = Choice,
) -> Submission:
    """Decide about an interrupted run and write what follows; the caller removes the fiber in the same stretch.

    Args:
        store: The agent's database.
        session: The conversation.
        submissions: The queue.
        row: The run; it is running, and not here.
        snapshot: Of its fiber, as it was stored.
        now_ms: The time.
        choose: Asks the recovery hook; not asked once the attempts are used up.

    Returns:
        The row as it is now: pending, or final.
    """
    wreck = _Wreck(store, session, row)
    attempts = count_attempt(row.attempts, wreck.progress)
    leaf = session.get_latest_leaf()
    decision = decide(
        _snapshot(snapshot),
        wreck.stream,
        Leaf(message_id=leaf.id, role=leaf.role) if leaf is not None else Leaf(),
        attempts,
        choose(),
    )
    if decision.persist:
        wreck.persist(session)
    counted = _replace(row, number=wreck.number, progress=wreck.progress, attempts=attempts)
    decided = _decided(counted, decision, attempts, now_ms)
    return submissions.save(_replace(decided, owes_response=decided.is_final))


def _decided(row: Submission, decision: Decision, attempts: Attempts, now_ms: int) -> Submission:
    if row.is_cancelled:
        return _replace(row, status="aborted", outcome="aborted", ended_at_ms=now_ms)
    match decision:
        case Retry():
            return _replace(row, status="pending", kind="retry", run=row.run + 1)
        case Continue():
            kind = "continue" if decision.target_message_id else "retry"
            target = decision.target_message_id or row.message_id
            failures = 0 if attempts.count == 1 else row.model_failures
            return _replace(
                row, status="pending", kind=kind, run=row.run + 1, message_id=target, model_failures=failures
            )
        case Settle(reason="stream_terminal"):
            return _replace(row, status="completed", outcome="done", ended_at_ms=now_ms)
        case Settle():
            return _replace(row, status="error", outcome="error", error=UNFINISHED, ended_at_ms=now_ms)
        case GiveUp():
            text = GIVEN_UP.format(count=attempts.count - 1, reason=decision.reason)
            return _replace(row, status="error", outcome="error", error=text, ended_at_ms=now_ms)


def interrupt(store: Store, session: Session, submissions: Submissions, row: Submission, now_ms: int) -> Submission:
    """End a run that nobody recovers: what there is of its message is stored."""
    wreck = _Wreck(store, session, row)
    if wreck.stream.has_parts:
        wreck.persist(session)
    outcome = "aborted" if row.is_cancelled else "done" if wreck.builder.is_finished else "interrupted"
    status = {"aborted": "aborted", "done": "completed", "interrupted": "error"}[outcome]
    text = NOT_RECOVERED if outcome == "interrupted" else row.error
    return submissions.save(
        _replace(row, status=status, outcome=outcome, error=text, number=wreck.number, ended_at_ms=now_ms)
    )


def has_content(parts: Iterable[JsonObject]) -> bool:
    """Whether the parts hold more than the beginnings of steps; a message without any is never stored (T7)."""
    return any(part.get("type") != "step-start" for part in parts)


def _snapshot(snapshot: object) -> Snapshot | None:
    try:
        known = msgspec.convert(snapshot, ChatSnapshot)
    except msgspec.ValidationError:
        return None
    return Snapshot(
        is_continuation=known.continuation,
        latest_message_id=known.latest_message_id,
        latest_user_message_id=known.latest_user_message_id,
    )


class _Progress(msgspec.Struct):
    type: str = ""
    error_text: str = msgspec.field(name="errorText", default="")


_progress_decoder = msgspec.json.Decoder(_Progress)


def _is_progress(chunk: msgspec.Raw) -> bool:
    try:
        seen = _progress_decoder.decode(chunk)
    except msgspec.DecodeError:
        return False
    return seen.type in PROGRESS and seen.error_text != INTERRUPTED_TEXT
