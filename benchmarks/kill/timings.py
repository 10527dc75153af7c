"""From a kill to the next new event at the parent.

An event counts as new when its number was not seen before and it arrived after the next instance was born: what the
dead one had sent and Ray still delivers is no recovery. Of a child's deaths only the first since it last made progress
counts; after a further one the keeper waits before it creates the child again, by design, so those are told apart. So
is the first of two such deaths: nothing could be seen between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.kill.history import Born, Closed, Killed, Line, Opened, Shown
from benchmarks.kill.observer import child_of

__all__ = ["Timings", "measure"]


@dataclass
class Timings:
    """Seconds from a kill to the next new event: of a child, of one that died again, of the parent itself."""

    child: list[float] = field(default_factory=list)
    repeated: list[float] = field(default_factory=list)
    parent: list[float] = field(default_factory=list)
    to_birth: list[float] = field(default_factory=list)


@dataclass
class _Open:
    """A stream, as it stood when one of its two ends was killed."""

    turn: str
    parent: str
    number: int


def measure(lines: Sequence[Line]) -> Timings:
    """All that can be measured."""
    ordered = sorted(lines, key=lambda line: line.at)
    timings = Timings()
    kills = [(at, line) for at, line in enumerate(ordered) if isinstance(line, Killed)]
    for position, killed in kills:
        stream = _open_at(ordered[:position], killed.who)
        if stream is None:
            continue
        born, event = _next_event(ordered[position:], killed.who, stream)
        if born is None or event is None:
            continue
        both = (stream.parent, child_of(stream.parent))
        if any(one.who in both and one is not killed and killed.at <= one.at < event.at for _, one in kills):
            continue
        seconds = event.at - killed.at
        if killed.who == stream.parent:
            timings.parent.append(seconds)
        elif _is_repeated(ordered[:position], killed, stream):
            timings.repeated.append(seconds)
        else:
            timings.child.append(seconds)
            timings.to_birth.append(born.at - killed.at)
    return timings


def _open_at(before: Sequence[Line], who: str) -> _Open | None:
    """The stream that was open between this object and its parent or child, and had shown something."""
    number = 0
    for line in reversed(before):
        if isinstance(line, Opened | Closed | Shown | Killed) and who not in (line.who, child_of(line.who)):
            continue
        if isinstance(line, Closed):
            return None
        if isinstance(line, Killed) and line.who == who and " > " not in who:
            return None  # the parent was dead already
        if isinstance(line, Shown):
            number = max(number, line.number)
        if isinstance(line, Opened):
            return _Open(line.turn, line.who, max(number, line.after)) if number else None
    return None


def _next_event(behind: Sequence[Line], who: str, stream: _Open) -> tuple[Born | None, Shown | None]:
    born: Born | None = None
    for line in behind:
        if isinstance(line, Born) and line.who == who:
            born = born or line
        elif isinstance(line, Shown) and line.turn == stream.turn and line.number > stream.number and born is not None:
            return born, line
    return born, None


def _is_repeated(before: Sequence[Line], killed: Killed, stream: _Open) -> bool:
    for line in reversed(before):
        if isinstance(line, Shown) and line.turn == stream.turn:
            return False
        if isinstance(line, Killed) and line.who == killed.who:
            return True
    return False
