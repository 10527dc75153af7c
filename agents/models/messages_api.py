"""Anthropic's Messages API as data: a request's body, and what its events mean (protocol section 2).

Nothing here knows the vendor's SDK. Events are read by their ``type`` and by the attributes that this type has; a type
that is not known, of an event, a block or a delta, is passed over: the service may send new ones at any time.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import urllib.parse
from collections.abc import Iterator
from typing import Any

import msgspec

from agents.core.chunks import (
    JsonObject,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
)
from agents.models.model import (
    FileBlock,
    ModelFinish,
    ModelMessage,
    ModelPart,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)

__all__ = ["EventReader", "body_of"]

IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
EPHEMERAL: JsonObject = {"type": "ephemeral"}

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}


def body_of(request: ModelRequest, *, max_tokens: int, is_caching: bool) -> JsonObject:
    """The parts of the body that follow from a request: messages, system, tools, tool_choice and max_tokens.

    With ``is_caching`` three places are marked for the vendor's prompt cache: the system prompt, the last tool, and
    the last message of the user that will still be there next time, which a nudge will not.
    """
    assert request.messages, "a request needs a message (turns A7)"
    assert request.messages[-1].role == "user", "a request ends with a user message, at least a nudge (turns A9)"
    messages = [_message(role, tuple(group)) for role, group in itertools.groupby(request.messages, key=_role_of)]
    body: JsonObject = {
        "max_tokens": request.max_output_tokens or max_tokens,
        "messages": [message for message in messages if message["content"]],
    }
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if is_caching:
        _mark_for_cache(body, has_nudge=request.messages[-1].is_nudge)
    return body


def _role_of(message: ModelMessage) -> str:
    return message.role


def _message(role: str, group: tuple[ModelMessage, ...]) -> JsonObject:
    """One message of the vendor's: neighbours of one role are joined, results stand before everything else."""
    blocks = [block for message in group for block in message.blocks]
    blocks.sort(key=lambda block: not isinstance(block, ToolResultBlock))
    content = (_block(block) for block in blocks)
    return {"role": role, "content": [block for block in content if block is not None]}


def _block(block: TextBlock | ReasoningBlock | ToolUseBlock | ToolResultBlock | FileBlock) -> JsonObject | None:
    """A block as the vendor has it; None if the vendor would refuse it and nothing is lost without it."""
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case ReasoningBlock():
            return _thinking(block)
        case ToolUseBlock():
            return {"type": "tool_use", "id": block.tool_call_id, "name": block.tool_name, "input": block.input}
        case ToolResultBlock():
            result = {"type": "tool_result", "tool_use_id": block.tool_call_id, "content": block.text}
            return {**result, "is_error": True} if block.is_error else result
        case FileBlock():
            return _file(block)


def _thinking(block: ReasoningBlock) -> JsonObject | None:
    """Earlier thinking goes back unchanged, with its signature; thinking of other vendors stays here."""
    known = (block.provider_metadata or {}).get("anthropic")
    if not isinstance(known, dict):
        return None
    if isinstance(known.get("redactedData"), str):
        return {"type": "redacted_thinking", "data": known["redactedData"]}
    if isinstance(known.get("signature"), str):
        return {"type": "thinking", "thinking": block.text, "signature": known["signature"]}
    return None


def _file(block: FileBlock) -> JsonObject:
    media_type = block.media_type.lower()
    if media_type in IMAGE_TYPES:
        kind = "image"
    elif media_type == "application/pdf" or media_type.startswith("text/"):
        kind = "document"
    else:
        return _unreadable(block)
    source = _source(block, media_type)
    if source is None:
        return _unreadable(block)
    shown: JsonObject = {"type": kind, "source": source}
    if kind == "document" and block.filename:
        shown["title"] = block.filename
    return shown


def _source(block: FileBlock, media_type: str) -> JsonObject | None:
    if block.url.startswith(("http://", "https://")):
        return {"type": "url", "url": block.url}
    head, comma, data = block.url.partition(",")
    if not head.startswith("data:") or not comma:
        return None
    if not head.endswith(";base64"):
        data = base64.b64encode(urllib.parse.unquote_to_bytes(data)).decode()
    if not media_type.startswith("text/"):
        return {"type": "base64", "media_type": media_type, "data": data}
    try:
        text = base64.b64decode(data).decode("utf-8", "replace")
    except binascii.Error:
        return None
    return {"type": "text", "media_type": "text/plain", "data": text}


def _unreadable(block: FileBlock) -> JsonObject:
    # Refusing here would refuse every later turn too, since the file stays in the history.
    name = block.filename or "a file"
    return {"type": "text", "text": f"[{name} of type {block.media_type} cannot be shown to this model]"}


def _tool_choice(choice: str | JsonObject) -> JsonObject:
    if isinstance(choice, str):
        return {"type": {"required": "any"}.get(choice, choice)}
    if choice.get("type") == "tool":
        name = choice.get("toolName") or choice.get("tool_name") or choice.get("name")
        others = {key: value for key, value in choice.items() if key not in ("toolName", "tool_name")}
        return {**others, "name": name}
    return choice


