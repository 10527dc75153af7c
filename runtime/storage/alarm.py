"""The alarm slot of one object, as data.

One row or none, holding a packed ``runtime.core.alarms.Slot``. Here it is set and read; when it fires and how it is
retried is decided there and done by ``runtime.alarms`` (runtime D24-D28).
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from runtime.core import alarms
from runtime.core.alarms import Slot
from runtime.errors import UsageError
from runtime.storage.store import Session

__all__ = ["ALARM_TABLE", "alarm_at_ms", "clear_alarm", "read_alarm", "read_slot", "write_alarm", "write_slot"]

ALARM_TABLE = "CREATE TABLE cf_alarm (slot INTEGER PRIMARY KEY, body BLOB NOT NULL)"

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


def read_slot(session: Session) -> Slot:
    """The slot as stored; an empty one if it was never set."""
    found = session.execute("SELECT body FROM cf_alarm WHERE slot = ?", (SLOT,)).rows
    return msgspec.msgpack.decode(found[0][0], type=Slot) if found else Slot()  # type: ignore[arg-type]  # a BLOB


def write_slot(session: Session, slot: Slot) -> None:
    """Store the slot in the session's transaction."""
    body = msgspec.msgpack.encode(slot)
    if session.execute("UPDATE cf_alarm SET body = ? WHERE slot = ?", (body, SLOT)).changed == 0:
        session.execute("INSERT INTO cf_alarm VALUES (?, ?)", (SLOT, body))


def write_alarm(session: Session, at_ms: int) -> None:
    """Set the slot; the count of retries starts anew."""
    write_slot(session, alarms.set_at(read_slot(session), at_ms))


def clear_alarm(session: Session) -> None:
    """Empty the slot; a handler that runs goes on, but is not retried."""
    write_slot(session, alarms.cleared(read_slot(session)))


def read_alarm(session: Session) -> int | None:
    """Epoch milliseconds in the slot; None if it is empty."""
    return read_slot(session).at_ms
