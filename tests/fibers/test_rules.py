"""The rules of fibers (recovery F1-F5, F14-F16, F19, F20), on simulated objects with real files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agents import Agent
from fibers import FiberContext, RecoveredFiber
from fibers.core.scan import backoff_ms, is_dropped, is_out_of_time
from runtime.errors import RemoteError, Unavailable
from runtime.testing import LocalCluster, run

heard: list[RecoveredFiber] = []
events: list[str] = []


class Worker(Agent):
    """Runs fibers in the ways that the tests ask for."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 5.0}
    is_hook_raising = False

    async def on_start(self) -> None:
        self.events.subscribe(lambda event: events.append(f"{event.type}:{event.payload.get('reason', '')}"))

    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        heard.append(fiber)
        if type(self).is_hook_raising:
            raise RuntimeError("not yet")

    def names(self) -> list[str]:
        return [str(row[0]) for row in self.ctx.store.execute("SELECT name FROM cf_agents_runs").rows]

    def snapshots(self) -> dict[str, Any]:
        query = "SELECT name, snapshot FROM cf_agents_runs ORDER BY name"
        return {str(name): snapshot for name, snapshot in self.ctx.store.execute(query).rows}

    async def look_inside(self) -> tuple[list[str], bool, Any, list[str]]:
        async def work(fiber: FiberContext) -> tuple[list[str], bool, Any]:
            return self.names(), self.ctx.store.is_open_transaction, fiber.snapshot

        return (*await self.run_fiber("inside", work), self.names())

    async def fail(self) -> list[str]:
        async def work(fiber: FiberContext) -> None:
            raise ValueError("broken")

        try:
            await self.run_fiber("fails", work)
        except ValueError as error:
            return [str(error), *self.names()]
        return ["nothing was raised"]

    async def hang(self, name: str = "hang", data: Any = None) -> None:
        async def work(fiber: FiberContext) -> None:
            if data is not None:
                self.stash(data)
            await asyncio.Event().wait()

        await self.run_fiber(name, work)

    async def stash_badly(self) -> str:
        async def work(fiber: FiberContext) -> str:
            self.stash({"good": 1})
            try:
                self.stash({"bad": object()})
            except Exception as error:
                return f"{type(error).__name__} {self.snapshots()['bad']}"
            return "taken"

        return await self.run_fiber("bad", work)

    async def stash_outside(self) -> None:
        self.stash(1)

    async def stash_nested(self) -> dict[str, Any]:
        async def inner(fiber: FiberContext) -> None:
            self.stash("inner")
            found.update(self.snapshots())

        async def outer(fiber: FiberContext) -> None:
            await self.run_fiber("inner", inner)
            self.stash("outer")
            await asyncio.create_task(self.stash_in_task())
            found["outer"] = self.snapshots()["outer"]

        found: dict[str, Any] = {}
        await self.run_fiber("outer", outer)
        return found

    async def stash_in_task(self) -> None:
        self.stash("task")

    async def stash_concurrently(self) -> dict[str, Any]:
        both = asyncio.Barrier(2)

        async def work(fiber: FiberContext) -> None:
            await both.wait()
            fiber.stash(fiber.name)
            await both.wait()
            found.update(self.snapshots())
            await both.wait()

        found: dict[str, Any] = {}
        await asyncio.gather(self.run_fiber("a", work), self.run_fiber("b", work))
        return found

    async def stash_late(self) -> list[str]:
        kept: list[FiberContext] = []

        async def work(fiber: FiberContext) -> None:
            kept.append(fiber)

        await self.run_fiber("late", work)
        kept[0].stash("too late")
        return self.names()

    async def left(self) -> list[str]:
        return self.names()

    async def damage(self) -> None:
        self.ctx.store.execute("UPDATE cf_agents_runs SET snapshot = '{broken'")
        await self.ctx.storage.sync()

    async def make_old(self, seconds: int) -> None:
        self.ctx.store.execute("UPDATE cf_agents_runs SET created_at_ms = created_at_ms - ?", (seconds * 1000,))
        await self.ctx.storage.sync()


order: list[str] = []


class Framed(Worker):
    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._fibers.register("cf:test:", self._slow)

    async def _slow(self, fiber: RecoveredFiber) -> None:
        order.append("framework")
        await asyncio.sleep(1000)

    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        order.append(f"user after {round(asyncio.get_running_loop().time())}")


