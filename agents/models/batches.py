"""What travels between an agent and its node's relay: a call there, batches of parts back.

A batch is a msgpack list of parts, which are Structs told apart by their ``type``. The last batch ends with a
``ModelFinish``, or with a ``Trouble``: an error as data, since exceptions of the vendor's SDK cannot be rebuilt in a
process that must not load it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.core.chunks import (
    FileChunk,
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
from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused
from agents.models.model import ModelFinish, ModelPart, ModelRequest, ToolCall
from runtime.errors import PerdureError

__all__ = [
    "ModelCall",
    "Trouble",
    "decode_batch",
    "decode_call",
    "encode_batch",
    "encode_call",
    "error_of",
    "trouble_of",
]


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request and everything that the vendor's client must know. ``repr`` does not show the key.

    Attributes:
        request: What the turn asks.
        model: The vendor's name of the model.
        api_key: Of the agent's owner; never logged.
        base_url: Where the service is.
        max_tokens: Used if the request names no limit.
        extra: Fields of the vendor's body that the agent's author set.
        headers: Additional headers.
        timeout: Seconds without a byte after which the connection counts as lost.
        retries: How often a request is sent again before its first part.
        is_caching: Whether to mark the request for the vendor's prompt cache.
    """

    request: ModelRequest
    model: str
    api_key: str
    base_url: str
    max_tokens: int
    extra: JsonObject = {}
    headers: dict[str, str] = {}
    timeout: float = 60.0
    retries: int = 2
    is_caching: bool = True

    def __repr__(self) -> str:
        return f"ModelCall(model={self.model!r}, base_url={self.base_url!r}, request_id={self.request.request_id!r})"


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """An error of the model as data; ``kind`` is the name of one of our classes."""

    kind: str
    message: str
    status: int = 0
    retry_after: float = 0.0
    is_retryable: bool = False


_Sent = (
    TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | FileChunk
    | ToolCall
    | ModelFinish
    | Trouble
)

_encoder = msgspec.msgpack.Encoder()
_call_decoder = msgspec.msgpack.Decoder(ModelCall)
_batch_decoder = msgspec.msgpack.Decoder(list[_Sent])


def encode_call(call: ModelCall) -> bytes:
    """A call as bytes. They hold the key."""
    return _encoder.encode(call)


def decode_call(data: bytes) -> ModelCall:
    """A call from its bytes."""
    return _call_decoder.decode(data)


def encode_batch(parts: Sequence[ModelPart | Trouble]) -> bytes:
    """Parts in their order, as bytes."""
    return _encoder.encode(parts)


def decode_batch(data: bytes) -> Sequence[_Sent]:
    """Parts from their bytes."""
    return _batch_decoder.decode(data)


def trouble_of(error: PerdureError) -> Trouble:
    """An error of ``agents.errors`` as data."""
    status = error.status if isinstance(error, ModelRefused | ModelOverloaded) else 0
    retry_after = error.retry_after if isinstance(error, ModelOverloaded) else 0.0
    return Trouble(type(error).__name__, error.message, status, retry_after, error.retryable)


def error_of(trouble: Trouble) -> PerdureError:
    """The error to raise for one that came as data."""
    match trouble.kind:
        case "ModelRefused":
            return ModelRefused(trouble.message, status=trouble.status)
        case "ModelOverloaded":
            return ModelOverloaded(trouble.message, status=trouble.status, retry_after=trouble.retry_after)
        case _:
            return ModelConnectionLost(trouble.message, retryable=trouble.is_retryable)
