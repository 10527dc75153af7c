"""Repair of what an interruption left in a transcript, before every model call (turns A4, recovery section 5, X1).

A tool part that no longer has anybody working on it gets an outcome: the fixed text below, as an error. The framework
never runs such a call again (recovery X2), because its effects may have happened; the model reads the text and may
decide to make a new call. Two kinds of parts are left alone: those with an outcome, and calls that a person has
approved, which the coming turn runs (turns T8). Inputs that are no objects are made objects in every tool part, also
in settled ones: the provider refuses the whole request otherwise, in this turn and in every later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agents.core.chunks import JsonObject
from agents.core.transcript import is_settled
from agents.sessions.messages import UIMessage, is_tool_part, normalise_input

__all__ = [
    "INTERRUPTED_TEXT",
    "approved_parts",
    "interrupted_part",
    "is_interrupted",
    "keep_outcomes",
    "repair_transcript",
]

INTERRUPTED_TEXT = (
    "The tool call was interrupted before its result was recorded. It may or may not have taken effect; "
    "check before calling it again."
)


def interrupted_part(part: JsonObject) -> JsonObject:
    """The part of a call that was cut off, with an error as its outcome."""
    kept = {key: value for key, value in part.items() if key != "approval"}
    return {**kept, "state": "output-error", "input": normalise_input(part.get("input")), "errorText": INTERRUPTED_TEXT}


def is_interrupted(part: JsonObject) -> bool:
    """True if a tool part's outcome is the one that ``interrupted_part`` gave it."""
    return part.get("errorText") == INTERRUPTED_TEXT


def repair_transcript(
    messages: Sequence[UIMessage], repair_part: Callable[[JsonObject], JsonObject] = interrupted_part
) -> tuple[list[UIMessage], list[UIMessage]]:
    """Give every interrupted call an outcome and every tool part an object as input.

    Args:
        messages: The conversation; it is not changed.
        repair_part: What becomes of an interrupted part, by default ``interrupted_part``; may return another type.

    Returns:
        The conversation to go on with, and those of its messages that changed and must be stored and broadcast.
    """
    repaired: list[UIMessage] = []
    changed: list[UIMessage] = []
    for message in messages:
        parts = [_repaired(part, repair_part) for part in message.parts]
        if message.role == "assistant" and parts != message.parts:
            changed.append(msgspec.structs.replace(message, parts=parts))
            repaired.append(changed[-1])
        else:
            repaired.append(message)
    return repaired, changed


def _repaired(part: JsonObject, repair_part: Callable[[JsonObject], JsonObject]) -> JsonObject:
    if not is_tool_part(part):
        return part
    if not isinstance(part.get("input"), dict):
        part = {**part, "input": normalise_input(part.get("input"))}
    if is_settled(part) or part.get("state") == "approval-responded":
        return part
    return repair_part(part)


def approved_parts(messages: Sequence[UIMessage]) -> list[JsonObject]:
    """The calls that a person has approved and nobody has run: a continuation runs them first (turns T8)."""
    return [
        part
        for message in messages
        if message.role == "assistant"
        for part in message.parts
        if part.get("state") == "approval-responded"
        and not is_settled(part)
        and part.get("approval", {}).get("approved") is True
    ]


def keep_outcomes(rebuilt: UIMessage, stored: UIMessage | None) -> UIMessage:
    """A message rebuilt from its stream, with the outcomes and approvals that only the stored copy has.

    A client's result or a person's answer can reach the stored message after the stream's last chunk; storing the
    rebuilt message again must not take it back (recovery T7, turns R2).
    """
    later = {
        part.get("toolCallId"): part
        for part in (stored.parts if stored is not None else ())
        if is_tool_part(part) and (is_settled(part) or part.get("state") == "approval-responded")
    }
    parts = [
        later[part.get("toolCallId")] if part.get("toolCallId") in later and not is_settled(part) else part
        for part in rebuilt.parts
    ]
    return msgspec.structs.replace(rebuilt, parts=parts)
