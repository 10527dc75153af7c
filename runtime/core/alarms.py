"""Which alarm runs when, and what follows from how it ended: pure state of the one slot of an object.

    slot        set(t)      due, fire            handler returned    handler raised            process died in it
    empty       armed(t)    -                    -                   -                         -
    armed(t)    armed(t')   running              -                   -                         armed(t)
    running     running,    ignored: an alarm    empty, or           armed(now + backoff),     running is found at
                next = t'   never overlaps       armed(next)         retry + 1; after the      start and runs again,
                            itself                                   6th retry: dropped        as a retry; after the
                                                                                               6th: dropped

A time set by the handler itself replaces what a failed run would have set. ``version`` grows with each change of the
slot, so that the keeper, whose messages can overtake each other, keeps the newest.

Source: https://developers.cloudflare.com/durable-objects/api/alarms/
"""

from __future__ import annotations

import msgspec

__all__ = [
    "BACKOFF_MS",
    "RETRIES_MAX",
    "Slot",
    "begin",
    "cleared",
    "failed",
    "finished",
    "is_due",
    "is_exhausted",
    "set_at",
]

# D27: 2, 4, 8, ... seconds, at most six retries.
BACKOFF_MS = 2_000
RETRIES_MAX = 6


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The alarm slot as stored. ``running_at_ms`` is the time of the alarm whose handler began and has not ended."""

    at_ms: int | None = None
    running_at_ms: int | None = None
    retry_count: int = 0
    version: int = 0
    is_retry_wanted: bool = True


def set_at(slot: Slot, at_ms: int) -> Slot:
    """The slot after ``set_alarm``; a new alarm starts without retries, the running one keeps its own count."""
    count = slot.retry_count if slot.running_at_ms is not None else 0
    return msgspec.structs.replace(slot, at_ms=at_ms, retry_count=count, version=slot.version + 1)


def cleared(slot: Slot) -> Slot:
    """The slot after ``delete_alarm``: empty; a running handler goes on, but is not retried."""
    return msgspec.structs.replace(slot, at_ms=None, version=slot.version + 1, is_retry_wanted=False)


def is_due(slot: Slot, now_ms: int) -> bool:
    """Whether the handler should run now: a due time, or a run that a death interrupted."""
    return slot.running_at_ms is not None or (slot.at_ms is not None and slot.at_ms <= now_ms)


def is_exhausted(slot: Slot) -> bool:
    """Whether a run that a death interrupted was the last retry: a handler that ends its process is dropped too."""
    return slot.running_at_ms is not None and slot.retry_count >= RETRIES_MAX


def begin(slot: Slot) -> Slot:
    """The slot while the handler runs: empty for ``get_alarm``. An interrupted run counts as one retry."""
    if slot.running_at_ms is not None:
        return msgspec.structs.replace(slot, retry_count=slot.retry_count + 1, version=slot.version + 1)
    return msgspec.structs.replace(
        slot, at_ms=None, running_at_ms=slot.at_ms, version=slot.version + 1, is_retry_wanted=True
    )


def finished(slot: Slot) -> Slot:
    """The slot after the handler returned: empty, or what the handler set."""
    return Slot(at_ms=slot.at_ms, version=slot.version + 1)


def failed(slot: Slot, now_ms: int) -> Slot:
    """The slot after the handler raised: armed again with backoff, or dropped after the last retry."""
    if slot.at_ms is not None or not slot.is_retry_wanted or slot.retry_count >= RETRIES_MAX:
        return Slot(at_ms=slot.at_ms, version=slot.version + 1)
    return Slot(
        at_ms=now_ms + BACKOFF_MS * 2**slot.retry_count, retry_count=slot.retry_count + 1, version=slot.version + 1
    )
