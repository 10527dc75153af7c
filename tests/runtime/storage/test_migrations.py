"""Versions of the tables (runtime A48)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.errors import SqlError, StorageCorrupt
from runtime.storage.duckdb import Database, open_store
from runtime.storage.migrations import migrate, migrate_all, versions
from runtime.storage.store import Rows, Value

STEPS = ("CREATE TABLE cf_a (id INTEGER); CREATE TABLE cf_b (id INTEGER)", "ALTER TABLE cf_a ADD COLUMN name VARCHAR")


@pytest.fixture
def store(folder: Path) -> Iterator[Database]:
    opened = open_store(folder)
    yield opened
    opened.close(checkpoint=False)


def columns(store: Database, table: str) -> list[Value]:
    return [row[0] for row in store.execute(f"DESCRIBE {table}").rows]


def test_a_new_file_has_no_versions(store: Database) -> None:
    assert versions(store) == {}


def test_all_steps_are_run_on_a_new_file_and_are_durable(
    store: Database, after_a_crash: Callable[[], Database]
) -> None:
    migrate(store, "thing", STEPS)
    found = after_a_crash()
    assert (versions(found), columns(found, "cf_a"), columns(found, "cf_b")) == ({"thing": 2}, ["id", "name"], ["id"])


def test_only_missing_steps_are_run_and_data_is_kept(store: Database) -> None:
    migrate(store, "thing", STEPS[:1])
    store.execute("INSERT INTO cf_a VALUES (7)")
    store.commit()
    migrate(store, "thing", STEPS)
    assert (store.execute("SELECT * FROM cf_a").rows, versions(store)) == ([(7, None)], {"thing": 2})


def test_an_up_to_date_file_costs_one_select(folder: Path, store: Database) -> None:
    migrate_all(store, {"thing": STEPS, "other": ("CREATE TABLE cf_c (id INTEGER)",)})
    asked: list[str] = []

    class Counting(Database):
        def execute(self, query: str, bindings: object = (), *, user: bool = False) -> Rows:
            asked.append(query)
            return super().execute(query)

    store.__class__ = Counting
    known = versions(store)
    migrate(store, "thing", STEPS, known)
    migrate(store, "other", ("CREATE TABLE cf_c (id INTEGER)",), known)
    assert asked == ["SELECT component, version FROM cf_schema"]


def test_components_do_not_know_of_each_other(store: Database) -> None:
    migrate(store, "thing", STEPS)
    migrate(store, "other", ("CREATE TABLE cf_c (id INTEGER)",))
    assert versions(store) == {"thing": 2, "other": 1}


def test_several_components_are_one_commit_and_one_checkpoint(store: Database) -> None:
    told: list[int] = []
    store.on_commit = told.append
    known: dict[str, int] = {}
    migrate_all(store, {"thing": STEPS, "other": ("CREATE TABLE cf_c (id INTEGER)",)}, known)
    assert (len(told), told[-1], known) == (2, 0, {"thing": 2, "other": 1})


def test_a_failing_step_leaves_nothing_of_all_of_them(store: Database) -> None:
    known: dict[str, int] = {}
    with pytest.raises(SqlError):
        migrate(store, "thing", (*STEPS, "nonsense"), known)
    store.commit()
    assert (versions(store), known, store.execute("SHOW TABLES").rows) == ({}, {}, [])


def test_a_file_of_a_newer_release_is_refused_untouched(store: Database) -> None:
    migrate(store, "thing", STEPS)
    with pytest.raises(StorageCorrupt, match="version 2, this release knows 1"):
        migrate(store, "thing", STEPS[:1])
    assert versions(store) == {"thing": 2}