def _mark_for_cache(body: JsonObject, *, has_nudge: bool) -> None:
    if "system" in body:
        body["system"][-1]["cache_control"] = EPHEMERAL
    if "tools" in body:
        body["tools"][-1]["cache_control"] = EPHEMERAL
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if has_nudge:
        # The nudge is the last block. Without it its message may hold nothing, or what the user said before.
        users[-1] = users[-1][:-1]
    last = next((content[-1] for content in reversed(users) if content), None)
    if last is not None:
        last["cache_control"] = EPHEMERAL


class EventReader:
    """Turns the events of one answer into parts.

    ``is_whole`` becomes true with the event that ends every whole answer; a stream that ends without it was cut.
    """

    def __init__(self) -> None:
        self.is_whole = False
        self._kinds: dict[int, str] = {}
        self._calls: dict[int, tuple[str, str]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, int] = {}
        self._answer: JsonObject = {}
        self._stop_reason = ""

    def read(self, event: Any) -> Iterator[ModelPart]:  # the SDK's event, or whatever has its attributes
        """The parts that an event makes known; none for events that are not known."""
        match event.type:
            case "message_start":
                self._answer = {"messageId": event.message.id, "model": event.message.model}
                self._count(event.message.usage)
            case "content_block_start":
                yield from self._begin(event.index, event.content_block)
            case "content_block_delta":
                yield from self._add(event.index, event.delta)
            case "content_block_stop":
                yield from self._end(event.index)
            case "message_delta":
                self._stop_reason = event.delta.stop_reason or self._stop_reason
                if event.delta.stop_sequence is not None:
                    self._answer["stopSequence"] = event.delta.stop_sequence
                self._count(event.usage)
            case "message_stop":
                self.is_whole = True
                yield self._finish()
            case _:
                pass

    def _begin(self, index: int, block: Any) -> Iterator[ModelPart]:
        self._kinds[index] = block.type
        match block.type:
            case "text":
                yield TextStart(str(index))
                if block.text:
                    yield TextDelta(str(index), block.text)
            case "thinking":
                yield ReasoningStart(str(index))
                if block.thinking:
                    yield ReasoningDelta(str(index), block.thinking)
            case "redacted_thinking":
                yield ReasoningStart(str(index), {"anthropic": {"redactedData": block.data}})
            case "tool_use":
                self._calls[index] = (block.id, block.name)
                # Compatible servers may send the whole input here instead of in deltas.
                self._inputs[index] = [msgspec.json.encode(block.input).decode()] if block.input else []
                yield ToolInputStart(block.id, block.name)
            case _:
                pass

    def _add(self, index: int, delta: Any) -> Iterator[ModelPart]:
        match self._kinds.get(index), delta.type:
            case "text", "text_delta":
                yield TextDelta(str(index), delta.text)
            case "thinking", "thinking_delta":
                yield ReasoningDelta(str(index), delta.thinking)
            case "thinking", "signature_delta":
                yield ReasoningDelta(str(index), "", {"anthropic": {"signature": delta.signature}})
            case "tool_use", "input_json_delta" if delta.partial_json:
                self._inputs[index].append(delta.partial_json)
                yield ToolInputDelta(self._calls[index][0], delta.partial_json)
            case _:
                pass

    def _end(self, index: int) -> Iterator[ModelPart]:
        match self._kinds.get(index):
            case "text":
                yield TextEnd(str(index))
            case "thinking" | "redacted_thinking":
                yield ReasoningEnd(str(index))
            case "tool_use":
                call_id, name = self._calls[index]
                yield ToolCall(tool_call_id=call_id, tool_name=name, input_text="".join(self._inputs[index]))
            case _:
                pass

    def _count(self, usage: Any) -> None:
        # Each count is the total so far, and the later event leaves out what it has nothing new about.
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            count = getattr(usage, name, None)
            if isinstance(count, int):
                self._usage[name] = count
        details = getattr(usage, "output_tokens_details", None)
        thought = getattr(details, "thinking_tokens", None)
        if isinstance(thought, int):
            self._usage["thinking_tokens"] = thought

    def _finish(self) -> ModelFinish:
        read, written = self._usage.get("cache_read_input_tokens", 0), self._usage.get("cache_creation_input_tokens", 0)
        details = {"stopReason": self._stop_reason, "cacheCreationInputTokens": written}
        return ModelFinish(
            finish_reason=FINISH_REASONS.get(self._stop_reason, "other"),
            usage=Usage(
                input_tokens=self._usage.get("input_tokens", 0) + read + written,
                output_tokens=self._usage.get("output_tokens", 0),
                cached_tokens=read,
                reasoning_tokens=self._usage.get("thinking_tokens", 0),
            ),
            provider_metadata={"anthropic": {**self._answer, **details}},
        )
