"""What may pass into an object, and when: the input gate and the mailbox, as pure state.

An event (a call, an alarm) arrives with a ticket. While nobody holds the gate it is admitted at once. While
``block_concurrency_while`` (start-up included) holds it, tickets wait in order of arrival; when the last holder lets
go they are admitted in that order. What waits is bounded: by number, by bytes, by time, and by the arrivals within
ten seconds. What goes over a bound is turned away with the reason, never queued for ever.

    state          arrive                     hold     release
    open           admit                      held     (an error of the driver)
    held(n)        wait, or turn away         held+1   n-1; at 0 admit all waiting, open

The output gate needs no state here: a stretch's writes are committed before control returns to the loop, so output
that leaves later is after the commit by construction (see ``runtime.stretch``).
"""

from __future__ import annotations

from collections import deque

import msgspec

__all__ = ["InputGate", "Limits", "Overloaded"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one object's mailbox. The rate is the platform's soft rate of about 1,000 requests a second.

    Source: https://developers.cloudflare.com/durable-objects/platform/limits/
    """

    waiting_max: int = 1_000
    waiting_bytes_max: int = 64 * 1024 * 1024
    arrivals_max: int = 20_000
    arrivals_window_ms: int = 10_000


class Overloaded(msgspec.Struct, frozen=True):
    """An event was turned away; the reason is one of the four of runtime D35."""

    reason: str


class InputGate:
    """Who holds the gate and who waits. Mutable, but only by its own methods, and without clock or I/O."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holders = 0
        self._waiting: dict[int, int] = {}
        self._waiting_bytes = 0
        self._arrivals: deque[int] = deque()

    def arrive(self, ticket: int, size: int, now_ms: int) -> bool | Overloaded:
        """True: admitted. False: it waits. ``Overloaded``: turned away, nothing was kept."""
        limits, arrivals = self._limits, self._arrivals
        while arrivals and arrivals[0] <= now_ms - limits.arrivals_window_ms:
            arrivals.popleft()
        if len(arrivals) >= limits.arrivals_max:
            return Overloaded("too many requests within a 10 s window")
        if self._holders == 0:
            arrivals.append(now_ms)
            return True
        if len(self._waiting) >= limits.waiting_max:
            return Overloaded("too many requests queued")
        if self._waiting_bytes + size > limits.waiting_bytes_max:
            return Overloaded("too much data queued")
        arrivals.append(now_ms)
        self._waiting[ticket] = size
        self._waiting_bytes += size
        return False

    def leave(self, ticket: int) -> None:
        """A waiting event gave up (cancelled, or queued for too long)."""
        self._waiting_bytes -= self._waiting.pop(ticket, 0)

    def hold(self) -> None:
        """Close the gate once more."""
        self._holders += 1

    def release(self) -> list[int]:
        """Undo one ``hold``; the tickets to admit now, in order of arrival."""
        assert self._holders > 0, "the input gate was released more often than held"
        self._holders -= 1
        if self._holders:
            return []
        admitted = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return admitted
