"""Sub-agents: an agent's children, each an actor and a database file of its own on the root's node.

The registry's row is durable before the child exists, so no child is without one; a child that is new and does not
start loses it again. Callers who want the same child wait for each other: whether it is new, and whether the row goes,
is decided once.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from runtime import Context, ObjectId, kebab
from runtime.errors import PerdureError, UsageError

__all__ = ["SUBAGENT_STEPS", "PathStep", "SubAgentRow", "SubAgents"]

T = TypeVar("T")

SUBAGENT_STEPS = (
    "CREATE TABLE cf_agents_sub_agents (class_name VARCHAR NOT NULL, name VARCHAR NOT NULL, "
    "created_at_ms BIGINT NOT NULL)",
)


class PathStep(msgspec.Struct, frozen=True, kw_only=True):
    """One element of an agent's path."""

    class_name: str
    name: str


class SubAgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One child of the registry; ``created_at`` in epoch seconds."""

    class_name: str
    name: str
    created_at: float


class SubAgents:
    """The children of one agent. A row is written before its child starts."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        # A lock lives as long as somebody holds it or waits for it.
        self._opening: WeakValueDictionary[ObjectId, asyncio.Lock] = WeakValueDictionary()

    async def get(self, cls: type[T], name: str) -> T:
        """The stub of a child that has started; created on first use (subagents S1).

        Raises:
            UsageError: The class is none of agents, or its URL form is ``sub``; InvalidId for a name.
        """
        class_name = _class_name(cls)
        if kebab(class_name).strip("-") == "sub":
            raise UsageError(
                f"a sub-agent's class cannot be called {class_name!r}: 'sub' is reserved in URLs; rename it"
            )
        child_id = self._ctx.id.child(class_name, name)
        child = self._ctx.stub(cls, child_id)
        lock = self._opening.setdefault(child_id, asyncio.Lock())
        async with lock:
            await self._start(class_name, name, child)
        return child

    async def _start(self, class_name: str, name: str, child: Any) -> None:  # a stub
        is_new = not self.has(class_name, name)
        if is_new:
            row = (class_name, name, self._ctx.clock.now_ms())
            self._ctx.store.execute("INSERT INTO cf_agents_sub_agents VALUES (?, ?, ?)", row)
            await self._ctx.flush()
        try:
            await child.perdure_started()
        except PerdureError:
            if is_new:
                query = "DELETE FROM cf_agents_sub_agents WHERE class_name = ? AND name = ?"
                self._ctx.store.execute(query, (class_name, name))
            raise

    def has(self, cls: type | str, name: str) -> bool:
        """Whether there is such a child."""
        query = "SELECT 1 FROM cf_agents_sub_agents WHERE class_name = ? AND name = ?"
        return bool(self._ctx.store.execute(query, (_class_name(cls), name)).rows)

    def listed(self, cls: type | str | None = None) -> list[SubAgentRow]:
        """All children, or those of one class, oldest first."""
        query = "SELECT class_name, name, created_at_ms FROM cf_agents_sub_agents ORDER BY created_at_ms, rowid"
        rows = [
            SubAgentRow(class_name=str(class_name), name=str(name), created_at=int(str(created)) / 1000)
            for class_name, name, created in self._ctx.store.execute(query).rows
        ]
        wanted = None if cls is None else _class_name(cls)
        return [row for row in rows if wanted is None or row.class_name == wanted]

    def parent(self, cls: type[T]) -> T:
        """The stub of the direct parent (subagents S8).

        Raises:
            UsageError: A root has none, or its class is another.
        """
        parent_id = self._ctx.id.parent
        if parent_id is None:
            raise UsageError(f"{self._ctx.id} is a root, not a facet of another agent: it has no parent")
        if _class_name(cls) != parent_id.class_name:
            raise UsageError(f"the parent of {self._ctx.id} is a {parent_id.class_name}, not a {_class_name(cls)}")
        return self._ctx.stub(cls, parent_id)

    def path(self) -> list[PathStep]:
        """From the root to this agent."""
        return [PathStep(class_name=step.class_name, name=step.name) for step in self._ctx.id.path]


def _class_name(cls: type | str) -> str:
    if isinstance(cls, str):
        return cls
    if not isinstance(cls, type) or not hasattr(cls, "options_type"):
        raise UsageError(f"{cls!r:.80} not found: it is no class of agents")
    return cls.__name__
