"""Emptying an object's database (runtime D18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.errors import WriteConflict
from runtime.storage.alarm import read_slot
from runtime.storage.duckdb import Database
from runtime.storage.migrations import versions
from runtime.storage.storage import Storage, Transaction
from tests.runtime.storage.open_gate import OpenGate

THINGS = """
    SELECT table_name AS name FROM duckdb_tables() WHERE NOT starts_with(table_name, 'cf_')
    UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT sequence_name FROM duckdb_sequences()
    UNION ALL SELECT type_name FROM duckdb_types() WHERE NOT internal
    UNION ALL SELECT function_name FROM duckdb_functions() WHERE NOT internal
    UNION ALL SELECT schema_name FROM duckdb_schemas() WHERE NOT internal AND schema_name <> 'main'
"""


@pytest.fixture
def full(storage: Storage) -> Storage:
    storage.kv.put({"a": 1, "b": 2})
    storage.set_alarm(2)
    storage.sql.exec(
        """
        CREATE SEQUENCE counter;
        CREATE TYPE mood AS ENUM ('good', 'bad');
        CREATE MACRO twice(a) AS 2 * a;
        CREATE MACRO numbers() AS TABLE SELECT 1;
        CREATE TABLE "the first" (id INTEGER PRIMARY KEY DEFAULT nextval('counter'), mood mood);
        CREATE TABLE a_last (id INTEGER PRIMARY KEY, up INTEGER REFERENCES "the first" (id));
        CREATE TABLE between_them (id INTEGER REFERENCES a_last (id));
        CREATE INDEX moods ON "the first" (mood);
        CREATE VIEW seen AS SELECT * FROM "the first";
        CREATE SCHEMA aside;
        CREATE TABLE aside.more (a INTEGER);
        INSERT INTO "the first" VALUES (1, 'good');
        INSERT INTO a_last VALUES (1, 1)
        """
    )
    return storage


async def test_keys_tables_and_the_alarm_are_gone(full: Storage, gate: OpenGate) -> None:
    # D18
    await full.sync()
    await full.delete_all()
    assert (await full.list(), await full.get_alarm(), full.sql.exec(THINGS).to_list()) == ({}, None, [])
    assert gate.alarms == [2000, None]


async def test_it_is_durable_when_awaited(full: Storage, after_a_crash: Callable[[], Database]) -> None:
    # D18
    await full.sync()
    await full.delete_all()
    found = after_a_crash()
    assert found.execute(THINGS).rows == []
    assert found.execute("SELECT * FROM cf_kv").rows == []


async def test_it_is_atomic(full: Storage, after_a_crash: Callable[[], Database]) -> None:
    # D18
    await full.sync()
    full.delete_all()
    found = after_a_crash()
    assert len(found.execute(THINGS).rows) == 10
    assert found.execute("SELECT key FROM cf_kv ORDER BY key").rows == [("a",), ("b",)]


async def test_it_undoes_itself_wholly_on_a_conflict(full: Storage, store: Database) -> None:
    # D18
    await full.sync()
    session = store.session()
    session.execute("UPDATE cf_kv SET value = 'x'::BLOB WHERE key = 'a'")
    session.execute("DELETE FROM cf_kv WHERE key = 'a'")
    with pytest.raises(WriteConflict):
        full.delete_all()
    session.close()
    assert (len(full.sql.exec(THINGS).to_list()), list(await full.list())) == (10, ["a", "b"])


async def test_it_can_be_undone_in_a_transaction(full: Storage) -> None:
    # D17, D18
    async def change(txn: Transaction) -> None:
        await full.delete_all()
        txn.rollback()

    await full.sync()
    await full.transaction(change)
    assert len(full.sql.exec(THINGS).to_list()) == 10


async def test_the_storage_goes_on_afterwards(full: Storage) -> None:
    # D18
    await full.delete_all()
    await full.put("new", 1)
    full.sql.exec("CREATE TABLE seen (a INTEGER)")
    await full.sync()
    assert await full.list() == {"new": 1}


async def test_tables_of_the_runtime_stay_empty_with_their_versions(full: Storage, store: Database) -> None:
    # D18
    store.execute("CREATE TABLE cf_other (a INTEGER); INSERT INTO cf_other VALUES (1)")
    await full.delete_all()
    assert (store.execute("SELECT * FROM cf_other").rows, versions(store)) == ([], {"storage": 1})


async def test_the_version_of_the_alarm_slot_goes_on_growing(full: Storage, store: Database) -> None:
    # D18, D30: the keeper would take an alarm with a lower one for an old message
    before = read_slot(store).version
    await full.delete_all()
    await full.set_alarm(3)
    assert (before, read_slot(store).version) == (1, 3)
