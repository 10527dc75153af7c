"""One protection switched off, from outside: the run must then say what was lost, doubled or written twice.

Each replaces a part of perdure in the processes of the benchmark's agents, when their module is imported there. The
packages have no switch for any of this, and the load is the same with and without it.

    journal  chunks count as journalled at once and reach the journal later, so readers see what a kill can still lose
    dedupe   neither the stored result of a keyed call is found nor the turn that a repeated ``chat`` names: both run
             again
    fence    nobody takes the lock of an object's folder; and since DuckDB has one of its own, on the file's inode, a
             second opener gets files of its own under the same names, as on a file system without locks
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import types
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from agents import turn_queue
from agents.streams import CHUNK_TABLE
from runtime import lease
from runtime.cluster import actor
from runtime.errors import PerdureError
from runtime.mailbox import Mailbox
from runtime.storage.database import Database
from runtime.storage.duckdb import DATABASE_NAME
from runtime.storage.file import log_path
from runtime.storage.store import Value

__all__ = ["BREAKS", "apply"]

# Later than any batch waits, so that a kill in mid-stream finds events that only readers have.
JOURNAL_LAG_SECONDS = 0.2


def apply(what: str) -> None:
    """Switch a protection off in this process; with an empty name none."""
    if what:
        BREAKS[what]()


def _break_journal() -> None:
    append = Database.append

    def append_later(self: Database, table: str, rows: Sequence[tuple[Value, ...]]) -> Future[None]:
        if table != CHUNK_TABLE:
            return append(self, table, rows)

        def late() -> None:
            with contextlib.suppress(PerdureError):  # closed meanwhile
                append(self, table, rows)

        timer = threading.Timer(JOURNAL_LAG_SECONDS, late)
        timer.daemon = True
        timer.start()
        promised: Future[None] = Future()
        promised.set_result(None)
        return promised

    patched: Any = Database
    patched.append = append_later


def _break_dedupe() -> None:
    patched: Any = Mailbox
    patched._stored = lambda self, key: None
    accept = turn_queue.TurnQueue.accept
    again = itertools.count(1)

    async def accept_anew(self: turn_queue.TurnQueue, request: bytes | None, request_id: str) -> Any:
        if request is not None and self._submissions.get(request_id) is not None:
            request_id = f"{request_id}-{os.getpid()}-{next(again)}"
        return await accept(self, request, request_id)

    patched = turn_queue.TurnQueue
    patched.accept = accept_anew


def _break_fence() -> None:
    unlocked: Any = types.SimpleNamespace(LOCK_EX=0, LOCK_NB=0, flock=lambda descriptor, how: None)
    patched: Any = lease
    patched.fcntl = unlocked
    patched_actor: Any = actor
    open_store = patched_actor.open_store

    def open_own(folder: Path) -> Any:
        path = folder / DATABASE_NAME
        for file in (path, log_path(path)):
            if file.exists():
                copy = file.with_name(f"{file.name}.{os.getpid()}")
                shutil.copy2(file, copy)
                os.replace(copy, file)
        return open_store(folder)

    patched_actor.open_store = open_own


BREAKS = {"journal": _break_journal, "dedupe": _break_dedupe, "fence": _break_fence}
