"""Keys and values (runtime D13-D16, D19, D22)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from math import isnan, nan
from typing import Any

import pytest

from runtime.errors import StorageLimit, UsageError, WriteConflict
from runtime.storage.duckdb import Database
from runtime.storage.storage import Storage
from tests.runtime.storage.open_gate import OpenGate

MORNING = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_get_returns_what_put_stored_and_none_for_an_absent_key(storage: Storage) -> None:
    # D13
    await storage.put("a", {"n": [1, "two"]})
    assert (await storage.get("a"), await storage.get("b")) == ({"n": [1, "two"]}, None)


async def test_get_of_a_list_is_in_key_order_without_the_absent_keys(storage: Storage) -> None:
    # D13
    await storage.put({"b": 2, "a": 1, "é": 3, "Z": 0})
    found = await storage.get(["é", "a", "Z", "no", "b", "a"])
    assert list(found.items()) == [("Z", 0), ("a", 1), ("b", 2), ("é", 3)]


async def test_get_of_many_keys_finds_each(storage: Storage) -> None:
    # D13, D15: no cap of 128 keys
    await storage.put({f"{number:03}": number for number in range(200)})
    found = await storage.get([f"{number:03}" for number in reversed(range(200))])
    assert list(found.values()) == list(range(200))


async def test_get_of_no_keys_is_empty(storage: Storage) -> None:
    # D13
    assert await storage.get([]) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        False,
        "",
        b"",
        [],
        {},
        1.5,
        -1,
        2**64 - 1,
        -(2**63),
        "text \x00 é 🜁",
        b"\x00\xff",
        MORNING,
        {"nested": [None, {"deep": b"x"}, True, MORNING]},
        {1: "a key that is a number"},
        float("inf"),
    ],
)
async def test_a_value_reads_back_equal_and_of_its_type(storage: Storage, value: object) -> None:
    # D14, N3
    await storage.put("key", value)
    found = await storage.get("key")
    assert (found, type(found)) == (value, type(value))


async def test_none_is_stored_and_not_the_same_as_absent(storage: Storage) -> None:
    # D14
    await storage.put("a", None)
    assert (await storage.list(), await storage.delete("a")) == ({"a": None}, True)


async def test_nan_reads_back_as_nan(storage: Storage) -> None:
    # D14
    await storage.put("a", [nan])
    assert isnan((await storage.get("a"))[0])


async def test_a_datetime_reads_back_as_the_same_instant(storage: Storage) -> None:
    # D14
    there = MORNING.astimezone(timezone(timedelta(hours=9)))
    await storage.put("a", there)
    assert await storage.get("a") == MORNING


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((1, 2), r"'key' is a tuple"),
        ([0, {"x": (1, 2)}], r"'key'\[1\]\['x'\] is a tuple"),
        ({1, 2}, r"'key' is a set"),
        ([datetime(2026, 1, 1)], r"'key'\[0\] is a datetime without a time zone"),
        (object(), r"'key' cannot be stored"),
        (2**64, r"'key' cannot be stored"),
        (lambda: None, r"'key' cannot be stored"),
    ],
)
async def test_a_value_that_would_read_back_otherwise_is_refused_by_its_place(
    storage: Storage, value: object, says: str
) -> None:
    # D14, N3
    with pytest.raises(UsageError, match=says):
        await storage.put("key", value)
    assert await storage.list() == {}


async def test_put_replaces_a_value(storage: Storage) -> None:
    # D14
    await storage.put("a", 1)
    await storage.put("a", 2)
    assert await storage.list() == {"a": 2}


async def test_put_copies_the_value(storage: Storage) -> None:
    # D14
    value = [1]
    storage.put("a", value)
    value.append(2)
    assert await storage.get("a") == [1]


async def test_put_of_a_mapping_is_one_unit(storage: Storage) -> None:
    # D14
    with pytest.raises(UsageError):
        await storage.put({"a": 1, "b": object()})
    assert await storage.list() == {}


async def test_put_of_a_mapping_replaces_and_adds(storage: Storage) -> None:
    # D14
    await storage.put({f"{number:03}": 0 for number in range(0, 200, 2)})
    await storage.put({f"{number:03}": number for number in range(200)})
    assert await storage.list() == {f"{number:03}": number for number in range(200)}


async def test_key_and_value_of_two_megabytes_fit(storage: Storage) -> None:
    # D14, D22: 2,097,152 bytes with the key's 3 and msgpack's header of 5
    await storage.put("key", bytes(2_097_144))
    assert len(await storage.get("key")) == 2_097_144


async def test_a_byte_more_is_refused_with_key_and_size(storage: Storage) -> None:
    # D14
    with pytest.raises(StorageLimit, match=r"'key' and its value have 2,097,153 bytes"):
        await storage.put("key", bytes(2_097_145))
    assert await storage.list() == {}


async def test_delete_says_whether_the_key_existed(storage: Storage) -> None:
    # D15
    await storage.put("a", 0)
    assert (await storage.delete("a"), await storage.delete("a")) == (True, False)


async def test_delete_of_a_list_counts_those_that_existed(storage: Storage) -> None:
    # D15
    await storage.put({f"{number:03}": number for number in range(150)})
    count = await storage.delete(["000", "000", "no", *(f"{number:03}" for number in range(1, 140))])
    assert (count, list(await storage.list())) == (140, [f"{number:03}" for number in range(140, 150)])


async def test_a_key_can_be_deleted_and_put_in_one_stretch(storage: Storage) -> None:
    await storage.put("a", 1)
    storage.delete("a")
    storage.put("a", 2)
    storage.delete("a")
    await storage.put("a", 3)
    assert await storage.list() == {"a": 3}


KEYS = ["", "A", "a", "a\x00", "aa", "ab", "b", "z", "é", "\uffff", "🜁"]


async def test_list_is_in_the_order_of_the_keys_utf_8_bytes(storage: Storage) -> None:
    # D16: the last two would change places in UTF-16
    await storage.put({key: 0 for key in reversed(KEYS)})
    assert list(await storage.list()) == KEYS


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"start": "aa"}, ["aa", "ab", "b", "z", "é", "\uffff", "🜁"]),
        ({"start_after": "aa"}, ["ab", "b", "z", "é", "\uffff", "🜁"]),
        ({"start": "a!"}, ["aa", "ab", "b", "z", "é", "\uffff", "🜁"]),
        ({"end": "ab"}, ["", "A", "a", "a\x00", "aa"]),
        ({"start": "a", "end": "ab"}, ["a", "a\x00", "aa"]),
        ({"start": "b", "end": "a"}, []),
        ({"prefix": "a"}, ["a", "a\x00", "aa", "ab"]),
        ({"prefix": "a\x00"}, ["a\x00"]),
        ({"prefix": ""}, KEYS),
        ({"prefix": "%"}, []),
        ({"prefix": "a", "start": "aa"}, ["aa", "ab"]),
        ({"prefix": "a", "start_after": "aa", "end": "z"}, ["ab"]),
        ({"limit": 2}, ["", "A"]),
        ({"limit": 100}, KEYS),
        ({"prefix": "a", "limit": 2}, ["a", "a\x00"]),
        ({"reverse": True, "limit": 2}, ["🜁", "\uffff"]),
        ({"start": "aa", "end": "z", "reverse": True}, ["b", "ab", "aa"]),
        ({"start_after": "aa", "end": "z", "reverse": True}, ["b", "ab"]),
        ({"start": "a", "end": "b", "reverse": True, "limit": 1}, ["ab"]),
    ],
)
async def test_list_options(storage: Storage, options: dict[str, Any], keys: list[str]) -> None:
    # D16
    await storage.put({key: 0 for key in KEYS})
    assert list(await storage.list(**options)) == keys


async def test_list_takes_start_or_start_after(storage: Storage) -> None:
    # D16
    with pytest.raises(UsageError, match="not both"):
        storage.list(start="a", start_after="a")


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
async def test_a_limit_is_a_positive_whole_number(storage: Storage, limit: Any) -> None:
    with pytest.raises(UsageError, match="limit"):
        storage.list(limit=limit)


@pytest.mark.parametrize("key", [None, 1, b"a", "\ud800"])
@pytest.mark.parametrize(
    "call",
    [
        lambda s, key: s.get(key),
        lambda s, key: s.get([key]),
        lambda s, key: s.put(key, 1),
        lambda s, key: s.put({key: 1}),
        lambda s, key: s.delete(key),
        lambda s, key: s.delete([key]),
        lambda s, key: s.list(prefix=key if key is not None else 1),
    ],
)
def test_a_key_that_is_no_text_is_refused(storage: Storage, call: Callable[[Storage, Any], object], key: Any) -> None:
    with pytest.raises(UsageError):
        call(storage, key)


def test_the_synchronous_form_does_the_same(storage: Storage) -> None:
    # D19
    kv = storage.kv
    kv.put({"a": 1, "b": 2, "c": 3})
    kv.put("a", 4)
    assert (kv.delete("b"), kv.delete("b"), kv.delete(["b", "c"])) == (True, False, 1)
    assert (kv.get("a"), kv.get("b"), kv.get(["b", "a"]), kv.list(prefix="a")) == (4, None, {"a": 4}, {"a": 4})


def test_keys_and_sql_share_the_file(storage: Storage, store: Database) -> None:
    # D19
    storage.kv.put("a", 1)
    storage.sql.exec("CREATE TABLE t (a INTEGER)")
    store.rollback()
    assert (storage.kv.list(), storage.sql.exec("SHOW TABLES").column_names) == ({}, ["name"])


def test_a_put_of_many_that_meets_a_conflict_stores_none_of_them(store: Database, storage: Storage) -> None:
    # D14: nine keys are two statements, and the second one meets the conflict
    storage.kv.put(dict.fromkeys("abcdefghi", 0))
    store.commit()
    session = store.session()
    session.execute("UPDATE cf_kv SET value = 'other'::BLOB WHERE key = 'i'")
    gate = OpenGate(store)
    with pytest.raises(WriteConflict):
        Storage(store, gate).kv.put(dict.fromkeys("abcdefghi", 1))
    session.close()
    assert (storage.kv.list(), gate.wrotes) == (dict.fromkeys("abcdefghi", 0), [])
