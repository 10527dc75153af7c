"""Alarms of objects (runtime D24-D28, D30), from the object through the keeper and back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runtime import AlarmInfo, DurableObject
from runtime.errors import Unavailable
from runtime.storage.storage import Transaction
from runtime.testing import LocalCluster


class Clocked(DurableObject):
    """Notes every run of its alarm: the retry it was told, and when. What a run does is set by ``plan``."""

    async def plan(self, *acts: str) -> None:
        await self.ctx.storage.put("acts", list(acts))

    async def set(self, seconds: float) -> None:
        await self.ctx.storage.set_alarm(self.now + seconds)

    async def set_at(self, when: float | datetime) -> None:
        await self.ctx.storage.set_alarm(when)

    async def set_in_transaction(self, seconds: float) -> None:
        async def body(txn: Transaction) -> None:
            await self.ctx.storage.set_alarm(self.now + seconds)

        await self.ctx.storage.transaction(body)

    async def set_in_turn(self, *seconds: float) -> None:
        for number in seconds:
            self.ctx.storage.set_alarm(self.now + number)

    async def get(self) -> float | None:
        at = await self.ctx.storage.get_alarm()
        return None if at is None else at - self.now

    async def delete(self) -> None:
        await self.ctx.storage.delete_alarm()

    async def delete_all(self) -> None:
        await self.ctx.storage.delete_all()

    async def runs(self) -> list[int]:
        return [retry for retry, _ in await self.ctx.storage.get("runs") or []]

    async def times(self) -> list[float]:
        return [at for _, at in await self.ctx.storage.get("runs") or []]

    async def lives(self) -> int:
        return int(await self.ctx.storage.get("lives") or 0)

    async def on_start(self) -> None:
        await self.ctx.storage.put("lives", await self.lives() + 1)

    @property
    def now(self) -> float:
        return self.ctx.clock.now_ms() / 1000

    async def alarm(self, info: AlarmInfo) -> None:
        storage = self.ctx.storage
        runs = [*(await storage.get("runs") or []), [info.retry_count, self.now]]
        assert info.is_retry == (info.retry_count > 0)
        await storage.put("runs", runs)
        acts: list[str] = await storage.get("acts") or []
        act = acts[len(runs) - 1] if len(runs) <= len(acts) else (acts[-1] if acts else "")
        for word in act.split("+"):
            await self._do(word)

    async def _do(self, word: str) -> None:
        match word.split(":"):
            case ["fail"]:
                raise ValueError("the alarm fails")
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
            case ["set", seconds]:
                await self.ctx.storage.set_alarm(self.now + float(seconds))
            case ["delete"]:
                await self.ctx.storage.delete_alarm()
            case ["see"]:
                await self.ctx.storage.put("seen", await self.ctx.storage.get_alarm())
            case _:
                pass

    async def seen(self) -> object:
        return await self.ctx.storage.get("seen")


@pytest.fixture
def clocked(cluster: LocalCluster) -> Clocked:
    return cluster.get(Clocked, "a")


def deliveries(cluster: LocalCluster) -> int:
    """How often the keeper has asked an object to run its alarm."""
    return sum(effect.detail.endswith(".perdure_alarm") for effect in cluster.effects)


# D24


async def test_an_alarm_fires_at_its_time_and_not_before(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24
    await clocked.set(60)
    await cluster.advance(59.9)
    before = await clocked.runs()
    await cluster.advance(0.2)
    assert (before, await clocked.runs()) == ([], [0])


async def test_a_second_alarm_replaces_the_first(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24
    await clocked.set(60)
    await clocked.set(120)
    await cluster.advance(119)
    before = await clocked.runs()
    await cluster.advance(2)
    assert (before, await clocked.runs()) == ([], [0])


async def test_an_earlier_alarm_replaces_a_later_one(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24
    await clocked.set(120)
    await clocked.set(60)
    await cluster.advance(300)
    assert await clocked.runs() == [0]


async def test_an_alarm_in_the_past_fires_at_once(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24
    await clocked.set(-3600)
    await cluster.advance(0.01)
    assert await clocked.runs() == [0]


async def test_an_alarm_in_the_past_does_not_cancel_a_running_handler(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24
    await clocked.plan("sleep:10+set:1000", "")
    await clocked.set(0)
    await cluster.advance(5)
    await clocked.set(-1)
    await cluster.advance(2000)
    assert await clocked.runs() == [0, 0]


@pytest.mark.parametrize("make", [lambda at: at, lambda at: datetime.fromtimestamp(at, tz=UTC)])
async def test_the_time_is_epoch_seconds_or_an_aware_datetime(
    cluster: LocalCluster, clocked: Clocked, make: Callable[[float], Any]
) -> None:
    # D24, N5
    await clocked.set_at(make(cluster.clock.now_ms() / 1000 + 30))
    await cluster.advance(30.1)
    assert await clocked.runs() == [0]


# D25


async def test_get_alarm_gives_the_time_that_was_set(clocked: Clocked) -> None:
    # D25
    before = await clocked.get()
    await clocked.set(60)
    assert (before, await clocked.get()) == (None, 60.0)


async def test_while_the_handler_runs_there_is_no_alarm(cluster: LocalCluster, clocked: Clocked) -> None:
    # D25
    await clocked.plan("sleep:10")
    await clocked.set(0)
    await cluster.advance(5)
    assert await clocked.get() is None
    await cluster.advance(10)


async def test_while_the_handler_runs_an_alarm_that_it_set_is_seen(cluster: LocalCluster, clocked: Clocked) -> None:
    # D25
    await clocked.plan("set:100+sleep:10", "")
    await clocked.set(0)
    await cluster.advance(5)
    assert await clocked.get() == pytest.approx(95.0, abs=0.01)
    await cluster.advance(10)


async def test_after_a_failed_run_the_alarm_is_set_until_the_retry_starts(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D25
    await clocked.plan("fail", "see")
    await clocked.set(0)
    await cluster.advance(1)
    waiting = await clocked.get()
    await cluster.advance(2)
    assert (waiting, await clocked.seen()) == (pytest.approx(1.0, abs=0.01), None)


# D26


async def test_a_deleted_alarm_never_fires(cluster: LocalCluster, clocked: Clocked) -> None:
    # D26
    await clocked.set(60)
    await clocked.delete()
    await cluster.advance(3600)
    assert (await clocked.runs(), await clocked.get(), deliveries(cluster)) == ([], None, 0)


async def test_deleting_does_not_stop_a_running_handler(cluster: LocalCluster, clocked: Clocked) -> None:
    # D26
    await clocked.plan("sleep:10+set:5", "")
    await clocked.set(0)
    await cluster.advance(5)
    await clocked.delete()
    await cluster.advance(60)
    assert await clocked.runs() == [0, 0]


async def test_deleting_inside_the_handler_prevents_its_retry(cluster: LocalCluster, clocked: Clocked) -> None:
    # D26
    await clocked.plan("delete+fail")
    await clocked.set(0)
    await cluster.advance(3600)
    assert (await clocked.runs(), await clocked.get()) == ([0], None)


async def test_deleting_while_a_retry_waits_prevents_it(cluster: LocalCluster, clocked: Clocked) -> None:
    # D26
    await clocked.plan("fail")
    await clocked.set(0)
    await cluster.advance(1)
    await clocked.delete()
    await cluster.advance(3600)
    assert await clocked.runs() == [0]


async def test_an_alarm_set_after_such_a_deletion_has_all_its_retries(cluster: LocalCluster, clocked: Clocked) -> None:
    # D26, D27
    await clocked.plan("delete+fail", "fail", "")
    await clocked.set(0)
    await cluster.advance(1)
    await clocked.set(0)
    await cluster.advance(3600)
    assert await clocked.runs() == [0, 0, 1]


# D27


async def test_a_raising_handler_is_retried_after_2_4_8_seconds_at_most_six_times(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D27
    await clocked.plan("fail")
    await clocked.set(0)
    await cluster.advance(86_400)
    times = await clocked.times()
    pauses = [round(after - before) for before, after in itertools.pairwise(times)]
    assert (await clocked.runs(), pauses, await clocked.get()) == (
        [0, 1, 2, 3, 4, 5, 6],
        [2, 4, 8, 16, 32, 64],
        None,
    )


async def test_a_handler_that_succeeds_on_a_retry_is_done(cluster: LocalCluster, clocked: Clocked) -> None:
    # D27
    await clocked.plan("fail", "fail", "")
    await clocked.set(0)
    await cluster.advance(86_400)
    assert await clocked.runs() == [0, 1, 2]


async def test_a_time_set_by_a_handler_that_fails_replaces_its_retry(cluster: LocalCluster, clocked: Clocked) -> None:
    # D27
    await clocked.plan("set:100+fail", "")
    await clocked.set(0)
    await cluster.advance(99)
    before = await clocked.runs()
    await cluster.advance(2)
    assert (before, await clocked.runs()) == ([0], [0, 0])


async def test_an_alarm_whose_process_died_in_the_handler_runs_again_with_nobody_calling(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D27
    await clocked.plan("sleep:10", "")
    await clocked.set(0)
    await cluster.advance(5)
    cluster.kill(clocked)
    await cluster.advance(5)
    assert await clocked.runs() == [0, 1]


async def test_an_alarm_that_came_due_while_the_process_was_dead_runs(cluster: LocalCluster, clocked: Clocked) -> None:
    # D27
    await clocked.set(60)
    cluster.kill(clocked)
    await cluster.advance(61)
    assert await clocked.runs() == [0]


# D28


async def test_a_call_is_answered_while_the_handler_waits(cluster: LocalCluster, clocked: Clocked) -> None:
    # D28
    await clocked.plan("sleep:1000")
    await clocked.set(0)
    await cluster.advance(1)
    before = cluster.clock.now_ms()
    assert (await clocked.runs(), cluster.clock.now_ms() - before) == ([0], 0)
    await cluster.advance(1000)


async def test_an_alarm_never_overlaps_itself(cluster: LocalCluster, clocked: Clocked) -> None:
    # D28
    await clocked.plan("set:1+sleep:10", "")
    await clocked.set(0)
    await cluster.advance(9)
    during = await clocked.runs()
    await cluster.advance(2)
    times = await clocked.times()
    assert (during, times[1] - times[0]) == ([0], pytest.approx(10.0, abs=0.01))


async def test_an_alarm_wakes_a_hibernated_object(cluster: LocalCluster, clocked: Clocked) -> None:
    # D28
    await clocked.set(3600)
    await cluster.advance(60)
    was_alive = cluster.is_alive(clocked)
    await cluster.advance(3541)
    assert (was_alive, await clocked.runs(), await clocked.lives()) == (False, [0], 2)


async def test_an_alarm_that_is_delivered_twice_runs_once(cluster: LocalCluster, clocked: Clocked) -> None:
    # D28
    await clocked.plan("sleep:5")
    await clocked.set(60)
    cluster.double(clocked)
    await cluster.advance(100)
    assert await clocked.runs() == [0]


async def test_a_long_handler_is_not_asked_for_over_and_over(cluster: LocalCluster, clocked: Clocked) -> None:
    # D28
    await clocked.plan("sleep:5", "sleep:100")
    await clocked.set(0)
    await cluster.advance(1)
    cluster.kill(clocked)
    await cluster.advance(200)
    assert (await clocked.runs(), deliveries(cluster)) == ([0, 1], 2)


# D30


async def test_the_keeper_knows_the_time_before_the_object_commits_it(cluster: LocalCluster, clocked: Clocked) -> None:
    # D30
    await clocked.runs()
    start = len(cluster.effects)
    await clocked.set(60)
    order = [(effect.kind, effect.source) for effect in cluster.effects[start:]]
    assert order == [
        ("keeper", "Clocked/a"),
        ("commit", "PerdureKeeper/keeper"),
        ("reply", "PerdureKeeper/keeper"),
        ("commit", "Clocked/a"),
        ("reply", "Clocked/a"),
    ]


@pytest.mark.parametrize("way", ["set", "set_in_transaction"])
@pytest.mark.parametrize("effect", [1, 2, 3, 4, 5, 6, 7, 8])
async def test_after_a_crash_anywhere_an_alarm_that_is_set_fires(
    cluster: LocalCluster, clocked: Clocked, way: str, effect: int
) -> None:
    # D30: a crash in between costs a spurious wake, never a missing one
    await clocked.runs()
    cluster.crash_at(effect)
    set_it: Callable[[float], Awaitable[None]] = getattr(clocked, way)
    await asyncio.gather(set_it(60), return_exceptions=True)
    is_set = await clocked.get() is not None
    await cluster.advance(65)  # one that dies with the alarm on its way is asked again after two seconds
    assert await clocked.runs() == ([0] if is_set else [])


async def test_a_spurious_wake_is_one_wake(cluster: LocalCluster, clocked: Clocked) -> None:
    # D30
    await clocked.runs()
    cluster.crash_at(1)  # the keeper knows, the object has not committed
    await asyncio.gather(clocked.set(60), return_exceptions=True)
    await cluster.advance(600)
    assert (await clocked.runs(), deliveries(cluster)) == ([], 1)


async def test_a_crash_before_the_commit_does_not_hide_the_alarm_set_after_it(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D30
    await clocked.runs()
    cluster.crash_at(1)
    await asyncio.gather(clocked.set_in_turn(90, 80, 70, 60), return_exceptions=True)
    await clocked.set(30)
    await cluster.advance(31)
    assert await clocked.runs() == [0]


@pytest.mark.parametrize("seed", range(8))
async def test_of_two_calls_that_set_an_alarm_at_the_same_time_the_later_one_fires(tmp_path: Path, seed: int) -> None:
    # D8, D24, D30: one may come while the keeper is told about the other
    async with LocalCluster(tmp_path, seed=seed, delay=1.0) as cluster:
        clocked = cluster.get(Clocked, "a")
        await clocked.runs()
        await asyncio.gather(clocked.set(5000), clocked.set(60))
        left = await clocked.get()
        assert left is not None
        await cluster.advance(left + 3)
        assert await clocked.runs() == [0]


async def test_an_alarm_set_in_a_transaction_fires(cluster: LocalCluster, clocked: Clocked) -> None:
    # D30
    await clocked.set_in_transaction(60)
    await cluster.advance(61)
    assert await clocked.runs() == [0]


async def test_deleting_everything_deletes_the_alarm_and_the_next_one_fires(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D18, D24
    for seconds in (300, 200, 100):
        await clocked.set(seconds)
    await clocked.delete_all()
    await cluster.advance(3600)
    before = (await clocked.runs(), deliveries(cluster))
    await clocked.set(60)
    await cluster.advance(61)
    assert (before, await clocked.runs()) == (([], 0), [0])


async def test_without_a_keeper_to_tell_no_alarm_is_acknowledged(cluster: LocalCluster, clocked: Clocked) -> None:
    # D9, D30
    await clocked.runs()
    cluster.lose(cluster.keeper, times=1_000_000)
    with pytest.raises(Unavailable, match="keeper"):
        await clocked.set(60)
    cluster.lose(cluster.keeper, times=0)


async def test_a_restarted_keeper_fires_what_came_due_meanwhile(cluster: LocalCluster, clocked: Clocked) -> None:
    # D30: it re-arms from its file
    await clocked.set(60)
    cluster.kill(clocked)
    cluster.kill(cluster.keeper)
    await cluster.advance(61)
    assert await clocked.runs() == [0]


async def test_an_object_that_cannot_be_reached_gets_its_alarm_later(cluster: LocalCluster, clocked: Clocked) -> None:
    # D24, D27
    await clocked.set(60)
    cluster.lose(clocked, times=20)
    await cluster.advance(180)
    assert await clocked.runs() == [0]


# D7


async def test_a_test_can_fire_an_alarm_now(cluster: LocalCluster, clocked: Clocked) -> None:
    # D7
    await clocked.set(3600)
    fired = await cluster.fire_alarm(clocked)
    assert (fired, await clocked.runs(), await clocked.get()) == (True, [0], None)


async def test_firing_wakes_the_object_and_fires_nothing_if_nothing_is_set(
    cluster: LocalCluster, clocked: Clocked
) -> None:
    # D7
    await clocked.set(3600)
    cluster.kill(clocked)
    fired = [await cluster.fire_alarm(clocked), await cluster.fire_alarm(clocked)]
    await cluster.advance(timedelta(days=1).total_seconds())
    assert (fired, await clocked.runs()) == ([True, False], [0])
