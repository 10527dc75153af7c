"""SQL for user code: ``storage.sql.exec`` and its cursor.

Synchronous, in the stretch of the caller (runtime D10, D20). The dialect is DuckDB's.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.errors import UsageError
from runtime.storage.scope import Scope
from runtime.storage.store import Rows, Value

__all__ = ["Cursor", "Sql"]


class Cursor:
    """The rows of one statement, read once and in order; ``iter``, ``to_list``, ``one`` and ``raw`` share a position.

    Differs: the rows are in memory already, so it may be read after an await and is not changed by later statements.
    """

    def __init__(self, rows: Rows) -> None:
        self.column_names: list[str] = list(rows.columns)
        self.rows_written: int = rows.changed
        self._rows = iter(rows.rows)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return self

    def __next__(self) -> dict[str, Value]:
        return dict(zip(self.column_names, next(self._rows), strict=True))

    def to_list(self) -> list[dict[str, Value]]:
        """All rows that are left."""
        return list(self)

    def one(self) -> dict[str, Value]:
        """The only row.

        Raises:
            UsageError: There is none, or more than one.
        """
        left = list(self)
        if len(left) != 1:
            raise UsageError(f"one() needs exactly one row, the query gave {len(left):,}; use to_list() or a LIMIT")
        return left[0]

    def raw(self) -> Iterator[tuple[Value, ...]]:
        """The rows that are left, as tuples in the order of ``column_names``."""
        return self._rows


class Sql:
    """``storage.sql``."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def exec(self, query: str, *bindings: Value) -> Cursor:
        """Run one or several statements; the bindings go to the last, whose rows are returned.

        A statement that fails undoes only itself. Transactions and settings are not reachable from here: use
        ``storage.transaction_sync(fn)``.

        Raises:
            SqlError: A statement failed or was refused; it carries the query.
            WriteConflict: An open ``storage.transaction`` wrote the same row; run the whole again.

        Source: https://developers.cloudflare.com/durable-objects/api/sqlite-storage-api/#exec
        """
        session = self._scope.session()
        mark = session.mark()
        try:
            return Cursor(session.execute(query, bindings, user=True))
        finally:
            # In case of an error too: earlier statements of the text may have written.
            if session.mark() != mark:
                self._scope.wrote()
