"""The two tables of a workspace, in the agent's own database.

``cf_workspace_{namespace}`` has one small row for each file and directory below the root; rows are updated.
``cf_content_{namespace}`` has the bytes, one row for each piece of a file; rows are only added and deleted, because a
checkpoint after updating long columns takes DuckDB half a second. Pieces bound what a query holds in memory, and let a
file grow without being copied.

The tables are made by the first write. Until then reading finds nothing, so that an agent which never writes a file
never pays for them, and an up-to-date one pays nothing at its wake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from agents.tools.paths import name_of, parent_of, subtree
from runtime.errors import SqlError

__all__ = ["DIRECTORY", "FILE", "PIECE_BYTES", "Contents", "Entries", "FileInfo", "Sql", "Statements", "WorkspaceInfo"]

DIRECTORY = "directory"
FILE = "file"
# DuckDB reads values by vectors of 2,048 rows and fails when the bytes of one pass half its memory limit of 64 MB, on
# reads too; with pieces of 1 MB it broke at 40 MB of files, with these it ran flat to 160 MB (2,048 * 16,000 < 32 MiB).
PIECE_BYTES = 16_000
# Rows of one INSERT and names of one IN list: 100 rows cost what ten single ones do, and a statement stays readable.
ROWS_MAX = 100

_COLUMNS = "path, type, mime_type, size, pieces, created_at_ms, updated_at_ms, target"
_TABLES = (
    "create table if not exists cf_workspace_{namespace} (path varchar primary key, parent varchar not null, "
    "name varchar not null, type varchar not null, mime_type varchar not null, size bigint not null, "
    "pieces integer not null, created_at_ms bigint not null, updated_at_ms bigint not null, target varchar)",
    "create table if not exists cf_content_{namespace} (path varchar not null, piece integer not null, "
    "content blob not null)",
)


class Cursor(Protocol):
    """The rows of a statement."""

    def to_list(self) -> list[dict[str, Any]]:
        """All rows, each {column: value}."""
        ...


class Sql(Protocol):
    """An object's database, as ``ctx.storage.sql`` has it."""

    def exec(self, query: str, *bindings: Any) -> Cursor:
        """Run a statement.

        Raises:
            SqlError: It failed and changed nothing.
        """
        ...


class FileInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, directory or symbolic link (tools W11).

    Attributes:
        path: Absolute and normalised.
        name: Last step of the path; "" for the root.
        type: file, directory or symlink.
        mime_type: As given by the writer.
        size: Bytes; 0 for a directory.
        created_at: Epoch seconds.
        updated_at: Epoch seconds.
        target: Where a symbolic link points.
    """

    path: str
    name: str
    type: str
    mime_type: str
    size: int
    created_at: float
    updated_at: float
    target: str | None = None


class WorkspaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a workspace; the root counts as a directory."""

    file_count: int
    directory_count: int
    total_bytes: int
    object_file_count: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the entry table; ``pieces`` is the number of rows in the content table."""

    path: str
    type: str
    mime_type: str
    size: int
    pieces: int
    created_at_ms: int
    updated_at_ms: int
    target: str | None = None

    def info(self) -> FileInfo:
        """The entry as users see it."""
        return FileInfo(
            path=self.path,
            name=name_of(self.path),
            type=self.type,
            mime_type=self.mime_type,
            size=self.size,
            created_at=self.created_at_ms / 1000,
            updated_at=self.updated_at_ms / 1000,
            target=self.target,
        )


class Statements:
    """Runs the statements of one workspace and makes its tables when the first write misses them."""

    def __init__(self, sql: Sql, namespace: str) -> None:
        self._sql = sql
        self._namespace = namespace

    def read(self, query: str, *bindings: Any) -> list[dict[str, Any]]:
        """Rows of a query; none if there are no tables yet. ``{namespace}`` in the query is filled in."""
        try:
            return self._run(query, bindings)
        except SqlError as error:
            if not _misses_table(error):
                raise
            return []

    def write(self, query: str, *bindings: Any) -> None:
        """Run a statement that changes rows."""
        try:
            self._run(query, bindings)
        except SqlError as error:
            if not _misses_table(error):
                raise
            for table in _TABLES:
                self._run(table, ())
            self._run(query, bindings)

    def _run(self, query: str, bindings: Sequence[Any]) -> list[dict[str, Any]]:
        return self._sql.exec(query.replace("{namespace}", self._namespace), *bindings).to_list()


class Entries:
    """The entry table."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def find(self, paths: Collection[str]) -> dict[str, Entry]:
        """The entries at these paths that exist."""
        found: dict[str, Entry] = {}
        for some in _in_groups(list(paths)):
            query = f"select {_COLUMNS} from cf_workspace_{{namespace}} where path in ({_marks(len(some))})"
            found.update((row["path"], Entry(**row)) for row in self._statements.read(query, *some))
        return found

    def children(self, directory: str, limit: int, offset: int) -> list[Entry]:
        """Entries directly in a directory, by type, then name."""
        query = (
            f"select {_COLUMNS} from cf_workspace_{{namespace}} where parent = ? order by type, name limit ? offset ?"
        )
        return [Entry(**row) for row in self._statements.read(query, directory, limit, offset)]

    def below(self, directory: str) -> list[Entry]:
        """All entries below a directory, by path."""
        query = f"select {_COLUMNS} from cf_workspace_{{namespace}} where path >= ? and path < ? order by path"
        return [Entry(**row) for row in self._statements.read(query, *subtree(directory))]

    def add(self, entries: Sequence[Entry]) -> None:
        """Add rows for paths that have none."""
        for some in _in_groups(entries):
            rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
            query = f"insert into cf_workspace_{{namespace}} (parent, name, {_COLUMNS}) values {rows}"
            self._statements.write(query, *(value for entry in some for value in _row(entry)))

    def update(self, entry: Entry) -> None:
        """Change the row of a path that has one; its type and time of creation stay."""
        self._statements.write(
            "update cf_workspace_{namespace} set mime_type = ?, size = ?, pieces = ?, updated_at_ms = ? where path = ?",
            *(entry.mime_type, entry.size, entry.pieces, entry.updated_at_ms, entry.path),
        )

    def remove(self, path: str) -> None:
        """Delete the row of a path."""
        self._statements.write("delete from cf_workspace_{namespace} where path = ?", path)

    def remove_below(self, directory: str) -> None:
        """Delete the rows of everything below a directory."""
        self._statements.write("delete from cf_workspace_{namespace} where path >= ? and path < ?", *subtree(directory))

    def totals(self) -> WorkspaceInfo:
        """Counts and bytes."""
        rows = self._statements.read(
            "select type, count(*)::bigint as count, sum(size)::bigint as size from cf_workspace_{namespace} "
            "group by type"
        )
        counts = {row["type"]: (row["count"], row["size"]) for row in rows}
        files, size = counts.get(FILE, (0, 0))
        directories = counts.get(DIRECTORY, (0, 0))[0] + 1
        return WorkspaceInfo(file_count=files, directory_count=directories, total_bytes=size, object_file_count=0)


