"""The journal's thread beside the loop's connection (runtime/storage/writer.py, database.py)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from runtime.errors import StorageFailed, Unavailable
from runtime.storage.duckdb import Database, open_store
from runtime.storage.writer import APPENDS_A_COMMIT_MAX, APPENDS_QUEUED_MAX, Append, Writer


@pytest.fixture
def store(folder: Path) -> Iterator[Database]:
    opened = open_store(folder)
    opened.execute("CREATE TABLE cf_log (seq BIGINT PRIMARY KEY, frame BLOB)")
    opened.execute("CREATE TABLE cf_row (id INTEGER PRIMARY KEY, value INTEGER)")
    opened.execute("INSERT INTO cf_row VALUES (1, 0)")
    opened.commit()
    yield opened
    opened.close(checkpoint=False)


class Gathering:
    """Stands for the database: holds the first batch back until told, and remembers all."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def write(self, batch: list[Append]) -> None:
        self.batches.append([append.table for append in batch])
        self.has_begun.set()
        assert self.may_go_on.wait(10)


def append(name: str) -> Append:
    return Append(name, [], Future())


def test_what_waits_during_a_commit_shares_the_next_one_in_order() -> None:
    gathering = Gathering()
    writer = Writer(gathering.write, name="test")
    writer.put(append("a"))
    gathering.has_begun.wait(10)
    for name in "bcd":
        writer.put(append(name))
    gathering.may_go_on.set()
    writer.close()
    assert gathering.batches == [["a"], ["b", "c", "d"]]


def test_a_commit_takes_a_bounded_number() -> None:
    gathering = Gathering()
    writer = Writer(gathering.write, name="test")
    writer.put(append("first"))
    gathering.has_begun.wait(10)
    for _ in range(300):
        writer.put(append("x"))
    gathering.may_go_on.set()
    writer.close()
    assert [len(batch) for batch in gathering.batches] == [1, 256, 44]
    assert APPENDS_A_COMMIT_MAX == 256


def test_too_many_waiting_appends_are_refused_as_overload() -> None:
    gathering = Gathering()
    writer = Writer(gathering.write, name="test")
    writer.put(append("first"))
    gathering.has_begun.wait(10)
    for _ in range(APPENDS_QUEUED_MAX):
        writer.put(append("x"))
    with pytest.raises(Unavailable, match="10,000 appends wait") as caught:
        writer.put(append("one too many"))
    gathering.may_go_on.set()
    writer.close()
    assert (caught.value.overloaded, caught.value.retryable) == (True, False)


def test_no_thread_runs_before_the_first_append(store: Database) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store.append("cf_log", [(1, b"")]).result()
    after = {thread.name for thread in threading.enumerate()}
    store.close(checkpoint=False)
    ended = {thread.name for thread in threading.enumerate()}
    assert (after - before, ended) == ({f"journal of {store.path}"}, before)


@pytest.mark.slow
def test_a_busy_journal_fails_no_commit_of_the_loop(store: Database) -> None:
    waiting = [store.append("cf_log", [(seq, b"x" * 500)]) for seq in range(64)]
    seq = 64
    for number in range(300):
        store.execute("UPDATE cf_row SET value = ? WHERE id = 1", (number,))
        store.execute("INSERT INTO cf_row VALUES (?, 0)", (number + 2,))
        waiting += [store.append("cf_log", [(seq + more, b"x" * 500)]) for more in range(4)]
        seq += 4
        store.commit()
    for one in waiting:
        one.result()
    assert store.execute("SELECT value FROM cf_row WHERE id = 1").rows == [(299,)]
    assert store.execute("SELECT count(*), max(seq) FROM cf_log").rows == [(1264, 1263)]


@pytest.mark.slow
def test_sizes_are_told_in_order_of_the_commits_of_both_connections(store: Database) -> None:
    told: list[int] = []
    store.on_commit = told.append
    waiting = []
    for number in range(150):
        waiting.append(store.append("cf_log", [(number, b"")]))
        store.execute("UPDATE cf_row SET value = ? WHERE id = 1", (number,))
        store.commit()
    store.close(checkpoint=False)
    generations: list[list[int]] = [[]]
    for size in told:
        generations[-1].append(size) if size else generations.append([])
    assert all(sizes == sorted(set(sizes)) for sizes in generations)


@pytest.mark.parametrize("error", [StorageFailed("the replica cannot be reached"), RuntimeError("a bug")])
def test_a_listener_that_fails_after_a_commit_fails_the_append_and_ends_the_store(
    store: Database, error: Exception
) -> None:
    def refuse(_: int) -> None:
        raise error

    store.on_commit = refuse
    with pytest.raises(StorageFailed, match=str(error)):
        store.append("cf_log", [(1, b"")]).result(10)
    with pytest.raises(StorageFailed):
        store.execute("SELECT 1")
