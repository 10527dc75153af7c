"""One step of a script, and how it is said.

A step is a tuple of *items*: texts, reasoning, calls, raw chunks, silences and faults, in the order in which they
happen. ``Performance`` says a step from any place of its text on; it waits for nothing itself but yields ``Pause``,
so that its driver (``agents.models.scripted``) owns time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NoReturn, assert_never

import msgspec

from agents.core.chunks import (
    Chunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
)
from agents.models.model import ModelPart, ToolCall, Usage
from agents.models.position import Position

__all__ = ["Call", "Cut", "Emit", "Fail", "Item", "Pause", "Performance", "Reason", "Say", "Step", "Wait"]

# After so many parts without a wait the loop gets a turn; else a script of no delay would keep cancels out.
PARTS_PER_TURN = 64
CHUNK_SIZE = 24


class Cut(msgspec.Struct, frozen=True):
    """How a text is cut: into ``chunks`` chunks if that is given, else into chunks of ``size`` characters."""

    chunks: int | None = None
    size: int = CHUNK_SIZE


class Say(msgspec.Struct, frozen=True):
    """Text."""

    text: str
    cut: Cut = Cut()
    delay: float | None = None


class Reason(msgspec.Struct, frozen=True):
    """Reasoning, signed at its end if there is a signature."""

    text: str
    cut: Cut = Cut()
    signature: str = ""


class Call(msgspec.Struct, frozen=True):
    """A tool call; ``input_text`` reaches the turn as it stands, broken or not (FR-01)."""

    tool_name: str
    input_text: str
    fragments: int
    call_id: str = ""
    delay: float | None = None


class Emit(msgspec.Struct, frozen=True):
    """Chunks as they are: files, sources, data."""

    chunks: tuple[Chunk, ...]


class Wait(msgspec.Struct, frozen=True):
    """Silence; without ``seconds`` for ever."""

    seconds: float | None
    times: int | None


class Fail(msgspec.Struct, frozen=True):
    """An error at this place."""

    error: BaseException | type[BaseException]
    times: int | None


Item = Say | Reason | Call | Emit | Wait | Fail


class Step(msgspec.Struct, frozen=True):
    """One model call of a script; ``a + b`` says a, then b, in one call."""

    items: tuple[Item, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None

    def __add__(self, other: Step) -> Step:
        return Step(self.items + other.items, other.finish_reason or self.finish_reason, other.usage or self.usage)

    @property
    def full_text(self) -> str:
        """All text of the step, as the client sees it at its end."""
        return "".join(item.text for item in self.items if type(item) is Say)


class Pause(msgspec.Struct, frozen=True):
    """What a performance asks of its driver between two parts; None: for ever."""

    seconds: float | None


_TURN_OF_THE_LOOP = Pause(0.0)


class Performance:
    """The answer to one request, without its waiting.

    ``said`` counts the characters of the step's text that the client has, those before the resumption included.
    """

    def __init__(self, step: Step, position: Position, resumed_at: int, count: int, delay: float) -> None:
        self.said = 0
        self._step = step
        self._position = position
        self._resumed_at = resumed_at
        self._count = count
        self._delay = delay
        self._block = 0
        self._calls = 0

    def parts(self) -> Iterator[ModelPart | Pause]:
        """The parts behind what was already said; a fault at the very place where the text stopped is met again."""
        for item in self._step.items:
            match item:
                case Say():
                    yield from self._say(item)
                case Reason():
                    yield from self._reason(item)
                case Call():
                    yield from self._call(item)
                case Emit():
                    yield from () if self._is_behind else item.chunks
                case Wait():
                    if self._strikes(item.times):
                        yield Pause(item.seconds)
                case Fail():
                    if self._strikes(item.times):
                        _raise(item.error)
                case _:
                    assert_never(item)

    @property
    def _is_behind(self) -> bool:
        """Whether the present place lies before the point where the earlier process stopped."""
        return self.said < self._resumed_at

    def _strikes(self, times: int | None) -> bool:
        return not self._is_behind and (times is None or self._count <= times)

    def _say(self, item: Say) -> Iterator[ModelPart | Pause]:
        begin = max(0, self._resumed_at - self.said)
        if begin >= len(item.text) > 0:
            self.said += len(item.text)
            return
        self.said += begin
        block_id = self._next_block()
        pause = self._pause_of(item.delay)
        yield TextStart(block_id)
        for at, delta in enumerate(_deltas(item.text, item.cut, block_id, begin), 1):
            if pause is not None:
                yield pause
            elif at % PARTS_PER_TURN == 0:
                yield _TURN_OF_THE_LOOP
            self.said += len(delta.delta)
            yield delta
        yield TextEnd(block_id)

    def _reason(self, item: Reason) -> Iterator[ModelPart | Pause]:
        reasoned = self._position.reasoned
        begin = len(reasoned) if item.text.startswith(reasoned) else 0
        if self._is_behind or begin >= len(item.text):
            return
        block_id = self._next_block()
        pause = self._pause_of(None)
        yield ReasoningStart(block_id)
        for delta in _deltas(item.text, item.cut, block_id, begin):
            if pause is not None:
                yield pause
            yield ReasoningDelta(block_id, delta.delta)
        if item.signature:
            yield ReasoningDelta(block_id, "", {"anthropic": {"signature": item.signature}})
        yield ReasoningEnd(block_id)

    def _call(self, item: Call) -> Iterator[ModelPart | Pause]:
        call_id = item.call_id or self._position.call_id(self._calls)
        self._calls += 1
        self._block += 1
        pause = self._pause_of(item.delay)
        yield ToolInputStart(call_id, item.tool_name)
        for fragment in _pieces(item.input_text, Cut(chunks=item.fragments)):
            if pause is not None:
                yield pause
            yield ToolInputDelta(call_id, fragment)
        yield ToolCall(tool_call_id=call_id, tool_name=item.tool_name, input_text=item.input_text)

    def _pause_of(self, own: float | None) -> Pause | None:
        seconds = self._delay if own is None else own
        return Pause(seconds) if seconds > 0 else None

    def _next_block(self) -> str:
        self._block += 1
        return str(self._block - 1)


def _raise(error: BaseException | type[BaseException]) -> NoReturn:
    if isinstance(error, BaseException):
        raise error.with_traceback(None)  # the same object serves many requests; its traceback would only grow
    raise error(f"scripted {error.__name__}")


def _pieces(text: str, cut: Cut) -> list[str]:
    """The text cut; never an empty piece, so there are fewer chunks than asked for if it is too short."""
    if cut.chunks is None:
        return [text[at : at + cut.size] for at in range(0, len(text), cut.size)]
    count = min(cut.chunks, len(text))
    return [text[len(text) * i // count : len(text) * (i + 1) // count] for i in range(count)]


@functools.lru_cache(maxsize=64)
def _whole(text: str, cut: Cut, block_id: str) -> tuple[TextDelta, ...]:
    # get_model() makes a new model each turn; the cache keeps a long script from being cut each time.
    return tuple(TextDelta(block_id, piece) for piece in _pieces(text, cut))


def _deltas(text: str, cut: Cut, block_id: str, begin: int) -> tuple[TextDelta, ...]:
    """The deltas behind character ``begin``; the first may be the rest of a chunk."""
    whole = _whole(text, cut, block_id)
    index = 0
    while index < len(whole) and begin >= len(whole[index].delta):
        begin -= len(whole[index].delta)
        index += 1
    if begin == 0:
        return whole[index:]
    return (TextDelta(block_id, whole[index].delta[begin:]), *whole[index + 1 :])
