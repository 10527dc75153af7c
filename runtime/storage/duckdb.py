"""A ``Store`` over one DuckDB file; the only module that imports duckdb.

**Connections.** All connections belong to one in-memory instance to which the object's file is attached (1.6 ms into
an instance that is already open, against 38 ms for a ``connect`` to the file; ``prewarm`` opens one ahead). One serves
the loop's thread, one the writer thread, and each ``session()`` has its own. DuckDB refuses a second thread on a busy
connection, so none is shared; two of them conflict only if they write the same row.

**One lock** orders commits and checkpoints, so that the size of the write-ahead log, read under it, is always the end
of a whole commit. It is held for a commit, never for a stretch.

**Failing statements.** Any error makes DuckDB abort the whole transaction, and a COMMIT after that silently stores
nothing. So a session keeps the statements of its open transaction and runs the earlier ones again in a new one. The
stretch may do that always, since nothing else of this object runs meanwhile. A session that lives across awaits may do
it only if nothing was committed since it began: its next statement would otherwise see newer rows than its earlier
reads, and a conflict would pass unseen.

**Checkpoints** are ours alone: DuckDB's own are switched off, since replication needs to know of each.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import duckdb

from runtime.errors import LockHeld, ObjectReset, PerdureError, SqlError, StorageCorrupt, StorageFailed, WriteConflict
from runtime.storage import statements
from runtime.storage.store import PrivateSession, Rows, Value
from runtime.storage.writer import Append, Writer

__all__ = ["DATABASE_NAME", "Database", "open_store", "prewarm"]

DATABASE_NAME = "object.duckdb"
ALIAS = "object"

MEMORY_LIMIT = "64MB"
# A log is replayed within the memory limit; one that needed more when it was written must still open.
REPLAY_MEMORY_LIMIT = "1GB"

# Replay costs 0.13 ms a transaction and dominates the wake after a crash; a checkpoint costs about 8 ms.
TRANSACTIONS_BETWEEN_CHECKPOINTS = 200

# Parsed statements kept by their text. User code may build texts without end.
STATEMENTS_KEPT_MAX = 512
STATEMENT_CHARACTERS_KEPT_MAX = 10_000

SETTINGS = (
    "SET threads = 1",
    # Checkpoints are ours.
    "SET checkpoint_threshold = '1TB'",
    f"SET auto_checkpoint_skip_wal_threshold = {2**62}",
    "PRAGMA disable_checkpoint_on_shutdown",
    # Bulk inserts would write their blocks past the log into the main file, and a copy of base and log would not scan.
    "SET enable_optimistic_write = false",
    # A misspelt table must be an error, not a Python variable of the caller's caller that happens to have the name.
    "SET python_enable_replacements = false",
    # An unknown function must be an error, not a download.
    "SET autoinstall_known_extensions = false",
)

_spares: list[duckdb.DuckDBPyConnection] = []


class _Compiled(NamedTuple):
    """A parsed statement and what must be known before it runs."""

    statement: duckdb.Statement
    parameters: int
    is_write: bool
    changes_schema: bool
    returns_rows: bool
    refusal: str | None


def _instance(memory_limit: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    for setting in SETTINGS:
        connection.execute(setting)
    return connection


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
    except OSError as error:
        raise StorageFailed(f"{folder} cannot be created: {error}. Free or repair the disk, then try again.") from error
    try:
        instance = _spares.pop()
    except IndexError:
        instance = _instance(MEMORY_LIMIT)
    try:
        return _attach(instance, path, inline=inline)
    except duckdb.OutOfMemoryException:
        pass
    except duckdb.Error as error:
        raise _open_error(error, path) from error
    try:
        return _attach(_instance(REPLAY_MEMORY_LIMIT), path, inline=inline)
    except duckdb.Error as error:
        raise _open_error(error, path) from error


def _attach(instance: duckdb.DuckDBPyConnection, path: Path, *, inline: bool) -> Database:
    try:
        quoted = str(path).replace("'", "''")
        instance.execute(f"SET temp_directory = '{quoted}.tmp'")
        instance.execute(f"ATTACH '{quoted}' AS {ALIAS}")
        instance.execute(f"USE {ALIAS}")
        instance.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        instance.execute("SET lock_configuration = true")
        return Database(instance, path, inline=inline)
    except BaseException:
        instance.close()
        raise


def _open_error(error: duckdb.Error, path: Path) -> PerdureError:
    text = str(error)
    if "Could not set lock" in text or isinstance(error, duckdb.ResourceInUseException):
        return LockHeld(f"{path} is open already: {text.splitlines()[0]}. Close it there, or wait until that ends.")
    if _is_disk_trouble(text):
        return StorageFailed(f"{path} cannot be opened: {text}. Free or repair the disk, then try again.")
    return StorageCorrupt(
        f"{path} or its log {path.name}.wal does not open: {text}. Nothing was changed. Keep a copy of both files, "
        "then restore them together from a replica or a backup."
    )


def _is_disk_trouble(text: str) -> bool:
    signs = ("No space left", "Disk quota", "File too large", "Read-only file system", "Permission denied")
    return any(sign in text for sign in signs) or "Input/output error" in text


def _is_corruption(error: Exception) -> bool:
    return isinstance(error, duckdb.SerializationException) or "checksum" in str(error).lower()


def _is_conflict(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, duckdb.TransactionException) and (
        "Conflict on" in text or "write-write conflict" in text.lower() or "constraint violation" in text
    )


class _File:
    """What all connections to one object's database share: the lock, the counters, the fate of the instance."""

    def __init__(self, instance: duckdb.DuckDBPyConnection, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.on_commit: Callable[[int], None] | None = None
        self.commits = 0
        self.stretch: _Session | None = None
        self.private_sessions: list[_PrivateSession] = []
        self.begin_statement = instance.extract_statements("BEGIN")[0]
        self.commit_statement = instance.extract_statements("COMMIT")[0]
        self._instance = instance
        self._compiled: dict[str, tuple[_Compiled, ...]] = {}
        self._log_path = f"{path}.wal"
        self._log_bytes = self._log_size()
        # Those of earlier lives count as a whole interval: the first quiet moment folds them in.
        self._uncheckpointed = TRANSACTIONS_BETWEEN_CHECKPOINTS if self._log_bytes else 0
        self._is_checkpoint_due = False
        self._failure = ""
        self._is_closed = False

    def check(self) -> None:
        """Raise if the instance has ended."""
        if self._failure:
            raise StorageFailed(self._failure)
        if self._is_closed:
            raise ObjectReset(f"the storage {self.path} is closed; the next call opens it again")

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A further connection, with the object's file as its default database."""
        connection = self._instance.cursor()
        connection.execute(f"USE {ALIAS}")
        return connection

    def compile(self, query: str) -> tuple[_Compiled, ...]:
        """The statements of a text, from the cache if it was seen before. Only for the loop's thread."""
        known = self._compiled.get(query)
        if known is not None:
            return known
        try:
            parsed = self._instance.extract_statements(query)
        except (duckdb.Error, ValueError, TypeError) as error:
            reason = statements.unparsed_refusal(query)
            raise SqlError(f"refused: {reason}" if reason else str(error), query=query) from error
        if not parsed:
            raise SqlError("there is no statement in the query", query=query)
        compiled = tuple(_compile(statement) for statement in parsed)
        if len(query) <= STATEMENT_CHARACTERS_KEPT_MAX:
            if len(self._compiled) >= STATEMENTS_KEPT_MAX:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[query] = compiled
        return compiled

    def committed(self, connection: duckdb.DuckDBPyConnection, *, changes_schema: bool = False) -> None:
        """Account for a commit that wrote; the lock is held."""
        size = self._log_size()
        if size == self._log_bytes:
            return  # the statements changed nothing
        if self._log_bytes == 0:
            _sync_folder(self.path.parent)
        self._log_bytes = size
        self.commits += 1
        self._uncheckpointed += 1
        if self.on_commit is not None:
            self.on_commit(size)
        # A log with a change of the schema in it has failed to replay in earlier releases of DuckDB.
        if changes_schema or self._uncheckpointed >= TRANSACTIONS_BETWEEN_CHECKPOINTS:
            self._is_checkpoint_due = True
        if self._is_checkpoint_due:
            self.try_checkpoint(connection)

    def try_checkpoint(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Checkpoint now, or after a later commit if a transaction with writes is open."""
        self._is_checkpoint_due = True
        # The writer's thread may see these a moment late; DuckDB then refuses below, or lets the loop wait 8 ms.
        stretch = self.stretch
        if (stretch is not None and stretch.is_open_transaction) or any(
            session.is_open_transaction for session in self.private_sessions
        ):
            return
        with self.lock:
            try:
                connection.execute(f"CHECKPOINT {ALIAS}")
            except duckdb.TransactionException as error:
                if "Cannot CHECKPOINT" in str(error):
                    return
                raise self.failed(f"the checkpoint failed: {error}") from error
            except duckdb.Error as error:
                raise self.failed(f"the checkpoint failed: {error}") from error
            self._is_checkpoint_due = False
            self._uncheckpointed = 0
            if self._log_bytes:
                _sync_folder(self.path.parent)
                self._log_bytes = 0
                if self.on_commit is not None:
                    self.on_commit(0)

    def close(self) -> None:
        """Let go of the files."""
        self._is_closed = True
        self._instance.close()

    @property
    def is_closed(self) -> bool:
        """Whether the files are let go of."""
        return self._is_closed

    @property
    def is_alive(self) -> bool:
        """Whether nothing fatal has happened and it is not closed."""
        return not self._failure and not self._is_closed

    def failed(self, what: str) -> StorageFailed:
        """End the instance: nothing goes through this file object any more."""
        self._failure = (
            f"{self.path}: {what}. Everything acknowledged is on disk; free or repair the disk, then call the object "
            "again."
        )
        return StorageFailed(self._failure)

    def commit_error(self, error: duckdb.Error) -> PerdureError:
        """What a failed commit raises."""
        if _is_conflict(error):
            return WriteConflict(f"another transaction committed the same key first: {error}. Run it again.")
        return self.failed(f"the commit failed: {error}")

    def statement_error(self, error: Exception, query: str) -> PerdureError:
        """What a failed statement raises."""
        text = str(error)
        if _is_conflict(error):
            return WriteConflict(f"another transaction wrote the same row and is not finished: {text}. Run it again.")
        if isinstance(error, duckdb.FatalException | duckdb.InternalException) or _is_disk_trouble(text):
            return self.failed(f"the database gave up: {text}")
        if _is_corruption(error):
            return StorageCorrupt(f"{self.path} has a damaged block: {text}. Restore it from a replica or a backup.")
        return SqlError(text, query=query)

    def _log_size(self) -> int:
        try:
            return os.stat(self._log_path).st_size
        except FileNotFoundError:
            return 0


def _compile(statement: duckdb.Statement) -> _Compiled:
    kind, text = statement.type.name, statement.query
    return _Compiled(
        statement,
        len(statement.named_parameters),
        statements.is_write(kind, text),
        statements.changes_schema(kind, text),
        statements.returns_rows(kind, text),
        statements.refusal(kind, text),
    )


def _sync_folder(folder: Path) -> None:
    """Make the creation or removal of a file durable; DuckDB syncs its files, but not the folder that names them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Session:
    """One connection and its open transaction. See the module's docstring for what a failing statement does."""

    def __init__(self, file: _File, connection: duckdb.DuckDBPyConnection, *, is_stretch: bool) -> None:
        self._file = file
        self._connection = connection
        self._is_stretch = is_stretch
        self._is_open = False
        self._changes_schema = False
        self._written: list[tuple[_Compiled, Sequence[Value]]] = []
        self._commits_at_begin = 0
        self._lost: PerdureError | None = None

    @property
    def is_open_transaction(self) -> bool:
        return self._is_open

    def mark(self) -> int:
        return len(self._written)

    def execute(self, query: str, bindings: Sequence[Value] = (), *, user: bool = False) -> Rows:
        self._check()
        compiled = self._file.compile(query)
        if user:
            for one in compiled:
                if one.refusal is not None:
                    raise SqlError(f"refused: {one.refusal}", query=query)
        last = compiled[-1]
        if len(bindings) != last.parameters:
            raise SqlError(
                f"the statement takes {last.parameters} bindings, {len(bindings)} were given: {query:.200}", query=query
            )
        for one in compiled[:-1]:
            self._run(one, (), query)
        return self._run(last, bindings, query)

    def commit(self) -> None:
        self._check()
        if not self._is_open:
            return
        wrote, changes_schema = bool(self._written), self._changes_schema
        with self._file.lock:
            try:
                self._connection.execute(self._file.commit_statement)
            except duckdb.Error as error:
                self._forget()
                raise self._file.commit_error(error) from error
            self._clear()
            if wrote:
                self._file.committed(self._connection, changes_schema=changes_schema)

    def rollback(self, mark: int = 0) -> None:
        if not self._is_open or mark >= len(self._written):
            return
        if self._is_stretch or self._file.commits == self._commits_at_begin:
            self._repeat(mark)
        else:
            self._lose(
                WriteConflict("a part of the transaction was rolled back after others had committed. Run it again.")
            )

    def _check(self) -> None:
        self._file.check()
        if self._lost is not None:
            raise self._lost

    def _run(self, compiled: _Compiled, bindings: Sequence[Value], query: str) -> Rows:
        connection = self._connection
        if not self._is_open and (compiled.is_write or not self._is_stretch):
            connection.execute(self._file.begin_statement)
            self._is_open = True
            self._commits_at_begin = self._file.commits
        try:
            connection.execute(compiled.statement, bindings)
            fetched: list[tuple[Value, ...]] = connection.fetchall()
        except (duckdb.Error, ValueError, TypeError, OverflowError) as error:
            raise self._statement_failed(error, query) from error
        if compiled.is_write:
            self._written.append((compiled, bindings))
            self._changes_schema = self._changes_schema or compiled.changes_schema
        if not compiled.returns_rows:
            count = fetched[0][0] if fetched else 0
            return Rows((), [], count if isinstance(count, int) else 0)
        columns = tuple(str(column[0]) for column in connection.description or ())
        return Rows(columns, fetched, len(fetched) if compiled.is_write else 0)

    def _statement_failed(self, error: Exception, query: str) -> PerdureError:
        """Restore what the transaction had written before, and say what the failed statement raises."""
        failure = self._file.statement_error(error, query)
        if isinstance(failure, StorageFailed | StorageCorrupt):
            self._forget()
        elif not self._is_open:
            pass
        elif self._is_stretch:
            self._repeat(len(self._written))
        elif isinstance(failure, WriteConflict):
            self._lose(failure)
        elif self._file.commits == self._commits_at_begin:
            self._repeat(len(self._written))
        else:
            conflict = WriteConflict(
                f"the transaction was rolled back: a statement in it failed ({failure.message}) after others had "
                "committed, so it could not be continued on the rows it had read. Run it again.",
            )
            self._lose(conflict)
            return conflict
        return failure

    def _lose(self, reason: PerdureError) -> None:
        self._forget()
        self._lost = reason

    def _repeat(self, keep: int) -> None:
        """Begin anew with the first ``keep`` writes."""
        written = self._written[:keep]
        changes_schema = any(one.changes_schema for one, _ in written)
        self._forget()
        if not written:
            return
        try:
            self._connection.execute(self._file.begin_statement)
            self._is_open = True
            self._commits_at_begin = self._file.commits
            for one, bindings in written:
                self._connection.execute(one.statement, bindings)
                self._connection.fetchall()
        except duckdb.Error as error:
            self._forget()
            raise self._file.failed(f"earlier writes of the stretch could not be repeated: {error}") from error
        self._written = written
        self._changes_schema = changes_schema

    def _forget(self) -> None:
        # DuckDB has sometimes ended the transaction itself (a conflict at commit), sometimes not; it cannot be asked.
        with contextlib.suppress(duckdb.Error):
            self._connection.rollback()
        self._clear()

    def _clear(self) -> None:
        self._is_open = False
        self._changes_schema = False
        self._written = []


class _PrivateSession(_Session):
    """A session besides the stretch."""

    def __init__(self, file: _File, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(file, connection, is_stretch=False)
        file.private_sessions.append(self)

    def close(self) -> None:
        """Roll back what is open and let the connection go."""
        if self in self._file.private_sessions:
            self._file.private_sessions.remove(self)
            self._forget()
            self._connection.close()


class Database(_Session):
    """The ``Store`` of one object; ``open_store`` makes it."""

    def __init__(self, instance: duckdb.DuckDBPyConnection, path: Path, *, inline: bool) -> None:
        file = _File(instance, path)
        super().__init__(file, instance, is_stretch=True)
        file.stretch = self
        self.path = path
        self._inline = inline
        self._journal = file.cursor()
        self._appenders: dict[str, duckdb.Appender] = {}
        self._writer = Writer(self._write, name=f"journal of {path}")
        _sync_folder(path.parent)

    @property
    def on_commit(self) -> Callable[[int], None] | None:
        return self._file.on_commit

    @on_commit.setter
    def on_commit(self, told: Callable[[int], None] | None) -> None:
        self._file.on_commit = told

    def append(self, table: str, rows: Sequence[tuple[Value, ...]]) -> Future[None]:
        self._file.check()
        done: Future[None] = Future()
        # From here on it cannot be cancelled: a journal with a gap is worse than an entry that nobody waits for.
        done.set_running_or_notify_cancel()
        append = Append(table, rows, done)
        if self._inline:
            self._write([append])
        else:
            self._writer.put(append)
        return done

    def session(self) -> PrivateSession:
        self._file.check()
        return _PrivateSession(self._file, self._file.cursor())

    def checkpoint(self) -> None:
        self._file.check()
        self._file.try_checkpoint(self._connection)

    def close(self, *, checkpoint: bool) -> None:
        file = self._file
        if file.is_closed:
            return
        self._writer.close()
        self._forget()
        for session in list(file.private_sessions):
            session.close()
        try:
            if checkpoint and file.is_alive:
                file.try_checkpoint(self._connection)
        finally:
            # Connections and appenders hold the files open.
            self._appenders.clear()
            self._journal.close()
            file.close()

    def _write(self, batch: list[Append]) -> None:
        """Store a batch in one commit; on the writer's thread, or the caller's if inline."""
        try:
            self._file.check()
            self._write_together(batch)
        except PerdureError as error:
            self._fail(batch, error)
        except (duckdb.Error, ValueError, TypeError, OverflowError) as error:
            self._forget_appends()
            if self._file.is_alive and len(batch) > 1:
                for append in batch:  # one caller's bad rows are not the others' failure
                    self._write([append])
            else:
                self._fail(batch, self._file.statement_error(error, f"append to {batch[0].table}"))
        else:
            for append in batch:
                append.done.set_result(None)

    def _write_together(self, batch: list[Append]) -> None:
        file, journal = self._file, self._journal
        journal.execute(file.begin_statement)
        touched: list[duckdb.Appender] = []
        for append in batch:
            appender = self._appenders.get(append.table)
            if appender is None:
                appender = self._appenders[append.table] = journal.appender(append.table)
            appender.append_rows(append.rows)
            if appender not in touched:
                touched.append(appender)
        for appender in touched:
            appender.flush()
        with file.lock:
            try:
                journal.execute(file.commit_statement)
            except duckdb.Error as error:
                if _is_conflict(error):
                    raise
                self._forget_appends()
                raise file.commit_error(error) from error
            file.committed(journal)

    def _forget_appends(self) -> None:
        # An appender keeps rows that it could not flush and would add them to the next batch.
        for appender in self._appenders.values():
            with contextlib.suppress(duckdb.Error):
                appender.clear()
        self._appenders.clear()
        with contextlib.suppress(duckdb.Error):
            self._journal.rollback()

    @staticmethod
    def _fail(batch: list[Append], error: PerdureError) -> None:
        for append in batch:
            append.done.set_exception(error)
