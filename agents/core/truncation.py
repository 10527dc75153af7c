"""Shortening old messages on their way to the model (turns A5). Storage keeps them whole.

The last messages stay as they are. In older ones a tool's output becomes at most 500 characters of JSON of the same
shape: an object stays an object and a list a list, with what fits from the front. Long text is cut and says so.
Nothing is dropped as a whole, so calls and results stay paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agents.core.chunks import JsonObject
from agents.sessions.messages import UIMessage, is_tool_part, part_text

__all__ = ["truncate_old"]

WHOLE_MESSAGES = 4
OUTPUT_CHARACTERS_MAX = 500
TEXT_CHARACTERS_MAX = 10_000
# With less room than this a cut value says nothing.
REST_CHARACTERS_MIN = 40

# A tool's output is any JSON.
_Json = Any


def truncate_old(messages: Sequence[UIMessage]) -> list[UIMessage]:
    """The conversation with its older messages shortened; messages that need no cut are the same objects."""
    old = max(0, len(messages) - WHOLE_MESSAGES)
    return [_truncated(message) for message in messages[:old]] + list(messages[old:])


def _truncated(message: UIMessage) -> UIMessage:
    parts = [_truncated_part(part) for part in message.parts]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return msgspec.structs.replace(message, parts=parts)


def _truncated_part(part: JsonObject) -> JsonObject:
    text = part_text(part)
    if part.get("type") == "text" and len(text) > TEXT_CHARACTERS_MAX:
        return {**part, "text": text[:TEXT_CHARACTERS_MAX] + _suffix(len(text) - TEXT_CHARACTERS_MAX)}
    if is_tool_part(part) and "output" in part and _size(part["output"]) > OUTPUT_CHARACTERS_MAX:
        return {**part, "output": _fit(part["output"], OUTPUT_CHARACTERS_MAX)}
    return part


def _suffix(count: int) -> str:
    return f"... [truncated {count} chars]"


def _size(value: _Json) -> int:
    return len(msgspec.json.encode(value).decode())


def _fit(value: _Json, room: int) -> _Json:
    """The value in at most ``room`` characters of JSON; None stands for a number that has no room."""
    if _size(value) <= room:
        return value
    if isinstance(value, str):
        return _fit_text(value, room)
    if isinstance(value, list):
        items: list[_Json] = []
        room -= 2  # the brackets
        for item in value:
            fitted = _fit(item, room) if room >= REST_CHARACTERS_MIN else item
            room -= _size(fitted) + 1
            if room < -1:  # the last item needs no comma
                break
            items.append(fitted)
        return items
    if isinstance(value, dict):
        fields: JsonObject = {}
        room -= 2
        for key, item in value.items():
            room -= _size(key) + 1
            fitted = _fit(item, room) if room >= REST_CHARACTERS_MIN else item
            room -= _size(fitted) + 1
            if room < -1:
                break
            fields[key] = fitted
        return fields
    return None


def _fit_text(text: str, room: int) -> str:
    assert room >= REST_CHARACTERS_MIN, f"{room} characters have no room for the note about the cut"
    kept = min(len(text), room)
    while True:
        cut = text[:kept] + _suffix(len(text) - kept)
        over = _size(cut) - room
        if over <= 0:
            return cut
        # An escaped character takes up to six of JSON, so this never cuts more than needed.
        kept = max(0, kept - max(1, over // 6))
