"""What all connections to one object's database share: the lock, the log's size, the fate of the instance.

One lock orders commits and checkpoints, so that the size of the write-ahead log, read under it, is always the end of a
whole commit. It is held for a commit, never for a stretch. Checkpoints are ours alone (DuckDB's own are switched off),
since replication needs to know of each: after 200 transactions or 4 MB of log, after a change of the schema, and when
the host asks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from runtime.errors import Corrupt, ObjectReset, PerdureError, SqlError, StorageFailed
from runtime.storage.connection import Connection, Statement

__all__ = ["File", "log_path"]

# Replay costs 0.13 ms a transaction and dominates the wake after a crash; a checkpoint costs about 8 ms.
TRANSACTIONS_BETWEEN_CHECKPOINTS = 200
LOG_BYTES_MAX = 4 * 1024 * 1024
# A small transaction takes about so much; guesses how many are in the log that an earlier life has left.
LOG_BYTES_A_TRANSACTION = 500

# Parsed statements kept by their text. User code may build texts without end.
STATEMENTS_KEPT_MAX = 512
STATEMENT_CHARACTERS_KEPT_MAX = 10_000


def log_path(path: Path) -> Path:
    """Where DuckDB keeps the write-ahead log of a database file."""
    return path.with_name(f"{path.name}.wal")


class _Open(Protocol):
    @property
    def is_open_transaction(self) -> bool: ...

    def close(self) -> None: ...


class File:
    """The state that sessions and the journal of one database have in common."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.on_commit: Callable[[int], None] | None = None
        self.commits = 0
        self.schema_changes = 0
        self.private_sessions: list[_Open] = []
        self.is_stretch_open: Callable[[], bool] = lambda: False
        self._parsed: dict[str, tuple[Statement, ...]] = {}
        self._log_path = log_path(path)
        self._log_bytes = self._log_size()
        self._uncheckpointed = self._log_bytes // LOG_BYTES_A_TRANSACTION
        self._is_checkpoint_due = False
        self._failure: PerdureError | None = None
        self._is_closed = False
        sync_folder(path.parent)

    @property
    def is_alive(self) -> bool:
        """Whether nothing fatal has happened and it is not closed."""
        return self._failure is None and not self._is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the files are let go of."""
        return self._is_closed

    def check(self) -> None:
        """Raise if the instance has ended."""
        if self._failure is not None:
            raise type(self._failure)(self._failure.message)
        if self._is_closed:
            raise ObjectReset(f"the storage {self.path} is closed; the next call opens it again")

    def noted(self, error: PerdureError) -> PerdureError:
        """The error to raise. One that nothing can follow ends the file object and names the file."""
        if not isinstance(error, StorageFailed | Corrupt):
            return error
        if isinstance(error, StorageFailed):
            told: PerdureError = StorageFailed(
                f"{self.path}: {error.message}. What was acknowledged is on disk; free or repair the disk, "
                "then call the object again."
            )
        else:
            told = type(error)(
                f"{self.path}: {error.message}. Nothing was changed; restore the file and its log from a replica or "
                "a backup."
            )
        self._failure = self._failure or told
        return told

    def parse(self, connection: Connection, query: str) -> tuple[Statement, ...]:
        """The statements of a text, from memory if it was seen before. Only for the loop's thread."""
        known = self._parsed.get(query)
        if known is not None:
            return known
        parsed = connection.parse(query)
        if not parsed:
            raise SqlError("there is no statement in the query", query=query)
        if len(query) <= STATEMENT_CHARACTERS_KEPT_MAX:
            if len(self._parsed) >= STATEMENTS_KEPT_MAX:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[query] = parsed
        return parsed

    def committed(self, *, changes_schema: bool = False) -> None:
        """Account for a commit that wrote; the lock is held."""
        size = self._log_size()
        if size == self._log_bytes:
            return  # its statements changed nothing
        if self._log_bytes == 0:
            self._sync_folder()
        self._log_bytes = size
        self.commits += 1
        self.schema_changes += changes_schema
        self._uncheckpointed += 1
        # A log with a change of the schema in it has failed to replay in earlier releases of DuckDB.
        if changes_schema or size > LOG_BYTES_MAX or self._uncheckpointed >= TRANSACTIONS_BETWEEN_CHECKPOINTS:
            self._is_checkpoint_due = True
        if self.on_commit is not None:
            self.on_commit(size)

    def checkpoint_if_due(self, connection: Connection) -> None:
        """Checkpoint if one is due and no transaction with writes is open; else a later commit tries again."""
        if self._is_checkpoint_due:
            self.checkpoint(connection)

    def checkpoint(self, connection: Connection) -> None:
        """Checkpoint now, or after the commit that ends the last open transaction with writes."""
        if self._log_bytes == 0:
            return  # there is nothing to fold in
        self._is_checkpoint_due = True
        # The journal's thread may see these a moment late; the connection then says no, or the loop waits 8 ms.
        if self.is_stretch_open() or any(session.is_open_transaction for session in self.private_sessions):
            return
        with self.lock:
            try:
                is_done = connection.checkpoint()
            except PerdureError as error:
                raise self.noted(error) from error.__cause__
            if not is_done:
                return
            self._is_checkpoint_due = False
            self._uncheckpointed = 0
            self._log_bytes = 0
            self._sync_folder()
            if self.on_commit is not None:
                self.on_commit(0)

    def closed(self) -> None:
        """Account for the end."""
        self._is_closed = True

    def _sync_folder(self) -> None:
        try:
            sync_folder(self.path.parent)
        except OSError as error:
            raise self.noted(StorageFailed(f"its folder could not be synced: {error}")) from error

    def _log_size(self) -> int:
        try:
            return os.stat(self._log_path).st_size
        except FileNotFoundError:
            return 0


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; DuckDB syncs its files, but not the folder that names them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
