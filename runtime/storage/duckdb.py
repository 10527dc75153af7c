"""DuckDB behind the ``Connection`` seam; the only module that imports duckdb.

All connections of an object belong to one private in-memory instance to which the object's file is attached: 1.6 ms
into an instance that is open already, against 38 ms for a ``connect`` to the file (``prewarm`` opens one ahead). Each
setting below is tested to hold for an attached file. A connection does not inherit the default database of the one it
was made from, so each is told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from runtime.errors import LockHeld, PerdureError, SqlError, StorageCorrupt, StorageFailed, WriteConflict
from runtime.storage import statements
from runtime.storage.connection import Statement
from runtime.storage.database import Database
from runtime.storage.file import log_path
from runtime.storage.store import Rows, Value

__all__ = ["DATABASE_NAME", "Database", "open_store", "prewarm"]

DATABASE_NAME = "object.duckdb"
ALIAS = "object"

MEMORY_LIMIT = "64MB"
# A log is replayed within the memory limit; one that needed more when it was written must still open.
REPLAY_MEMORY_LIMIT = "1GB"

SETTINGS = (
    "SET threads = 1",
    # Checkpoints are ours.
    "SET checkpoint_threshold = '1TB'",
    f"SET auto_checkpoint_skip_wal_threshold = {2**62}",
    "PRAGMA disable_checkpoint_on_shutdown",
    # Bulk inserts would write their blocks past the log into the main file, and a copy of base and log would not scan.
    "SET enable_optimistic_write = false",
    # A misspelt table must be an error, not a Python variable of some caller that happens to have the name.
    # GLOBAL, since further connections would begin with the default.
    "SET GLOBAL python_enable_replacements = false",
    # An unknown function must be an error, not a download.
    "SET autoinstall_known_extensions = false",
)

DISK_TROUBLE = (
    "No space left",
    "Disk quota",
    "File too large",
    "Read-only file system",
    "Permission denied",
    "Input/output error",
)

# What a statement may raise besides duckdb's own: bindings of a type or size that has no form in SQL.
STATEMENT_ERRORS = (duckdb.Error, ValueError, TypeError, OverflowError, RuntimeError)

# The first bytes of every log. DuckDB takes a log that begins otherwise for an empty one, and writes over it.
LOG_HEAD = b"d\x00be\x00\x02f\x00"

_spares: list[duckdb.DuckDBPyConnection] = []


def prewarm() -> None:
    """Keep one instance ready, so that the next ``open_store`` of this process attaches only."""
    if not _spares:
        _spares.append(_instance(MEMORY_LIMIT))


def open_store(folder: Path, *, inline: bool = False) -> Database:
    """Open or create the database of the object whose folder this is.

    Args:
        folder: Created if absent.
        inline: Append on the calling thread, for simulations that must not depend on a second one.

    Raises:
        LockHeld: It is open already, in this process or another; the message names which.
        StorageCorrupt: The file or its write-ahead log does not open.
        StorageFailed: The disk refuses: full, read-only, no permission.
    """
    path = folder / DATABASE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        log_head = _head(log_path(path))
    except OSError as error:
        raise StorageFailed(f"{folder} cannot be created: {error}. Free or repair the disk, then try again.") from error
    if is_new and log_path(path).exists():
        # DuckDB would begin an empty database and drop the log, which may hold all that was ever acknowledged.
        raise StorageCorrupt(
            f"{path} is missing, but its log {log_path(path).name} is there. Nothing was changed. Restore both files "
            "together from a replica or a backup, or remove the log to begin anew."
        )
    if not LOG_HEAD.startswith(log_head):
        raise StorageCorrupt(
            f"{log_path(path)} does not begin as a log does, so none of the writes in it can be read. Nothing was "
            f"changed. Copy it and {path.name}, then restore both together from a replica or a backup."
        )
    try:
        instance = _spares.pop()
    except IndexError:
        instance = _instance(MEMORY_LIMIT)
    try:
        if is_new:
            _create(instance, path)
        return _attached(instance, path, inline=inline)
    except (duckdb.Error, OSError) as error:
        instance.close()
        if not _lacks_memory(error):
            raise _open_error(error, path) from error
    return _attached_with_room(path, inline=inline)


def _head(log: Path) -> bytes:
    """The first bytes of a log; fewer if a death has cut it there, none if there is no log."""
    try:
        with log.open("rb") as file:
            return file.read(len(LOG_HEAD))
    except FileNotFoundError:
        return b""


def _instance(memory_limit: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    for setting in SETTINGS:
        connection.execute(setting)
    return connection


def _create(instance: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make an empty database that is there whole or not at all.

    A process killed while DuckDB writes a new file's headers would leave one that never opens again.
    """
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    instance.execute(f"ATTACH {_text(unfinished)} AS fresh")
    instance.execute("DETACH fresh")
    # Unlike a rename, a link never replaces the file of someone who was faster.
    with contextlib.suppress(FileExistsError):
        os.link(unfinished, path)
    unfinished.unlink()


