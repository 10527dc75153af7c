"""The messages of one conversation, in storage and in memory.

Every message is a row with its parent, so that the conversation is a tree; what is active is the path from the root
to the newest leaf. For now nobody makes branches, and the path is the whole tree.

There is one way to write: through this class, which changes the row and the cached path in one go, so that what a
reader gets is never older than what was stored (FR-07). Nothing here commits: writes belong to the stretch of the
caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agents.sessions.messages import UIMessage, decode_message, encode_message, sanitise
from runtime import Store
from runtime.errors import SqlError

__all__ = ["SESSION_STEPS", "Session"]

# Named as in the reference, where people look for it; not cf_..., so delete_all drops it and it is made again on use.
TABLE = (
    "CREATE TABLE IF NOT EXISTS assistant_messages (id VARCHAR NOT NULL, session_id VARCHAR NOT NULL, "
    "parent_id VARCHAR, role VARCHAR NOT NULL, content VARCHAR NOT NULL, created_at_ms BIGINT NOT NULL, seq BIGINT)"
)
SESSION_STEPS = (TABLE,)
# Sessions S4.
DEPTH_MAX = 10_000


class _Entry(msgspec.Struct):
    # ``message`` is None for a row whose JSON is corrupt: it keeps its place in the tree and is never shown (S5).
    id: str
    parent_id: str | None
    message: UIMessage | None


class Session:
    """One conversation of an agent.

    Args:
        store: The agent's database.
        now_ms: Gives epoch milliseconds.
        session_id: Which conversation; an agent has one without a name.
    """

    def __init__(self, store: Store, now_ms: Callable[[], int], session_id: str = "") -> None:
        self.session_id = session_id
        self._store = store
        self._now_ms = now_ms
        self._loaded: dict[str, _Entry] | None = None
        self._path: list[UIMessage] | None = None
        self._seq = 0

    def get_history(self) -> list[UIMessage]:
        """The messages from the first to the latest leaf. The messages are shared: never change one."""
        if self._path is None:
            entries = self._entries
            path: list[UIMessage] = []
            seen: set[str] = set()
            at = self._leaf()
            while at is not None and at.id not in seen and len(seen) < DEPTH_MAX:
                seen.add(at.id)
                if at.message is not None:
                    path.append(at.message)
                at = entries.get(at.parent_id) if at.parent_id is not None else None
            self._path = path[::-1]
        return list(self._path)

    def get_message(self, message_id: str) -> UIMessage | None:
        """One message, on the path or beside it."""
        entry = self._entries.get(message_id)
        return entry.message if entry is not None else None

    def get_latest_leaf(self) -> UIMessage | None:
        """The newest message that has no answer yet (S3); None in an empty conversation."""
        history = self.get_history()
        return history[-1] if history else None

    def get_parent_id(self, message_id: str) -> str | None:
        """The id of the message that this one answers."""
        entry = self._entries.get(message_id)
        return entry.parent_id if entry is not None else None

    def append_message(self, message: UIMessage, parent_id: str | msgspec.UnsetType | None = msgspec.UNSET) -> bool:
        """Store a new message; one whose id is known changes nothing (S1).

        Args:
            message: The message.
            parent_id: What it answers: by default the latest leaf; None, or an id that is not known, makes a root.

        Returns:
            Whether the message was new.
        """
        entries = self._entries
        if message.id in entries:
            return False
        if parent_id is msgspec.UNSET:
            leaf = self._leaf()
            parent_id = leaf.id if leaf is not None else None
        elif parent_id not in entries:
            parent_id = None
        message = sanitise(message)
        self._seq += 1
        row = (message.id, self.session_id, parent_id, message.role, encode_message(message).decode())
        self._execute("INSERT INTO assistant_messages VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, self._now_ms(), self._seq))
        entries[message.id] = _Entry(message.id, parent_id, message)
        self._path = None
        return True

    def update_message(self, message: UIMessage) -> bool:
        """Replace the content of a stored message, in its place; False if there is no such message."""
        entry = self._entries.get(message.id)
        if entry is None:
            return False
        message = sanitise(message)
        self._execute(
            "UPDATE assistant_messages SET content = ? WHERE id = ? AND session_id = ?",
            (encode_message(message).decode(), message.id, self.session_id),
        )
        entry.message = message
        self._path = None
        return True

    def save_message(self, message: UIMessage, parent_id: str | msgspec.UnsetType | None = msgspec.UNSET) -> None:
        """Store a message, whether its id is new or known: repeatable without doubling or losing it (recovery T7)."""
        if not self.update_message(message):
            self.append_message(message, parent_id)

    def clear_messages(self) -> None:
        """Remove all messages of this conversation."""
        self._execute("DELETE FROM assistant_messages WHERE session_id = ?", (self.session_id,))
        self.forget()

    def forget(self) -> None:
        """Drop what is cached: the next look reads storage."""
        self._loaded = None
        self._path = None

    @property
    def _entries(self) -> dict[str, _Entry]:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> dict[str, _Entry]:
        query = "SELECT id, parent_id, content, seq FROM assistant_messages WHERE session_id = ? ORDER BY seq, rowid"
        entries: dict[str, _Entry] = {}
        self._seq = 0
        for message_id, parent_id, content, seq in self._execute(query, (self.session_id,)):
            assert isinstance(message_id, str)
            assert isinstance(content, str)
            assert parent_id is None or isinstance(parent_id, str)
            self._seq = max(self._seq, seq if isinstance(seq, int) else 0)
            entries.setdefault(message_id, _Entry(message_id, parent_id, _decoded(content)))
        return entries

    def _leaf(self) -> _Entry | None:
        entries = self._entries
        parents = {entry.parent_id for entry in entries.values()}
        return next((entry for entry in reversed(entries.values()) if entry.id not in parents), None)

    def _execute(self, query: str, bindings: Sequence[str | int | None]) -> list[tuple[object, ...]]:
        try:
            return list(self._store.execute(query, bindings).rows)
        except SqlError as error:
            if "assistant_messages" not in error.message or "does not exist" not in error.message:
                raise
        self._store.execute(TABLE)
        return list(self._store.execute(query, bindings).rows)


def _decoded(content: str) -> UIMessage | None:
    try:
        return decode_message(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
