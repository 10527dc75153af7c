"""What every ``Store`` promises (runtime/storage/store.py), with the journal on its own thread and inline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.errors import ObjectReset, SqlError, WriteConflict
from runtime.storage.duckdb import open_store
from runtime.storage.store import Rows, Store

COUNT = "SELECT count(*) FROM cf_pairs"


@pytest.fixture(params=["thread", "inline"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []

    def open_again() -> Store:
        for one in opened:
            one.close(checkpoint=False)
        opened.append(open_store(tmp_path / "object", inline=request.param == "inline"))
        return opened[-1]

    yield open_again
    for one in opened:
        one.close(checkpoint=False)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Store:
    opened = reopen()
    opened.execute("CREATE TABLE cf_pairs (key INTEGER PRIMARY KEY, value VARCHAR)")
    opened.execute("CREATE TABLE cf_log (seq BIGINT, frame BLOB)")
    opened.commit()
    return opened


def put(store: Store, key: int, value: str = "x") -> None:
    store.execute("INSERT INTO cf_pairs VALUES (?, ?)", (key, value))


def keys(store: Store) -> list[int]:
    return [row[0] for row in store.execute("SELECT key FROM cf_pairs ORDER BY key").rows]  # type: ignore[misc]


# --- the stretch ---


def test_a_committed_write_is_there_after_reopening(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, 1, "one")
    store.commit()
    assert reopen().execute("SELECT key, value FROM cf_pairs").rows == [(1, "one")]


def test_writes_without_a_commit_are_gone_after_reopening(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, 1)
    assert keys(reopen()) == []


def test_a_read_sees_what_its_own_stretch_wrote(store: Store) -> None:
    put(store, 1)
    assert keys(store) == [1]


def test_the_first_write_opens_a_transaction_and_a_commit_ends_it(store: Store) -> None:
    seen = [store.is_open_transaction]
    put(store, 1)
    seen.append(store.is_open_transaction)
    store.commit()
    seen.append(store.is_open_transaction)
    assert seen == [False, True, False]


def test_a_read_opens_no_transaction(store: Store) -> None:
    store.execute(COUNT)
    assert not store.is_open_transaction


def test_a_select_that_writes_opens_a_transaction(store: Store) -> None:
    store.execute("WITH added AS (INSERT INTO cf_pairs VALUES (1, 'x') RETURNING key) SELECT * FROM added")
    assert store.is_open_transaction


def test_rollback_undoes_the_stretch(store: Store) -> None:
    put(store, 1)
    store.rollback()
    assert (keys(store), store.is_open_transaction) == ([], False)


def test_rollback_to_a_mark_keeps_what_was_written_before_it(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, 1)
    mark = store.mark()
    put(store, 2)
    store.rollback(mark)
    store.commit()
    assert keys(reopen()) == [1]


def test_rollback_to_a_mark_at_the_beginning_undoes_all_after_it(store: Store) -> None:
    mark = store.mark()
    put(store, 1)
    store.rollback(mark)
    assert keys(store) == []


def test_a_commit_without_writes_tells_nobody(store: Store) -> None:
    told: list[int] = []
    store.on_commit = told.append
    store.commit()
    assert told == []


def test_rows_changed_are_counted_and_are_no_rows(store: Store) -> None:
    assert store.execute("INSERT INTO cf_pairs VALUES (1, 'a'), (2, 'b')") == Rows((), [], 2)


def test_returning_gives_rows_and_counts_them(store: Store) -> None:
    assert store.execute("INSERT INTO cf_pairs VALUES (1, 'a') RETURNING value, key") == Rows(
        ("value", "key"), [("a", 1)], 1
    )


def test_the_word_returning_in_a_text_is_not_the_clause(store: Store) -> None:
    assert store.execute("INSERT INTO cf_pairs VALUES (1, 'no returning here')") == Rows((), [], 1)


def test_bindings_go_to_the_last_of_several_statements(store: Store) -> None:
    store.execute("DELETE FROM cf_pairs; INSERT INTO cf_pairs VALUES ($1, $2)", (7, "seven"))
    assert store.execute("SELECT * FROM cf_pairs").rows == [(7, "seven")]


@pytest.mark.parametrize("bindings", [(), (1, "x", "more")])
def test_a_wrong_number_of_bindings_is_an_sql_error(store: Store, bindings: tuple[int | str, ...]) -> None:
    with pytest.raises(SqlError, match=r"takes 2 bindings, \d were given"):
        store.execute("INSERT INTO cf_pairs VALUES (?, ?)", bindings)


# --- a failing statement undoes only itself ---


@pytest.mark.parametrize(
    "wrong",
    [
        "SELEC 1",
        "SELECT * FROM no_such_table",
        "INSERT INTO cf_pairs VALUES (1, 'again')",
        "INSERT INTO cf_pairs VALUES ('not a number', 'x')",
        "SELECT ?",
        "",
    ],
)
def test_a_failing_statement_leaves_the_earlier_writes_of_its_stretch(
    store: Store, reopen: Callable[[], Store], wrong: str
) -> None:
    put(store, 1)
    put(store, 2)
    with pytest.raises(SqlError) as caught:
        store.execute(wrong)
    put(store, 3)
    store.commit()
    assert (caught.value.query, keys(reopen())) == (wrong, [1, 2, 3])


def test_a_failing_first_statement_leaves_no_transaction(store: Store) -> None:
    with pytest.raises(SqlError):
        store.execute("INSERT INTO no_such_table VALUES (1)")
    assert not store.is_open_transaction


def test_earlier_statements_of_a_failing_text_stay(store: Store) -> None:
    with pytest.raises(SqlError):
        store.execute("INSERT INTO cf_pairs VALUES (1, 'x'); SELECT * FROM no_such_table")
    assert keys(store) == [1]


# --- the journal ---


def test_an_append_is_durable_when_its_future_resolves(store: Store, reopen: Callable[[], Store]) -> None:
    store.append("cf_log", [(1, b"frame"), (2, None)]).result()
    assert reopen().execute("SELECT * FROM cf_log ORDER BY seq").rows == [(1, b"frame"), (2, None)]


def test_appends_are_stored_in_the_order_of_the_calls(store: Store) -> None:
    done = [store.append("cf_log", [(seq, b"")]) for seq in range(500)]
    done[-1].result()
    assert store.execute("SELECT seq FROM cf_log ORDER BY rowid").rows == [(seq,) for seq in range(500)]


def test_an_append_is_no_part_of_an_open_stretch(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, 1)
    store.append("cf_log", [(1, b"")]).result()
    store.rollback()
    again = reopen()
    assert (keys(again), again.execute("SELECT seq FROM cf_log").rows) == ([], [(1,)])


def test_bad_rows_fail_their_own_append_only_and_wholly(store: Store) -> None:
    store.execute("CREATE TABLE cf_unique (id INTEGER PRIMARY KEY)")
    store.commit()
    before = store.append("cf_unique", [(1,)])
    bad = store.append("cf_unique", [(2,), (1,)])
    after = store.append("cf_unique", [(3,)])
    failures = [type(one.exception()) for one in (before, bad, after)]
    assert failures == [type(None), SqlError, type(None)]
    assert store.execute("SELECT id FROM cf_unique ORDER BY id").rows == [(1,), (3,)]


@pytest.mark.parametrize("rows", [[(1,)], [("text", b"")], [(1, b"", 3)]])
def test_rows_that_do_not_fit_are_an_sql_error(store: Store, rows: list[tuple[int | bytes | str, ...]]) -> None:
    with pytest.raises(SqlError):
        store.append("cf_log", rows).result()


def test_an_append_to_no_table_is_an_sql_error(store: Store) -> None:
    with pytest.raises(SqlError, match="no_such_table"):
        store.append("no_such_table", [(1,)]).result()


def test_an_append_cannot_be_cancelled(store: Store) -> None:
    done = store.append("cf_log", [(1, b"")])
    assert not done.cancel()


def test_appends_go_on_after_the_table_got_a_column(store: Store) -> None:
    store.append("cf_log", [(1, b"")]).result()
    store.execute("ALTER TABLE cf_log ADD COLUMN kind VARCHAR")
    store.commit()
    store.append("cf_log", [(2, b"", "new")]).result()
    assert store.execute("SELECT seq, kind FROM cf_log ORDER BY seq").rows == [(1, None), (2, "new")]


def test_appends_go_to_the_new_table_after_the_old_one_was_dropped(store: Store) -> None:
    store.append("cf_log", [(1, b"")]).result()
    store.execute("DROP TABLE cf_log; CREATE TABLE cf_log (seq BIGINT, frame BLOB)")
    store.commit()
    store.append("cf_log", [(2, b"")]).result()
    assert store.execute("SELECT seq FROM cf_log").rows == [(2,)]


def test_close_stores_the_appends_that_wait(store: Store, reopen: Callable[[], Store]) -> None:
    waiting = [store.append("cf_log", [(seq, b"")]) for seq in range(300)]
    again = reopen()
    assert all(one.done() for one in waiting)
    assert again.execute("SELECT count(*) FROM cf_log").rows == [(300,)]


@pytest.mark.parametrize("reopen", ["thread"], indirect=True)  # inline is for simulations, which have one thread
def test_any_thread_may_append(store: Store) -> None:
    def append() -> None:
        store.append("cf_log", [(1, b"")]).result()

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.execute("SELECT count(*) FROM cf_log").rows == [(4,)]


# --- private sessions ---


def test_nobody_sees_a_session_before_its_commit(store: Store) -> None:
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (1, 'x')")
    before = keys(store)
    session.commit()
    assert (before, keys(store)) == ([], [1])


def test_a_session_sees_the_state_of_its_first_statement(store: Store) -> None:
    session = store.session()
    session.execute(COUNT)
    put(store, 1)
    store.commit()
    assert session.execute(COUNT).rows == [(0,)]


def test_a_closed_session_has_stored_nothing(store: Store) -> None:
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (1, 'x')")
    session.close()
    assert keys(store) == []


def test_the_later_writer_of_a_row_gets_a_conflict(store: Store) -> None:
    put(store, 1)
    store.commit()
    session = store.session()
    session.execute("UPDATE cf_pairs SET value = 'session' WHERE key = 1")
    with pytest.raises(WriteConflict) as caught:
        store.execute("UPDATE cf_pairs SET value = 'stretch' WHERE key = 1")
    session.commit()
    assert (caught.value.retryable, store.execute("SELECT value FROM cf_pairs").rows) == (True, [("session",)])


def test_a_conflict_undoes_only_its_statement_in_the_stretch(store: Store) -> None:
    put(store, 1)
    store.commit()
    session = store.session()
    session.execute("UPDATE cf_pairs SET value = 'session' WHERE key = 1")
    put(store, 2)
    with pytest.raises(WriteConflict):
        store.execute("UPDATE cf_pairs SET value = 'stretch' WHERE key = 1")
    store.commit()
    assert keys(store) == [1, 2]


def test_the_later_commit_of_a_new_key_gets_a_conflict(store: Store) -> None:
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (1, 'session')")
    put(store, 1, "stretch")
    store.commit()
    with pytest.raises(WriteConflict):
        session.commit()
    assert store.execute("SELECT value FROM cf_pairs").rows == [("stretch",)]


def test_a_session_is_lost_after_a_conflict(store: Store) -> None:
    put(store, 1)
    store.commit()
    session = store.session()
    session.execute(COUNT)
    store.execute("UPDATE cf_pairs SET value = 'stretch' WHERE key = 1")
    store.commit()
    with pytest.raises(WriteConflict):
        session.execute("UPDATE cf_pairs SET value = 'session' WHERE key = 1")
    with pytest.raises(WriteConflict):
        session.execute(COUNT)


def test_a_failing_statement_leaves_a_session_as_it_was_if_nobody_else_committed(store: Store) -> None:
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (1, 'x')")
    with pytest.raises(SqlError):
        session.execute("SELECT * FROM no_such_table")
    session.commit()
    assert keys(store) == [1]


def test_a_failing_statement_loses_a_session_if_somebody_else_committed(store: Store) -> None:
    session = store.session()
    session.execute(COUNT)
    put(store, 1)
    store.commit()
    with pytest.raises(WriteConflict, match="run it again"):
        session.execute("SELECT * FROM no_such_table")


def test_undoing_a_part_loses_a_session_if_somebody_else_committed(store: Store) -> None:
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (1, 'x')")
    mark = session.mark()
    session.execute("INSERT INTO cf_pairs VALUES (2, 'x')")
    put(store, 3)
    store.commit()
    session.rollback(mark)
    with pytest.raises(WriteConflict):
        session.commit()
    assert keys(store) == [3]


# --- the log ---


def test_each_commit_is_told_with_a_larger_log_and_a_checkpoint_with_zero(store: Store) -> None:
    told: list[int] = []
    store.on_commit = told.append
    put(store, 1)
    store.commit()
    store.append("cf_log", [(1, b"")]).result()
    store.checkpoint()
    assert (0 < told[0] < told[1], told[2:]) == (True, [0])


def test_a_checkpoint_keeps_everything(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, 1)
    store.commit()
    store.checkpoint()
    put(store, 2)
    store.commit()
    assert keys(reopen()) == [1, 2]


def test_a_checkpoint_is_put_off_while_a_stretch_is_open(store: Store) -> None:
    put(store, 1)
    store.commit()
    told: list[int] = []
    store.on_commit = told.append
    put(store, 2)
    store.checkpoint()
    before = list(told)
    store.commit()
    assert (before, len(told), told[-1]) == ([], 2, 0)


def test_a_checkpoint_is_put_off_while_a_session_is_open(store: Store) -> None:
    put(store, 1)
    store.commit()
    told: list[int] = []
    store.on_commit = told.append
    session = store.session()
    session.execute("INSERT INTO cf_pairs VALUES (2, 'x')")
    store.checkpoint()
    put(store, 3)
    store.commit()
    before = list(told)
    session.commit()
    assert (0 in before, told[-1]) == (False, 0)


def test_closing_twice_is_harmless(store: Store) -> None:
    store.close(checkpoint=True)
    store.close(checkpoint=True)


def test_a_closed_store_refuses_with_an_error_that_a_caller_may_retry(store: Store) -> None:
    store.close(checkpoint=False)
    with pytest.raises(ObjectReset) as caught:
        store.execute(COUNT)
    assert caught.value.retryable


def test_an_append_to_a_closed_store_is_refused(store: Store) -> None:
    store.close(checkpoint=False)
    with pytest.raises(ObjectReset):
        store.append("cf_log", [(1, b"")])


def test_user_statements_are_refused_where_the_runtimes_are_not(store: Store) -> None:
    store.execute("CHECKPOINT")
    with pytest.raises(SqlError, match="refused"):
        store.execute("CHECKPOINT", user=True)
