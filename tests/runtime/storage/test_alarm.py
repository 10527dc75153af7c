"""The alarm slot as storage (runtime D24-D26, D30, N5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from math import inf, nan

import pytest

from runtime.core.alarms import Slot, begin
from runtime.errors import UsageError
from runtime.storage.alarm import read_slot, write_slot
from runtime.storage.duckdb import Database
from runtime.storage.storage import Storage, Transaction
from runtime.storage.store import Session
from tests.runtime.storage.open_gate import OpenGate


class Refused(Exception):
    """What the user's function raises."""


async def test_an_alarm_reads_back_in_epoch_seconds(storage: Storage) -> None:
    # D25
    before = await storage.get_alarm()
    await storage.set_alarm(1_767_323_045.6789)
    assert (before, await storage.get_alarm()) == (None, 1_767_323_045.679)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-5))])
async def test_an_aware_datetime_is_an_instant(storage: Storage, zone: timezone) -> None:
    # N5
    await storage.set_alarm(datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC).astimezone(zone))
    assert await storage.get_alarm() == 1_767_323_045.5


async def test_a_second_alarm_replaces_the_first(storage: Storage, store: Database) -> None:
    # D24: one slot
    await storage.set_alarm(2)
    await storage.set_alarm(1)
    assert (await storage.get_alarm(), store.execute("SELECT count(*) FROM cf_alarm").rows) == (1.0, [(1,)])


async def test_setting_an_alarm_begins_its_retries_anew(storage: Storage, store: Database) -> None:
    # D27
    write_slot(store, Slot(at_ms=1000, retry_count=3))
    await storage.set_alarm(2)
    assert read_slot(store).retry_count == 0


async def test_each_change_of_the_slot_has_a_higher_version(storage: Storage, store: Database) -> None:
    # D30: the keeper keeps the newest
    versions = [read_slot(store).version]
    for change in (storage.set_alarm, storage.set_alarm):
        change(2)
        versions.append(read_slot(store).version)
    storage.delete_alarm()
    versions.append(read_slot(store).version)
    assert versions == [0, 1, 2, 3]


async def test_delete_alarm_clears_the_slot(storage: Storage) -> None:
    # D26
    await storage.set_alarm(2)
    await storage.delete_alarm()
    assert await storage.get_alarm() is None


async def test_the_slot_of_a_running_handler_reads_as_none(storage: Storage, store: Database) -> None:
    # D25
    write_slot(store, begin(Slot(at_ms=2000)))
    assert await storage.get_alarm() is None


@pytest.mark.parametrize(
    "when",
    [datetime(2026, 1, 1), nan, inf, -inf, 1_767_323_045_000.0, "2026-01-01", None, True],
)
def test_what_is_no_point_in_time_is_refused(storage: Storage, gate: OpenGate, when: object) -> None:
    # N5
    with pytest.raises(UsageError):
        storage.set_alarm(when)  # type: ignore[arg-type]
    assert gate.alarms == []


async def test_an_alarm_is_a_write_of_its_stretch(storage: Storage, store: Database, gate: OpenGate) -> None:
    # D30
    storage.set_alarm(2)
    open_and_told = (store.is_open_transaction, gate.wrotes)
    store.rollback()
    assert (open_and_told, await storage.get_alarm()) == ((True, [True]), None)


async def test_an_awaited_alarm_is_durable(storage: Storage, after_a_crash: Callable[[], Database]) -> None:
    # D24, D30
    await storage.set_alarm(2)
    assert read_slot(after_a_crash()).at_ms == 2000


async def test_the_gate_hears_of_each_change_before_the_commit(
    storage: Storage, store: Database, gate: OpenGate
) -> None:
    # D30
    storage.set_alarm(2)
    storage.set_alarm(3)
    storage.delete_alarm()
    assert (gate.alarms, store.is_open_transaction) == ([2000, 3000, None], True)


async def test_the_gate_hears_that_a_block_undid_its_alarm(storage: Storage, gate: OpenGate) -> None:
    # D21, D30
    def change() -> None:
        storage.set_alarm(5)
        raise Refused

    storage.set_alarm(2)
    with pytest.raises(Refused):
        storage.transaction_sync(change)
    assert gate.alarms == [2000, 5000, 2000]


async def test_a_transactions_alarm_is_announced_before_its_commit(storage: Storage, store: Database) -> None:
    # D17, D30
    events: list[object] = []

    class Listening(OpenGate):
        def lost(self, error: BaseException) -> None:
            raise AssertionError(error)

        async def announce(self, session: Session) -> None:
            events.append(read_slot(session).at_ms)

    store.on_commit = lambda size: events.append("commit")
    listening = Storage(store, Listening(store))

    async def change(_: Transaction) -> None:
        listening.set_alarm(2)
        await listening.set_alarm(3)

    await listening.transaction(change)
    assert events == [3000, "commit"]


async def test_a_transaction_without_an_alarm_announces_none(storage: Storage, gate: OpenGate) -> None:
    # D30
    async def change(txn: Transaction) -> None:
        await txn.put("a", 1)

    await storage.transaction(change)
    assert gate.announced == []


async def test_the_gate_hears_nothing_of_an_undone_transactions_alarm(storage: Storage, gate: OpenGate) -> None:
    # D17, D30
    async def change(txn: Transaction) -> None:
        await storage.set_alarm(3)
        txn.rollback()

    await storage.transaction(change)
    assert (gate.alarms, gate.announced, await storage.get_alarm()) == ([], [], None)
