"""How an instance starts, sleeps and ends (runtime D2, D4-D7, A2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from runtime import Context, DurableObject, Lease
from runtime.errors import ConnectionLost, ObjectReset, RemoteError
from runtime.testing import LocalCluster

journal: list[str] = []


@pytest.fixture(autouse=True)
def empty_journal() -> None:
    journal.clear()


class Sleeper(DurableObject):
    """Notes its lives."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        journal.append(f"constructor of {self.name}")
        self.memory: list[str] = []

    async def on_start(self) -> None:
        journal.append("start")

    async def remember(self, word: str) -> list[str]:
        self.memory.append(word)
        await self.ctx.storage.put("word", word)
        return self.memory

    async def word(self) -> object:
        return await self.ctx.storage.get("word")

    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    async def ticks(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            await asyncio.sleep(8)
            yield number

    async def wait_until(self, seconds: float, outcome: str = "") -> None:
        async def work() -> None:
            await asyncio.sleep(seconds)
            if outcome == "raise":
                raise ValueError("after the reply")
            await self.ctx.storage.put("word", "worked")
            journal.append("worked")

        self.ctx.wait_until(work())

    async def spawn(self, seconds: float) -> None:
        async def work() -> None:
            await asyncio.sleep(seconds)
            journal.append("spawned work done")

        self.ctx.spawn(work(), "work")

    async def keep_alive(self) -> None:
        self.lease: Lease = await self.ctx.keep_alive()

    async def release(self) -> None:
        self.lease.release()
        self.lease.release()

    async def write_and_abort(self, reason: str) -> str:
        self.ctx.storage.put("word", "uncommitted")
        try:
            self.ctx.abort(reason)
        except ObjectReset:
            journal.append("caught")
        return "all is well"

    async def stubborn(self) -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            journal.append("cancelled")
        return "all is well"

    async def use_storage_after_abort(self) -> None:
        try:
            self.ctx.abort("first")
        except ObjectReset:
            self.ctx.storage.kv.put("word", "after the end")


class Hasty(Sleeper):
    """Sleeps sooner."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 2.0}


@pytest.fixture
def sleeper(cluster: LocalCluster) -> Sleeper:
    return cluster.get(Sleeper, "a")


# D2


async def test_the_first_call_runs_constructor_then_start_up_then_itself(sleeper: Sleeper) -> None:
    # D2
    memory = await sleeper.remember("x")
    assert (journal, memory) == (["constructor of a", "start"], ["x"])


# D4


async def test_an_idle_object_hibernates_after_10_seconds(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D4
    await sleeper.remember("x")
    await cluster.advance(9.9)
    before = cluster.is_alive(sleeper)
    await cluster.advance(0.2)
    assert (before, cluster.is_alive(sleeper)) == (True, False)


async def test_a_hibernated_object_has_lost_its_memory_and_kept_its_storage(
    cluster: LocalCluster, sleeper: Sleeper
) -> None:
    # D4
    await sleeper.remember("x")
    await cluster.advance(20)
    assert (await sleeper.word(), await sleeper.remember("y")) == ("x", ["y"])
    assert journal == ["constructor of a", "start"] * 2


async def test_a_call_puts_hibernation_off(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D4
    for _ in range(5):
        await sleeper.remember("x")
        await cluster.advance(9)
    assert journal == ["constructor of a", "start"]


async def test_the_option_hibernate_after_decides(cluster: LocalCluster) -> None:
    # D4
    hasty = cluster.get(Hasty, "a")
    await hasty.remember("x")
    await cluster.advance(2.1)
    assert not cluster.is_alive(hasty)


async def test_an_object_with_a_call_under_way_does_not_hibernate(sleeper: Sleeper) -> None:
    # D4
    assert (await sleeper.sleep(3600), journal) == ("slept", ["constructor of a", "start"])


async def test_an_object_with_a_stream_under_way_does_not_hibernate(sleeper: Sleeper) -> None:
    # D4
    assert ([tick async for tick in sleeper.ticks(9)], journal) == (list(range(9)), ["constructor of a", "start"])


async def test_a_lease_keeps_an_object_awake_until_it_is_released(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D4
    await sleeper.keep_alive()
    await cluster.advance(3600)
    during = cluster.is_alive(sleeper)
    await sleeper.release()
    await cluster.advance(11)
    assert (during, cluster.is_alive(sleeper)) == (True, False)


async def test_spawned_work_keeps_nothing_awake_and_ends_with_the_instance(
    cluster: LocalCluster, sleeper: Sleeper
) -> None:
    # D4
    await sleeper.spawn(60)
    await cluster.advance(100)
    assert (cluster.is_alive(sleeper), "spawned work done" in journal) == (False, False)


async def test_a_call_that_comes_while_the_object_goes_to_sleep_is_answered(
    cluster: LocalCluster, sleeper: Sleeper
) -> None:
    # D4: refused by the old instance, run by the next, unseen by the caller
    await sleeper.remember("x")
    calls = []
    for _ in range(40):
        calls.append(asyncio.create_task(sleeper.word()))
        await cluster.evict(sleeper)
    assert await asyncio.gather(*calls) == ["x"] * 40


# D5


async def test_wait_until_keeps_the_object_alive_for_its_work(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D5
    await sleeper.wait_until(600)
    await cluster.advance(599)
    before = list(journal)
    await cluster.advance(20)
    assert (before[-1], journal[-1], cluster.is_alive(sleeper)) == ("start", "worked", False)


async def test_wait_until_is_ended_after_15_minutes(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D5
    await sleeper.wait_until(1000)
    await cluster.advance(899)
    before = cluster.is_alive(sleeper)
    await cluster.advance(300)
    assert (before, cluster.is_alive(sleeper), "worked" in journal) == (True, False, False)


async def test_an_error_in_wait_until_resets_nothing(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D5
    await sleeper.remember("x")
    await sleeper.wait_until(1, "raise")
    await cluster.advance(2)
    assert await sleeper.remember("y") == ["x", "y"]


# D6


async def test_a_crash_loses_memory_and_what_was_not_committed(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D6
    await sleeper.remember("x")
    cluster.kill(sleeper)
    assert (await sleeper.word(), await sleeper.remember("y")) == ("x", ["y"])


async def test_abort_loses_memory_and_what_was_not_committed(sleeper: Sleeper) -> None:
    # D6
    await sleeper.remember("x")
    with pytest.raises(ObjectReset, match="no more of this"):
        await sleeper.write_and_abort("no more of this")
    assert (await sleeper.word(), await sleeper.remember("y")) == ("x", ["y"])


async def test_abort_is_an_error_to_its_caller_even_if_the_method_catches_it(sleeper: Sleeper) -> None:
    # D6
    with pytest.raises(ObjectReset, match="stop"):
        await sleeper.write_and_abort("stop")
    assert journal[-1] == "caught"


async def test_abort_fails_the_other_pending_calls_with_its_reason(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D6
    sleeping = asyncio.create_task(sleeper.sleep(100))
    await cluster.advance(1)
    await asyncio.gather(sleeper.write_and_abort("everybody out"), return_exceptions=True)
    with pytest.raises(ObjectReset, match="everybody out"):
        await sleeping


async def test_a_pending_call_that_swallows_its_cancellation_fails_all_the_same(
    cluster: LocalCluster, sleeper: Sleeper
) -> None:
    # D6
    stubborn = asyncio.create_task(sleeper.stubborn())
    await cluster.advance(1)
    await asyncio.gather(sleeper.write_and_abort("everybody out"), return_exceptions=True)
    with pytest.raises(ObjectReset, match="everybody out"):
        await stubborn
    assert journal[-1] == "cancelled"


async def test_abort_breaks_the_streams_under_way_with_its_reason(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D6
    ticks = sleeper.ticks(100).__aiter__()
    await ticks.__anext__()
    await asyncio.gather(sleeper.write_and_abort("everybody out"), return_exceptions=True)
    with pytest.raises(ObjectReset, match="everybody out"):
        await ticks.__anext__()


async def test_after_abort_the_instance_has_no_storage(sleeper: Sleeper) -> None:
    # D3, D6
    with pytest.raises(ObjectReset):
        await sleeper.use_storage_after_abort()
    assert await sleeper.word() is None


async def test_a_crash_in_wait_until_loses_its_work(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D6
    await sleeper.wait_until(60)
    cluster.kill(sleeper)
    await cluster.advance(100)
    assert "worked" not in journal


# D7


async def test_a_test_can_evict_an_idle_object(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D7
    await sleeper.remember("x")
    evicted = await cluster.evict(sleeper)
    assert evicted is not None
    assert (evicted.is_ending, cluster.is_alive(sleeper)) == (True, False)


async def test_a_busy_object_is_not_evicted_and_says_why(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D7
    sleeping = asyncio.create_task(sleeper.sleep(5))
    await cluster.advance(1)
    await sleeper.wait_until(5)
    await sleeper.keep_alive()
    evicted = await cluster.evict(sleeper)
    assert evicted is not None
    assert (evicted.is_ending, evicted.busy) == (False, "1 call, 1 wait_until, 1 keep-alive")
    await sleeping


async def test_what_does_not_live_cannot_be_evicted(cluster: LocalCluster, sleeper: Sleeper) -> None:
    # D7
    assert await cluster.evict(sleeper) is None


# Start-up


class Fragile(DurableObject):
    """Its start-up fails as often as it is told, in the way it is told."""

    failures: ClassVar[list[str]] = []

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        journal.append("constructor")
        self.ctx.storage.kv.put("constructed", True)
        self._fail("constructor")

    async def boot(self) -> None:
        self.ctx.migrate("fragile", ["CREATE TABLE cf_fragile (n INTEGER)"])
        await super().boot()

    async def on_start(self) -> None:
        journal.append("start")
        self.ctx.spawn(self._background(), "background")
        self._fail("start")
        await asyncio.sleep(1)

    def _fail(self, where: str) -> None:
        if Fragile.failures and Fragile.failures[0] == where:
            Fragile.failures.pop(0)
            raise ValueError(f"no {where} today")

    async def _background(self) -> None:
        await asyncio.sleep(5)
        journal.append("background")

    async def hello(self) -> str:
        journal.append("call")
        return "hello"

    async def constructed(self) -> Any:
        return await self.ctx.storage.get("constructed")


@pytest.fixture
def fragile(cluster: LocalCluster) -> Fragile:
    Fragile.failures = []
    return cluster.get(Fragile, "a")


async def test_writes_of_the_constructor_are_stored_as_a_stretch_of_their_own(fragile: Fragile) -> None:
    # D2, D10
    assert await fragile.constructed() is True


async def test_calls_wait_for_the_end_of_the_start_up(fragile: Fragile) -> None:
    # A2, D11
    await asyncio.gather(fragile.hello(), fragile.hello())
    assert journal == ["constructor", "start", "call", "call"]


@pytest.mark.parametrize("where", ["constructor", "start"])
async def test_a_failed_start_up_is_the_callers_error_and_the_next_call_tries_again(
    cluster: LocalCluster, fragile: Fragile, where: str
) -> None:
    # A2
    Fragile.failures = [where]
    with pytest.raises(RemoteError, match=f"no {where} today"):
        await fragile.hello()
    first = await cluster.ping(fragile)
    assert await fragile.hello() == "hello"
    second = await cluster.ping(fragile)
    assert first is not None
    assert second is not None
    assert (first.state, first.epoch, second.epoch) == ("created", 1, 1)


async def test_calls_that_wait_for_a_start_up_that_fails_try_it_again(fragile: Fragile) -> None:
    # A2: the next event tries start-up again
    Fragile.failures = ["start"]
    results = await asyncio.gather(fragile.hello(), fragile.hello(), fragile.hello(), return_exceptions=True)
    assert sorted(str(result) for result in results) == ["ValueError: no start today", "hello", "hello"]


async def test_background_work_of_a_failed_start_up_is_ended(cluster: LocalCluster, fragile: Fragile) -> None:
    # A2: the next start-up starts its own
    Fragile.failures = ["start"]
    await asyncio.gather(fragile.hello(), return_exceptions=True)
    await fragile.hello()
    await cluster.advance(8)
    assert journal.count("background") == 1


async def test_an_object_whose_start_up_failed_does_not_stay_for_ever(cluster: LocalCluster, fragile: Fragile) -> None:
    # A2, D4
    Fragile.failures = ["start"]
    await asyncio.gather(fragile.hello(), return_exceptions=True)
    await cluster.advance(60)
    assert not cluster.is_alive(fragile)


class Slow(DurableObject):
    """Starts for as long as the class says."""

    seconds: float = 0.0

    async def on_start(self) -> None:
        await asyncio.sleep(Slow.seconds)

    async def hello(self) -> str:
        return "hello"


async def test_a_start_up_of_more_than_30_seconds_resets_the_object(cluster: LocalCluster) -> None:
    # D11, A2
    Slow.seconds = 31
    with pytest.raises(ObjectReset, match="30 s"):
        await cluster.get(Slow, "a").hello()
    Slow.seconds = 29
    assert await cluster.get(Slow, "a").hello() == "hello"


async def test_a_crash_in_the_start_up_is_seen_by_the_caller(cluster: LocalCluster) -> None:
    # D6
    Slow.seconds = 10
    slow = cluster.get(Slow, "a")
    call = asyncio.create_task(slow.hello())
    await cluster.advance(5)
    cluster.kill(slow)
    with pytest.raises(ConnectionLost):
        await call