class Slow(Worker):
    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        heard.append(fiber)
        await asyncio.sleep(11)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    heard.clear()
    order.clear()
    events.clear()
    Worker.is_hook_raising = False


def simulate(tmp_path: Path, scene: Any) -> Any:
    async def main() -> Any:
        async with LocalCluster(tmp_path) as cluster:
            return await scene(cluster, cluster.get(Worker, "w"))

    return run(main)


async def interrupted(cluster: Any, worker: Any, name: str = "hang", data: Any = None) -> None:
    """Leave one fiber behind: its agent dies in it, and is there again."""
    call = asyncio.ensure_future(worker.hang(name, data))
    await asyncio.sleep(1)
    cluster.kill(worker)
    with pytest.raises(Unavailable):
        await call


def test_the_row_is_committed_before_the_function_runs_and_gone_after_it(tmp_path: Path) -> None:
    # recovery F1, F3: the snapshot is None while the fiber runs
    assert simulate(tmp_path, lambda cluster, worker: worker.look_inside()) == (["inside"], False, None, [])


def test_an_exception_reaches_the_caller_and_the_row_is_gone(tmp_path: Path) -> None:
    # recovery F1
    assert simulate(tmp_path, lambda cluster, worker: worker.fail()) == ["broken"]


def test_a_fiber_holds_its_agent_awake_only_while_it_runs(tmp_path: Path) -> None:
    # recovery F2
    async def scene(cluster: Any, worker: Any) -> tuple[bool, bool]:
        call = asyncio.ensure_future(worker.hang())
        await asyncio.sleep(60)
        is_awake = not call.done() and await worker.left() == ["hang"]
        call.cancel()
        cluster.kill(worker)
        await asyncio.gather(call, return_exceptions=True)
        await worker.look_inside()
        return is_awake, await worker.left() == []

    assert simulate(tmp_path, scene) == (True, True)


def test_a_stash_survives_a_kill_right_behind_it(tmp_path: Path) -> None:
    # recovery F4, F14: durable on return, and handed to the hook
    async def scene(cluster: Any, worker: Any) -> tuple[str, Any, str]:
        await interrupted(cluster, worker, "import", {"next": 7})
        await worker.left()
        (fiber,) = heard
        return fiber.name, fiber.snapshot, fiber.recovery_reason

    assert simulate(tmp_path, scene) == ("import", {"next": 7}, "interrupted")


def test_a_stash_that_is_no_json_raises_and_keeps_the_earlier_one(tmp_path: Path) -> None:
    # recovery F4
    assert simulate(tmp_path, lambda cluster, worker: worker.stash_badly()) == 'UsageError {"good":1}'


def test_a_stash_outside_of_a_fiber_raises(tmp_path: Path) -> None:
    # recovery F5
    async def scene(cluster: Any, worker: Any) -> None:
        with pytest.raises(Exception, match="run_fiber"):
            await worker.stash_outside()

    simulate(tmp_path, scene)


def test_a_stash_belongs_to_the_innermost_fiber_and_to_tasks_inside_it(tmp_path: Path) -> None:
    # recovery F5
    found = simulate(tmp_path, lambda cluster, worker: worker.stash_nested())
    assert found == {"inner": '"inner"', "outer": '"task"'}


def test_concurrent_fibers_stash_into_their_own_rows(tmp_path: Path) -> None:
    # recovery F5
    assert simulate(tmp_path, lambda cluster, worker: worker.stash_concurrently()) == {"a": '"a"', "b": '"b"'}


def test_a_stash_after_the_end_revives_no_row(tmp_path: Path) -> None:
    # recovery F5
    assert simulate(tmp_path, lambda cluster, worker: worker.stash_late()) == []


def test_a_damaged_snapshot_is_handed_over_as_none(tmp_path: Path) -> None:
    # recovery F14
    async def scene(cluster: Any, worker: Any) -> Any:
        call = asyncio.ensure_future(worker.hang("hang", [1]))
        await asyncio.sleep(1)
        await worker.damage()
        cluster.kill(worker)
        await asyncio.gather(call, return_exceptions=True)
        await worker.left()
        return [fiber.snapshot for fiber in heard]

    assert simulate(tmp_path, scene) == [None]