def _attached(instance: duckdb.DuckDBPyConnection, path: Path, *, inline: bool) -> Database:
    instance.execute(f"SET temp_directory = {_text(path.with_name(f'{path.name}.tmp'))}")
    instance.execute(f"ATTACH {_text(path)} AS {ALIAS}")
    return _locked(instance, path, inline=inline)


def _attached_with_room(path: Path, *, inline: bool) -> Database:
    """Replay a log that the usual limit is too small for, and fold it in, so that the next opening needs less."""
    instance = _instance(REPLAY_MEMORY_LIMIT)
    try:
        instance.execute(f"ATTACH {_text(path)} AS {ALIAS}")
        instance.execute(f"CHECKPOINT {ALIAS}").fetchall()
        # An index over the limit stays in memory whole: this life then has to live with more.
        with contextlib.suppress(duckdb.OutOfMemoryException):
            instance.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        return _locked(instance, path, inline=inline)
    except (duckdb.Error, OSError) as error:
        instance.close()
        raise _open_error(error, path) from error


def _locked(instance: duckdb.DuckDBPyConnection, path: Path, *, inline: bool) -> Database:
    instance.execute("SET lock_configuration = true")
    return Database(path, DuckDBConnection(instance), lambda: DuckDBConnection(instance.cursor()), inline=inline)


