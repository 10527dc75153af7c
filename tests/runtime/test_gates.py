"""What may pass into an object and out of it, and what is stored together (runtime D8-D12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runtime import DurableObject
from runtime.errors import ConnectionLost, ObjectReset, PerdureError, RemoteError, StorageFailed, Unavailable
from runtime.testing import LocalCluster


class Ledger(DurableObject):
    """Writes in all ways, and notes in memory what ran when."""

    async def boot(self) -> None:
        self.ctx.migrate("ledger", ["CREATE TABLE cf_lines (text VARCHAR)"])
        self.order: list[str] = []

    async def note(self, word: str) -> None:
        self.order.append(word)

    async def seen(self) -> list[str]:
        return self.order

    async def get(self, key: str) -> object:
        return await self.ctx.storage.get(key)

    async def get_all(self) -> dict[str, object]:
        return dict(await self.ctx.storage.list())

    async def put(self, key: str, value: object) -> None:
        self.ctx.storage.put(key, value)

    async def put_unconfirmed_after(self, ticks: int, key: str, value: object) -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)
        self.ctx.storage.put(key, value, allow_unconfirmed=True)

    async def put_unconfirmed(self, key: str, value: object) -> None:
        self.ctx.storage.put(key, value, allow_unconfirmed=True)

    async def insert_raw(self, text: str) -> None:
        self.ctx.store.execute("INSERT INTO cf_lines VALUES (?)", (text,))

    async def lines(self) -> list[object]:
        return [row[0] for row in self.ctx.store.execute("SELECT text FROM cf_lines").rows]

    async def set_alarm(self) -> None:
        self.order.append("set begins")
        await self.ctx.storage.set_alarm(self.ctx.clock.now_ms() / 1000 + 3600)
        self.order.append("set ends")

    async def sleep(self, seconds: float) -> None:
        self.order.append("sleep begins")
        await asyncio.sleep(seconds)
        self.order.append("sleep ends")

    async def put_and_call(self, name: str) -> None:
        self.ctx.storage.put("called", name)
        await self.ctx.get(Ledger, name).put("caller", self.name)

    async def put_and_yield(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            self.ctx.storage.put("number", number)
            yield number

    async def put_and_swallow(self, key: str, value: object) -> str:
        self.ctx.storage.put(key, value)
        try:
            await asyncio.sleep(0)
        except Exception:
            self.order.append("swallowed")
        return "all is well"

    async def put_and_sync(self) -> list[object]:
        self.ctx.storage.put("a", 1, allow_unconfirmed=True)
        before = self.ctx.store.is_open_transaction
        await self.ctx.storage.sync()
        return [before, self.ctx.store.is_open_transaction]

    async def put_pair(self, value: int) -> None:
        self.ctx.storage.put("a", value)
        self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
        self.ctx.storage.put("b", value)

    async def put_apart(self, value: int) -> None:
        self.ctx.storage.put("a", value)
        await asyncio.sleep(1)
        self.ctx.storage.put("b", value)

    async def put_and_raise(self) -> None:
        self.ctx.storage.put("a", 1)
        raise ValueError("after the write")

    async def put_in_task(self) -> None:
        async def write() -> None:
            self.ctx.storage.put("a", 1)
            self.ctx.storage.put("b", 1)

        await asyncio.create_task(write())

    async def block(self, seconds: float, outcome: str = "") -> str:
        async def work() -> str:
            self.order.append("block begins")
            self.ctx.storage.put("blocked", True)
            await asyncio.sleep(seconds)
            self.order.append("block ends")
            if outcome == "raise":
                raise ValueError("inside the block")
            if outcome == "remote reset":
                await self.ctx.get(Ledger, "aborting").abort()
            return "the result"

        return await self.ctx.block_concurrency_while(work)

    async def abort(self) -> None:
        self.ctx.abort("asked for")


@pytest.fixture
async def ledger(cluster: LocalCluster) -> Ledger:
    made = cluster.get(Ledger, "a")
    await made.seen()
    return made


def kinds(cluster: LocalCluster, start: int, source: str) -> list[str]:
    return [effect.kind for effect in cluster.effects[start:] if effect.source == source]


# D8


async def test_while_it_awaits_its_storage_no_call_is_delivered(cluster: LocalCluster, ledger: Ledger) -> None:
    # D8: the keeper answers late, so the alarm's write takes a while
    cluster.lose(cluster.keeper, times=8)
    setting = asyncio.create_task(ledger.set_alarm())
    await cluster.advance(0.1)
    await ledger.note("call")
    await setting
    assert await ledger.seen() == ["set begins", "set ends", "call"]


async def test_while_it_awaits_its_storage_nothing_that_waited_is_resumed(
    cluster: LocalCluster, ledger: Ledger
) -> None:
    # D8
    sleeping = asyncio.create_task(ledger.sleep(0.1))
    await cluster.advance(0)
    cluster.lose(cluster.keeper, times=8)
    await ledger.set_alarm()
    await sleeping
    assert await ledger.seen() == ["sleep begins", "set begins", "set ends", "sleep ends"]


async def test_while_it_awaits_anything_else_calls_are_delivered(cluster: LocalCluster, ledger: Ledger) -> None:
    # D8
    sleeping = asyncio.create_task(ledger.sleep(1))
    await cluster.advance(0.5)
    await ledger.note("call")
    await sleeping
    assert await ledger.seen() == ["sleep begins", "call", "sleep ends"]


# D9


async def test_a_reply_leaves_after_the_commit_of_what_was_written_before(
    cluster: LocalCluster, ledger: Ledger
) -> None:
    # D9
    start = len(cluster.effects)
    await ledger.put("x", 1)
    assert kinds(cluster, start, "Ledger/a") == ["commit", "reply"]


async def test_a_call_leaves_after_the_commit_of_what_was_written_before(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    await ledger.put_and_call("b")
    start = len(cluster.effects)
    await ledger.put_and_call("b")
    assert kinds(cluster, start, "Ledger/a") == ["commit", "call", "reply"]


async def test_an_item_of_a_stream_leaves_after_the_commit(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    start = len(cluster.effects)
    assert [item async for item in ledger.put_and_yield(2)] == [0, 1]
    assert kinds(cluster, start, "Ledger/a") == ["commit", "item", "commit", "item"]


async def test_a_write_past_the_facade_holds_the_reply_too(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9, D12: journals write to the store itself
    start = len(cluster.effects)
    await ledger.insert_raw("x")
    assert kinds(cluster, start, "Ledger/a") == ["commit", "reply"]


async def test_an_unconfirmed_write_holds_nothing_and_is_stored_soon_after(
    cluster: LocalCluster, ledger: Ledger
) -> None:
    # D9
    start = len(cluster.effects)
    await ledger.put_unconfirmed("x", 1)
    await cluster.advance(0)
    assert kinds(cluster, start, "Ledger/a") == ["reply", "commit"]


async def test_an_unconfirmed_write_is_not_lost_by_an_eviction_right_after_it(
    cluster: LocalCluster, ledger: Ledger
) -> None:
    # D9, D6: only a crash may lose it
    call = asyncio.create_task(ledger.put_unconfirmed_after(10, "x", 1))
    for _ in range(4):
        await asyncio.sleep(0)
    while cluster.is_alive(ledger):
        evicting = asyncio.create_task(cluster.evict(ledger))
        await asyncio.sleep(0)
    await asyncio.gather(call, evicting)
    assert await ledger.get("x") == 1


async def test_a_failed_write_drops_the_reply_and_resets_the_object(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    await ledger.note("in memory")
    cluster.disk_full(ledger)
    with pytest.raises(StorageFailed, match="No space left"):
        await ledger.put("x", 1)
    cluster.disk_full(ledger, False)
    assert (await ledger.get("x"), await ledger.seen()) == (None, [])


async def test_a_failed_write_is_an_error_also_if_the_method_swallows_it(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    cluster.disk_full(ledger)
    with pytest.raises(Unavailable):
        await ledger.put_and_swallow("x", 1)


async def test_a_failed_write_drops_the_call_that_was_to_follow(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    other = cluster.get(Ledger, "b")
    await ledger.put_and_call("b")
    await other.put("caller", "nobody")
    cluster.disk_full(ledger)
    with pytest.raises(StorageFailed):
        await ledger.put_and_call("b")
    assert await other.get("caller") == "nobody"


async def test_a_failed_write_drops_the_item_that_was_to_follow(cluster: LocalCluster, ledger: Ledger) -> None:
    # D9
    cluster.disk_full(ledger)
    with pytest.raises(Unavailable):
        _ = [item async for item in ledger.put_and_yield(2)]


async def test_a_failed_write_fails_the_calls_that_wait(cluster: LocalCluster, ledger: Ledger) -> None:
    # D6, D9
    sleeping = asyncio.create_task(ledger.sleep(100))
    await cluster.advance(1)
    cluster.disk_full(ledger)
    await asyncio.gather(ledger.put("x", 1), return_exceptions=True)
    with pytest.raises(ObjectReset, match="could not be made durable"):
        await sleeping


async def test_sync_returns_when_all_earlier_writes_are_durable(ledger: Ledger) -> None:
    # D9
    assert await ledger.put_and_sync() == [True, False]


# D10, D12


@pytest.mark.parametrize("effect", [1, 2])
async def test_after_a_crash_all_writes_of_a_stretch_exist_or_none(
    cluster: LocalCluster, ledger: Ledger, effect: int
) -> None:
    # D10
    await ledger.put_pair(1)
    cluster.crash_at(effect)
    await asyncio.gather(ledger.put_pair(2), return_exceptions=True)
    assert await ledger.get_all() == {"a": 2, "b": 2}


async def test_a_crash_before_the_end_of_a_stretch_leaves_none_of_its_writes(
    cluster: LocalCluster, ledger: Ledger
) -> None:
    # D10
    await ledger.put_pair(1)
    cluster.disk_full(ledger)
    await asyncio.gather(ledger.put_pair(2), return_exceptions=True)
    cluster.disk_full(ledger, False)
    assert await ledger.get_all() == {"a": 1, "b": 1}


async def test_writes_with_an_await_between_them_are_two_units(cluster: LocalCluster, ledger: Ledger) -> None:
    # D10
    writing = asyncio.create_task(ledger.put_apart(1))
    await cluster.advance(0.5)
    cluster.kill(ledger)
    with pytest.raises(ConnectionLost):
        await writing
    assert await ledger.get_all() == {"a": 1}


@pytest.mark.parametrize("way", ["put_pair", "put_in_task"])
async def test_a_stretch_is_one_commit(cluster: LocalCluster, ledger: Ledger, way: str) -> None:
    # D12: in a method, and in a task that it starts
    await ledger.put_pair(0)
    start = len(cluster.effects)
    method: Callable[..., Awaitable[None]] = getattr(ledger, way)
    await (method(1) if way == "put_pair" else method())
    assert kinds(cluster, start, "Ledger/a") == ["commit", "reply"]


async def test_what_was_written_before_an_error_stays(ledger: Ledger) -> None:
    # D10: only a transaction undoes
    with pytest.raises(RemoteError, match="after the write"):
        await ledger.put_and_raise()
    assert await ledger.get_all() == {"a": 1}


# D11


async def test_block_concurrency_while_returns_the_result(ledger: Ledger) -> None:
    # D11
    assert await ledger.block(1) == "the result"


async def test_while_it_blocks_no_call_is_delivered(cluster: LocalCluster, ledger: Ledger) -> None:
    # D11
    blocking = asyncio.create_task(ledger.block(10))
    await cluster.advance(1)
    await asyncio.gather(ledger.note("first"), ledger.note("second"), blocking)
    assert await ledger.seen() == ["block begins", "block ends", "first", "second"]


async def test_while_it_blocks_nothing_that_waited_is_resumed(cluster: LocalCluster, ledger: Ledger) -> None:
    # D11
    sleeping = asyncio.create_task(ledger.sleep(5))
    await cluster.advance(1)
    await ledger.block(10)
    await sleeping
    assert await ledger.seen() == ["sleep begins", "block begins", "block ends", "sleep ends"]


@pytest.mark.parametrize("outcome", ["raise", "remote reset"])
async def test_an_exception_while_it_blocks_resets_the_object(
    cluster: LocalCluster, ledger: Ledger, outcome: str
) -> None:
    # D11
    before = await cluster.ping(ledger)
    with pytest.raises(PerdureError):
        await ledger.block(1, outcome)
    await ledger.seen()
    after = await cluster.ping(ledger)
    assert before is not None
    assert after is not None
    assert after.epoch == before.epoch + 1


async def test_blocking_for_more_than_30_seconds_resets_the_object(cluster: LocalCluster, ledger: Ledger) -> None:
    # D11
    before = cluster.clock.now_ms()
    with pytest.raises(ObjectReset, match="30 s"):
        await ledger.block(31)
    assert (cluster.clock.now_ms() - before, await ledger.seen()) == (30_000, [])


async def test_blocking_for_less_than_30_seconds_is_fine(ledger: Ledger) -> None:
    # D11
    assert await ledger.block(29) == "the result"
