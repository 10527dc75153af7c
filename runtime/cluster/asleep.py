"""The directory of a data directory whose Ray does not run, read without waking anybody.

The keeper's lock keeps a new keeper from starting for these milliseconds, and what is opened is a copy of its files:
looking changes nothing, not even the count of its openings.

This module imports neither Ray nor DuckDB.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from runtime.cluster.ray_files import FileLock
from runtime.errors import LockHeld, SqlError
from runtime.keeper import KEEPER_ID, Known, read_directory
from runtime.storage.store import Store

__all__ = ["sleeping_objects"]

# A keeper whose Ray was killed is gone within tenths of a second; one that is just starting keeps its lock.
LOCK_SECONDS = 5.0


def sleeping_objects(data_dir: Path, open_store: Callable[[Path], Store]) -> list[Known]:
    """All objects of the directory, oldest first, as the keeper left them.

    Args:
        data_dir: The data directory.
        open_store: ``runtime.open_store``; processes that run Ray import this package and need no DuckDB.

    Raises:
        LockHeld: The keeper lives: a Ray is just starting, or has not quite ended.
        StorageCorrupt: The keeper's database does not open.
    """
    folder = data_dir / KEEPER_ID.folder
    if not (folder / "lock").exists():
        return []
    lock = FileLock(folder / "lock")
    if not lock.take(shared=True, timeout=LOCK_SECONDS):
        raise LockHeld(f"the directory of {data_dir} is in use by a Ray that is just starting or ending; try again")
    with tempfile.TemporaryDirectory(prefix="perdure-list-") as place:
        copied = Path(place) / "keeper"
        copied.mkdir()
        try:
            for file in folder.glob("*.duckdb*"):
                if file.is_file():
                    shutil.copy2(file, copied / file.name)
        finally:
            lock.release()
        store = open_store(copied)
        try:
            return read_directory(store)
        except SqlError:
            return []  # it died before it had made its tables
        finally:
            store.close(checkpoint=False)
