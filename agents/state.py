"""The state of an agent: one JSON value, stored whole (runtime A17-A20; clients come with the gateway).

What a reader gets is what is stored: the value goes through JSON on its way in, so a later life reads the same, and
neither the caller's object nor the class's ``initial_state`` is shared. It is kept in memory once it is committed; a
value that the stretch may yet undo (``transaction_sync``) is read from the database instead.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agents.events import Events
from fibers import to_json
from runtime import Context
from runtime.errors import UsageError

__all__ = ["STATE_STEPS", "AgentState", "StateOwner", "check_state_hooks"]

STATE_STEPS = ("CREATE TABLE cf_agents_state (id INTEGER PRIMARY KEY, state VARCHAR NOT NULL)",)
ROW = 1

StateHook = Callable[[Any, str], Awaitable[None] | None]

log = logging.getLogger("perdure")


class StateOwner(Protocol):
    """The agent whose state it is."""

    initial_state: Any

    def validate_state_change(self, state: Any, source: str) -> None:
        """Raise to refuse a change."""
        ...

    def on_error(self, error: Exception) -> Awaitable[None] | None:
        """A hook raised."""
        ...


def check_state_hooks(cls: Any, base: Any) -> None:  # classes with those methods
    """Refuse a class whose hooks cannot work.

    Raises:
        UsageError: Both the hook and its old name (runtime A20), or a validation that would have to be awaited (A19).
    """
    overrides = [
        name for name in ("on_state_changed", "on_state_update") if getattr(cls, name) is not getattr(base, name)
    ]
    if len(overrides) == 2:
        raise UsageError(
            f"class {cls.__qualname__} overrides on_state_changed and its old name on_state_update: keep one"
        )
    if inspect.iscoroutinefunction(cls.validate_state_change):
        raise UsageError(
            f"class {cls.__qualname__}: validate_state_change must be a plain def: set_state does not wait, "
            "so an async one would refuse nothing"
        )


class AgentState:
    """Reads and writes the state row.

    Args:
        owner: Whose state.
        ctx: Its context.
        events: Its events.
        hook: Called after each change; None if nobody wants to know.
    """

    def __init__(self, owner: StateOwner, ctx: Context, events: Events, hook: StateHook | None) -> None:
        self._owner = owner
        self._ctx = ctx
        self._events = events
        self._hook = hook
        self._value: Any = None
        self._is_kept = False

    def get(self) -> Any:
        """The state; the first read of a new agent stores ``initial_state``."""
        if self._is_kept:
            return self._value
        value = self._load()
        if not self._ctx.store.is_open_transaction:
            self._value, self._is_kept = value, True
        return value

    def _load(self) -> Any:
        rows = self._ctx.store.execute("SELECT state FROM cf_agents_state WHERE id = ?", (ROW,)).rows
        if rows:
            try:
                return json.loads(str(rows[0][0]))
            except ValueError:
                log.warning("%s: the stored state is damaged and was replaced by initial_state", self._ctx.id)
                self._ctx.writing()
                self._ctx.store.execute("DELETE FROM cf_agents_state WHERE id = ?", (ROW,))
        if self._owner.initial_state is None:
            return None
        text = to_json(self._owner.initial_state, "initial_state")
        self._write(text)
        return json.loads(text)

    def _write(self, text: str) -> None:
        self._ctx.writing()
        if not self._ctx.store.execute("UPDATE cf_agents_state SET state = ? WHERE id = ?", (text, ROW)).changed:
            self._ctx.store.execute("INSERT INTO cf_agents_state VALUES (?, ?)", (ROW, text))

    def set(self, state: Any, source: str = "server") -> None:
        """Validate, write, then tell: a raising ``validate_state_change`` leaves everything as it was (A19)."""
        self._owner.validate_state_change(state, source)
        text = to_json(state, "the state")
        self._is_kept = False
        self._write(text)
        self._events.emit("state:update", {})
        if self._hook is not None:
            self._ctx.wait_until(self._changed(self._hook, json.loads(text), source))

    async def _changed(self, hook: StateHook, state: Any, source: str) -> None:
        try:
            await _ended(hook(state, source))
        except Exception as error:
            await self._tell(error)

    async def _tell(self, error: Exception) -> None:
        try:
            await _ended(self._owner.on_error(error))
        except Exception as raised:
            if raised is not error:  # raised again is what on_error does by default, and nobody is left to catch it
                log.exception("%s: on_error raised", self._ctx.id)


async def _ended(result: Awaitable[None] | None) -> None:
    """Hooks may be async or not (runtime A1)."""
    if inspect.isawaitable(result):
        await result
