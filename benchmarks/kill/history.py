"""What happened, written down where no kill reaches it.

One file for all processes. A line is one JSON object, put there by one ``write`` to a file opened for appending, so
lines of many processes do not mix and their order is one that all of them agree with: a line that stands behind
another was written after it. Times are of the machine's monotonic clock, which all processes share.

``who`` is the object or caller that the line is about, ``pid`` the process that wrote it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = [
    "Acked",
    "Armed",
    "Asked",
    "Born",
    "Closed",
    "Ended",
    "Entered",
    "History",
    "Killed",
    "Line",
    "Opened",
    "Ran",
    "Rang",
    "Responded",
    "Shown",
    "Wrote",
    "read",
]


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    who: str
    pid: int = 0
    at: float = 0.0


class Born(_Line, tag="born", frozen=True):
    """An instance was constructed; ``epoch`` is that of the lease under which it lives."""

    epoch: int


class Entered(_Line, tag="entered", frozen=True):
    """The process of an object is in this phase from now on, until the next such line of that process."""

    phase: str


class Asked(_Line, tag="asked", frozen=True):
    """A caller asks a parent for a turn of its child, of a shape that ``scripts`` knows."""

    turn: str
    shape: int
    child: str


class Opened(_Line, tag="opened", frozen=True):
    """A parent has opened the stream of a turn, behind event ``after``. ``life`` is this one reading of it."""

    turn: str
    life: str
    request_id: str
    after: int = 0


class Shown(_Line, tag="shown", frozen=True):
    """A parent has seen an event; ``chunk`` is its JSON text."""

    turn: str
    life: str
    number: int
    chunk: str


class Closed(_Line, tag="closed", frozen=True):
    """The stream ended at the parent, in the open or by an error."""

    turn: str
    life: str
    outcome: str


class Ended(_Line, tag="ended", frozen=True):
    """The caller has its answer: the turn is over."""

    turn: str
    outcome: str


class Responded(_Line, tag="responded", frozen=True):
    """The hook that a child's turn ends with was called."""

    request_id: str
    status: str


class Ran(_Line, tag="ran", frozen=True):
    """The effect of a tool: written when its body begins, and again when it ends."""

    turn: str
    place: str
    call_id: str
    is_end: bool = False


class Wrote(_Line, tag="wrote", frozen=True):
    """A row is durable in the object's database, says the object that wrote it, under this epoch."""

    row: str
    epoch: int


class Acked(_Line, tag="acked", frozen=True):
    """Somebody was told that the row is durable. A keyed row must be there once, any row at least once."""

    row: str
    is_keyed: bool = False


class Armed(_Line, tag="armed", frozen=True):
    """An alarm was set, durably."""

    row: str


class Rang(_Line, tag="rang", frozen=True):
    """The handler of an alarm came to its end."""

    row: str


class Killed(_Line, tag="killed", frozen=True):
    """SIGKILL was sent to ``pid``. ``wanted`` is the phase that was aimed at, ``phase`` the one that was hit."""

    wanted: str
    phase: str


Line = (
    Born | Entered | Asked | Opened | Shown | Closed | Ended | Responded | Ran | Wrote | Acked | Armed | Rang | Killed
)
T = TypeVar("T", bound=_Line)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class History:
    """The file, for writing and for following.

    Args:
        path: Where it is; created by the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._position = 0

    def note(self, line: T) -> T:
        """Append a line; what it says about pid and time is filled in where it is open."""
        line = msgspec.structs.replace(line, pid=line.pid or os.getpid(), at=line.at or time.monotonic())
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._descriptor, _encoder.encode(line) + b"\n")
        return line

    def news(self) -> list[Line]:
        """The lines that were appended since the last call."""
        try:
            if self.path.stat().st_size == self._position:
                return []
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._position += end
        return [_decoder.decode(line) for line in data[:end].splitlines()]


def read(path: Path) -> Iterator[Line]:
    """All lines."""
    with path.open("rb") as file:
        for line in file:
            yield _decoder.decode(line)
