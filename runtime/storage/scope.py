"""Which transaction a storage call belongs to, and who is told about it.

A call outside of any block writes into the stretch. Inside ``storage.transaction(fn)`` it writes into that
transaction, also when it goes through the plain storage object or happens in a task that was started there: a context
variable carries it (runtime D17). The gate is the host's side: it ends calls of an instance that is no longer live and
holds output back until what was written before it is durable (runtime D9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from runtime.errors import PerdureError, UsageError
from runtime.storage.store import PrivateSession, Session, Store

__all__ = ["Block", "Confirmation", "Gate", "Nesting", "Scope"]

T = TypeVar("T")


class Gate(Protocol):
    """What the host does about storage."""

    def check(self) -> None:
        """Raise ``ObjectReset`` or ``LeaseLost`` if the instance has ended; called before every access."""
        ...

    def wrote(self, *, confirmed: bool) -> None:
        """A write joined the stretch; output that follows a confirmed one waits for it."""
        ...

    def durable(self) -> Awaitable[None]:
        """Resolves when all earlier confirmed writes are durable; commits the open stretch at once."""
        ...

    def alarm(self, at_ms: int | None) -> None:
        """The slot of the alarm has a new value, in the open stretch; None if it is empty."""
        ...

    def lost(self, error: BaseException) -> None:
        """A write could not be made durable: the instance must end (runtime D9)."""
        ...

    def announce(self, session: Session) -> Awaitable[None]:
        """Resolves when the keeper knows the alarm slot as ``session`` is about to commit it (runtime D30)."""
        ...


class Nesting:
    """Synchronous blocks in one session: how deep, and whether an inner one failed."""

    def __init__(self) -> None:
        self.depth = 0
        self.failure: BaseException | None = None
        self.is_alarm_touched = False

    def reset(self) -> None:
        """Back to no block."""
        self.depth = 0
        self.failure = None
        self.is_alarm_touched = False


class Block:
    """One ``storage.transaction``: its session and what has become of it."""

    def __init__(self, scope: Scope, session: PrivateSession, outer: Block | None) -> None:
        self.scope = scope
        self.session = session
        self.outer = outer
        self.nesting = Nesting()
        self.ended: PerdureError | None = None
        self.failure: BaseException | None = None
        self.is_rolled_back = False
        self.is_alarm_touched = False


# One variable for all objects of a process, since a context variable is never freed; the blocks of other objects,
# whose code called this one's, are skipped by following ``outer``.
_innermost: ContextVar[Block | None] = ContextVar("perdure_storage_block", default=None)


class Scope:
    """The calls of one object's storage."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self.gate = gate
        self.blocks_open = 0
        self._nesting = Nesting()

    def block(self) -> Block | None:
        """The transaction that the running code is in, if any."""
        block = _innermost.get()
        while block is not None and block.scope is not self:
            block = block.outer
        return block

    def session(self) -> Session:
        """Where the running code's next statement goes.

        Raises:
            PerdureError: The instance has ended, or the transaction was rolled back.
        """
        self.gate.check()
        block = self.block()
        if block is None:
            return self.store
        if block.ended is not None:
            raise block.ended
        return block.session

    def nesting(self) -> Nesting:
        """The synchronous blocks of the running code's session."""
        block = self.block()
        return self._nesting if block is None else block.nesting

    def wrote(self, *, confirmed: bool = True) -> None:
        """Account for a write; in a transaction its own commit does that."""
        if self.block() is None:
            self.gate.wrote(confirmed=confirmed)

    def confirmation(self, result: T, *, confirmed: bool = True) -> Confirmation[T]:
        """What an awaited call returns: awaiting it waits until all that was written before is durable."""
        return Confirmation(self.gate if confirmed and self.block() is None else None, result)

    def alarm(self, at_ms: int | None) -> None:
        """Account for a change of the alarm slot."""
        block = self.block()
        self.nesting().is_alarm_touched = True
        if block is None:
            self.gate.alarm(at_ms)
        else:
            block.is_alarm_touched = True

    @contextmanager
    def entered(self) -> Generator[Block]:
        """A new block for the running code and the tasks it starts; its session ends with it."""
        block = Block(self, self.store.session(), _innermost.get())
        self.blocks_open += 1
        try:
            with self.within(block):
                yield block
        finally:
            self.blocks_open -= 1
            block.ended = block.ended or UsageError("the transaction is over; its writes belong into its function")
            block.session.close()

    @contextmanager
    def within(self, block: Block) -> Generator[None]:
        """Let the running code's calls go to ``block``."""
        token = _innermost.set(block)
        try:
            yield
        finally:
            _innermost.reset(token)


class Confirmation(Awaitable[T]):
    """What a call of the awaited API returns. The work is done already; awaiting it waits until that is durable.

    Left alone, it lets more writes join the stretch.
    """

    __slots__ = ("_gate", "_result")

    def __init__(self, gate: Gate | None, result: T) -> None:
        self._gate = gate
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:  # Any: what a coroutine sends its event loop is between those two
        if self._gate is not None:
            yield from self._gate.durable().__await__()
        return self._result

    def __bool__(self) -> bool:
        raise UsageError("this storage call must be awaited before its result is used: await storage.<call>(...)")
