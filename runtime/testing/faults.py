"""What can go wrong in a simulation, and where: numbered effects, crash points, lost and doubled messages, bad disks.

An effect is something that an instance does and others can see: a commit, an append to the journal, a message to
another object or to the keeper, a reply, an item of a stream. Between two effects of an instance a crash makes no
difference to anybody else, so the crash points of a run are its effects, and a simulation that crashes after each of
them in turn has tried them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal, NamedTuple

from runtime.errors import StorageFailed
from runtime.storage.store import PrivateSession, Rows, Store, Value

__all__ = ["Crashed", "Disk", "Effect", "EffectKind", "Faults", "FaultyStore", "MessageFault"]

EffectKind = Literal["commit", "append", "call", "keeper", "reply", "item"]
MessageFault = Literal["call lost", "reply lost", "doubled"]


class Crashed(BaseException):
    """The instance died here. A BaseException: no handler of the instance may live on after it."""


class Effect(NamedTuple):
    """One effect: its number from 1, what it was, whose it was, and to whom or in which method."""

    number: int
    kind: EffectKind
    source: str
    detail: str = ""


class Disk:
    """The disk of one object. It outlives the instances."""

    def __init__(self) -> None:
        self.is_full = False
        self.seconds_a_write = 0.0


class Faults:
    """What was asked to go wrong, and every effect so far."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._crash_points: set[int] = set()
        self._messages: list[tuple[str, MessageFault]] = []

    def crash_at(self, count: int) -> None:
        """Crash after the ``count``-th effect from now; 1 is the next."""
        self._crash_points.add(len(self.effects) + count)

    def add(self, kind: EffectKind, source: str, detail: str) -> bool:
        """Account for an effect; True if its source crashes now."""
        number = len(self.effects) + 1
        self.effects.append(Effect(number, kind, source, detail))
        return number in self._crash_points

    def spoil(self, target: str, fault: MessageFault, times: int) -> None:
        """Let the next messages to ``target`` go wrong."""
        self._messages.extend((target, fault) for _ in range(times))

    def message(self, target: str) -> MessageFault | None:
        """What goes wrong with a message that is now sent to ``target``."""
        for index, (to, fault) in enumerate(self._messages):
            if to == target:
                del self._messages[index]
                return fault
        return None


class FaultyStore:
    """A ``Store`` on a disk that may be full or slow, of an instance that may be dead.

    Args:
        inner: The real one, whose ``append`` is synchronous.
        disk: What is wrong with the disk.
        effect: Told about every commit and append; raises ``Crashed`` if the instance ends with it.
        check: Raises ``Crashed`` once the instance is dead.
        sleep: Lets time pass with the loop blocked.
    """

    def __init__(
        self,
        inner: Store,
        disk: Disk,
        *,
        effect: Callable[[EffectKind, str], None],
        check: Callable[[], None],
        sleep: Callable[[float], None],
    ) -> None:
        self._inner = inner
        self._disk = disk
        self._effect = effect
        self._check = check
        self._sleep = sleep
        self._appends: deque[Callable[[], None]] = deque()
        self._is_dead = False

    @property
    def on_commit(self) -> Callable[[int], None] | None:
        """See ``Store``."""
        return self._inner.on_commit

    @on_commit.setter
    def on_commit(self, told: Callable[[int], None] | None) -> None:
        self._inner.on_commit = told

    @property
    def is_open_transaction(self) -> bool:
        """See ``Session``."""
        return not self._is_dead and self._inner.is_open_transaction

    def execute(self, query: str, bindings: Sequence[Value] = (), *, user: bool = False) -> Rows:
        """See ``Session``."""
        self._check()
        return self._inner.execute(query, bindings, user=user)

    def mark(self) -> int:
        """See ``Session``."""
        self._check()
        return self._inner.mark()

    def rollback(self, mark: int = 0) -> None:
        """See ``Session``."""
        self._check()
        self._inner.rollback(mark)

    def commit(self) -> None:
        """See ``Session``."""
        self._check()
        if self._inner.is_open_transaction:
            self.write(self._inner.rollback)
            self._inner.commit()
            self._effect("commit", "")

    def write(self, undo: Callable[[], None]) -> None:
        """What a commit meets on the disk, before it is done."""
        if self._disk.seconds_a_write:
            self._sleep(self._disk.seconds_a_write)
        if self._disk.is_full:
            undo()
            raise StorageFailed("the commit failed: No space left on device (simulated)")

    def append(self, table: str, rows: Sequence[tuple[Value, ...]]) -> Future[None]:
        """See ``Store``. On a slow disk the rows are stored, and the future resolves, later; in their order."""
        self._check()
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        self._appends.append(lambda: self._append(table, rows, done))
        if self._disk.seconds_a_write or len(self._appends) > 1:
            asyncio.get_running_loop().call_later(self._disk.seconds_a_write, self._append_oldest)
        else:
            self._append_oldest()
        return done

    def _append_oldest(self) -> None:
        if self._appends:
            self._appends.popleft()()

    def _append(self, table: str, rows: Sequence[tuple[Value, ...]], done: Future[None]) -> None:
        if self._is_dead:
            return
        if self._disk.is_full:
            done.set_exception(StorageFailed("the append failed: No space left on device (simulated)"))
            return
        stored = self._inner.append(table, rows)
        error = stored.exception()
        if error is not None:
            done.set_exception(error)
            return
        done.set_result(None)
        self._effect("append", table)

    def session(self) -> PrivateSession:
        """See ``Store``."""
        self._check()
        return _FaultySession(self._inner.session(), self, self._check, self._effect)

    def checkpoint(self) -> None:
        """See ``Store``."""
        self._check()
        self._inner.checkpoint()

    def close(self, *, checkpoint: bool) -> None:
        """See ``Store``. What still waits to be appended is stored first."""
        if not self._is_dead:
            while self._appends:
                self._append_oldest()
            self._inner.close(checkpoint=checkpoint)

    def die(self) -> None:
        """Let the files go as the kernel does with those of a dead process."""
        if not self._is_dead:
            self._is_dead = True
            self._inner.close(checkpoint=False)


class _FaultySession:
    """A ``PrivateSession`` of a ``FaultyStore``."""

    def __init__(
        self,
        inner: PrivateSession,
        store: FaultyStore,
        check: Callable[[], None],
        effect: Callable[[EffectKind, str], None],
    ) -> None:
        self._inner = inner
        self._store = store
        self._check = check
        self._effect = effect

    @property
    def is_open_transaction(self) -> bool:
        return self._inner.is_open_transaction

    def execute(self, query: str, bindings: Sequence[Value] = (), *, user: bool = False) -> Rows:
        self._check()
        return self._inner.execute(query, bindings, user=user)

    def mark(self) -> int:
        return self._inner.mark()

    def rollback(self, mark: int = 0) -> None:
        self._check()
        self._inner.rollback(mark)

    def commit(self) -> None:
        self._check()
        if self._inner.is_open_transaction:
            self._store.write(self._inner.rollback)
            self._inner.commit()
            self._effect("commit", "transaction")

    def close(self) -> None:
        self._inner.close()
