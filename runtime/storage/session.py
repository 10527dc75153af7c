"""Transactions over a connection: what opens one, and what a failing statement undoes.

Any error makes DuckDB abort the whole transaction, and a COMMIT after that silently stores nothing. So a session keeps
the statements of its open transaction and runs the earlier ones again in a new one; ``rollback(mark)`` works the same
way, since there are no savepoints. The stretch may always do that: nothing else of this object runs meanwhile. A
private session, which lives across awaits, may do it only if nothing was committed since it began. Otherwise its next
statements would see newer rows than its earlier reads did, and what should be a conflict would pass unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import PerdureError, SqlError, StorageCorrupt, StorageFailed, WriteConflict
from runtime.storage.connection import Connection, Statement
from runtime.storage.file import File
from runtime.storage.store import Rows, Value

__all__ = ["BaseSession", "OwnSession"]


class BaseSession:
    """A ``Session``: the stretch, unless a subclass says otherwise."""

    def __init__(self, file: File, connection: Connection) -> None:
        self._file = file
        self._connection = connection
        self._is_open = False
        self._written: list[tuple[Statement, Sequence[Value], str]] = []
        self._commits_at_begin = 0
        self._lost: PerdureError | None = None

    @property
    def is_open_transaction(self) -> bool:
        """See ``Session``."""
        return self._is_open

    def mark(self) -> int:
        """See ``Session``."""
        return len(self._written)

    def execute(self, query: str, bindings: Sequence[Value] = (), *, user: bool = False) -> Rows:
        """See ``Session``."""
        self._check()
        parsed = self._file.parse(self._connection, query)
        if user:
            for statement in parsed:
                if statement.refusal is not None:
                    raise SqlError(f"refused: {statement.refusal}", query=query)
        last = parsed[-1]
        if len(bindings) != last.parameters:
            raise SqlError(
                f"the statement takes {last.parameters} bindings, {len(bindings)} were given: {query:.200}", query=query
            )
        for statement in parsed[:-1]:
            if statement.parameters:
                raise SqlError("bindings go to the last statement only; an earlier one has placeholders", query=query)
            self._run(statement, (), query)
        return self._run(last, bindings, query)

    def commit(self) -> None:
        """See ``Session``."""
        self._check()
        if not self._is_open:
            return
        with self._file.lock:
            try:
                self._connection.commit()
            except PerdureError as error:
                self._forget()
                raise self._file.noted(error) from error.__cause__
            wrote = bool(self._written)
            changes_schema = any(statement.changes_schema for statement, _, _ in self._written)
            self._clear()
            if wrote:
                self._file.committed(changes_schema=changes_schema)
        self._file.checkpoint_if_due(self._connection)

    def rollback(self, mark: int = 0) -> None:
        """See ``Session``."""
        if not self._is_open or (self._written and mark >= len(self._written)):
            return
        self._repeat(mark)

    def _check(self) -> None:
        self._file.check()
        if self._lost is not None:
            raise self._lost

    def _opens_at(self, statement: Statement) -> bool:
        """Whether the statement opens a transaction. In the stretch a read does not: it would keep an old view."""
        return statement.is_write

    def _run(self, statement: Statement, bindings: Sequence[Value], query: str) -> Rows:
        if not self._is_open and self._opens_at(statement):
            self._begin()
        try:
            rows = self._connection.run(statement, bindings, query)
        except (StorageFailed, StorageCorrupt) as error:
            self._forget()
            raise self._file.noted(error) from error.__cause__
        except PerdureError as error:
            if self._is_open:
                self._statement_failed(error)
            raise
        if statement.is_write:
            self._written.append((statement, bindings, query))
        return rows

    def _begin(self) -> None:
        self._connection.begin()
        self._is_open = True
        self._commits_at_begin = self._file.commits

    def _statement_failed(self, error: PerdureError) -> None:
        """Restore what the transaction had written before the statement."""
        self._repeat(len(self._written))

    def _repeat(self, keep: int) -> None:
        """Begin anew with the first ``keep`` writes."""
        written = self._written[:keep]
        self._forget()
        if not written:
            return
        try:
            self._begin()
            for statement, bindings, query in written:
                self._connection.run(statement, bindings, query)
        except PerdureError as error:
            self._forget()
            raise self._file.noted(
                StorageFailed(f"earlier writes of the transaction could not be repeated: {error.message}")
            ) from error
        self._written = written

    def _forget(self) -> None:
        self._connection.rollback()
        self._clear()

    def _clear(self) -> None:
        self._is_open = False
        self._written = []


class OwnSession(BaseSession):
    """A ``PrivateSession``: opens its transaction at its first statement, so that all of them see one state."""

    def __init__(self, file: File, connection: Connection) -> None:
        super().__init__(file, connection)
        file.private_sessions.append(self)

    def rollback(self, mark: int = 0) -> None:
        """See ``PrivateSession``."""
        if self._is_open and mark < len(self._written) and self._file.commits != self._commits_at_begin:
            self._lose(WriteConflict("a part of the transaction was undone after others had committed; run it again"))
        else:
            super().rollback(mark)

    def close(self) -> None:
        """See ``PrivateSession``."""
        if self in self._file.private_sessions:
            self._file.private_sessions.remove(self)
            self._forget()
            self._connection.close()

    def _opens_at(self, statement: Statement) -> bool:
        return True

    def _statement_failed(self, error: PerdureError) -> None:
        if isinstance(error, WriteConflict):
            self._lose(error)
        elif self._file.commits != self._commits_at_begin:
            lost = WriteConflict(
                f"a statement of the transaction failed ({error.message}) after others had committed, so it could not "
                "go on from the rows it had read; run it again"
            )
            self._lose(lost)
            raise lost from error
        else:
            super()._statement_failed(error)

    def _lose(self, reason: PerdureError) -> None:
        self._forget()
        self._lost = reason
