"""What an agent's database says about it, for people and tools: state, fibers, unfinished and failed turns, messages.

It reads tables, so it works on a running agent (which answers ``perdure_inspect``) and on a copy of a sleeping one's
files, without its class.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agents.sessions.messages import decode_message
from agents.submissions import Submission
from runtime import Store, open_store
from runtime.errors import SqlError

__all__ = ["Inspection", "TurnState", "inspect_files", "inspect_store"]

MESSAGES_MAX = 10


class TurnState(msgspec.Struct, kw_only=True):
    """One turn that is unfinished, was interrupted, or failed. Times in epoch milliseconds."""

    request_id: str
    status: str
    interruptions: int
    attempts: int
    events: int
    error: str = ""
    created_at_ms: int = 0


class Inspection(msgspec.Struct, kw_only=True):
    """One agent as its database has it."""

    state: Any = None
    fibers: list[dict[str, Any]] = []
    turns: list[TurnState] = []
    sub_agents: list[dict[str, str]] = []
    messages: list[dict[str, Any]] = []
    message_count: int = 0


def inspect_store(store: Store) -> Inspection:
    """Read an open database."""
    found = Inspection()
    found.state = _first(_rows(store, "SELECT state FROM cf_agents_state"), json.loads)
    for name, snapshot, created in _rows(store, "SELECT name, snapshot, created_at_ms FROM cf_agents_runs"):
        found.fibers.append({"name": name, "snapshot": snapshot, "created_at_ms": created})
    aborted: set[str] = set()
    for (body,) in _rows(store, "SELECT body FROM cf_ai_chat_submissions"):
        row = msgspec.msgpack.decode(body, type=Submission)
        if row.status == "aborted":
            aborted.add(row.message_id)
        if not row.is_final or row.run or row.status == "error":
            found.turns.append(_turn(row))
    found.turns.sort(key=lambda turn: turn.created_at_ms)
    for class_name, name in _rows(store, "SELECT class_name, name FROM cf_agents_sub_agents ORDER BY created_at_ms"):
        found.sub_agents.append({"class_name": class_name, "name": name})
    found.message_count = _first(_rows(store, "SELECT count(*) FROM assistant_messages"), int) or 0
    query = f"SELECT content FROM assistant_messages ORDER BY seq DESC LIMIT {MESSAGES_MAX}"
    for (content,) in reversed(_rows(store, query)):
        message = decode_message(content)
        mark = {"is_aborted": True} if message.id in aborted else {}
        found.messages.append({"id": message.id, "role": message.role, "parts": message.parts, **mark})
    return found


def inspect_files(folder: Path) -> Inspection:
    """Read a copy of a sleeping agent's files; the files themselves are never opened (they may wake at any time)."""
    with tempfile.TemporaryDirectory(prefix="perdure-inspect-") as place:
        copied = Path(place) / "object"
        copied.mkdir()
        for file in folder.glob("*.duckdb*"):
            shutil.copy2(file, copied / file.name)
        store = open_store(copied, inline=True)
        try:
            return inspect_store(store)
        finally:
            store.close(checkpoint=False)


def _turn(row: Submission) -> TurnState:
    return TurnState(
        request_id=row.root,
        status=row.status,
        interruptions=row.run,
        attempts=row.attempts.count,
        events=row.number,
        error=row.error,
        created_at_ms=row.created_at_ms,
    )


def _rows(store: Store, query: str) -> list[tuple[Any, ...]]:
    try:
        return list(store.execute(query).rows)
    except SqlError:
        return []  # an object that is no agent has no such table


def _first(rows: list[tuple[Any, ...]], read: Callable[[Any], Any]) -> Any:
    try:
        return read(rows[0][0]) if rows else None
    except ValueError:
        return None
