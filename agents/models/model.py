"""What a model is to an agent: a request in, a stream of chunks out.

A ``Model`` yields the chunks of its own message (text, reasoning, tool input), a ``ToolCall`` when a call's input is
whole, and ends with exactly one ``ModelFinish``. Everything else on a turn's stream is the turn's. Errors are those
of ``agents.errors``; a stream that ends without ``ModelFinish`` is a lost connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from agents.core.chunks import Chunk, JsonObject

__all__ = [
    "FileBlock",
    "Model",
    "ModelFinish",
    "ModelMessage",
    "ModelPart",
    "ModelRequest",
    "ReasoningBlock",
    "TextBlock",
    "ToolCall",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBlock",
    "Usage",
]


class TextBlock(msgspec.Struct, frozen=True, tag="text", kw_only=True):
    """Text of a message."""

    text: str


class ReasoningBlock(msgspec.Struct, frozen=True, tag="reasoning", kw_only=True):
    """Earlier reasoning, sent back unchanged; ``provider_metadata`` holds signature or redacted data."""

    text: str
    provider_metadata: JsonObject | None = None


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool-use", kw_only=True):
    """A call that the model made; ``input`` is always an object."""

    tool_call_id: str
    tool_name: str
    input: JsonObject


class ToolResultBlock(msgspec.Struct, frozen=True, tag="tool-result", kw_only=True):
    """A call's result as text for the model; JSON if the tool returned no text."""

    tool_call_id: str
    tool_name: str
    text: str
    is_error: bool = False


class FileBlock(msgspec.Struct, frozen=True, tag="file", kw_only=True):
    """An image or document: ``url`` is http(s) or a ``data:`` URL."""

    media_type: str
    url: str
    filename: str | None = None


Block = TextBlock | ReasoningBlock | ToolUseBlock | ToolResultBlock | FileBlock


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the prompt. Role ``user`` or ``assistant``; tool results stand in a user message.

    ``is_nudge`` marks the request-only message that asks to continue (turns A9); it is in no history.
    """

    role: str
    blocks: tuple[Block, ...]
    is_nudge: bool = False


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is offered to the model; ``input_schema`` is JSON Schema with type object at the top."""

    name: str
    description: str
    input_schema: JsonObject


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a model gets. ``settings`` (temperature, top_p, stop_sequences, ...) reaches the vendor unchanged."""

    system: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | JsonObject = "auto"
    max_output_tokens: int | None = None
    settings: JsonObject = {}
    provider_options: JsonObject = {}
    request_id: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one model call; ``input_tokens`` includes cached ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ToolCall(msgspec.Struct, frozen=True, tag="tool-call", kw_only=True):
    """A call's input is whole: ``input_text`` is the JSON text as the model wrote it, possibly empty or broken."""

    tool_call_id: str
    tool_name: str
    input_text: str


class ModelFinish(msgspec.Struct, frozen=True, tag="model-finish", kw_only=True):
    """The model's message has ended: stop, tool-calls, length, content-filter, other."""

    finish_reason: str
    usage: Usage = Usage()
    provider_metadata: JsonObject = {}


ModelPart = Chunk | ToolCall | ModelFinish


class Model(Protocol):
    """A source of answers. Closing the iterator (``aclose``) ends the request at the vendor at once."""

    @property
    def model_id(self) -> str:
        """What the vendor calls it, for events and logs."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """Yield ``ModelPart``s, last a ``ModelFinish``.

        Raises:
            ModelRefused, ModelOverloaded, ModelConnectionLost: See agents.errors.
        """
        ...
