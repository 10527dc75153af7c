"""Running fibers (recovery F1, F2, F4): what is durable when, at every moment at which their process may die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agents import Agent
from fibers import FiberContext, FiberRunner, RecoveredFiber
from runtime.errors import ObjectReset, PerdureError, Unavailable, UsageError
from runtime.testing import LocalCluster, run

recovered: list[RecoveredFiber] = []
events: list[tuple[str, dict[str, object]]] = []
clusters: list[LocalCluster] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    recovered.clear()
    events.clear()
    clusters.clear()


class Orders(Agent):
    """Takes an order and works it off in a fiber."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 5.0}

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.events.subscribe(lambda event: events.append((event.type, event.payload)))

    async def on_fiber_recovered(self, fiber: RecoveredFiber) -> None:
        recovered.append(fiber)

    async def take(self) -> None:
        """The order and its fiber are one commit, the result and the fiber's end another."""
        self.ctx.storage.kv.put("ordered", True)
        await self.run_fiber("order", self._work)

    async def _work(self, fiber: FiberContext) -> None:
        await asyncio.sleep(0)
        self.ctx.storage.kv.put("delivered", True)

    async def stored(self) -> tuple[bool, bool, int]:
        rows = self.ctx.store.execute("SELECT id FROM cf_agents_runs").rows
        kv = self.ctx.storage.kv
        return kv.get("ordered") is True, kv.get("delivered") is True, len(rows)

    async def do(self, what: str) -> Any:
        return await self.run_fiber(what, getattr(self, f"_{what}"))

    async def _fail(self, fiber: FiberContext) -> None:
        raise ValueError("broken")

    async def _die_behind_a_stash(self, fiber: FiberContext) -> None:
        self.ctx.storage.kv.put("delivered", True)
        self.stash({"next": 7})
        clusters[0].kill(self.ctx.id)

    async def _die(self, fiber: FiberContext) -> None:
        self.ctx.storage.kv.put("delivered", True)
        clusters[0].kill(self.ctx.id)

    async def _abort(self, fiber: FiberContext) -> None:
        self.ctx.abort("enough")

    async def _abort_and_stash(self, fiber: FiberContext) -> None:
        self.stash("before")
        try:
            self.ctx.abort("enough")
        except ObjectReset:
            self.stash("after")

    async def _stash_in_a_transaction(self, fiber: FiberContext) -> str:
        def change() -> None:
            self.ctx.storage.kv.put("delivered", True)
            self.stash("delivered")

        self.stash("ordered")
        with pytest.raises(UsageError, match="transaction_sync"):
            self.ctx.storage.transaction_sync(change)
        return str(self.ctx.store.execute("SELECT snapshot FROM cf_agents_runs").rows[0][0])

    async def _give_up(self, fiber: FiberContext) -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(1)

    async def cancelled(self) -> tuple[bool, bool, int]:
        task = asyncio.create_task(self.do("give_up"))
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        return await self.stored()

    async def unwatched(self) -> str:
        async def refuse() -> Any:
            raise Unavailable("nobody watches", retryable=True)

        runner = FiberRunner(self.ctx, self.on_fiber_recovered, keep_alive=refuse)
        try:
            await runner.run("unwatched", self._work)
        except Unavailable as error:
            return str(error)
        return "it ran"


