"""The states of one instance, as a table.

    created  -> starting  -> active  -> closing -> closed
                   |           |
                   +-----------+--> reset (abort, failed commit, memory): memory and uncommitted writes are lost

- created: the process exists, nothing is opened. The first event opens storage and starts the object.
- starting: lock, storage, constructor and start-up run under the input gate. A raising ``on_start`` goes back to
  created without a reset (runtime A2): the next event tries again.
- active: events are delivered. Idle for ``hibernate_after`` with nothing that must stay awake: closing.
- closing: new calls are refused, so that their callers activate a fresh instance and try again. Storage is
  checkpointed and closed, the lock released, then the process ends.
- reset, closed: every storage access raises; the process ends.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["Busy", "State", "may_move", "stays_awake"]


class State(StrEnum):
    """Where an instance is in its life."""

    CREATED = "created"
    STARTING = "starting"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"
    RESET = "reset"


_MOVES: dict[State, frozenset[State]] = {
    State.CREATED: frozenset((State.STARTING, State.CLOSING, State.RESET)),
    State.STARTING: frozenset((State.ACTIVE, State.CREATED, State.RESET)),
    State.ACTIVE: frozenset((State.CLOSING, State.RESET)),
    State.CLOSING: frozenset((State.CLOSED, State.RESET)),
    State.CLOSED: frozenset(),
    State.RESET: frozenset(),
}


def may_move(before: State, after: State) -> bool:
    """Whether the table above has the move."""
    return after in _MOVES[before]


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """What can keep an instance awake."""

    calls: int = 0
    streams: int = 0
    background: int = 0
    leases: int = 0
    alarm_running: bool = False
    commits: int = 0


def stays_awake(busy: Busy) -> str:
    """Why the instance may not hibernate now; empty if it may."""
    reasons = {
        "calls": busy.calls,
        "streams": busy.streams,
        "wait_until": busy.background,
        "keep-alive": busy.leases,
        "alarm": int(busy.alarm_running),
        "commit": busy.commits,
    }
    return ", ".join(
        f"{count} {name.removesuffix('s') if count == 1 else name}" for name, count in reasons.items() if count
    )
