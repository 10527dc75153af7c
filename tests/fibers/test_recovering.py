"""Scans (recovery F14-F16, F19, F20) over time: hooks that take long, hooks that raise, when they are asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agents import Agent
from fibers import FiberContext, RecoveredFiber
from runtime.testing import LocalCluster, run

# What happened, and the second at which it did.
told: list[tuple[int, str]] = []
events: list[tuple[str, object, object]] = []
fibers: list[RecoveredFiber] = []
# How long each asking of the hook takes, and whether it then raises; behind the last, it returns at once.
plan: list[tuple[float, bool]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for seen in (told, events, fibers, plan):
        seen.clear()


def tell(what: str) -> None:
    told.append((round(asyncio.get_running_loop().time()), what))


class Patient(Agent):
    """Its recovery does what ``plan`` says."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 5.0}

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.events.subscribe(lambda event: events.append((event.type, *self._details(event.payload))))

    @staticmethod
    def _details(payload: dict[str, object]) -> tuple[object, object]:
        return payload.get("fiberName"), payload.get("reason")

    async def on_start(self) -> None:
        tell("start")

    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        fibers.append(fiber)
        await self.recover(fiber)

    async def recover(self, fiber: RecoveredFiber) -> None:
        seconds, is_raising = plan.pop(0) if plan else (0, False)
        tell(f"ask {fiber.name}")
        if seconds:
            await asyncio.sleep(seconds)
            tell(f"end {fiber.name}")
        if is_raising:
            raise RuntimeError("not yet")

    async def hang(self, name: str) -> None:
        async def work(fiber: FiberContext) -> None:
            await asyncio.Event().wait()

        await self.run_fiber(name, work)

    async def left(self) -> list[str]:
        return [str(row[0]) for row in self.ctx.store.execute("SELECT name FROM cf_agents_runs ORDER BY name").rows]

    async def make_old(self) -> None:
        self.ctx.store.execute("UPDATE cf_agents_runs SET created_at_ms = created_at_ms - 90000000")
        await self.ctx.storage.sync()

    async def scan_twice(self) -> None:
        self.ctx.store.execute("INSERT INTO cf_agents_runs VALUES ('orphan', 'orphan', NULL, NULL, 0)")
        await asyncio.gather(self._fibers.scan(), self._fibers.scan())


class Framed(Patient):
    """The framework's handler does what ``plan`` says."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._fibers.register("cf:test:", self.recover)


class Plain(Patient):
    def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:  # type: ignore[override]
        tell(f"ask {fiber.name}")


class Cancelling(Patient):
    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        tell(f"ask {fiber.name}")
        task = asyncio.ensure_future(asyncio.sleep(1))
        task.cancel()
        await task


class Wakeful(Patient):
    """Does not hibernate between two scans, whose count is in memory."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 5000.0}


class Hasty(Patient):
    options: ClassVar[dict[str, object]] = {"fiber_recovery_scan_deadline": 2.0}


Scene = Callable[[LocalCluster, Any], Awaitable[Any]]


def simulate(folder: Path, scene: Scene, cls: type[Patient] = Patient) -> Any:
    async def main() -> Any:
        async with LocalCluster(folder) as cluster:
            return await scene(cluster, cluster.get(cls, "p"))

    return run(main)


async def interrupt(cluster: LocalCluster, patient: Any, *names: str, is_old: bool = False) -> None:
    """Leave fibers behind; the agent's death is at second 1."""
    calls = []
    for name in names:
        calls.append(asyncio.ensure_future(patient.hang(name)))
        await asyncio.sleep(1 / len(names))
    if is_old:
        await patient.make_old()
    cluster.kill(patient)
    await asyncio.gather(*calls, return_exceptions=True)
    told.clear()
    events.clear()


def test_a_hook_is_told_which_fiber_and_when_it_began(tmp_path: Path) -> None:
    # recovery F14, runtime N5: epoch seconds
    async def scene(cluster: LocalCluster, patient: Any) -> float:
        began = cluster.clock.now_ms() / 1000
        await interrupt(cluster, patient, "work")
        await patient.left()
        return fibers[0].created_at - began

    assert 0 <= simulate(tmp_path, scene) < 0.5
    (fiber,) = fibers
    assert (len(fiber.id), fiber.name, fiber.snapshot, fiber.recovery_reason) == (32, "work", None, "interrupted")


