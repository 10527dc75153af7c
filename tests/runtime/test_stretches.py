"""Stepping: what happens between two awaits (``runtime.stretch``)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from typing import Any

import pytest

from runtime.errors import StorageFailed
from runtime.stretch import current_stretches, install_task_factory, plain_task, stepped


class Stretches:
    """Counts the ends of stretches; a commit can take a while, or fail."""

    def __init__(self) -> None:
        self.is_dirty = False
        self.is_closed = False
        self.ends = 0
        self.error: Exception | None = None
        self.waits: asyncio.Future[None] | None = None

    def opened(self) -> Generator[Any, None, None]:
        yield from asyncio.sleep(0).__await__()

    def end(self) -> Generator[Any, None, None]:
        if self.waits is not None:
            yield from self.waits
        self.ends += 1
        self.is_dirty = False
        if self.error is not None:
            raise self.error


@pytest.fixture
def stretches() -> Stretches:
    return Stretches()


async def test_a_stretch_ends_where_the_coroutine_waits_and_where_it_returns(stretches: Stretches) -> None:
    async def work() -> str:
        stretches.is_dirty = True
        await asyncio.sleep(0)
        stretches.is_dirty = True
        return "done"

    assert (await stepped(work(), stretches), stretches.ends) == ("done", 2)


async def test_a_stretch_ends_where_the_coroutine_raises(stretches: Stretches) -> None:
    async def work() -> None:
        stretches.is_dirty = True
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await stepped(work(), stretches)
    assert stretches.ends == 1


async def test_a_failed_commit_is_not_an_error_that_the_coroutine_could_catch(stretches: Stretches) -> None:
    caught: list[Exception] = []

    async def work() -> None:
        stretches.is_dirty = True
        try:
            await asyncio.sleep(0)
        except Exception as error:
            caught.append(error)

    stretches.error = StorageFailed("the disk is full")
    with pytest.raises(StorageFailed):
        await stepped(work(), stretches)
    assert caught == []


async def test_a_coroutine_that_refuses_to_be_closed_does_not_hide_the_failed_commit(stretches: Stretches) -> None:
    async def work() -> None:
        stretches.is_dirty = True
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)

    stretches.error = StorageFailed("the disk is full")
    with pytest.raises(StorageFailed):
        await stepped(work(), stretches)


async def test_what_a_coroutine_waits_for_is_thrown_into_it_when_it_fails(stretches: Stretches) -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def work() -> str:
        try:
            await asyncio.create_task(fail())
        except ValueError:
            return "caught"
        return "missed"

    assert await stepped(work(), stretches) == "caught"


async def test_a_cancellation_during_a_commit_reaches_the_coroutine_and_what_it_waits_for(
    stretches: Stretches,
) -> None:
    inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stretches.waits = asyncio.get_running_loop().create_future()

    async def work() -> str:
        stretches.is_dirty = True
        try:
            await inner
        except asyncio.CancelledError:
            stretches.is_dirty = False
            return "cancelled"
        return "missed"

    task = asyncio.create_task(_awaited(stepped(work(), stretches)))
    await asyncio.sleep(0)
    task.cancel()
    assert (await task, inner.cancelled()) == ("cancelled", True)


async def test_a_cancellation_during_a_commit_may_find_a_coroutine_that_only_yields(stretches: Stretches) -> None:
    stretches.waits = asyncio.get_running_loop().create_future()

    async def work() -> str:
        stretches.is_dirty = True
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            stretches.is_dirty = False
            return "cancelled"
        return "missed"

    task = asyncio.create_task(_awaited(stepped(work(), stretches)))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


async def test_a_coroutine_goes_on_only_while_its_object_is_open(stretches: Stretches) -> None:
    order: list[str] = []

    async def work() -> None:
        order.append("work")

    stretches.is_closed = True
    task = asyncio.create_task(_awaited(stepped(work(), stretches)))
    for _ in range(3):
        await asyncio.sleep(0)
    order.append("open")
    stretches.is_closed = False
    await task
    assert order == ["open", "work"]


async def test_a_cancellation_while_its_object_is_closed_waits_for_the_opening(stretches: Stretches) -> None:
    order: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            order.append("cancelled")

    task = asyncio.create_task(_awaited(stepped(work(), stretches)))
    await asyncio.sleep(0)
    stretches.is_closed = True
    task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    order.append("open")
    stretches.is_closed = False
    await task
    assert order == ["open", "cancelled"]


async def test_a_stepped_coroutine_that_is_closed_closes_the_inner_one(stretches: Stretches) -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            closed.append("inner")

    steps = stepped(work(), stretches)
    steps.send(None)
    steps.close()
    assert closed == ["inner"]


async def _awaited(steps: Any) -> Any:
    return await steps


def inside(stretches: Stretches) -> None:
    install_task_factory(asyncio.get_running_loop())
    current_stretches.set(stretches)


async def test_a_task_that_an_object_spawns_is_stepped_and_keeps_its_name(stretches: Stretches) -> None:
    inside(stretches)

    async def work() -> None:
        stretches.is_dirty = True

    task = asyncio.get_running_loop().create_task(work())
    named = asyncio.get_running_loop().create_task(work(), name="mine")
    await asyncio.gather(task, named)
    assert (stretches.ends, task.get_name().endswith("work"), named.get_name()) == (2, True, "mine")


async def test_a_spawned_task_is_a_true_coroutine(stretches: Stretches) -> None:
    # From Python 3.12 on a task refuses a generator.
    inside(stretches)

    async def work() -> None: ...

    task = asyncio.create_task(work())
    is_coroutine = inspect.iscoroutine(task.get_coro())
    await task
    assert is_coroutine


async def test_a_task_that_is_cancelled_before_its_first_step_is_not_reported_as_forgotten(
    stretches: Stretches,
) -> None:
    inside(stretches)

    async def work() -> None: ...

    coroutine = work()
    task = asyncio.create_task(coroutine)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert inspect.getcoroutinestate(coroutine) == "CORO_CLOSED"


async def test_a_plain_task_of_the_host_is_no_stretch_of_the_object(stretches: Stretches) -> None:
    inside(stretches)

    async def work() -> object:
        stretches.is_dirty = True
        return current_stretches.get()

    assert (await plain_task(work()), stretches.ends) == (None, 0)


async def test_installing_the_factory_twice_changes_nothing() -> None:
    loop = asyncio.get_running_loop()
    install_task_factory(loop)
    first = loop.get_task_factory()
    install_task_factory(loop)
    assert loop.get_task_factory() is first
