"""The history as it grows: who lives, in which phase, and which streams are open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.kill.history import Born, Closed, Entered, History, Opened, Shown
from runtime.cluster.ray_files import Process

__all__ = ["Life", "Observer", "Reading", "child_of"]

T = TypeVar("T")
POLL_SECONDS = 0.002


@dataclass
class Life:
    """One process of one object, and the phase that it announced last."""

    who: str
    process: Process
    phase: str = ""
    entered_at: float = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass
class Reading:
    """A stream that is open at a parent."""

    turn: str
    parent: str
    pid: int
    life: str
    shown: int = 0
    shown_at: float = 0.0


def child_of(parent: str) -> str:
    """The child whose turns a parent reads."""
    return f"{parent} > Writer/writer"


class Observer:
    """Follows the history; everything else of the driver asks it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._news = asyncio.Event()
        self.lives: dict[int, Life] = {}
        self.current: dict[str, Life] = {}
        self.readings: dict[str, Reading] = {}
        self.shown_at: dict[str, float] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Take in what was appended."""
        lines = self._history.news()
        for line in lines:
            if isinstance(line, Born):
                life = Life(line.who, Process.of(line.who, line.pid))
                self.lives[line.pid] = self.current[line.who] = life
            elif isinstance(line, Entered):
                if line.pid in self.lives:
                    self.lives[line.pid].phase, self.lives[line.pid].entered_at = line.phase, line.at
            elif isinstance(line, Opened):
                self.readings[child_of(line.who)] = Reading(line.turn, line.who, line.pid, line.life)
            elif isinstance(line, Shown):
                self._shown(line)
            elif isinstance(line, Closed):
                reading = self.readings.get(child_of(line.who))
                if reading is not None and reading.life == line.life:
                    del self.readings[child_of(line.who)]
        if lines:
            self._news.set()
            self._news.clear()

    def _shown(self, line: Shown) -> None:
        self.shown_at[child_of(line.who)] = line.at
        reading = self.readings.get(child_of(line.who))
        if reading is not None and reading.life == line.life:
            reading.shown += 1
            reading.shown_at = line.at

    def died(self, who: str) -> None:
        """A parent was killed: nobody writes down the end of its reading."""
        self.readings.pop(child_of(who), None)

    def in_phase(self, who: str, phase: str) -> Life | None:
        """The object's process, if it is in that phase."""
        life = self.current.get(who)
        return life if life is not None and life.phase == phase else None

    async def until(self, found: Callable[[], T | None], seconds: float) -> T | None:
        """What ``found`` finds, as soon as it does; None if that takes longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            result = found()
            if result is not None:
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait({news}, timeout=min(left, 0.25))
            news.cancel()
