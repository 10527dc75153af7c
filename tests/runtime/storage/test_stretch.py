"""Writes without an await between them are one transaction (runtime D10, D12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runtime.errors import LeaseLost, SqlError, UsageError
from runtime.storage.alarm import read_slot
from runtime.storage.duckdb import Database
from runtime.storage.storage import Storage
from tests.runtime.storage.open_gate import OpenGate

Reopen = Callable[[], Database]


def stored(database: Database) -> dict[str, object]:
    return Storage(database, OpenGate(database)).kv.list()


async def test_puts_that_are_not_awaited_and_sql_are_one_commit(store: Database, storage: Storage) -> None:
    # D10, D12
    told: list[int] = []
    store.on_commit = told.append
    storage.put("a", 1)
    storage.sql.exec("UPDATE cf_kv SET key = 'b' WHERE key = 'a'")
    storage.kv.put("c", 3)
    storage.delete("none")
    await storage.put("d", 4)
    assert len(told) == 1


async def test_a_crash_in_a_stretch_leaves_nothing_of_it(storage: Storage, after_a_crash: Reopen) -> None:
    # D10
    await storage.put("before", 1)
    storage.put("a", 1)
    storage.kv.put("b", 2)
    storage.set_alarm(1.0)
    found = after_a_crash()
    assert stored(found) == {"before": 1}
    assert read_slot(found).at_ms is None


async def test_a_crash_after_a_stretch_leaves_all_of_it(storage: Storage, after_a_crash: Reopen) -> None:
    # D10
    storage.put("a", 1)
    storage.sql.exec("CREATE TABLE t (a INTEGER)")
    storage.sql.exec("INSERT INTO t VALUES (5)")
    await storage.sync()
    found = after_a_crash()
    assert (stored(found), found.execute("SELECT a FROM t").rows) == ({"a": 1}, [(5,)])


async def test_an_awaited_put_is_durable(storage: Storage, after_a_crash: Reopen) -> None:
    # D9
    await storage.put("a", 1)
    assert stored(after_a_crash()) == {"a": 1}


async def test_an_awaited_delete_is_durable(storage: Storage, after_a_crash: Reopen) -> None:
    # D9
    await storage.put({"a": 1, "b": 2})
    await storage.delete("a")
    assert stored(after_a_crash()) == {"b": 2}


async def test_a_put_writes_at_the_call_and_not_at_the_await(storage: Storage) -> None:
    confirmation = storage.put("a", 1)
    seen = storage.kv.get("a")
    await confirmation
    assert seen == 1


async def test_puts_can_be_gathered(storage: Storage, after_a_crash: Reopen) -> None:
    await asyncio.gather(storage.put("a", 1), storage.put("b", 2))
    assert stored(after_a_crash()) == {"a": 1, "b": 2}


async def test_an_unconfirmed_put_waits_for_nothing_and_says_so(storage: Storage, gate: OpenGate) -> None:
    # D9
    await storage.put("a", 1, allow_unconfirmed=True)
    assert (gate.wrotes, gate.commits) == ([False], 0)


async def test_an_unconfirmed_delete_waits_for_nothing_and_says_so(storage: Storage, gate: OpenGate) -> None:
    # D9
    await storage.delete("a", allow_unconfirmed=True)
    assert (gate.wrotes, gate.commits) == ([False], 0)


async def test_a_read_holds_no_output(storage: Storage, gate: OpenGate) -> None:
    # D9
    await storage.get("a")
    await storage.list()
    await storage.get_alarm()
    storage.sql.exec("SELECT 1")
    assert (gate.wrotes, gate.commits) == ([], 0)


async def test_sync_makes_all_earlier_writes_durable(storage: Storage, after_a_crash: Reopen) -> None:
    # D9
    storage.put("a", 1, allow_unconfirmed=True)
    await storage.sync()
    assert stored(after_a_crash()) == {"a": 1}


async def test_every_sql_write_joins_the_stretch(storage: Storage, gate: OpenGate) -> None:
    # D9
    storage.sql.exec("CREATE TABLE t (a INTEGER)")
    storage.sql.exec("INSERT INTO t VALUES (1); SELECT 1")
    assert gate.wrotes == [True, True]


async def test_a_caught_sql_error_costs_the_stretch_nothing_else(storage: Storage, after_a_crash: Reopen) -> None:
    # D10, D23
    storage.put("a", 1)
    with pytest.raises(SqlError):
        storage.sql.exec("INSERT INTO mistyped VALUES (1)")
    await storage.put("b", 2)
    assert stored(after_a_crash()) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.get("a"),
        lambda s: s.put("a", 1),
        lambda s: s.delete("a"),
        lambda s: s.list(),
        lambda s: s.kv.get("a"),
        lambda s: s.kv.put("a", 1),
        lambda s: s.kv.delete("a"),
        lambda s: s.kv.list(),
        lambda s: s.sql.exec("SELECT 1"),
        lambda s: s.set_alarm(1.0),
        lambda s: s.get_alarm(),
        lambda s: s.delete_alarm(),
        lambda s: s.delete_all(),
        lambda s: s.transaction_sync(lambda: None),
    ],
)
def test_an_instance_that_has_ended_reaches_no_storage(
    store: Database, storage: Storage, gate: OpenGate, call: Callable[[Storage], object]
) -> None:
    # D3: the first storage access ends it
    gate.ended = LeaseLost("another instance lives")
    with pytest.raises(LeaseLost):
        call(storage)
    assert not store.is_open_transaction


@pytest.mark.parametrize("call", ["transaction", "sync"])
async def test_an_instance_that_has_ended_awaits_no_storage(storage: Storage, gate: OpenGate, call: str) -> None:
    # D3
    gate.ended = LeaseLost("another instance lives")

    async def nothing(_: object) -> None:
        return None

    with pytest.raises(LeaseLost):
        await (storage.sync() if call == "sync" else storage.transaction(nothing))


def test_a_result_that_was_not_awaited_is_no_truth_value(storage: Storage) -> None:
    with pytest.raises(UsageError, match="must be awaited"):
        bool(storage.delete("a"))
