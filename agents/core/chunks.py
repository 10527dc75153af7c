"""The chunks of a turn's stream: Structs that encode to the JSON of protocol section 2, and their codec.

A model yields the chunks of its own message, the turn adds the rest; one encoding is made of each and used for the
journal, the frames and the events (protocol K7). Kinds that are not known here (``data-NAME``, newer ones) travel as
``OtherChunk`` and go through unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Chunk",
    "ErrorChunk",
    "FileChunk",
    "Finish",
    "FinishStep",
    "JsonObject",
    "OtherChunk",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningStart",
    "Start",
    "StartStep",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputDenied",
    "ToolOutputError",
    "decode_chunk",
    "encode_chunk",
]

# JSON objects of the protocol: their keys are the protocol's, their values any JSON.
JsonObject = dict[str, Any]


class _Chunk(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, tag_field="type"):
    pass


class Start(_Chunk, tag="start", frozen=True):
    """The stream of a turn begins."""

    message_id: str | None = None
    message_metadata: JsonObject | None = None


class StartStep(_Chunk, tag="start-step", frozen=True):
    """A step begins."""


class FinishStep(_Chunk, tag="finish-step", frozen=True):
    """A step ends."""


class Finish(_Chunk, tag="finish", frozen=True):
    """The turn ends; reasons: stop, length, content-filter, tool-calls, error, other."""

    finish_reason: str | None = None
    message_metadata: JsonObject | None = None


class TextStart(_Chunk, tag="text-start", frozen=True):
    """A block of text begins."""

    id: str
    provider_metadata: JsonObject | None = None


class TextDelta(_Chunk, tag="text-delta", frozen=True):
    """More text of the open block."""

    id: str
    delta: str
    provider_metadata: JsonObject | None = None


class TextEnd(_Chunk, tag="text-end", frozen=True):
    """A block of text ends."""

    id: str
    provider_metadata: JsonObject | None = None


class ReasoningStart(_Chunk, tag="reasoning-start", frozen=True):
    """A block of reasoning begins."""

    id: str
    provider_metadata: JsonObject | None = None


class ReasoningDelta(_Chunk, tag="reasoning-delta", frozen=True):
    """More reasoning of the open block; a signature comes as an empty delta with metadata."""

    id: str
    delta: str
    provider_metadata: JsonObject | None = None


class ReasoningEnd(_Chunk, tag="reasoning-end", frozen=True):
    """A block of reasoning ends."""

    id: str
    provider_metadata: JsonObject | None = None


class ToolInputStart(_Chunk, tag="tool-input-start", frozen=True):
    """A tool call begins."""

    tool_call_id: str
    tool_name: str
    dynamic: bool | None = None
    provider_executed: bool | None = None
    title: str | None = None


class ToolInputDelta(_Chunk, tag="tool-input-delta", frozen=True):
    """More of a call's input, raw partial JSON."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_Chunk, tag="tool-input-available", frozen=True):
    """A call's input is whole; always an object (protocol U1)."""

    tool_call_id: str
    tool_name: str
    input: JsonObject
    dynamic: bool | None = None
    provider_executed: bool | None = None
    provider_metadata: JsonObject | None = None
    title: str | None = None


class ToolInputError(_Chunk, tag="tool-input-error", frozen=True):
    """A call's input does not fit the tool's schema, or there is no such tool."""

    tool_call_id: str
    tool_name: str
    input: JsonObject
    error_text: str
    dynamic: bool | None = None


class ToolOutputAvailable(_Chunk, tag="tool-output-available", frozen=True):
    """A call's output; nothing returned is null."""

    tool_call_id: str
    output: Any  # whatever JSON the tool returned
    preliminary: bool | None = None


class ToolOutputError(_Chunk, tag="tool-output-error", frozen=True):
    """A call failed; the model sees the text."""

    tool_call_id: str
    error_text: str


class ToolOutputDenied(_Chunk, tag="tool-output-denied", frozen=True):
    """A person denied a call."""

    tool_call_id: str


class FileChunk(_Chunk, tag="file", frozen=True):
    """A file that the model made."""

    media_type: str
    url: str
    provider_metadata: JsonObject | None = None


class ErrorChunk(_Chunk, tag="error", frozen=True):
    """A terminal error of the stream; never put on a socket as a chunk (protocol K5)."""

    error_text: str


class OtherChunk:
    """A chunk of a kind that is not known here; ``body`` is the JSON object as it came."""

    __slots__ = ("body",)

    def __init__(self, body: JsonObject) -> None:
        self.body = body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OtherChunk) and self.body == other.body

    def __hash__(self) -> int:
        return hash(str(self.body))

    def __repr__(self) -> str:
        return f"OtherChunk({self.body!r})"


_Known = (
    Start
    | StartStep
    | FinishStep
    | Finish
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputAvailable
    | ToolInputError
    | ToolOutputAvailable
    | ToolOutputError
    | ToolOutputDenied
    | FileChunk
    | ErrorChunk
)
Chunk = _Known | OtherChunk

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Known)


def encode_chunk(chunk: Chunk) -> bytes:
    """The one JSON text of a chunk."""
    return _encoder.encode(chunk.body if type(chunk) is OtherChunk else chunk)


def decode_chunk(data: bytes | str) -> Chunk:
    """A chunk from its JSON text; an unknown kind becomes ``OtherChunk``.

    Raises:
        msgspec.DecodeError: Not a JSON object.
    """
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        return OtherChunk(msgspec.json.decode(data, type=JsonObject))