def simulate(folder: Path, scene: Callable[[LocalCluster, Orders], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with LocalCluster(folder) as cluster:
            clusters[:] = [cluster]
            return await scene(cluster, cluster.get(Orders, "o"))

    return run(main)


async def _crashed(cluster: LocalCluster, orders: Orders, number: int | None) -> tuple[bool, bool, int, int]:
    """Take an order, die after an effect, and let two minutes pass in which nobody calls."""
    await orders.stored()
    if number is not None:
        cluster.crash_at(number)
    await asyncio.gather(orders.take(), return_exceptions=True)
    await asyncio.sleep(120)
    asked = len(recovered)
    return (*await orders.stored(), asked)


@pytest.mark.slow
def test_an_order_is_delivered_or_recovered_wherever_its_process_dies(tmp_path: Path) -> None:
    # recovery F1: row and order are one commit, end and result are another. F2: and nobody needs to call, for the
    # keeper has the alarm before the first of these commits.
    async def undisturbed(cluster: LocalCluster, orders: Orders) -> tuple[Any, int]:
        await orders.stored()
        begin = len(cluster.effects)
        await orders.take()
        end = len(cluster.effects)
        return await orders.stored(), end - begin

    stored, count = simulate(tmp_path / "whole", undisturbed)
    assert stored == (True, True, 0)
    assert count >= 5
    seen = set()
    for number in range(1, count + 1):
        recovered.clear()
        folder = tmp_path / str(number)
        ordered, delivered, rows, asked = simulate(folder, lambda c, o, number=number: _crashed(c, o, number))  # type: ignore[misc]
        assert (rows, asked) == (0, int(ordered and not delivered)), f"it died after effect {number}"
        seen.add((ordered, delivered))
    assert seen == {(False, False), (True, False), (True, True)}


def test_a_fiber_that_ended_lets_its_agent_hibernate(tmp_path: Path) -> None:
    # recovery F2
    async def scene(cluster: LocalCluster, orders: Orders) -> list[bool]:
        alive = []
        for call in (orders.take, lambda: orders.do("fail")):
            await asyncio.gather(call(), return_exceptions=True)
            alive.append(cluster.is_alive(orders))
            await asyncio.sleep(30)
            alive.append(cluster.is_alive(orders))
        return alive

    assert simulate(tmp_path, scene) == [True, False, True, False]


def test_a_fiber_that_nobody_can_watch_never_began(tmp_path: Path) -> None:
    # recovery F1, F2
    async def scene(cluster: LocalCluster, orders: Orders) -> tuple[str, Any]:
        return await orders.unwatched(), await orders.stored()

    assert simulate(tmp_path, scene) == ("nobody watches", (False, False, 0))


def test_a_cancelled_fiber_is_over(tmp_path: Path) -> None:
    # recovery F1: a cancellation raises, and nothing is left to recover
    assert simulate(tmp_path, lambda cluster, orders: orders.cancelled()) == (False, False, 0)


def test_a_stash_is_on_disk_when_it_returns_with_what_was_written_before_it(tmp_path: Path) -> None:
    # recovery F4
    async def scene(cluster: LocalCluster, orders: Orders) -> tuple[Any, list[Any]]:
        await asyncio.gather(orders.do("die_behind_a_stash"), return_exceptions=True)
        return (await orders.stored())[1], [fiber.snapshot for fiber in recovered]

    assert simulate(tmp_path, scene) == (True, [{"next": 7}])


def test_without_a_stash_the_same_death_loses_the_write(tmp_path: Path) -> None:
    # recovery F4: so that the test above shows the stash at work
    async def scene(cluster: LocalCluster, orders: Orders) -> tuple[Any, list[Any]]:
        await asyncio.gather(orders.do("die"), return_exceptions=True)
        return (await orders.stored())[1], [fiber.snapshot for fiber in recovered]

    assert simulate(tmp_path, scene) == (False, [None])


def test_a_stash_never_commits_what_a_transaction_may_undo(tmp_path: Path) -> None:
    # recovery F4, runtime D21
    async def scene(cluster: LocalCluster, orders: Orders) -> tuple[Any, Any]:
        return await orders.do("stash_in_a_transaction"), (await orders.stored())[1]

    assert simulate(tmp_path, scene) == ('"ordered"', False)


def test_a_reset_interrupts_a_fiber_and_does_not_end_it(tmp_path: Path) -> None:
    # recovery F1, runtime D6
    async def scene(cluster: LocalCluster, orders: Orders) -> list[str]:
        with pytest.raises(PerdureError, match="enough"):
            await orders.do("abort")
        await orders.stored()
        return [fiber.name for fiber in recovered]

    assert simulate(tmp_path, scene) == ["abort"]


def test_a_stash_of_an_instance_that_was_reset_is_not_stored(tmp_path: Path) -> None:
    # recovery F4, runtime D3
    async def scene(cluster: LocalCluster, orders: Orders) -> list[Any]:
        with pytest.raises(PerdureError, match="enough"):
            await orders.do("abort_and_stash")
        await orders.stored()
        return [fiber.snapshot for fiber in recovered]

    assert simulate(tmp_path, scene) == ["before"]


def test_the_life_of_a_fiber_is_told_in_events(tmp_path: Path) -> None:
    # runtime A47, with the reference's keys (runtime N5)
    async def scene(cluster: LocalCluster, orders: Orders) -> None:
        await orders.take()
        with pytest.raises(PerdureError):
            await orders.do("fail")

    simulate(tmp_path, scene)
    told = [(kind, payload["fiberName"], payload.get("error")) for kind, payload in events]
    assert told == [
        ("fiber:run:started", "order", None),
        ("fiber:run:completed", "order", None),
        ("fiber:run:started", "fail", None),
        ("fiber:run:failed", "fail", "broken"),
    ]
    assert len({payload["fiberId"] for _, payload in events}) == 2
