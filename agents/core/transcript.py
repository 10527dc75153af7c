"""From chunks to a stored message: the accumulator of protocol section 3.

A ``MessageBuilder`` holds the parts of one assistant message and applies the chunks of its stream one by one. It is
mutable and made for the hot path: a text delta is one append to a list, joined only when somebody looks at the parts.

A stored stream is replayed into a builder after a crash (recovery T6, T7), and a part of it may be replayed twice. The
states of a tool part therefore only ever move forward: input, approval, outcome (protocol B2). Chunks of a kind that
is not known here, and malformed ones, change nothing.

Repair of what an interruption left open, and what becomes of a message at the model, live in ``core.repair`` and
``core.prompt``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agents.core.chunks import (
    Chunk,
    ErrorChunk,
    FileChunk,
    Finish,
    FinishStep,
    JsonObject,
    OtherChunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
    decode_chunk,
)
from agents.sessions.messages import UIMessage, is_tool_part, normalise_input, part_text

__all__ = ["SETTLED", "MessageBuilder", "is_settled", "rebuild", "rounds", "update_older"]

# States in which a call has its outcome (protocol section 1).
SETTLED = frozenset(("output-available", "output-error", "output-denied"))

_ToolOutput = ToolOutputAvailable | ToolOutputError | ToolOutputDenied


class _OpenBlock:
    """The last text or reasoning part, whose deltas wait unjoined."""

    __slots__ = ("part", "tail")

    def __init__(self) -> None:
        self.part: JsonObject | None = None
        self.tail: list[str] = []

    def begin(self, part: JsonObject) -> None:
        self.join()
        self.part = part

    def join(self) -> None:
        if self.tail:
            assert self.part is not None, "deltas wait for a part that was never begun"
            self.part["text"] += "".join(self.tail)
            self.tail.clear()


class MessageBuilder:
    """The assistant message that a stream of chunks makes, so far.

    Args:
        message_id: Its id; a ``start`` chunk with another one replaces it, except on a continuation.
        parts: What it began with, in a turn that goes on with an interrupted message; they are copied. Text behind
            them opens parts of its own; tool outputs reach the calls among them.
        metadata: What it began with.
        is_continuation: The stream continues a message, so that ``start`` does not name it.
    """

    __slots__ = ("_parts", "_reasoning", "_text", "_tools", "finish_reason", "is_continuation", "is_finished",
                 "message_id", "metadata")  # fmt: skip

    def __init__(
        self,
        message_id: str = "",
        parts: Iterable[JsonObject] = (),
        *,
        metadata: JsonObject | None = None,
        is_continuation: bool = False,
    ) -> None:
        self.message_id = message_id
        self.metadata = metadata
        self.is_continuation = is_continuation
        self.is_finished = False  # a finish chunk was seen: the turn had its answer, whatever happened after
        self.finish_reason: str | None = None
        self._parts: list[JsonObject] = [dict(part) for part in parts]
        self._text = _OpenBlock()
        self._reasoning = _OpenBlock()
        self._tools: dict[str, JsonObject] = {}
        for part in self._parts:
            if is_tool_part(part):
                self._tools.setdefault(str(part.get("toolCallId")), part)

    @property
    def parts(self) -> list[JsonObject]:
        """The parts so far. The list is the builder's own and goes on changing; ``message`` copies it."""
        self._text.join()
        self._reasoning.join()
        return self._parts

    @property
    def partial_text(self) -> str:
        """The text parts so far, joined."""
        return "".join(part_text(part) for part in self.parts if part.get("type") == "text")

    def message(self) -> UIMessage:
        """The message so far, as a value of its own."""
        return UIMessage(self.message_id, "assistant", [dict(part) for part in self.parts], self.metadata)

    def finish(self) -> None:
        """The stream has ended, for whatever reason: text and reasoning that were streaming are done."""
        for part in self.parts:
            if part.get("state") == "streaming":
                part["state"] = "done"

    def apply(self, chunk: Chunk) -> bool:
        """Add one chunk to the message.

        Returns:
            False if the chunk is the outcome of a call that is not in this message: it belongs to an older one
            (protocol B1, see ``update_older``). Everything else is True.
        """
        match chunk:
            case TextDelta():
                self._delta(self._text, "text", chunk)
            case ReasoningDelta():
                self._delta(self._reasoning, "reasoning", chunk)
            case ToolInputDelta() | FinishStep() | ErrorChunk():
                pass  # an input is stored when it is whole; the others leave no part
            case TextStart():
                self._begin(self._text, "text", chunk.provider_metadata)
            case ReasoningStart():
                self._begin(self._reasoning, "reasoning", chunk.provider_metadata)
            case TextEnd():
                _end(self._text, chunk.provider_metadata)
            case ReasoningEnd():
                _end(self._reasoning, chunk.provider_metadata)
            case StartStep():
                self._parts.append({"type": "step-start"})
            case ToolInputStart():
                self._input_start(chunk)
            case ToolInputAvailable():
                self._input_available(chunk)
            case ToolInputError():
                self._input_error(chunk)
            case ToolOutputAvailable() | ToolOutputError() | ToolOutputDenied():
                part = self._tools.get(chunk.tool_call_id)
                if part is None:
                    return False
                _set_outcome(part, chunk)
            case FileChunk():
                part = {"type": "file", "mediaType": chunk.media_type, "url": chunk.url}
                _merge_metadata(part, chunk.provider_metadata)
                self._parts.append(part)
            case Start():
                if chunk.message_id and not self.is_continuation:
                    self.message_id = chunk.message_id
                self._merge(chunk.message_metadata)
            case Finish():
                self.is_finished = True
                self.finish_reason = chunk.finish_reason
                self._merge(chunk.message_metadata)
            case _:
                self._other(chunk)
        return True

    def _delta(self, block: _OpenBlock, kind: str, chunk: TextDelta | ReasoningDelta) -> None:
        part = block.part
        if part is None:
            part = self._begin(block, kind, None)
        block.tail.append(chunk.delta)
        _merge_metadata(part, chunk.provider_metadata)

    def _begin(self, block: _OpenBlock, kind: str, provider_metadata: JsonObject | None) -> JsonObject:
        part: JsonObject = {"type": kind, "text": "", "state": "streaming"}
        _merge_metadata(part, provider_metadata)
        self._parts.append(part)
        block.begin(part)
        return part

    def _input_start(self, chunk: ToolInputStart) -> None:
        if chunk.tool_call_id not in self._tools:
            self._add_tool(chunk, "input-streaming")

    def _input_available(self, chunk: ToolInputAvailable) -> None:
        part = self._tools.get(chunk.tool_call_id)
        if part is None:
            part = self._add_tool(chunk, "input-streaming")
        if part.get("state") == "input-streaming":
            part["state"] = "input-available"
            part["input"] = normalise_input(chunk.input)
            if chunk.provider_metadata is not None:
                part["callProviderMetadata"] = chunk.provider_metadata

    def _input_error(self, chunk: ToolInputError) -> None:
        part = self._tools.get(chunk.tool_call_id)
        if part is None:
            part = self._add_tool(chunk, "input-streaming")
        if part.get("state") not in SETTLED:
            part["state"] = "output-error"
            part["input"] = normalise_input(chunk.input)
            part["errorText"] = chunk.error_text

    def _add_tool(self, chunk: ToolInputStart | ToolInputAvailable | ToolInputError, state: str) -> JsonObject:
        # Stored as tool-NAME also if the call was dynamic (protocol section 1).
        part: JsonObject = {
            "type": f"tool-{chunk.tool_name}",
            "toolCallId": chunk.tool_call_id,
            "toolName": chunk.tool_name,
            "state": state,
        }
        if not isinstance(chunk, ToolInputError):
            if chunk.title is not None:
                part["title"] = chunk.title
            if chunk.provider_executed is not None:
                part["providerExecuted"] = chunk.provider_executed
        self._parts.append(part)
        self._tools[chunk.tool_call_id] = part
        return part

    def _merge(self, metadata: JsonObject | None) -> None:
        if metadata is not None:
            self.metadata = {**(self.metadata or {}), **metadata}

    def _other(self, chunk: OtherChunk) -> None:
        body = chunk.body
        kind = body.get("type")
        if not isinstance(kind, str):
            return
        if kind.startswith("data-"):
            self._data(kind, body)
        elif kind in ("source-url", "source-document"):
            self._parts.append(dict(body))
        elif kind == "message-metadata" and isinstance(body.get("messageMetadata"), dict):
            self._merge(body["messageMetadata"])
        elif kind == "tool-approval-request":
            part = self._tools.get(str(body.get("toolCallId")))
            if part is not None and part.get("state") in ("input-streaming", "input-available"):
                part["state"] = "approval-requested"
                part["approval"] = {"id": body.get("approvalId") or part["toolCallId"]}
                if "approvalDescriptor" in body:
                    part["approval"]["descriptor"] = body["approvalDescriptor"]
        elif kind == "tool-approval-response":
            self._approval_response(body)
        elif kind in ("tool-input-available", "tool-input-error"):
            self._damaged_input(kind, body)

    def _data(self, kind: str, body: JsonObject) -> None:
        if body.get("transient"):
            return
        part: JsonObject = {"type": kind, "data": body.get("data")}
        if "id" in body:
            part["id"] = body["id"]
            for old in self._parts:
                if old.get("type") == kind and old.get("id") == body["id"]:
                    old["data"] = part["data"]
                    return
        self._parts.append(part)

    def _approval_response(self, body: JsonObject) -> None:
        for part in self._tools.values():
            approval = part.get("approval", {})
            if part.get("state") == "approval-requested" and approval.get("id") == body.get("approvalId"):
                is_approved = body.get("approved") is True
                part["state"] = "approval-responded" if is_approved else "output-denied"
                part["approval"] = {**approval, "approved": is_approved}
                if isinstance(body.get("reason"), str):
                    part["approval"]["reason"] = body["reason"]

    def _damaged_input(self, kind: str, body: JsonObject) -> None:
        # The codec refuses a call whose input is no object; such chunks are in old journals, and the call was made.
        call_id, name, error = body.get("toolCallId"), body.get("toolName"), body.get("errorText", "")
        if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(error, str)):
            return
        given = normalise_input(body.get("input"))
        if kind == "tool-input-available":
            self._input_available(ToolInputAvailable(call_id, name, given))
        else:
            self._input_error(ToolInputError(call_id, name, given, error))


