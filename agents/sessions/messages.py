"""Messages of a conversation: the ``UIMessage`` of protocol section 1 and its codec.

A message is an id, a role and a list of parts. Parts stay plain JSON objects, because the set of part types is open
(``tool-NAME``, ``data-NAME``, types to come): what is not known goes through unchanged, and so do unknown keys of the
message itself. The one thing that is corrected on the way into storage is a tool part's ``input``, which is always an
object (protocol U1): a provider refuses a call whose input is anything else, and one such part in storage would make
every later turn of the conversation fail.

How chunks become parts lives in ``agents.core.transcript``; how messages form a tree in ``agents.sessions.session``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agents.core.chunks import JsonObject

__all__ = [
    "ROLES",
    "UIMessage",
    "decode_message",
    "encode_message",
    "input_from_text",
    "is_tool_part",
    "message_from_object",
    "message_to_object",
    "normalise_input",
    "part_text",
    "sanitise",
    "user_message",
    "with_normal_inputs",
]

ROLES = frozenset(("system", "user", "assistant"))


class UIMessage(msgspec.Struct, omit_defaults=True):
    """One message. ``parts`` are the JSON objects of protocol section 1; ``extra`` holds keys not known here.

    A message is a value: who changes one makes a new one, since sessions hand out the messages that they cache.
    """

    id: str
    role: str
    parts: list[JsonObject]
    metadata: JsonObject | None = None
    extra: JsonObject = {}

    @property
    def text(self) -> str:
        """The text parts, joined; what stands before a tool call and what stands behind it are paragraphs."""
        text, has_call = "", False
        for part in self.parts:
            has_call = has_call or is_tool_part(part)
            if part.get("type") == "text" and (piece := part_text(part)):
                # Halves of an interrupted sentence have no call between them.
                if has_call and text and not text[-1].isspace() and not piece[0].isspace():
                    text += "\n\n"
                text, has_call = text + piece, False
        return text


class _Shape(msgspec.Struct):
    # What a message must have; the rest of its keys is taken from the object itself.
    id: str
    role: str
    parts: list[JsonObject]
    metadata: JsonObject | None = None


_KNOWN_KEYS = frozenset(("id", "role", "parts", "metadata"))
_EPHEMERAL = frozenset(("itemId", "reasoningEncryptedContent"))
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def part_text(part: JsonObject) -> str:
    """The text of a text or reasoning part; none where a client stored something else."""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def is_tool_part(part: JsonObject) -> bool:
    """True for ``tool-NAME`` and ``dynamic-tool`` parts."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def normalise_input(value: object) -> JsonObject:
    """A tool call's input as an object: text holding a JSON object is parsed, what is no object becomes ``{}``."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        try:
            parsed = _decoder.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):  # cut off, lone surrogates, absurdly deep
            return {}
        if isinstance(parsed, dict):
            return parsed
    return {}


def input_from_text(text: str) -> JsonObject:
    """The input object for the argument text that a model streamed.

    The text is JSON for the input. Some models wrap that JSON in a JSON string once more, one level deeper than
    ``normalise_input`` looks.
    """
    try:
        return normalise_input(_decoder.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def with_normal_inputs(parts: list[JsonObject]) -> list[JsonObject]:
    """The parts with every present tool input made an object; the same list if nothing had to change."""
    if not any(_has_bad_input(part) for part in parts):
        return parts
    return [{**part, "input": normalise_input(part["input"])} if _has_bad_input(part) else part for part in parts]


def _has_bad_input(part: JsonObject) -> bool:
    return "input" in part and not isinstance(part["input"], dict) and is_tool_part(part)


def sanitise(message: UIMessage) -> UIMessage:
    """The message as it is stored (turns C8): without what a vendor's server would refuse in a later request.

    OpenAI's item ids and encrypted reasoning are valid once only; blank reasoning without a vendor's data says nothing.
    """
    parts = [_without_ephemeral_ids(part) for part in message.parts]
    parts = [part for part in parts if not _is_blank_reasoning(part)]
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _is_blank_reasoning(part: JsonObject) -> bool:
    return part.get("type") == "reasoning" and not part_text(part).strip() and not part.get("providerMetadata")


def _without_ephemeral_ids(part: JsonObject) -> JsonObject:
    for key in ("providerMetadata", "callProviderMetadata"):
        metadata = part.get(key)
        openai = metadata.get("openai") if isinstance(metadata, dict) else None
        if isinstance(openai, dict) and not _EPHEMERAL.isdisjoint(openai):
            kept = {name: value for name, value in openai.items() if name not in _EPHEMERAL}
            others = {name: value for name, value in part[key].items() if name != "openai"}
            part = {name: value for name, value in part.items() if name != key}
            if kept or others:
                part[key] = {**others, "openai": kept} if kept else others
    return part


def message_from_object(value: object) -> UIMessage:
    """A message from its JSON object.

    Raises:
        msgspec.ValidationError: A required key is missing or of the wrong type, or the role is none of ``ROLES``.
    """
    shape = msgspec.convert(value, _Shape)
    if shape.role not in ROLES:
        raise msgspec.ValidationError(f"Role {shape.role!r} of message {shape.id!r} is none of {sorted(ROLES)}")
    for part in shape.parts:
        _check_part(part)
    extra = {key: item for key, item in msgspec.convert(value, JsonObject).items() if key not in _KNOWN_KEYS}
    return UIMessage(shape.id, shape.role, shape.parts, shape.metadata, extra)


def _check_part(part: JsonObject) -> None:
    """Refuse what later code would stumble over, at every turn anew."""
    for key in ("type", "state", "toolCallId", "toolName", "text", "errorText"):
        if not isinstance(part.get(key, ""), str):
            raise msgspec.ValidationError(f"{key!r} of a message part must be text, not {part[key]!r:.80}")
    if not isinstance(part.get("approval") or {}, dict):
        raise msgspec.ValidationError(f"'approval' of a message part must be an object, not {part['approval']!r:.80}")


def message_to_object(message: UIMessage) -> JsonObject:
    """The JSON object of a message, as stored and sent; tool inputs are made objects."""
    known: JsonObject = {"id": message.id, "role": message.role, "parts": with_normal_inputs(message.parts)}
    if message.metadata is not None:
        known["metadata"] = message.metadata
    return {**message.extra, **known}


def decode_message(data: bytes | str) -> UIMessage:
    """A message from its JSON text, as it was stored; nothing is repaired here (see ``core.repair``).

    Raises:
        msgspec.DecodeError: Not JSON, or not a message.
    """
    value: Any = _decoder.decode(data)
    return message_from_object(value)


def encode_message(message: UIMessage) -> bytes:
    """The JSON text of a message, for storage and frames."""
    return _encoder.encode(message_to_object(message))


def user_message(content: str | UIMessage | JsonObject, message_id: str) -> UIMessage:
    """What a caller passed as input, as a user message.

    Args:
        content: Text, also empty; a message; or a message's JSON object, whose ``id`` and ``role`` may be missing.
        message_id: A fresh id, used where the content brings none.

    Raises:
        msgspec.ValidationError: The object is no message.
    """
    if isinstance(content, str):
        return UIMessage(message_id, "user", [{"type": "text", "text": content}])
    if isinstance(content, UIMessage):
        return content if content.id else msgspec.structs.replace(content, id=message_id)
    return message_from_object({"role": "user", **content, "id": content.get("id") or message_id})
