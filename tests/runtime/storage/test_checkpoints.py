"""When the log is folded into the file, and that names of files are durable (runtime/storage/file.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.storage.duckdb import DATABASE_NAME, Database, open_store


@pytest.fixture
def store(folder: Path) -> Database:
    opened = open_store(folder)
    opened.execute("CREATE TABLE cf_rows (id INTEGER, body VARCHAR)")
    opened.commit()
    return opened


@pytest.fixture(autouse=True)
def closed_afterwards(store: Database):
    yield
    store.close(checkpoint=False)


@pytest.fixture
def told(store: Database) -> list[int]:
    sizes: list[int] = []
    store.on_commit = sizes.append
    return sizes


def write(store: Database, body: str = "") -> None:
    store.execute("INSERT INTO cf_rows VALUES (1, ?)", (body,))
    store.commit()


def test_the_two_hundredth_transaction_brings_a_checkpoint(store: Database, told: list[int]) -> None:
    for _ in range(199):
        write(store)
    before = 0 in told
    write(store)
    assert (before, len(told), told[-1]) == (False, 201, 0)


def test_transactions_of_both_connections_are_counted(store: Database, told: list[int]) -> None:
    for _ in range(100):
        write(store)
        store.append("cf_rows", [(1, "")]).result()
    store.close(checkpoint=False)  # the journal's thread checkpoints after it has told who waits
    assert (told.count(0), told[-1]) == (1, 0)


def test_the_journal_alone_brings_a_checkpoint(store: Database, told: list[int]) -> None:
    for _ in range(200):
        store.append("cf_rows", [(1, "")]).result()
    store.close(checkpoint=False)
    assert (told.count(0), told[-1]) == (1, 0)


def test_transactions_are_counted_anew_after_a_checkpoint(store: Database, told: list[int]) -> None:
    for _ in range(400):
        write(store)
    assert [index for index, size in enumerate(told) if size == 0] == [200, 401]


def test_a_transaction_that_changes_nothing_is_not_counted(store: Database, told: list[int]) -> None:
    write(store)
    told.clear()
    for _ in range(200):
        store.execute("UPDATE cf_rows SET body = 'x' WHERE id = 9")
        store.commit()
    assert told == []


def test_four_megabytes_of_log_bring_a_checkpoint(store: Database, told: list[int]) -> None:
    for _ in range(4):
        write(store, "x" * 1_048_576)
    assert ([size > 0 for size in told], told[-1]) == ([True, True, True, True, False], 0)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE cf_more (id INTEGER)",
        "ALTER TABLE cf_rows ADD COLUMN more INTEGER",
        "DROP TABLE cf_rows",
        "CREATE VIEW cf_view AS SELECT 1",
    ],
)
def test_a_change_of_the_schema_brings_a_checkpoint(store: Database, told: list[int], change: str) -> None:
    store.execute(change)
    store.commit()
    assert told[1:] == [0]


def test_a_table_that_was_there_already_brings_none(store: Database, told: list[int]) -> None:
    write(store)
    store.execute("CREATE TABLE IF NOT EXISTS cf_rows (id INTEGER)")
    store.commit()
    assert 0 not in told


def test_a_rolled_back_change_of_the_schema_brings_none(store: Database, told: list[int]) -> None:
    mark = store.mark()
    store.execute("CREATE TABLE cf_more (id INTEGER)")
    store.rollback(mark)
    write(store)
    assert 0 not in told


def test_a_checkpoint_of_nothing_tells_nobody(store: Database, told: list[int]) -> None:
    store.checkpoint()
    assert told == []


def test_lives_that_are_all_short_bring_a_checkpoint_too(store: Database, folder: Path) -> None:
    store.close(checkpoint=False)
    told: list[int] = []
    for _ in range(8):
        again = open_store(folder)
        again.on_commit = told.append
        for _ in range(50):
            write(again, "x" * 100)
        again.close(checkpoint=False)
    assert 0 in told


def test_the_folder_is_synced_when_the_log_appears_and_when_it_goes(
    store: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append((path, sorted(os.listdir(path))))

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(3):
        write(store)
    store.checkpoint()
    assert synced == [
        (str(folder), [DATABASE_NAME, f"{DATABASE_NAME}.wal"]),
        (str(folder), [DATABASE_NAME]),
    ]
