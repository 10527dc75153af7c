"""What a host can be asked beside the object's own loop: ping, watch, evict."""

from __future__ import annotations

import msgspec

from runtime.wire import Failure, error_from

__all__ = [
    "Answer",
    "Ask",
    "Broken",
    "Ended",
    "Evict",
    "Evicted",
    "Ping",
    "Pong",
    "Progressed",
    "Watch",
    "decode_answer",
    "decode_ask",
]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Are you there, and what are you doing?"""


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Answer at the first progress (unless it was seen), or when the instance no longer needs watching."""

    has_seen_progress: bool = False


class Evict(msgspec.Struct, frozen=True, tag="evict"):
    """Hibernate now, if nothing keeps the instance awake."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The state of an instance. ``busy`` says what keeps it awake."""

    pid: int
    state: str
    epoch: int
    busy: str
    idle_ms: int


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """Durable progress was made in this life."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The instance has no work that needs watching any more."""


class Evicted(msgspec.Struct, frozen=True, tag="evicted"):
    """Whether the instance ends; else what keeps it awake."""

    is_ending: bool
    busy: str = ""


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """There is no instance, and none can be made in this process."""

    failure: Failure


Ask = Ping | Watch | Evict
Answer = Pong | Progressed | Ended | Evicted

_ask = msgspec.msgpack.Decoder(Ask)
_answer: msgspec.msgpack.Decoder[Answer | Broken] = msgspec.msgpack.Decoder(Answer | Broken)


def decode_ask(data: bytes) -> Ask:
    """A question from its bytes."""
    return _ask.decode(data)


def decode_answer(data: bytes) -> Answer:
    """An answer from its bytes.

    Raises:
        PerdureError: There is no instance to answer; why it cannot be made.
    """
    answer = _answer.decode(data)
    if isinstance(answer, Broken):
        raise error_from(answer.failure)
    return answer
