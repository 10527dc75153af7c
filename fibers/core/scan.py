"""What a scan of interrupted fibers decides, without doing it.

a row's hook      returned: the row is deleted
                  takes long: it goes on, its row stays until it has ended, and the scan goes on without it
raised, row not over age: kept, tried again at the next scan
raised, row over age: deleted, said in an event (so an over-age row still gets one try)
before each row   over the deadline of the scan: stop, the rest waits for the next one
after the scan    rows are left: an alarm, later with each scan in a row that got nothing done

A limit of 0 is none. A start-up has one more: an object that takes 30 s to start is reset (runtime D11), its hook with
it, and the next life would only begin the same hook again. So no hook holds a start-up for longer than
``START_MS_MAX``, which leaves a third of the time to the object's own ``on_start``.
"""

from __future__ import annotations

__all__ = ["BACKOFF_MS_MAX", "START_MS_MAX", "backoff_ms", "deadline_ms", "is_dropped", "is_out_of_time", "wait_ms"]

BACKOFF_MS_MAX = 300_000
START_MS_MAX = 20_000


def is_dropped(created_at_ms: int, now_ms: int, age_ms_max: int) -> bool:
    """Whether a row whose hook raised is too old to be kept; an age of 0 keeps it for ever (recovery F16)."""
    return age_ms_max > 0 and now_ms - created_at_ms > age_ms_max


def is_out_of_time(began_ms: int, now_ms: int, deadline_ms: int) -> bool:
    """Whether the scan has used its time (recovery F19)."""
    return deadline_ms > 0 and now_ms - began_ms > deadline_ms


def deadline_ms(limit_ms: int, *, is_starting: bool) -> int:
    """How long a scan goes on to the next row."""
    if not is_starting:
        return limit_ms
    return min(limit_ms, START_MS_MAX) if limit_ms else START_MS_MAX


def wait_ms(timeout_ms: int, elapsed_ms: int, *, is_framework: bool, is_starting: bool) -> int | None:
    """How long to wait for the handler of one row; None: for as long as it takes (recovery F15)."""
    bounds: list[int] = []
    if is_framework and timeout_ms:
        bounds.append(timeout_ms)
    if is_starting:
        bounds.append(max(0, START_MS_MAX - elapsed_ms))
    return min(bounds, default=None)


def backoff_ms(interval_ms: int, scans_without_progress: int) -> int:
    """The pause until the next scan: 60, 120, 240, 300, 300, ... s for an interval of 30 s (recovery F20).

    After a scan that got something done, the interval itself.
    """
    return min(BACKOFF_MS_MAX, interval_ms << min(scans_without_progress, 20))
