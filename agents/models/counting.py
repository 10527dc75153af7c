"""The count of model calls, kept outside of the process that makes them.

A benchmark that kills agents cannot ask them how often they called the model. So each request becomes one line of JSON,
written with one ``write`` to a file opened for appending: lines of many processes do not mix.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections import OrderedDict
from pathlib import Path

import msgspec

from agents.models.model import ModelRequest
from agents.models.position import Position

__all__ = ["Counted", "Counter"]

# Places of scripts whose requests this process counts while it has no file; the oldest are forgotten.
PLACES_MAX = 10_000
POST_TIMEOUT_S = 5.0

_counts: OrderedDict[str, int] = OrderedDict()


class Counted(msgspec.Struct, frozen=True):
    """One line of the file.

    Attributes:
        request_id: Of the turn, as the request has it.
        step: Index of the step that was asked for.
        resumed_at: Characters of the step's text that the request already had.
        pid: The process that asked.
        time: Epoch seconds.
        key: Turn and history, equal in all processes that ask for the same turn.
    """

    request_id: str
    step: int
    resumed_at: int
    pid: int
    time: float
    key: str = ""


class Counter:
    """Counts requests in a file, at a URL, or for this process only."""

    def __init__(self, *, count_file: str | None, count_url: str | None, closed_file: str | None) -> None:
        self._count_file = count_file
        self._count_url = count_url
        self._closed_file = closed_file

    async def begin(self, request: ModelRequest, position: Position, resumed_at: int) -> int:
        """Note a request; returns how many there were for this step of this turn, this one included."""
        line = _line(request, position, resumed_at)
        if self._count_url is not None:
            await asyncio.to_thread(_post, self._count_url, line)
        if self._count_file is None:
            return _count_here(f"{position.key}/{position.round}")
        _append(self._count_file, line)
        return _count_in(self._count_file, position)

    def closed(self, request: ModelRequest, position: Position, said: int) -> None:
        """Note that a request ended before its last part: cancelled, dropped, or failed."""
        if self._closed_file is not None:
            _append(self._closed_file, _line(request, position, said))


def _line(request: ModelRequest, position: Position, resumed_at: int) -> bytes:
    counted = Counted(request.request_id, position.round, resumed_at, os.getpid(), round(time.time(), 6), position.key)
    return msgspec.json.encode(counted) + b"\n"


def _append(path: str, line: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def _count_in(path: str, position: Position) -> int:
    lines = Path(path).read_bytes().splitlines()
    found = (msgspec.json.decode(line, type=Counted) for line in lines if line)
    return sum(1 for counted in found if (counted.key, counted.step) == (position.key, position.round))


def _count_here(place: str) -> int:
    count = _counts.pop(place, 0) + 1
    _counts[place] = count
    if len(_counts) > PLACES_MAX:
        _counts.popitem(last=False)
    return count


def _post(url: str, line: bytes) -> None:
    request = urllib.request.Request(url, data=line, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=POST_TIMEOUT_S) as answer:
        answer.read()
