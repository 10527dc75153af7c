"""Blocks that are stored whole or not at all (runtime D17, D21)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runtime.errors import LeaseLost, SqlError, UsageError, WriteConflict
from runtime.storage.duckdb import Database, open_store
from runtime.storage.storage import Storage, Transaction, prepare
from tests.runtime.storage.open_gate import OpenGate


class Refused(Exception):
    """What the user's function raises."""


def keys(storage: Storage) -> list[str]:
    return list(storage.kv.list())


# --- transaction_sync ---


def test_a_block_returns_what_its_function_returns(storage: Storage) -> None:
    # D21
    assert storage.transaction_sync(lambda: 7) == 7


def test_a_block_that_raises_undoes_its_writes_and_no_earlier_ones(storage: Storage, store: Database) -> None:
    # D21
    def change() -> None:
        storage.kv.put("inside", 1)
        storage.sql.exec("CREATE TABLE t (a INTEGER)")
        raise Refused

    storage.put("before", 1)
    with pytest.raises(Refused):
        storage.transaction_sync(change)
    storage.put("after", 1)
    store.commit()
    assert (keys(storage), storage.sql.exec("SELECT * FROM duckdb_tables() WHERE table_name = 't'").to_list()) == (
        ["after", "before"],
        [],
    )


def test_a_block_joins_the_stretch(storage: Storage, store: Database) -> None:
    # D10, D21
    told: list[int] = []
    store.on_commit = told.append
    storage.put("a", 1)
    storage.transaction_sync(lambda: storage.kv.put("b", 2))
    before = list(told)
    store.commit()
    assert (before, len(told)) == ([], 1)


def test_a_failing_statement_that_is_caught_inside_undoes_nothing_else(storage: Storage) -> None:
    # D21, D23
    def change() -> None:
        storage.kv.put("a", 1)
        with pytest.raises(SqlError):
            storage.sql.exec("nonsense")
        storage.kv.put("b", 1)

    storage.transaction_sync(change)
    assert keys(storage) == ["a", "b"]


def test_a_nested_block_that_raises_undoes_the_outer_one(storage: Storage) -> None:
    # D21
    def inner() -> None:
        storage.kv.put("inner", 1)
        raise Refused

    def outer() -> None:
        storage.kv.put("outer", 1)
        storage.transaction_sync(inner)

    storage.kv.put("before", 1)
    with pytest.raises(Refused):
        storage.transaction_sync(outer)
    assert keys(storage) == ["before"]


def test_a_nested_failure_undoes_the_outer_block_even_if_it_is_caught(storage: Storage) -> None:
    # D21
    def inner() -> None:
        storage.kv.put("inner", 1)
        raise Refused

    def outer() -> None:
        storage.kv.put("outer", 1)
        with pytest.raises(Refused):
            storage.transaction_sync(inner)
        storage.kv.put("later", 1)

    storage.kv.put("before", 1)
    with pytest.raises(UsageError, match=r"nested one in it failed \(Refused"):
        storage.transaction_sync(outer)
    assert keys(storage) == ["before"]


def test_a_nested_block_that_succeeds_is_stored_with_the_outer_one(storage: Storage) -> None:
    # D21
    def outer() -> None:
        storage.transaction_sync(lambda: storage.kv.put("inner", 1))
        storage.kv.put("outer", 1)

    storage.transaction_sync(outer)
    assert keys(storage) == ["inner", "outer"]


def test_a_failed_block_does_not_spoil_the_next(storage: Storage) -> None:
    # D21
    def change() -> None:
        raise Refused

    with pytest.raises(Refused):
        storage.transaction_sync(change)
    storage.transaction_sync(lambda: storage.kv.put("a", 1))
    assert keys(storage) == ["a"]


def test_an_async_function_is_refused_before_it_runs(storage: Storage) -> None:
    # D21
    async def change() -> None:
        raise AssertionError("it ran")

    with pytest.raises(UsageError, match=r"storage\.transaction"):
        storage.transaction_sync(change)  # type: ignore[unused-coroutine]


def test_a_function_that_returns_an_awaitable_is_undone(storage: Storage) -> None:
    # D21
    async def wait() -> None:
        return None

    def change() -> Awaitable[None]:
        storage.kv.put("a", 1)
        return wait()

    with pytest.raises(UsageError, match="returned an awaitable"):
        storage.transaction_sync(change)
    assert keys(storage) == []


# --- transaction ---


async def test_a_transaction_is_durable_on_return(
    storage: Storage, after_a_crash: Callable[[], Database], gate: OpenGate
) -> None:
    # D17, D9
    async def change(txn: Transaction) -> str:
        await txn.put("a", 1)
        await asyncio.sleep(0)
        await txn.put({"b": 2, "c": 3})
        return "done"

    result = await storage.transaction(change)
    found = after_a_crash()
    assert (result, Storage(found, OpenGate(found)).kv.list()) == ("done", {"a": 1, "b": 2, "c": 3})
    assert gate.wrotes == [True]


