"""The thread that writes an object's journal.

Whoever appends puts rows into a queue and gets a future; the thread takes all that waits and hands it over as one
batch, which becomes one commit. So a hundred appends that arrive during one commit cost one more (measured: 100 rows
in a commit cost 1.5 times one row), and no delay is ever added. How a batch is written is not decided here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from runtime.errors import Unavailable
from runtime.storage.store import Value

__all__ = ["Append", "Writer"]

# Callers keep about 16 in flight; a queue this long means that nobody waits for durability any more.
APPENDS_QUEUED_MAX = 10_000
# Bounds the time between an append and its commit; more than the callers ever have in flight.
APPENDS_A_COMMIT_MAX = 256
# A commit that takes longer than this at shutdown means a hung disk; the process must still be able to end.
CLOSE_SECONDS_MAX = 30.0


class Append(NamedTuple):
    """Rows for one table, stored together, and who waits for them."""

    table: str
    rows: Sequence[tuple[Value, ...]]
    done: Future[None]


class Writer:
    """A queue and the one thread that empties it, started by the first append."""

    def __init__(self, write: Callable[[list[Append]], None], *, name: str) -> None:
        self._write = write
        self._name = name
        self._queue: queue.SimpleQueue[Append | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, append: Append) -> None:
        """Queue rows.

        Raises:
            Unavailable: Too many wait already.
        """
        if self._queue.qsize() >= APPENDS_QUEUED_MAX:
            raise Unavailable(
                f"{self._name}: {APPENDS_QUEUED_MAX:,} appends wait for the disk; await some before adding more",
                retryable=False,
                overloaded=True,
            )
        self._queue.put(append)
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._starting:
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            thread.join(CLOSE_SECONDS_MAX)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # A daemon: a process that must die is not kept alive by its journal.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            first = self._queue.get()
            if first is None:
                return
            batch = [first]
            while len(batch) < APPENDS_A_COMMIT_MAX:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    is_last = True
                    break
                batch.append(more)
            self._write(batch)
