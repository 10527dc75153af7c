"""What becomes of a chat turn whose process died (recovery W2, W5, W6), with a plain cap on attempts.

A turn leaves three things behind: the snapshot of its fiber, its stream, and the newest message of the conversation
(the leaf). They say how far it came; the first line that fits is done, and first the partial message is stored if
``persist`` is set.

    what is left                                            decision
    more than 10 attempts in a row without progress         GiveUp
    the stream has its end                                  Settle: no model call, only the bookkeeping
    the recovery hook said not to continue                  Settle
    no answer begun: the leaf is still the turn's question  Retry
    else                                                    Continue, in the message that the leaf then is

Attempts count only in a row without progress (FR-02): a turn that moves on survives any number of restarts. Several
wakes for one interruption count once, because only a try that began to run can have failed.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "ATTEMPTS_MAX",
    "Attempts",
    "Choice",
    "Continue",
    "Decision",
    "GiveUp",
    "Leaf",
    "Retry",
    "Settle",
    "Snapshot",
    "Stream",
    "count_attempt",
    "decide",
]

ATTEMPTS_MAX = 10


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the turn's fiber knew before its first model call (recovery T1)."""

    is_continuation: bool
    latest_message_id: str = ""
    latest_user_message_id: str = ""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The turn's newest stream, and the message that its chunks make.

    ``state`` is "none" if no stream row was written; "ended" if its row says completed or error, or its chunks hold
    the turn's end. ``has_parts`` and ``has_settled_tool`` describe the rebuilt message, ``message_id`` names it.
    """

    state: Literal["none", "active", "ended"] = "none"
    message_id: str = ""
    has_parts: bool = False
    has_settled_tool: bool = False


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """The newest message of the conversation; no id if there is none."""

    message_id: str = ""
    role: str = ""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Tries in a row without progress. ``progress`` is the agent's counter (recovery R3) at the last count."""

    count: int = 0
    progress: int = 0
    has_begun: bool = False


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent's recovery hook chose (recovery W4)."""

    persist: bool = True
    is_continued: bool = True


class Retry(msgspec.Struct, frozen=True, kw_only=True, tag="retry"):
    """Answer the user's message from the start."""

    user_message_id: str
    persist: bool = False


class Continue(msgspec.Struct, frozen=True, kw_only=True, tag="continue"):
    """Go on in the interrupted message; no target if the leaf is not the assistant's."""

    target_message_id: str = ""
    persist: bool = False


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag="settle"):
    """The turn is over: nothing is run."""

    reason: Literal["stream_terminal", "continue_disabled"]
    persist: bool = False


class GiveUp(msgspec.Struct, frozen=True, kw_only=True, tag="give-up"):
    """Recovery ends without an answer; the reason is stored and shown."""

    reason: Literal["max_attempts_exceeded"] = "max_attempts_exceeded"
    persist: bool = False


Decision: TypeAlias = Retry | Continue | Settle | GiveUp


def count_attempt(attempts: Attempts, progress: int) -> Attempts:
    """The count at a wake; the driver sets ``has_begun`` when a try begins to run (recovery R4.6)."""
    if attempts.count == 0 or progress > attempts.progress:
        return Attempts(count=1, progress=progress)
    if not attempts.has_begun:
        return attempts
    return Attempts(count=attempts.count + 1, progress=attempts.progress)


_ASK_NOBODY = Choice()


def decide(
    snapshot: Snapshot | None, stream: Stream, leaf: Leaf, attempts: Attempts, choice: Choice = _ASK_NOBODY
) -> Decision:
    """What to do with an interrupted turn; ``persist`` says to store the partial message first.

    Args:
        snapshot: None if the stored one cannot be read.
        stream: The turn's stream.
        leaf: The newest message, before the partial one is stored.
        attempts: As ``count_attempt`` returned it.
        choice: What the recovery hook said; it is not asked, so leave it out, when the attempts are used up.
    """
    if attempts.count > ATTEMPTS_MAX:
        return GiveUp(persist=_must_persist(snapshot, stream, leaf, _ASK_NOBODY))
    persist = _must_persist(snapshot, stream, leaf, choice)
    if stream.state == "ended":
        return Settle(reason="stream_terminal", persist=persist)
    if not choice.is_continued:
        return Settle(reason="continue_disabled", persist=persist)
    if persist:
        return Continue(target_message_id=stream.message_id, persist=True)
    question = "" if snapshot is None or snapshot.is_continuation else snapshot.latest_user_message_id
    if question and leaf.message_id == question:
        return Retry(user_message_id=question)
    return Continue(target_message_id=leaf.message_id if leaf.role == "assistant" else "")


def _must_persist(snapshot: Snapshot | None, stream: Stream, leaf: Leaf, choice: Choice) -> bool:
    """Recovery W5; a message without parts is never stored (T7)."""
    if not stream.has_parts:
        return False
    before = snapshot.latest_message_id if snapshot is not None else ""
    is_stored = leaf.role == "assistant" and leaf.message_id != before
    if stream.state == "ended" and is_stored:
        return False
    return choice.persist or stream.has_settled_tool
