"""The rows of fibers: one for each that has begun and not ended, in the object's own database."""

from __future__ import annotations

import json
from typing import Any

from fibers.records import RecoveredFiber
from runtime import Store
from runtime.errors import UsageError

__all__ = ["FIBER_STEPS", "FiberJournal", "to_json"]

FIBER_STEPS = (
    "CREATE TABLE cf_agents_runs (id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, snapshot VARCHAR, frame VARCHAR, "
    "created_at_ms BIGINT NOT NULL)",
)


def to_json(data: Any, what: str) -> str:
    """JSON text that a database takes; ``what`` names it in the error.

    Raises:
        UsageError: It is no JSON, or holds NaN or an infinity.
    """
    try:
        text = _dumped(data, is_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as it comes out of split or badly decoded text: JSON can say it, UTF-8 cannot.
        return _dumped(data, is_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be JSON: {error}. The earlier one stays.") from None
    return text


def _dumped(data: Any, *, is_ascii: bool) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=is_ascii)


def _from_json(text: object) -> Any:
    if text is None:
        return None
    try:
        return json.loads(str(text))
    except ValueError:
        return None  # damaged: the hook decides without it (recovery F14)


class FiberJournal:
    """Reads and writes the rows. Writes join the caller's stretch."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, fiber_id: str, name: str, frame: str | None, now_ms: int) -> None:
        """Write the row of a fiber that begins."""
        self._store.execute("INSERT INTO cf_agents_runs VALUES (?, ?, NULL, ?, ?)", (fiber_id, name, frame, now_ms))

    def stash(self, fiber_id: str, snapshot: str) -> None:
        """Replace the snapshot; a row that is gone is not revived."""
        self._store.execute("UPDATE cf_agents_runs SET snapshot = ? WHERE id = ?", (snapshot, fiber_id))

    def delete(self, fiber_id: str) -> None:
        """Remove the row; one that is gone is no error."""
        self._store.execute("DELETE FROM cf_agents_runs WHERE id = ?", (fiber_id,))

    def rows(self) -> list[RecoveredFiber]:
        """All rows, oldest first."""
        query = "SELECT id, name, snapshot, frame, created_at_ms FROM cf_agents_runs ORDER BY created_at_ms, id"
        return [
            RecoveredFiber(
                id=str(fiber_id),
                name=str(name),
                snapshot=_from_json(snapshot),
                frame=_from_json(frame),
                created_at=int(str(created)) / 1000,
            )
            for fiber_id, name, snapshot, frame, created in self._store.execute(query).rows
        ]