def test_a_fiber_that_lives_is_left_alone_by_the_scans_of_alarms(tmp_path: Path) -> None:
    # recovery F14
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        call = asyncio.ensure_future(patient.hang("work"))
        await asyncio.sleep(200)
        left = await patient.left()
        call.cancel()
        return left

    assert simulate(tmp_path, scene) == ["work"]
    assert told == [(0, "start")]


def test_recovery_comes_before_the_start_of_the_agent(tmp_path: Path) -> None:
    # runtime A3
    async def scene(cluster: LocalCluster, patient: Any) -> None:
        plan.append((3, False))
        await interrupt(cluster, patient, "work")
        await patient.left()

    simulate(tmp_path, scene)
    assert told == [(1, "ask work"), (4, "end work"), (4, "start")]


def test_a_hook_that_takes_longer_than_a_start_up_may_is_neither_killed_nor_begun_twice(tmp_path: Path) -> None:
    # recovery F15, runtime D11: the user's hook is untimed, also where 30 s would reset the object with it
    async def scene(cluster: LocalCluster, patient: Any) -> tuple[list[str], list[str]]:
        plan.append((300, False))
        await interrupt(cluster, patient, "work")
        during = await patient.left()
        await asyncio.sleep(400)
        return during, await patient.left()

    assert simulate(tmp_path, scene) == (["work"], [])
    assert told[:3] == [(1, "ask work"), (21, "start"), (301, "end work")]


def test_a_framework_handler_goes_on_behind_its_time_and_is_not_begun_twice(tmp_path: Path) -> None:
    # recovery F15: its row stays until it has ended, and idleness does not end it half-way
    async def scene(cluster: LocalCluster, patient: Any) -> tuple[list[str], list[str]]:
        plan.append((300, False))
        await interrupt(cluster, patient, "cf:test:1")
        await asyncio.sleep(250)
        during = await patient.left()
        await asyncio.sleep(100)
        return during, await patient.left()

    assert simulate(tmp_path, scene, Framed) == (["cf:test:1"], [])
    assert told[:3] == [(1, "ask cf:test:1"), (11, "start"), (301, "end cf:test:1")]


def test_a_handler_that_raises_behind_its_time_is_asked_again_with_nobody_calling(tmp_path: Path) -> None:
    # recovery F15, F16
    async def scene(cluster: LocalCluster, patient: Any) -> None:
        plan.append((95, True))
        await interrupt(cluster, patient, "cf:test:1")
        await asyncio.sleep(300)

    simulate(tmp_path, scene, Framed)
    asked = [(second, what) for second, what in told if what != "start"]
    assert asked[:2] == [(1, "ask cf:test:1"), (96, "end cf:test:1")]
    assert len(asked) == 3
    assert 96 < asked[2][0] <= 156
    assert [kind for kind, *_ in events if kind.startswith("fiber:recovery")] == [
        "fiber:recovery:detected",
        "fiber:recovery:attempt",
        "fiber:recovery:failed",
        "fiber:recovery:detected",
        "fiber:recovery:attempt",
        "fiber:recovery:handled",
    ]


def test_an_agent_hibernates_when_its_late_handler_has_ended(tmp_path: Path) -> None:
    # recovery F2 for handlers: the lease goes with it
    async def scene(cluster: LocalCluster, patient: Any) -> list[bool]:
        plan.append((60, False))
        await interrupt(cluster, patient, "cf:test:1")
        await patient.left()
        await asyncio.sleep(30)
        alive = [cluster.is_alive(patient)]
        await asyncio.sleep(120)
        return [*alive, cluster.is_alive(patient)]

    assert simulate(tmp_path, scene, Framed) == [True, False]


def test_a_late_handler_whose_process_dies_is_begun_again(tmp_path: Path) -> None:
    # recovery F14
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        plan.append((100, False))
        await interrupt(cluster, patient, "cf:test:1")
        await patient.left()
        cluster.kill(patient)
        await asyncio.sleep(60)
        return await patient.left()

    assert simulate(tmp_path, scene, Framed) == []
    assert [what for _, what in told if what.startswith("ask")] == ["ask cf:test:1", "ask cf:test:1"]


