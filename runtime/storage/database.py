"""The ``Store`` of one object, over connections to one file.

Two connections: one serves the loop's thread and is the stretch, the other the journal's thread. DuckDB refuses a
second thread on a busy connection, so none is shared; transactions on different ones conflict only if they write the
same row, which the journal's tables rule out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from runtime.errors import PerdureError, StorageFailed
from runtime.storage.connection import Connection
from runtime.storage.file import File
from runtime.storage.session import BaseSession, OwnSession
from runtime.storage.store import PrivateSession, Value
from runtime.storage.writer import Append, Writer

__all__ = ["Database"]


class Database(BaseSession):
    """The ``Store`` of one object; ``runtime.storage.duckdb.open_store`` makes it.

    Attributes:
        path: The database file; its log is beside it, with ``.wal`` appended.
    """

    def __init__(self, path: Path, first: Connection, connect: Callable[[], Connection], *, inline: bool) -> None:
        file = File(path)
        super().__init__(file, first)
        file.is_stretch_open = lambda: self._is_open
        self.path = path
        self._connect = connect
        self._inline = inline
        self._journal = connect()
        self._journal_schema = 0
        self._writer = Writer(self._write, name=f"journal of {path}")

    @property
    def on_commit(self) -> Callable[[int], None] | None:
        """See ``Store``."""
        return self._file.on_commit

    @on_commit.setter
    def on_commit(self, told: Callable[[int], None] | None) -> None:
        self._file.on_commit = told

    def append(self, table: str, rows: Sequence[tuple[Value, ...]]) -> Future[None]:
        """See ``Store``."""
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
        """See ``Store``."""
        self._file.check()
        return OwnSession(self._file, self._connect())

    def checkpoint(self) -> None:
        """See ``Store``."""
        self._file.check()
        self._file.checkpoint(self._connection)

    def close(self, *, checkpoint: bool) -> None:
        """See ``Store``."""
        if self._file.is_closed:
            return
        self._writer.close()
        self._forget()
        for session in list(self._file.private_sessions):
            session.close()
        try:
            if checkpoint and self._file.is_alive:
                self._file.checkpoint(self._connection)
        finally:
            self._file.closed()
            self._journal.close()
            self._connection.close()

    def _write(self, batch: list[Append]) -> None:
        """Store a batch in one commit and tell who waits; on the journal's thread, or the caller's if inline."""
        try:
            self._write_together(batch)
        except PerdureError as error:
            self._not_written(batch, error)
            return
        except Exception as error:  # whoever waits must hear of it, and the thread must live on
            self._not_written(batch, StorageFailed(f"the journal failed: {type(error).__name__}: {error}"))
            return
        for append in batch:
            append.done.set_result(None)
        # A failure is noted in the file, so that the next access raises it; this batch is stored.
        with contextlib.suppress(StorageFailed):
            self._file.checkpoint_if_due(self._journal)

    def _not_written(self, batch: list[Append], error: PerdureError) -> None:
        self._journal.rollback()
        failure = self._file.noted(error)
        if len(batch) > 1 and self._file.is_alive:
            for append in batch:  # the bad rows of one caller are not the failure of the others
                self._write([append])
            return
        for append in batch:
            append.done.set_exception(failure)

    def _write_together(self, batch: list[Append]) -> None:
        self._file.check()
        if self._journal_schema != self._file.schema_changes:
            # What the connection keeps for its tables may be for columns that are no more.
            self._journal_schema = self._file.schema_changes
            self._journal.rollback()
        self._journal.begin()
        self._journal.append([(append.table, append.rows) for append in batch])
        with self._file.lock:
            self._journal.commit()
            self._file.committed()
