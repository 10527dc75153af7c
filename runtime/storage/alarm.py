"""The alarm slot of one object, as data.

One row or none. Here it is only set and read; when it fires and how it is retried is the host's business (runtime
D24-D28), which keeps ``retry_count`` in the same row.
"""

from __future__ import annotations

import math
from datetime import datetime

from runtime.errors import UsageError
from runtime.storage.store import Session

__all__ = ["ALARM_TABLE", "alarm_at_ms", "clear_alarm", "read_alarm", "write_alarm"]

ALARM_TABLE = "CREATE TABLE cf_alarm (slot INTEGER PRIMARY KEY, at_ms BIGINT, retry_count INTEGER NOT NULL)"

SLOT = 0
# Later instants than the year 9999 have no datetime, and a factor of 1000 forgotten is found here.
AT_SECONDS_MAX = 253_402_300_800.0


def alarm_at_ms(when: object) -> int:
    """Epoch milliseconds of ``when``: epoch seconds, or a datetime with a time zone.

    Raises:
        UsageError: It is neither, NaN, or beyond the year 9999.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise UsageError(f"the alarm time {when!r} has no time zone; use datetime.now(UTC) or give it one")
        seconds = when.timestamp()
    elif isinstance(when, int | float) and not isinstance(when, bool):
        seconds = float(when)
    else:
        raise UsageError(
            f"an alarm time is epoch seconds or an aware datetime, not {type(when).__name__}: {when!r:.80}"
        )
    if math.isnan(seconds) or abs(seconds) > AT_SECONDS_MAX:
        raise UsageError(f"the alarm time {when!r} is no point in time; it is epoch seconds, not milliseconds")
    return round(seconds * 1000)


def write_alarm(session: Session, at_ms: int) -> None:
    """Set the slot; the count of retries starts anew."""
    if session.execute("UPDATE cf_alarm SET at_ms = ?, retry_count = 0 WHERE slot = ?", (at_ms, SLOT)).changed == 0:
        session.execute("INSERT INTO cf_alarm VALUES (?, ?, 0)", (SLOT, at_ms))


def clear_alarm(session: Session) -> None:
    """Empty the slot."""
    session.execute("DELETE FROM cf_alarm WHERE slot = ?", (SLOT,))


def read_alarm(session: Session) -> int | None:
    """Epoch milliseconds in the slot; None if it is empty."""
    found = session.execute("SELECT at_ms FROM cf_alarm WHERE slot = ?", (SLOT,)).rows
    at_ms = found[0][0] if found else None
    assert at_ms is None or isinstance(at_ms, int)
    return at_ms
