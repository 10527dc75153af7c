"""The state of an agent: one JSON value, stored whole (runtime A17-A20; clients come with the gateway)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agents.events import Events
from runtime import Context
from runtime.errors import UsageError

__all__ = ["STATE_STEPS", "AgentState", "StateOwner", "check_state_hooks"]

STATE_STEPS = ("CREATE TABLE cf_agents_state (id INTEGER PRIMARY KEY, state VARCHAR NOT NULL)",)
ROW = 1


class StateOwner(Protocol):
    """The agent whose state it is."""

    initial_state: Any

    def validate_state_change(self, state: Any, source: str) -> None:
        """Raise to refuse a change."""
        ...

    def on_state_changed(self, state: Any, source: str) -> Awaitable[None] | None:
        """The state has changed."""
        ...

    async def on_error(self, error: Exception) -> None:
        """A hook raised."""
        ...


def check_state_hooks(cls: type, base: type) -> None:
    """Refuse a class that overrides both the hook and its old name (runtime A20)."""
    overrides = [
        name for name in ("on_state_changed", "on_state_update") if getattr(cls, name) is not getattr(base, name)
    ]
    if len(overrides) == 2:
        raise UsageError(
            f"class {cls.__qualname__} overrides on_state_changed and its old name on_state_update: keep one"
        )


class AgentState:
    """Reads and writes the state row."""

    def __init__(self, owner: StateOwner, ctx: Context, events: Events, hook: Callable[..., Any]) -> None:
        self._owner = owner
        self._ctx = ctx
        self._events = events
        self._hook = hook
        self._value: Any = None
        self._is_loaded = False

    def get(self) -> Any:
        """The state; the first read of a new agent stores ``initial_state``."""
        if not self._is_loaded:
            self._value = self._load()
            self._is_loaded = True
        return self._value

    def _load(self) -> Any:
        rows = self._ctx.store.execute("SELECT state FROM cf_agents_state WHERE id = ?", (ROW,)).rows
        if rows:
            try:
                return json.loads(str(rows[0][0]))
            except ValueError:
                self._ctx.store.execute("DELETE FROM cf_agents_state WHERE id = ?", (ROW,))
        if self._owner.initial_state is None:
            return None
        self._write(self._owner.initial_state)
        return self._owner.initial_state

    def _write(self, state: Any) -> None:
        try:
            text = json.dumps(state, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the state must be JSON: {error}. The earlier state stays.") from None
        if not self._ctx.store.execute("UPDATE cf_agents_state SET state = ? WHERE id = ?", (text, ROW)).changed:
            self._ctx.store.execute("INSERT INTO cf_agents_state VALUES (?, ?)", (ROW, text))

    def set(self, state: Any, source: str = "server") -> None:
        """Validate, write, then tell: a raising ``validate_state_change`` leaves everything as it was (A19)."""
        self._owner.validate_state_change(state, source)
        self._write(state)
        self._value, self._is_loaded = state, True
        self._events.emit("state:update", {})
        self._ctx.spawn(self._changed(state, source), "on_state_changed")

    async def _changed(self, state: Any, source: str) -> None:
        try:
            result = self._hook(state, source)
            if result is not None:
                await result
        except Exception as error:
            await self._owner.on_error(error)