async def test_a_transaction_that_raises_stores_nothing(storage: Storage) -> None:
    # D17
    async def change(txn: Transaction) -> None:
        await txn.put("a", 1)
        storage.sql.exec("CREATE TABLE t (a INTEGER)")
        await asyncio.sleep(0)
        raise Refused

    with pytest.raises(Refused):
        await storage.transaction(change)
    assert (
        storage.sql.exec(
            "SELECT key FROM cf_kv UNION SELECT table_name FROM duckdb_tables() WHERE table_name='t'"
        ).to_list()
        == []
    )


async def test_a_cancelled_transaction_stores_nothing(storage: Storage) -> None:
    # D17
    started = asyncio.Event()

    async def change(txn: Transaction) -> None:
        await txn.put("a", 1)
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(storage.transaction(change))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert keys(storage) == []


async def test_rollback_stores_nothing_and_returns_the_result(storage: Storage) -> None:
    # D17
    async def change(txn: Transaction) -> str:
        await txn.put("a", 1)
        txn.rollback()
        return "undone"

    assert (await storage.transaction(change), keys(storage)) == ("undone", [])


@pytest.mark.parametrize(
    "use",
    [
        lambda txn, storage: txn.get("a"),
        lambda txn, storage: txn.put("a", 1),
        lambda txn, storage: txn.delete("a"),
        lambda txn, storage: txn.list(),
        lambda txn, storage: txn.rollback(),
        lambda txn, storage: storage.put("a", 1),
        lambda txn, storage: storage.sql.exec("SELECT 1"),
    ],
)
async def test_nothing_can_be_done_after_a_rollback(
    storage: Storage, use: Callable[[Transaction, Storage], object]
) -> None:
    # D17
    async def change(txn: Transaction) -> None:
        txn.rollback()
        with pytest.raises(UsageError, match="rolled back"):
            use(txn, storage)

    await storage.transaction(change)


async def test_a_transaction_cannot_be_used_after_its_end(storage: Storage) -> None:
    # D17
    kept: list[Transaction] = []

    async def change(txn: Transaction) -> None:
        kept.append(txn)

    await storage.transaction(change)
    with pytest.raises(UsageError, match="over"):
        kept[0].put("a", 1)


async def test_a_task_that_outlives_its_transaction_writes_nothing_into_it(storage: Storage) -> None:
    # D17
    over = asyncio.Event()

    async def late() -> None:
        await over.wait()
        storage.put("late", 1)

    async def change(_: Transaction) -> asyncio.Task[None]:
        return asyncio.create_task(late())

    task = await storage.transaction(change)
    over.set()
    with pytest.raises(UsageError, match="over"):
        await task


async def test_plain_calls_inside_belong_to_the_transaction(storage: Storage) -> None:
    # D17
    async def change(_: Transaction) -> None:
        await storage.put("a", 1)
        storage.kv.put("b", 1)
        storage.sql.exec("UPDATE cf_kv SET key = 'c' WHERE key = 'b'")
        await asyncio.create_task(in_a_task())
        raise Refused

    async def in_a_task() -> None:
        await storage.put("d", 1)

    with pytest.raises(Refused):
        await storage.transaction(change)
    assert keys(storage) == []


async def test_reads_inside_see_what_was_written_inside(storage: Storage) -> None:
    # D17
    async def change(txn: Transaction) -> tuple[object, object, dict[str, object]]:
        await txn.put("a", 1)
        return await txn.get("a"), storage.kv.get("a"), await txn.list(prefix="a")

    assert await storage.transaction(change) == (1, 1, {"a": 1})


async def test_others_see_nothing_before_the_commit(storage: Storage) -> None:
    # D17
    wrote, go_on = asyncio.Event(), asyncio.Event()

    async def change(txn: Transaction) -> None:
        await txn.put("a", 1)
        wrote.set()
        await go_on.wait()

    task = asyncio.ensure_future(storage.transaction(change))
    await wrote.wait()
    before = keys(storage)
    go_on.set()
    await task
    assert (before, keys(storage)) == ([], ["a"])


async def test_a_transaction_sees_what_the_stretch_before_it_wrote(storage: Storage) -> None:
    # D10, D17
    async def change(txn: Transaction) -> object:
        return await txn.get("a")

    storage.put("a", 1)
    assert await storage.transaction(change) == 1