class DuckDBConnection:
    """A ``Connection``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"USE {ALIAS}")
        self._connection = connection
        self._begin = connection.extract_statements("BEGIN")[0]
        self._commit = connection.extract_statements("COMMIT")[0]
        self._appenders: dict[str, duckdb.Appender] = {}

    def parse(self, query: str) -> tuple[Statement, ...]:
        """See ``Connection``."""
        try:
            parsed = self._connection.extract_statements(query)
        except STATEMENT_ERRORS as error:
            reason = statements.unparsed_refusal(query)
            raise SqlError(f"refused: {reason}" if reason else str(error), query=query) from error
        try:
            return tuple(_statement(one) for one in parsed)
        except ValueError as error:  # a kind of statement that duckdb's own module does not know
            reason = f"refused: this statement is of no kind that is known here ({error})"
            raise SqlError(reason, query=query) from error

    def run(self, statement: Statement, bindings: Sequence[Value], query: str) -> Rows:
        """See ``Connection``."""
        connection = self._connection
        try:
            connection.execute(statement.handle, bindings)
            # To the end: an undrained result makes the next appender of the connection fail.
            fetched: list[tuple[Value, ...]] = connection.fetchall()
        except STATEMENT_ERRORS as error:
            raise _statement_error(error, query) from error
        if not statement.returns_rows:
            count = fetched[0][0] if fetched else 0
            return Rows((), [], count if isinstance(count, int) else 0)
        columns = tuple(str(column[0]) for column in connection.description or ())
        return Rows(columns, fetched, len(fetched) if statement.is_write else 0)

    def begin(self) -> None:
        """See ``Connection``."""
        try:
            self._connection.execute(self._begin)
        except duckdb.Error as error:
            raise StorageFailed(f"the database gave up: {error}") from error

    def commit(self) -> None:
        """See ``Connection``."""
        try:
            self._connection.execute(self._commit)
        except duckdb.Error as error:
            if _is_conflict(error):
                raise WriteConflict(
                    f"another transaction committed the same key first; run it again: {error}"
                ) from error
            raise StorageFailed(f"the commit failed: {error}") from error

    def rollback(self) -> None:
        """See ``Connection``."""
        for appender in self._appenders.values():
            # It keeps rows that it could not flush and would add them to the next batch.
            with contextlib.suppress(duckdb.Error):
                appender.clear()
        self._appenders.clear()
        # DuckDB has sometimes ended the transaction itself (a conflict at commit), sometimes not; it cannot be asked.
        with contextlib.suppress(duckdb.Error):
            self._connection.rollback()

    def append(self, batch: Sequence[tuple[str, Sequence[tuple[Value, ...]]]]) -> None:
        """See ``Connection``."""
        tables: dict[str, duckdb.Appender] = {}
        try:
            for table, rows in batch:
                appender = tables[table] = self._appender(table)
                appender.append_rows(rows)
            for appender in tables.values():
                appender.flush()
        except STATEMENT_ERRORS as error:
            raise _statement_error(error, f"append to {', '.join(dict.fromkeys(t for t, _ in batch))}") from error

    def checkpoint(self) -> bool:
        """See ``Connection``."""
        try:
            self._connection.execute(f"CHECKPOINT {ALIAS}").fetchall()
        except duckdb.Error as error:
            if "Cannot CHECKPOINT" in str(error):
                return False
            raise StorageFailed(f"the checkpoint failed: {error}") from error
        return True

    def close(self) -> None:
        """See ``Connection``."""
        self._appenders.clear()
        self._connection.close()

    def _appender(self, table: str) -> duckdb.Appender:
        appender = self._appenders.get(table)
        if appender is None:
            appender = self._appenders[table] = self._connection.appender(table)
        return appender


def _statement(parsed: duckdb.Statement) -> Statement:
    kind, text = parsed.type.name, parsed.query
    return Statement(
        parsed,
        len(parsed.named_parameters),
        statements.is_write(kind, text),
        statements.changes_schema(kind, text),
        statements.returns_rows(kind, text),
        statements.refusal(kind, text),
    )


def _statement_error(error: Exception, query: str) -> PerdureError:
    text = str(error)
    if _is_conflict(error):
        return WriteConflict(f"another open transaction wrote the same row; run this one again: {text}")
    if isinstance(error, duckdb.FatalException | duckdb.InternalException) or _is_disk_trouble(text):
        return StorageFailed(f"the database gave up: {text}")
    if isinstance(error, duckdb.SerializationException) or "checksum" in text.lower():
        return StorageCorrupt(f"a block is damaged: {text}")
    return SqlError(text, query=query)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _open_error(error: Exception, path: Path) -> PerdureError:
    text = str(error)
    if "Could not set lock" in text or isinstance(error, duckdb.ResourceInUseException):
        return LockHeld(f"{path} is open already: {text.splitlines()[0]}. Close it there, or wait until that ends.")
    if _is_disk_trouble(text):
        return StorageFailed(f"{path} cannot be opened: {text}. Free or repair the disk, then try again.")
    if isinstance(error, OSError):
        return StorageFailed(f"{path} cannot be opened: {text}. Repair the disk, then try again.")
    return StorageCorrupt(
        f"{path} or its log {log_path(path).name} does not open: {text}. Nothing was changed. Copy both files, "
        "then restore them together from a replica or a backup."
    )


def _is_disk_trouble(text: str) -> bool:
    return any(sign in text for sign in DISK_TROUBLE)


def _lacks_memory(error: Exception) -> bool:
    # In a replay it is a TransactionException; what all such errors share is the advice to increase this setting.
    return isinstance(error, duckdb.OutOfMemoryException) or "SET memory_limit" in str(error)


def _is_conflict(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, duckdb.TransactionException) and (
        "Conflict on" in text or "write-write conflict" in text.lower() or "constraint violation" in text
    )
