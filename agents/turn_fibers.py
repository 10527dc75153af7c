"""The rows of turns' fibers, until ``fibers`` keeps them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import msgspec

from agents.core.chunks import JsonObject
from runtime import Store

__all__ = ["FIBER_STEPS", "ChatFibers"]

FIBER_STEPS = (
    "CREATE TABLE cf_ai_chat_fibers (id VARCHAR NOT NULL, name VARCHAR NOT NULL, snapshot VARCHAR, "
    "created_at_ms BIGINT NOT NULL)",
)


class ChatFibers:
    """Fibers of turns."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    def begin(self, name: str, snapshot: JsonObject) -> str:
        """Write the row of a fiber; returns its id."""
        fiber_id = uuid4().hex
        row = (fiber_id, name, msgspec.json.encode(snapshot).decode(), self._now_ms())
        self._store.execute("INSERT INTO cf_ai_chat_fibers VALUES (?, ?, ?, ?)", row)
        return fiber_id

    def end(self, fiber_id: str) -> None:
        """Remove the row."""
        self._store.execute("DELETE FROM cf_ai_chat_fibers WHERE id = ?", (fiber_id,))

    def scan(self, handle: Callable[[str, object], None]) -> None:
        """Hand over what a death interrupted."""
        for fiber_id, name, snapshot in self._store.execute("SELECT id, name, snapshot FROM cf_ai_chat_fibers").rows:
            handle(str(name), msgspec.json.decode(str(snapshot)))
            self.end(str(fiber_id))