def _end(block: _OpenBlock, provider_metadata: JsonObject | None) -> None:
    if block.part is not None:
        block.part["state"] = "done"
        _merge_metadata(block.part, provider_metadata)


def _merge_metadata(part: JsonObject, provider_metadata: JsonObject | None) -> None:
    if provider_metadata is not None:
        part["providerMetadata"] = {**part.get("providerMetadata", {}), **provider_metadata}


def is_settled(part: JsonObject) -> bool:
    """True if a tool part has its outcome, so that nothing may run it again (turns A4)."""
    return part.get("state") in SETTLED or "output" in part or "result" in part


def rounds(parts: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """The parts of each model call, told apart by ``step-start`` parts; the first list is what precedes them."""
    found: list[list[JsonObject]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            found.append([])
        else:
            found[-1].append(part)
    return found


def _set_outcome(part: JsonObject, chunk: _ToolOutput) -> None:
    state = part.get("state")
    match chunk:
        case ToolOutputAvailable():
            if chunk.preliminary and state in SETTLED and not part.get("preliminary"):
                return  # a replayed preliminary output must not take the place of the final one
            part["state"] = "output-available"
            part["output"] = chunk.output
            part.pop("errorText", None)
            part.pop("preliminary", None)
            if chunk.preliminary:
                part["preliminary"] = True
        case ToolOutputError():
            part["state"] = "output-error"
            part["errorText"] = chunk.error_text
            part.pop("output", None)
            part.pop("preliminary", None)
        case _:
            if state not in SETTLED and state != "approval-responded":
                part["state"] = "output-denied"


def update_older(messages: Sequence[UIMessage], chunk: _ToolOutput) -> UIMessage | None:
    """The older message that a call's outcome changes, with the change made; the first outcome stays.

    Args:
        messages: The conversation, oldest first; it is not changed.
        chunk: An outcome for which ``MessageBuilder.apply`` returned False.

    Returns:
        A new message, or None if no message has the call or the call is settled (protocol B1, turns C7).
    """
    for message in reversed(messages):
        for index, part in enumerate(message.parts):
            if is_tool_part(part) and part.get("toolCallId") == chunk.tool_call_id:
                if is_settled(part):
                    return None
                changed = dict(part)
                _set_outcome(changed, chunk)
                parts = [*message.parts[:index], changed, *message.parts[index + 1 :]]
                return msgspec.structs.replace(message, parts=parts)
    return None


def rebuild(
    begin_parts: Sequence[JsonObject],
    chunk_jsons: Iterable[bytes | msgspec.Raw],
    *,
    message_id: str = "",
    metadata: JsonObject | None = None,
    is_continuation: bool = False,
) -> MessageBuilder:
    """The builder as it stood when the last of these chunks had been applied (recovery T6, T7).

    Args:
        begin_parts: The parts that the message had when the stream began: the first N of the stored message.
        chunk_jsons: The stream's chunks as journalled, in order; malformed ones are skipped.
        message_id: As for ``MessageBuilder``, as are the others.
        metadata: See there.
        is_continuation: See there.
    """
    builder = MessageBuilder(message_id, begin_parts, metadata=metadata, is_continuation=is_continuation)
    for chunk_json in chunk_jsons:
        try:
            chunk = decode_chunk(chunk_json)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        builder.apply(chunk)
    return builder
