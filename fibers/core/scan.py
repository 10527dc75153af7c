"""What a scan of interrupted fibers decides, without doing it.

a row's hook      returned: the row is deleted
raised, row not over age: kept, tried again at the next scan
raised, row over age: deleted, said in an event (so an over-age row still gets one try)
before each row   over the deadline of the scan: stop, the rest waits for the next one
after the scan    rows are left: an alarm, later with each scan in a row that got nothing done
"""

from __future__ import annotations

__all__ = ["BACKOFF_MS_MAX", "backoff_ms", "is_dropped", "is_out_of_time"]

BACKOFF_MS_MAX = 300_000


def is_dropped(created_at_ms: int, now_ms: int, age_ms_max: int) -> bool:
    """Whether a row whose hook raised is too old to be kept; an age of 0 keeps it for ever (recovery F16)."""
    return age_ms_max > 0 and now_ms - created_at_ms > age_ms_max


def is_out_of_time(began_ms: int, now_ms: int, deadline_ms: int) -> bool:
    """Whether the scan has used its time (recovery F19)."""
    return now_ms - began_ms > deadline_ms


def backoff_ms(interval_ms: int, scans_without_progress: int) -> int:
    """The pause until the next scan: 60, 120, 240, 300, 300, ... s for an interval of 30 s (recovery F20)."""
    return min(BACKOFF_MS_MAX, interval_ms << min(scans_without_progress, 20))
