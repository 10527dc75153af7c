"""Keys and values against a dict, over any calls, commits, failures and crashes (runtime D10, D13-D17, D19)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextvars import Context
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime.errors import SqlError, WriteConflict
from runtime.storage.duckdb import open_store, prewarm
from runtime.storage.kv import SyncKv
from runtime.storage.storage import Storage, Transaction, prepare
from tests.runtime.storage.open_gate import OpenGate

# Few keys, so that they meet; among them what sorts or matches unexpectedly.
KEYS = st.sampled_from(["", "a", "a\x00", "aa", "aé", "ab", "b", "B", "%", "_", "é", "\uffff", "🜁"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
PAIRS = st.dictionaries(KEYS, VALUES, max_size=12)
ABSENT = object()
BOUND = st.none() | KEYS


class RolledBack(Exception):
    """Raised inside a transaction to undo it."""


def expected_list(
    model: dict[str, object],
    start: str | None,
    start_after: str | None,
    end: str | None,
    prefix: str | None,
    reverse: bool,
    limit: int | None,
) -> list[tuple[str, object]]:
    keys = sorted(model, key=str.encode, reverse=reverse)
    keys = [key for key in keys if start is None or key.encode() >= start.encode()]
    keys = [key for key in keys if start_after is None or key.encode() > start_after.encode()]
    keys = [key for key in keys if end is None or key.encode() < end.encode()]
    keys = [key for key in keys if prefix is None or key.startswith(prefix)]
    return [(key, model[key]) for key in keys[:limit]]


def changed(model: dict[str, object], pairs: dict[str, object], deleted: str) -> dict[str, object]:
    return {key: value for key, value in (model | pairs).items() if key != deleted}


def effects(model: dict[str, object], pairs: dict[str, object], deleted: str) -> dict[str, object]:
    """What a unit writes, by key; ABSENT for a delete. A key that is not there before and after is not written."""
    after = changed(model, pairs, deleted)
    return {key: after.get(key, ABSENT) for key in [*pairs, deleted] if key in model or key in after}


def applied(model: dict[str, object], *units: dict[str, object]) -> dict[str, object]:
    result = dict(model)
    for unit in units:
        result |= unit
    return {key: value for key, value in result.items() if value is not ABSENT}


class KeysAndValues(RuleBasedStateMachine):
    """``durable`` is what a crash must leave, ``model`` what the object sees."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-kv-"))
        self.model: dict[str, object] = {}
        self.durable: dict[str, object] = {}
        self.open()
        prepare(self.store)

    def open(self) -> None:
        prewarm()
        self.store = open_store(self.folder, inline=True)
        self.gate = OpenGate(self.store)
        self.storage = Storage(self.store, self.gate)
        self.kv: SyncKv = self.storage.kv

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close(checkpoint=False)
            shutil.rmtree(self.folder)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: str, value: object) -> None:
        self.kv.put(key, value)
        self.model[key] = value

    @rule(pairs=PAIRS)
    def put_many(self, pairs: dict[str, object]) -> None:
        self.kv.put(pairs)
        self.model.update(pairs)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.kv.delete(key) == (key in self.model)
        self.model.pop(key, None)

    @rule(keys=st.lists(KEYS, max_size=12))
    def delete_many(self, keys: list[str]) -> None:
        assert self.kv.delete(keys) == len(set(keys) & set(self.model))
        for key in keys:
            self.model.pop(key, None)

    @rule(keys=st.lists(KEYS, max_size=12))
    def get_many(self, keys: list[str]) -> None:
        expected = [(key, self.model[key]) for key in sorted(set(keys), key=str.encode) if key in self.model]
        assert list(self.kv.get(keys).items()) == expected

    @rule(
        start=BOUND,
        is_after=st.booleans(),
        end=BOUND,
        prefix=BOUND,
        reverse=st.booleans(),
        limit=st.none() | st.integers(1, 5),
    )
    def list(
        self, start: str | None, is_after: bool, end: str | None, prefix: str | None, reverse: bool, limit: int | None
    ) -> None:
        first, after = (None, start) if is_after else (start, None)
        found = self.kv.list(start=first, start_after=after, end=end, prefix=prefix, reverse=reverse, limit=limit)
        assert list(found.items()) == expected_list(self.model, first, after, end, prefix, reverse, limit)

    @rule()
    def end_the_stretch(self) -> None:
        self.store.commit()
        self.durable = dict(self.model)

    @rule()
    def fail_a_statement(self) -> None:
        try:
            self.storage.sql.exec("SELECT * FROM no_such_table")
        except SqlError:
            return
        raise AssertionError("no error")

    @rule(pairs=PAIRS, key=KEYS, fails=st.booleans())
    def transaction_sync(self, pairs: dict[str, object], key: str, fails: bool) -> None:
        def change() -> None:
            self.kv.put(pairs)
            self.kv.delete(key)
            if fails:
                raise RolledBack

        try:
            self.storage.transaction_sync(change)
        except RolledBack:
            return
        self.model.update(pairs)
        self.model.pop(key, None)

    @rule(mine=PAIRS, i_delete=KEYS, theirs=PAIRS, they_delete=KEYS)
    def a_transaction_and_a_stretch(
        self, mine: dict[str, object], i_delete: str, theirs: dict[str, object], they_delete: str
    ) -> None:
        """Both succeed if they touch different keys; if they meet, one fails and nothing of it is stored."""
        self.end_the_stretch()
        failed: set[str] = set()

        def change_theirs() -> None:
            self.kv.put(theirs)
            self.kv.delete(they_delete)

        def stretch() -> None:
            try:
                self.storage.transaction_sync(change_theirs)
            except WriteConflict:
                failed.add("theirs")
            self.store.commit()

        async def change_mine(_: Transaction) -> None:
            await self.storage.put(mine)
            await self.storage.delete(i_delete)
            Context().run(stretch)  # as another task would, outside of the transaction
            assert self.kv.list() == changed(self.model_before, mine, i_delete)

        self.model_before = dict(self.model)
        try:
            asyncio.run(self.storage.transaction(change_mine))
        except WriteConflict:
            failed.add("mine")
        units = {"mine": effects(self.model, mine, i_delete), "theirs": effects(self.model, theirs, they_delete)}
        assert len(failed) <= 1
        assert not failed or units["mine"].keys() & units["theirs"].keys()
        stored = [unit for name, unit in units.items() if name not in failed]
        # Where they meet and yet both succeed (DuckDB leaves out an update that changes nothing), the result must be
        # that of one after the other.
        outcomes = [applied(self.model, *order) for order in (stored, stored[::-1])]
        found = self.kv.list()
        assert found in outcomes
        self.model = found
        self.durable = dict(self.model)

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule()
    def crash(self) -> None:
        self.store.close(checkpoint=False)
        self.open()
        self.model = dict(self.durable)

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        if hasattr(self, "store"):
            assert self.kv.list() == self.model


TestKeysAndValues = pytest.mark.slow(KeysAndValues.TestCase)
TestKeysAndValues.settings = settings(max_examples=25, stateful_step_count=30)
