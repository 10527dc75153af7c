"""Virtual time: ``runtime.testing.clock``."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from runtime.errors import UsageError
from runtime.testing import Hung, VirtualClock, VirtualLoop, run


def clock() -> VirtualClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.clock


async def test_a_sleep_passes_exactly_its_time() -> None:
    before = clock().now_ms()
    await asyncio.sleep(10 * 86_400)
    assert clock().now_ms() - before == 864_000_000


async def test_timers_run_in_the_order_of_their_times_whatever_order_they_were_set_in() -> None:
    order: list[int] = []

    async def sleeper(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    await asyncio.gather(sleeper(3), sleeper(1), sleeper(2))
    assert order == [1, 2, 3]


async def test_a_timeout_of_asyncio_is_virtual_too() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()
    assert clock().passed == 3600


async def test_the_clock_stands_still_while_a_thread_works() -> None:
    timer = asyncio.get_running_loop().call_later(5, lambda: None)
    await asyncio.to_thread(time.sleep, 0.01)
    assert clock().passed == 0
    timer.cancel()


async def test_settle_returns_before_any_time_has_passed() -> None:
    events: list[str] = []

    async def worker() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        events.append("worked")
        await asyncio.sleep(1)
        events.append("slept")

    worker_task = asyncio.create_task(worker())
    await clock().settle()
    assert (events, clock().passed) == (["worked"], 0)
    await worker_task


async def test_advance_lets_everything_happen_that_is_due() -> None:
    events: list[int] = []

    async def worker() -> None:
        for second in range(1, 5):
            await asyncio.sleep(1)
            events.append(second)

    worker_task = asyncio.create_task(worker())
    await clock().advance(3)
    assert events == [1, 2, 3]
    await worker_task


async def test_a_jump_lets_time_pass_with_nothing_running() -> None:
    started = clock().now_ms()
    clock().jump(2.5)
    assert clock().now_ms() - started == 2500


def test_waiting_for_what_nobody_will_do_is_reported_instead_of_hanging() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Hung, match="nobody will ever"):
        run(forever)


def test_waiting_beside_an_endless_timer_is_reported_too() -> None:
    async def ticking() -> None:
        async def tick() -> None:
            for _ in range(1_000):
                await asyncio.sleep(86_400)

        ticks = asyncio.create_task(tick())
        await asyncio.Event().wait()
        ticks.cancel()

    with pytest.raises(Hung, match="90 virtual days"):
        run(ticking)


def test_two_runs_with_one_seed_draw_the_same_random_numbers_and_leave_no_trace() -> None:
    async def draw() -> float:
        return random.random()

    random.seed(5)
    first, second, other = run(draw, seed=1), run(draw, seed=1), run(draw, seed=2)
    outside = random.random()
    random.seed(5)
    assert (first == second, first == other, outside == random.random()) == (True, False, True)


def test_a_failure_names_the_seed_that_replays_it() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        run(fail, seed=17)
    assert caught.value.__notes__ == ["runtime.testing.run(..., seed=17)"]


def test_time_begins_where_the_clock_was_set() -> None:
    async def now() -> int:
        return clock().now_ms()

    assert run(now, clock=VirtualClock(start_at=1_000_000.5)) == 1_000_000_500


def test_settling_in_real_time_is_an_error() -> None:
    with pytest.raises(UsageError, match="virtual time"):
        asyncio.run(VirtualClock().settle())