def test_a_hook_that_raises_is_asked_again_after_a_minute_then_two_then_four_then_every_five(tmp_path: Path) -> None:
    # recovery F16, F20: with nobody calling
    async def scene(cluster: LocalCluster, patient: Any) -> None:
        plan.extend([(0, True)] * 99)
        await interrupt(cluster, patient, "work")
        await patient.left()
        await asyncio.sleep(1400)

    simulate(tmp_path, scene, Wakeful)
    asked = [second for second, what in told if what == "ask work"]
    assert asked == [1, 61, 181, 421, 721, 1021, 1321]


def test_a_scan_that_got_something_done_is_followed_by_the_next_after_one_interval(tmp_path: Path) -> None:
    # recovery F20: n is 0 after any progress
    async def scene(cluster: LocalCluster, patient: Any) -> None:
        plan.extend([(0, True), (0, False)])
        await interrupt(cluster, patient, "bad", "good")
        await patient.left()
        await asyncio.sleep(100)

    simulate(tmp_path, scene)
    (first, second, third) = [(second, what) for second, what in told if what != "start"]
    assert (first, second) == ((1, "ask bad"), (1, "ask good"))
    assert third in [(30, "ask bad"), (31, "ask bad")]  # an alarm that is a second early is left as it is


def test_with_nothing_left_no_alarm_is_set(tmp_path: Path) -> None:
    # recovery F20
    async def scene(cluster: LocalCluster, patient: Any) -> bool:
        await interrupt(cluster, patient, "work")
        await patient.left()
        await asyncio.sleep(100)
        return await cluster.fire_alarm(patient)

    assert simulate(tmp_path, scene) is False


def test_a_row_over_age_is_tried_once_and_dropped_with_an_event(tmp_path: Path) -> None:
    # recovery F16
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        plan.append((0, True))
        await interrupt(cluster, patient, "work", is_old=True)
        return await patient.left()

    assert simulate(tmp_path, scene) == []
    assert told[0] == (1, "ask work")
    assert ("fiber:recovery:skipped", "work", "max_age_exceeded") in events


def test_a_row_over_age_whose_hook_returns_is_handled(tmp_path: Path) -> None:
    # recovery F16
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        await interrupt(cluster, patient, "work", is_old=True)
        return await patient.left()

    assert simulate(tmp_path, scene) == []
    assert [kind for kind, *_ in events] == [
        "fiber:recovery:detected",
        "fiber:run:interrupted",
        "fiber:recovery:attempt",
        "fiber:recovery:handled",
    ]


def test_rows_behind_the_deadline_are_told_of_and_come_with_the_next_scan(tmp_path: Path) -> None:
    # recovery F19
    async def scene(cluster: LocalCluster, patient: Any) -> tuple[list[str], list[str]]:
        plan.append((3, False))
        await interrupt(cluster, patient, "a", "b")
        left = await patient.left()
        await asyncio.sleep(60)
        return left, await patient.left()

    assert simulate(tmp_path, scene, Hasty) == (["b"], [])
    assert ("fiber:recovery:skipped", "b", "scan_deadline_exceeded") in events


def test_a_second_scan_during_a_scan_asks_nobody(tmp_path: Path) -> None:
    # recovery F14: not re-entrant
    async def scene(cluster: LocalCluster, patient: Any) -> None:
        plan.append((1, False))
        await patient.scan_twice()

    simulate(tmp_path, scene)
    assert [what for _, what in told] == ["start", "ask orphan", "end orphan"]


def test_a_hook_need_not_be_async(tmp_path: Path) -> None:
    # runtime A1
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        await interrupt(cluster, patient, "work")
        return await patient.left()

    assert simulate(tmp_path, scene, Plain) == []
    assert told == [(1, "ask work"), (1, "start")]


def test_a_hook_in_which_something_else_was_cancelled_has_raised_and_the_agent_starts(tmp_path: Path) -> None:
    # recovery F16: its CancelledError is no end of the life, which would come back to the same hook for ever
    async def scene(cluster: LocalCluster, patient: Any) -> list[str]:
        await interrupt(cluster, patient, "work")
        return await patient.left()

    assert simulate(tmp_path, scene, Cancelling) == ["work"]
    assert told == [(1, "ask work"), (1, "start")]