def test_a_hook_that_returns_ends_the_row_and_one_that_raises_is_asked_again(tmp_path: Path) -> None:
    # recovery F16, F20: with the alarm a minute later, nobody calling
    async def scene(cluster: Any, worker: Any) -> tuple[list[str], int, list[str], int]:
        Worker.is_hook_raising = True
        await interrupted(cluster, worker)
        left = await worker.left()
        asked = len(heard)
        Worker.is_hook_raising = False
        await asyncio.sleep(100)
        return left, asked, await worker.left(), len(heard)

    assert simulate(tmp_path, scene) == (["hang"], 1, [], 2)


def test_a_row_over_age_gets_one_more_try_and_is_then_dropped_with_an_event(tmp_path: Path) -> None:
    # recovery F16
    async def scene(cluster: Any, worker: Any) -> tuple[int, list[str]]:
        Worker.is_hook_raising = True
        call = asyncio.ensure_future(worker.hang())
        await asyncio.sleep(1)
        await worker.make_old(90_000)
        cluster.kill(worker)
        await asyncio.gather(call, return_exceptions=True)
        left = await worker.left()
        return len(heard), left

    assert simulate(tmp_path, scene) == (1, [])


def test_framework_fibers_come_first_and_are_waited_for_only_so_long(tmp_path: Path) -> None:
    # recovery F15
    async def main() -> tuple[float, list[str]]:
        async with LocalCluster(tmp_path) as cluster:
            worker = cluster.get(Framed, "w")
            calls = [asyncio.ensure_future(worker.hang(name)) for name in ("a-user", "cf:test:1")]
            await asyncio.sleep(1)
            cluster.kill(worker)
            await asyncio.gather(*calls, return_exceptions=True)
            began = asyncio.get_running_loop().time()
            left = await worker.left()
            return round(asyncio.get_running_loop().time() - began), left

    seconds, left = run(main)
    assert order[0] == "framework"
    assert len(order) == 2
    assert 9 <= seconds <= 11
    assert left == ["cf:test:1"]  # kept until its handler has ended


@pytest.mark.parametrize(
    ("scans", "pause_ms"), [(1, 60_000), (2, 120_000), (3, 240_000), (4, 300_000), (5, 300_000), (99, 300_000)]
)
def test_the_pause_between_scans_doubles_up_to_five_minutes(scans: int, pause_ms: int) -> None:
    # recovery F20
    assert backoff_ms(30_000, scans) == pause_ms


def test_a_scan_stops_behind_its_deadline_and_not_at_it() -> None:
    # recovery F19
    assert (is_out_of_time(0, 10_000, 10_000), is_out_of_time(0, 10_001, 10_000)) == (False, True)


def test_rows_behind_the_deadline_wait_for_the_next_scan(tmp_path: Path) -> None:
    # recovery F19
    async def main() -> tuple[int, int]:
        async with LocalCluster(tmp_path) as cluster:
            worker = cluster.get(Slow, "w")
            calls = [asyncio.ensure_future(worker.hang(name)) for name in ("a", "b")]
            await asyncio.sleep(1)
            cluster.kill(worker)
            await asyncio.gather(*calls, return_exceptions=True)
            left = len(await worker.left())
            await asyncio.sleep(120)
            return left, len(await worker.left())

    assert run(main) == (1, 0)


@pytest.mark.parametrize(("age_ms", "limit_ms", "is_over"), [(10, 10, False), (11, 10, True), (10**12, 0, False)])
def test_only_a_row_older_than_the_limit_is_dropped_and_none_without_a_limit(
    age_ms: int, limit_ms: int, is_over: bool
) -> None:
    # recovery F16
    assert is_dropped(1_000, 1_000 + age_ms, limit_ms) is is_over


def test_an_interrupted_fiber_is_never_run_again_by_itself(tmp_path: Path) -> None:
    # recovery F1: no retries
    async def scene(cluster: Any, worker: Any) -> tuple[int, list[str]]:
        await interrupted(cluster, worker)
        await asyncio.sleep(400)
        return len(heard), await worker.left()

    assert simulate(tmp_path, scene) == (1, [])


def test_a_blank_name_is_refused(tmp_path: Path) -> None:
    async def scene(cluster: Any, worker: Any) -> None:
        with pytest.raises((RemoteError, Exception), match="blank"):
            await worker.hang(" ")

    simulate(tmp_path, scene)
