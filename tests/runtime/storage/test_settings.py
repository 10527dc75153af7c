"""Every setting that durability and replication rest on holds for an attached file (runtime/storage/duckdb.py).

An attached database is not the one that the instance was opened with, so none of this goes without saying.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from runtime.errors import SqlError
from runtime.storage.duckdb import DATABASE_NAME, SETTINGS, Database, open_store
from tests.runtime.storage.process import run


def file_bytes(folder: Path) -> int:
    return (folder / DATABASE_NAME).stat().st_size


def log_bytes(folder: Path) -> int:
    log = folder / f"{DATABASE_NAME}.wal"
    return log.stat().st_size if log.exists() else 0


@pytest.fixture
def bulky(folder: Path) -> Database:
    """A store with one commit of 200,000 rows, more than a row group; its log passes our own limit afterwards."""
    store = open_store(folder)
    store.execute("CREATE TABLE cf_bulk (id BIGINT, body VARCHAR)")
    store.commit()
    return store


def test_a_bulk_insert_is_written_to_the_log_alone(bulky: Database, folder: Path) -> None:
    before, sizes = file_bytes(folder), []
    bulky.on_commit = lambda size: sizes.append((size, file_bytes(folder)))
    bulky.execute("INSERT INTO cf_bulk SELECT range, repeat('x', 50) || range FROM range(200_000)")
    bulky.commit()
    bulky.close(checkpoint=False)
    in_log, in_file = sizes[0]
    assert (in_log > 10_000_000, in_file) == (True, before)


def test_file_and_log_copied_after_a_bulk_insert_scan_whole(bulky: Database, folder: Path, tmp_path: Path) -> None:
    def copy(size: int) -> None:
        if size:
            shutil.copytree(folder, tmp_path / "copy")

    bulky.on_commit = copy
    bulky.execute("INSERT INTO cf_bulk SELECT range, repeat('x', 50) || range FROM range(200_000)")
    bulky.commit()
    bulky.close(checkpoint=False)
    found = open_store(tmp_path / "copy")
    assert found.execute("SELECT count(*), sum(id), max(body) FROM cf_bulk").rows == [
        (200_000, 19_999_900_000, "x" * 50 + "99999")
    ]
    found.close(checkpoint=False)


def test_closing_leaves_the_log(folder: Path, store: Database) -> None:
    store.execute("INSERT INTO cf_kv VALUES ('a', 'x'::BLOB)")
    store.commit()
    before = log_bytes(folder)
    store.close(checkpoint=False)
    assert (before > 0, log_bytes(folder)) == (True, before)


def test_closing_with_a_checkpoint_leaves_no_log(folder: Path, store: Database) -> None:
    store.execute("INSERT INTO cf_kv VALUES ('a', 'x'::BLOB)")
    store.commit()
    store.close(checkpoint=True)
    assert sorted(path.name for path in folder.iterdir()) == [DATABASE_NAME]


@pytest.mark.slow
def test_the_end_of_a_process_leaves_the_log(folder: Path) -> None:
    code = """
store = open_store(folder)
store.execute("CREATE TABLE cf_rows (id INTEGER)")
store.commit()
store.execute("INSERT INTO cf_rows VALUES (1)")
store.commit()
"""
    run(code, folder)
    assert log_bytes(folder) > 0


def test_opening_with_a_log_continues_it(folder: Path, store: Database) -> None:
    store.execute("INSERT INTO cf_kv VALUES ('a', 'x'::BLOB)")
    store.commit()
    store.close(checkpoint=False)
    before = log_bytes(folder)
    again = open_store(folder)
    after_opening = log_bytes(folder)
    told: list[int] = []
    again.on_commit = told.append
    again.execute("INSERT INTO cf_kv VALUES ('b', 'x'::BLOB)")
    again.commit()
    again.close(checkpoint=False)
    assert (after_opening, told == [log_bytes(folder)], told[0] > before) == (before, True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_limit", "61.0 MiB"),
        ("threads", "1"),
        ("checkpoint_threshold", "931.3 GiB"),
        ("auto_checkpoint_skip_wal_threshold", "4611686018427387904"),
        ("enable_optimistic_write", "false"),
        ("python_enable_replacements", "false"),
        ("autoinstall_known_extensions", "false"),
        ("lock_configuration", "true"),
    ],
)
def test_a_setting_has_its_value(store: Database, name: str, value: str) -> None:
    for session in (store, store.session()):
        assert session.execute("SELECT current_setting(?)::VARCHAR", (name,)).rows == [(value,)]


@pytest.mark.parametrize(
    "change",
    [
        "SET memory_limit = '1GB'",
        "SET threads = 4",
        "SET checkpoint_threshold = '1KB'",
        "SET auto_checkpoint_skip_wal_threshold = 0",
        "SET enable_optimistic_write = true",
        "PRAGMA enable_checkpoint_on_shutdown",
        "SET lock_configuration = false",
    ],
)
def test_a_setting_cannot_be_undone(store: Database, change: str) -> None:
    with pytest.raises(SqlError, match="locked"):
        store.execute(change)


def test_all_connections_work_on_the_objects_file(store: Database) -> None:
    # A connection does not inherit the default database of the one it was made from.
    for session in (store, store.session()):
        assert session.execute("SELECT current_database()").rows == [("object",)]


def test_what_does_not_fit_into_memory_is_put_beside_the_file(store: Database, folder: Path) -> None:
    assert store.execute("SELECT current_setting('temp_directory')").rows == [(f"{folder / DATABASE_NAME}.tmp",)]


def test_a_query_over_the_memory_limit_is_an_sql_error_and_harms_nothing(store: Database) -> None:
    store.execute("INSERT INTO cf_kv VALUES ('a', 'x'::BLOB)")
    with pytest.raises(SqlError, match=r"[Mm]emory"):
        store.execute("SELECT list(repeat('x', 1000) || range) FROM range(1_000_000)")
    store.commit()
    assert store.execute("SELECT key FROM cf_kv").rows == [("a",)]


@pytest.mark.slow
def test_a_log_that_needs_more_memory_than_the_limit_opens_and_is_folded_in(folder: Path) -> None:
    folder.mkdir()
    bare = duckdb.connect(folder / DATABASE_NAME)
    for setting in SETTINGS:
        bare.execute(setting)
    bare.execute("CREATE TABLE cf_keys (id VARCHAR PRIMARY KEY)")
    bare.execute("INSERT INTO cf_keys SELECT repeat('k', 60) || range FROM range(1_100_000)")
    bare.close()
    before = log_bytes(folder)
    store = open_store(folder)
    found = store.execute("SELECT count(*) FROM cf_keys").rows
    after = log_bytes(folder)
    store.close(checkpoint=False)
    assert (before > 50_000_000, found, after) == (True, [(1_100_000,)], 0)
