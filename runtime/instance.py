"""A live instance as its parts see it: the seam between ``Host`` and its mailbox, alarms and context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from runtime.clock import Clock
from runtime.core.gates import InputGate
from runtime.core.lifecycle import State
from runtime.ids import ObjectId
from runtime.keeping import Keeping
from runtime.lease import Lease as FolderLease
from runtime.storage.storage import Storage
from runtime.storage.store import Store
from runtime.stretch import Stretches
from runtime.stub import Caller
from runtime.wire import Activation

__all__ = ["Instance", "Lease", "OwnedInstance", "Platform", "Service"]

T = TypeVar("T")


class Service(Protocol):
    """A plain class hosted once on each node."""

    def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """Call one of its async generator methods; ``ConnectionLost`` if its process ends."""
        ...


class Lease(Protocol):
    """Keeps an object awake and watched until released."""

    def release(self) -> None:
        """Let go; a second call does nothing."""
        ...


class Platform:
    """What a host needs from the process around it.

    Args:
        clock: Where time comes from.
        caller: The process's way to other objects.
        keeping: The keeper, as this object talks to it; None for the keeper itself.
        open_store: Opens the database in a folder.
        on_end: Called once when the instance has ended, with the reason and whether it was idle then, so that no call
            can have been lost with it; the process may go.
        hold_fibers: Tells the local Ray whether work lives here that must not be ended with it.
        service: Gives the service of this node that hosts a plain class; None where there are no nodes.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        caller: Caller,
        keeping: Keeping | None,
        open_store: Callable[[Path], Store],
        on_end: Callable[[str, bool], None],
        hold_fibers: Callable[[bool], None] = lambda is_live: None,
        service: Callable[[type, str], Service] | None = None,
    ) -> None:
        self.clock = clock
        self.caller = caller
        self.keeping = keeping
        self.open_store = open_store
        self.on_end = on_end
        self.hold_fibers = hold_fibers
        self.service = service


class InstanceGates(Stretches, Protocol):
    """What may pass into the object and out of it; see ``runtime.gates``."""

    input: InputGate

    def wrote(self, *, confirmed: bool) -> None:
        """A write joined the stretch."""
        ...

    async def durable(self) -> None:
        """Resolves when all earlier writes are durable."""
        ...

    def commit_now(self) -> None:
        """Commit the stretch so far, without waiting for anything."""
        ...

    async def block(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run ``fn`` with no other event delivered."""
        ...


class Instance(Protocol):
    """What the parts of a host may use of it. ``object`` is the user's instance once it was made."""

    activation: Activation
    cls: type
    id: ObjectId
    platform: Platform
    folder: Path
    state: State
    object: Any
    store: Store | None
    storage: Storage
    versions: dict[str, int]
    background: set[asyncio.Task[Any]]
    spawned: set[asyncio.Task[Any]]
    last_event_ms: int
    end_reason: str
    lease: FolderLease | None

    @property
    def gates(self) -> InstanceGates:
        """Its gates."""
        ...

    async def started(self) -> None:
        """Make sure that the object has started."""
        ...

    def check(self) -> None:
        """Raise ``ObjectReset`` once the instance has ended."""
        ...


class OwnedInstance(Instance, Protocol):
    """What the object's own context and the gates may ask besides."""

    def reset(self, reason: str) -> None:
        """End at once; whoever waits gets the reason."""
        ...

    async def keep_alive(self) -> Lease:
        """Hold the object awake and watched."""
        ...

    def progressed(self) -> None:
        """Durable progress was made."""
        ...
