"""Events of an agent: structured records for whoever subscribes (runtime A47)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

__all__ = ["Event", "Events"]

log = logging.getLogger("perdure")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event; ``timestamp`` in epoch milliseconds, as the reference's clients expect it."""

    type: str
    agent: str
    name: str
    payload: dict[str, object]
    timestamp: int


class Events:
    """Hands events to sinks; one that raises never breaks the agent."""

    def __init__(self, agent: str, name: str, now_ms: Callable[[], int]) -> None:
        self._agent = agent
        self._name = name
        self._now_ms = now_ms
        self._sinks: list[Callable[[Event], None]] = []

    def subscribe(self, sink: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``sink`` with each event from now on; returns what ends that."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink) if sink in self._sinks else None

    def emit(self, kind: str, payload: dict[str, object]) -> None:
        """Hand an event to all sinks."""
        if not self._sinks:
            return
        event = Event(type=kind, agent=self._agent, name=self._name, payload=payload, timestamp=self._now_ms())
        for sink in tuple(self._sinks):
            try:
                sink(event)
            except Exception:
                log.exception("a subscriber of events raised")
