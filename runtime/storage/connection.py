"""The seam between our rules about transactions and the library that runs SQL.

``runtime.storage.session`` and ``runtime.storage.database`` decide when a transaction begins, what a failing statement
undoes and when the log is folded in; they know no library. ``runtime.storage.duckdb`` implements ``Connection``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from runtime.storage.store import Rows, Value

__all__ = ["Connection", "Statement"]


class Statement(NamedTuple):
    """A parsed statement and what must be known before it runs. Good on every connection to the same instance."""

    handle: Any  # the library's own object
    parameters: int
    is_write: bool
    changes_schema: bool
    returns_rows: bool
    refusal: str | None


class Connection(Protocol):
    """One connection to the object's database, used by one thread at a time.

    Every method raises our own errors only: ``SqlError``, ``WriteConflict``, ``StorageCorrupt``, and ``StorageFailed``
    for what must end the instance.
    """

    def parse(self, query: str) -> tuple[Statement, ...]:
        """The statements of a text; never touches the open transaction."""
        ...

    def run(self, statement: Statement, bindings: Sequence[Value], query: str) -> Rows:
        """Run one statement and fetch all of its rows. If it raises, the open transaction is aborted."""
        ...

    def begin(self) -> None:
        """Open a transaction."""
        ...

    def commit(self) -> None:
        """Make it durable."""
        ...

    def rollback(self) -> None:
        """Undo it; harmless if there is none."""
        ...

    def append(self, batch: Sequence[tuple[str, Sequence[tuple[Value, ...]]]]) -> None:
        """Add rows to tables, in the open transaction. If it raises, the transaction must be rolled back."""
        ...

    def checkpoint(self) -> bool:
        """Fold the log into the main file; False if a transaction with writes is open somewhere."""
        ...

    def close(self) -> None:
        """Release the connection, and the files if it is the last one."""
        ...