class Contents:
    """The content table."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The bytes at these paths, one query for each group of paths; one without rows is left out."""
        pieces: dict[str, dict[int, bytes]] = {}
        for some in _in_groups(paths):
            query = f"select path, piece, content from cf_content_{{namespace}} where path in ({_marks(len(some))})"
            for row in self._statements.read(query, *some):
                pieces.setdefault(row["path"], {})[row["piece"]] = row["content"]
        return {path: b"".join(found[number] for number in sorted(found)) for path, found in pieces.items()}

    def add(self, files: Mapping[str, bytes], first_piece: int = 0) -> None:
        """Add the bytes of files behind the pieces they have."""
        rows: list[tuple[str, int, bytes]] = []
        for path, data in files.items():
            for number, start in enumerate(range(0, len(data), PIECE_BYTES), first_piece):
                piece = data[start : start + PIECE_BYTES]
                if len(rows) >= ROWS_MAX:
                    self._insert(rows)
                    rows = []
                rows.append((path, number, piece))
        if rows:
            self._insert(rows)

    def remove(self, paths: Sequence[str]) -> None:
        """Delete the bytes of files."""
        for some in _in_groups(paths):
            self._statements.write(f"delete from cf_content_{{namespace}} where path in ({_marks(len(some))})", *some)

    def remove_below(self, directory: str) -> None:
        """Delete the bytes of everything below a directory."""
        self._statements.write("delete from cf_content_{namespace} where path >= ? and path < ?", *subtree(directory))

    def _insert(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        marks = ", ".join(["(?, ?, ?)"] * len(rows))
        query = f"insert into cf_content_{{namespace}} (path, piece, content) values {marks}"
        self._statements.write(query, *(value for row in rows for value in row))


def piece_count(size: int) -> int:
    """How many pieces that many bytes are."""
    return -(-size // PIECE_BYTES)


def _row(entry: Entry) -> tuple[Any, ...]:
    return (
        parent_of(entry.path),
        name_of(entry.path),
        entry.path,
        entry.type,
        entry.mime_type,
        entry.size,
        entry.pieces,
        entry.created_at_ms,
        entry.updated_at_ms,
        entry.target,
    )


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _in_groups(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + ROWS_MAX] for start in range(0, len(values), ROWS_MAX))


def _misses_table(error: SqlError) -> bool:
    texts = (str(error), str(error.__cause__ or ""))
    return any("does not exist" in text and ("cf_workspace_" in text or "cf_content_" in text) for text in texts)