@pytest.mark.parametrize("base", [{}, {"a": 0}])
@pytest.mark.parametrize("first", ["put", "delete"])
@pytest.mark.parametrize("second", ["put", "delete"])
async def test_the_later_writer_of_a_key_gets_a_retryable_error(
    storage: Storage, base: dict[str, int], first: str, second: str
) -> None:
    # D17
    wrote, go_on = asyncio.Event(), asyncio.Event()

    async def change(txn: Transaction) -> None:
        await (txn.put("a", 1) if first == "put" else txn.delete("a"))
        wrote.set()
        await go_on.wait()

    await storage.put(base)
    task = asyncio.ensure_future(storage.transaction(change))
    await wrote.wait()
    errors: list[WriteConflict] = []
    try:
        await (storage.put("a", 2) if second == "put" else storage.delete("a"))
    except WriteConflict as error:
        errors.append(error)
    go_on.set()
    try:
        await task
    except WriteConflict as error:
        errors.append(error)
    # A delete of a key that is not there writes nothing and meets nobody.
    expected = 0 if not base and "delete" in (first, second) else 1
    assert [error.retryable for error in errors] == [True] * expected


async def test_a_read_then_write_is_not_lost_between_two_transactions(storage: Storage) -> None:
    # D17
    together = asyncio.Barrier(2)

    async def add(txn: Transaction) -> None:
        count = await txn.get("count")
        await together.wait()
        await txn.put("count", count + 1)

    await storage.put("count", 0)
    results = await asyncio.gather(storage.transaction(add), storage.transaction(add), return_exceptions=True)
    assert [type(one) for one in results].count(WriteConflict) == 1
    assert await storage.get("count") == 1


async def test_a_read_then_write_is_not_lost_after_a_caught_sql_error(storage: Storage) -> None:
    # D17: the transaction cannot be continued on newer rows than it has read
    async def add(txn: Transaction) -> None:
        count = await txn.get("count")
        await asyncio.create_task(outside_adds_ten())
        with pytest.raises(WriteConflict):
            storage.sql.exec("SELECT * FROM mistyped")
        await txn.put("count", count + 1)

    go, done = asyncio.Event(), asyncio.Event()

    async def outside_adds_ten() -> None:
        go.set()
        await done.wait()

    async def other() -> None:
        await go.wait()
        await storage.put("count", storage.kv.get("count") + 10)
        done.set()

    await storage.put("count", 0)
    task = asyncio.create_task(other())
    with pytest.raises(WriteConflict):
        await storage.transaction(add)
    await task
    assert await storage.get("count") == 10


async def test_a_nested_transaction_joins_the_outer_one(storage: Storage) -> None:
    # D17, D21
    async def inner(txn: Transaction) -> None:
        await txn.put("inner", 1)

    async def outer(txn: Transaction) -> None:
        await txn.put("outer", 1)
        await storage.transaction(inner)
        raise Refused

    with pytest.raises(Refused):
        await storage.transaction(outer)
    assert keys(storage) == []


async def test_a_nested_transaction_that_fails_undoes_the_outer_one_even_if_caught(storage: Storage) -> None:
    # D17, D21
    async def inner(_: Transaction) -> None:
        raise Refused

    async def outer(txn: Transaction) -> None:
        await txn.put("outer", 1)
        with pytest.raises(Refused):
            await storage.transaction(inner)

    with pytest.raises(UsageError, match="nested"):
        await storage.transaction(outer)
    assert keys(storage) == []


async def test_a_synchronous_block_inside_undoes_its_own_part(storage: Storage) -> None:
    # D17, D21
    def block() -> None:
        storage.kv.put("undone", 1)
        raise Refused

    async def change(txn: Transaction) -> None:
        await txn.put("kept", 1)
        with pytest.raises(Refused):
            storage.transaction_sync(block)

    await storage.transaction(change)
    assert keys(storage) == ["kept"]


async def test_a_plain_function_is_refused(storage: Storage) -> None:
    # D17
    with pytest.raises(UsageError, match="transaction_sync"):
        await storage.transaction(lambda txn: None)  # type: ignore[arg-type, return-value]


async def test_an_instance_that_ends_meanwhile_commits_nothing(storage: Storage, gate: OpenGate) -> None:
    # D3, D17
    async def change(txn: Transaction) -> None:
        await txn.put("a", 1)
        gate.ended = LeaseLost("another instance lives")

    with pytest.raises(LeaseLost):
        await storage.transaction(change)
    gate.ended = None
    assert keys(storage) == []


async def test_a_transaction_of_one_object_is_none_of_anothers(storage: Storage, tmp_path) -> None:
    other_store = open_store(tmp_path / "other")
    prepare(other_store)
    other = Storage(other_store, OpenGate(other_store))

    async def inner(txn: Transaction) -> None:
        await txn.put("theirs", 1)
        await storage.put("mine", 1)
        await other.put("theirs too", 1)

    async def outer(_: Transaction) -> None:
        await other.transaction(inner)
        raise Refused

    with pytest.raises(Refused):
        await storage.transaction(outer)
    assert (keys(storage), keys(other)) == ([], ["theirs", "theirs too"])
    other_store.close(checkpoint=False)
