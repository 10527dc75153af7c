"""An in-memory DuckDB behind the one method that a workspace uses, with the memory limit that agents have."""

from __future__ import annotations

import duckdb

from runtime.errors import SqlError


class Rows:
    def __init__(self, columns, rows):
        self._columns, self._rows = columns, rows

    def to_list(self):
        return [dict(zip(self._columns, row, strict=True)) for row in self._rows]


class Database:
    """Counts statements, so that tests can hold how many an operation takes."""

    def __init__(self):
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("set memory_limit = '64MB'")
        self._connection.execute("set threads = 1")
        self.queries: list[str] = []

    def exec(self, query, *bindings):
        self.queries.append(query)
        try:
            result = self._connection.execute(query, list(bindings))
        except duckdb.Error as error:
            raise SqlError(str(error), query=query) from error
        return Rows([column[0] for column in result.description or ()], result.fetchall())
