"""The seam between a durable object and the database that keeps it.

One object has one ``Store``. What user code does runs on the loop's thread in a *stretch*: the first write opens a
transaction, everything up to the next real await joins it, and ``commit`` ends it (runtime D10, D12). The framework's
own journal goes another way, ``append``, so that the loop stays free while it is written. A ``Session`` is one
transaction at a time: the store itself is the session of the stretch, ``session()`` opens others, which see nothing
of each other before their commits (runtime D17).

Nothing here knows DuckDB; ``runtime.storage.duckdb`` is the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

__all__ = ["PrivateSession", "Rows", "Session", "Store", "Value"]

Value: TypeAlias = "bool | int | float | str | bytes | datetime | None"


class Rows(NamedTuple):
    """What one statement returned, fetched to the end.

    ``changed`` is the number of rows that a write inserted, updated or deleted; 0 for reads.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    changed: int


class Session(Protocol):
    """One transaction at a time, on the loop's thread."""

    @property
    def is_open_transaction(self) -> bool:
        """Whether a write waits for ``commit``."""
        ...

    def execute(self, query: str, bindings: Sequence[Value] = (), *, user: bool = False) -> Rows:
        """Run the statements of ``query``; the bindings go to the last of them, whose rows are returned.

        The first write opens the transaction, reads see it. A statement that fails undoes only itself: what the
        transaction wrote before is still in it. Not repeatable in that case are ``random()`` and ``now()``, which
        may give the earlier writes new values.

        Args:
            query: One or several statements.
            bindings: Values for the ``?`` or ``$1`` of the last statement.
            user: Refuse what would break the store's own bookkeeping (transactions, settings, other databases).

        Raises:
            SqlError: The statement is wrong, or refused.
            WriteConflict: Another open transaction wrote the same row first.
            StorageFailed: The disk or the database gave up; nothing of the transaction is stored.
        """
        ...

    def commit(self) -> None:
        """Make the open transaction durable; on return it is on disk. Without one, nothing happens.

        Raises:
            WriteConflict: Another transaction committed the same key first; nothing of this one is stored.
            StorageFailed: Nothing of the transaction is promised to be stored; the instance must end.
        """
        ...

    def rollback(self, mark: int = 0) -> None:
        """Undo what the open transaction wrote after ``mark``; all of it by default."""
        ...

    def mark(self) -> int:
        """A point in the open transaction to which ``rollback`` can return."""
        ...


class PrivateSession(Session, Protocol):
    """A session besides the stretch, which may live across awaits.

    It sees the database as it was at its first statement. Where that can no longer be kept (a statement fails, or a
    part is rolled back, after others have committed) the whole transaction is lost, and what follows raises
    ``WriteConflict``.
    """

    def close(self) -> None:
        """Roll back what is open and let the connection go."""
        ...


class Store(Session, Protocol):
    """The database of one object. Its own session is the stretch."""

    @property
    def on_commit(self) -> Callable[[int], None] | None:
        """Called after each commit with the size of the write-ahead log, and with 0 after a checkpoint.

        From the committing thread, with the store's lock held: a size is always the end of a whole commit.
        """
        ...

    @on_commit.setter
    def on_commit(self, told: Callable[[int], None] | None) -> None: ...

    def append(self, table: str, rows: Sequence[tuple[Value, ...]]) -> Future[None]:
        """Add rows to a table, in a transaction of their own; any thread may call.

        Rows of one call are stored together or not at all, calls in their order. What waits at the same time shares
        one commit. The future resolves when the rows are durable and cannot be cancelled.

        Raises:
            Unavailable: Too many appends wait already.
        """
        ...

    def session(self) -> PrivateSession:
        """A transaction of its own: others see nothing of it until its commit, which may raise ``WriteConflict``."""
        ...

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the database file.

        While a transaction with writes is open it is put off to the commit after which none is. The store also does
        it by itself, every 200 transactions and after a change of the schema.
        """
        ...

    def close(self, *, checkpoint: bool) -> None:
        """Finish the waiting appends and let the files go; an open transaction is rolled back. Twice is harmless."""
        ...
