"""``Agent``: a durable object with state, fibers, children and events. It composes; each part is a module."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from agents.events import Events
from agents.inspection import Inspection, inspect_store
from agents.keepalive import KeepAlive
from agents.options import AgentOptions
from agents.state import STATE_STEPS, AgentState, check_state_hooks
from agents.subagents import SUBAGENT_STEPS, PathStep, SubAgentRow, SubAgents
from fibers import FIBER_STEPS, FiberContext, FiberRunner, RecoveredFiber
from runtime import AlarmInfo, Context, DurableObject, Lease, ObjectOptions, idempotent, merged_options, not_callable

__all__ = ["Agent"]

T = TypeVar("T")
log = logging.getLogger("perdure")


class Agent(DurableObject):
    """Base of agents.

    Attributes:
        initial_state: The state of a new agent; JSON.
        options: Overrides of ``AgentOptions``, checked when the class is defined.
        events: What happens, for whoever subscribes.
    """

    options_type: ClassVar[type[ObjectOptions]] = AgentOptions
    initial_state: Any = None

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        check_state_hooks(cls, Agent)

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        ctx.migrate("agent", STATE_STEPS + SUBAGENT_STEPS + FIBER_STEPS)
        self.events = Events(type(self).__name__, ctx.id.name, ctx.clock.now_ms)
        self._compose(ctx)

    def _compose(self, ctx: Context) -> None:
        options: Any = merged_options(type(self))
        self._awake = KeepAlive(ctx, options)
        self._fibers = FiberRunner(ctx, self.on_fiber_recovered, options.fibers, self.events.emit, self._awake.acquire)
        self._children = SubAgents(ctx)
        self._state = AgentState(self, ctx, self.events, _state_hook(self))

    # Start-up

    @not_callable
    async def boot(self) -> None:
        """Interrupted work first, then the agent's own start (runtime A3)."""
        await self._scan(is_starting=True)
        await self.on_start()

    @not_callable
    async def alarm(self, info: AlarmInfo) -> None:
        """The agent's one alarm: looks after interrupted fibers, then sets the next."""
        await self._scan()
        await self._awake.rearm()

    async def _scan(self, *, is_starting: bool = False) -> None:
        await self._awake.scan_again(await self._fibers.scan(is_starting=is_starting))

    @idempotent
    async def perdure_inspect(self) -> Inspection:
        """What the agent's database says about it."""
        return inspect_store(self.ctx.store)

    # State

    @property
    def state(self) -> Any:
        """The state; stored when set. Change it with ``set_state``, never in place."""
        return self._state.get()

    @not_callable
    def set_state(self, state: Any) -> None:
        """Replace the state; durable before anything leaves the agent. A copy is kept, as JSON has it.

        Raises:
            UsageError: It is no JSON. Whatever ``validate_state_change`` raises refuses the change.
        """
        self._state.set(state)

    @not_callable
    def validate_state_change(self, state: Any, source: str) -> None:
        """Raise to refuse a change of the state, before it is written; ``source`` is ``server``."""

    @not_callable
    def on_state_changed(self, state: Any, source: str) -> Awaitable[None] | None:
        """The state has changed; what this raises goes to ``on_error`` and undoes nothing."""

    @not_callable
    def on_state_update(self, state: Any, source: str) -> Awaitable[None] | None:
        """The old name of ``on_state_changed``."""

    @not_callable
    def on_error(self, error: Exception) -> Awaitable[None] | None:
        """A hook raised; the default logs it and raises it again (runtime A5)."""
        log.error("%s: %s", self.ctx.id, error, exc_info=error)
        raise error

    # Fibers

    @not_callable
    async def run_fiber(self, name: str, fn: Callable[[FiberContext], Awaitable[T]]) -> T:
        """Run ``fn`` as a fiber: when a death interrupts it, ``on_fiber_recovered`` gets its last snapshot."""
        return await self._fibers.run(name, fn)

    @not_callable
    def stash(self, data: Any) -> None:
        """Replace the snapshot of the fiber that the running code is in; on disk on return. JSON."""
        self._fibers.stash(data)

    @not_callable
    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        """A fiber was interrupted; override it to finish the work. Raise, and it is asked again later.

        It may take as long as it likes. The agent's start waits for it, but for at most 20 s.
        """
        log.warning("%s: fiber %r was interrupted; on_fiber_recovered does nothing about it", self.ctx.id, fiber.name)

    @not_callable
    async def keep_alive(self) -> Lease:
        """Stay awake and watched until the lease is released."""
        return await self._awake.acquire()

    @not_callable
    async def keep_alive_while(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Stay awake and watched while ``fn`` runs; its result."""
        return await self._awake.acquire_while(fn)

    # Children

    @not_callable
    async def sub_agent(self, cls: type[T], name: str) -> T:
        """A child of this agent, created on first use: its own actor on this node, its own database file."""
        return await self._children.get(cls, name)

    @not_callable
    def has_sub_agent(self, cls: type | str, name: str) -> bool:
        """Whether there is such a child."""
        return self._children.has(cls, name)

    @not_callable
    def list_sub_agents(self, cls: type | str | None = None) -> list[SubAgentRow]:
        """The children, oldest first."""
        return self._children.listed(cls)

    @not_callable
    async def parent_agent(self, cls: type[T]) -> T:
        """The direct parent."""
        return self._children.parent(cls)

    @property
    def parent_path(self) -> list[PathStep]:
        """The ancestors, root first; empty for a root."""
        return self._children.path()[:-1]

    @property
    def self_path(self) -> list[PathStep]:
        """The ancestors and the agent itself."""
        return self._children.path()


def _state_hook(agent: Agent) -> Callable[[Any, str], Awaitable[None] | None] | None:
    if type(agent).on_state_update is not Agent.on_state_update:
        return agent.on_state_update
    return agent.on_state_changed if type(agent).on_state_changed is not Agent.on_state_changed else None
