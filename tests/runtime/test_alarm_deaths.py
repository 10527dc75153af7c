"""An alarm handler that ends its process each time (runtime D27): retried like one that raises, and dropped like it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from runtime import DurableObject
from runtime.object import AlarmInfo
from runtime.testing import LocalCluster

clusters: list[LocalCluster] = []
runs: list[tuple[int, float]] = []


class Deadly(DurableObject):
    async def set(self, seconds: float) -> None:
        await self.ctx.storage.set_alarm(self.ctx.clock.now_ms() / 1000 + seconds)

    async def armed(self) -> float | None:
        return await self.ctx.storage.get_alarm()

    async def alarm(self, info: AlarmInfo) -> None:
        runs.append((info.retry_count, asyncio.get_running_loop().time()))
        clusters[0].kill(clusters[0].get(Deadly, "d"))


async def spent(cluster: LocalCluster) -> Any:
    clusters[:], runs[:] = [cluster], []
    deadly = cluster.get(Deadly, "d")
    await deadly.set(1)
    await cluster.advance(3_600)
    return deadly


async def test_it_runs_seven_times_and_is_dropped(cluster: LocalCluster) -> None:
    # D27: at most six retries
    deadly = await spent(cluster)
    assert [retry for retry, _ in runs] == [0, 1, 2, 3, 4, 5, 6]
    assert await deadly.armed() is None


async def test_its_retries_do_not_come_in_a_burst(cluster: LocalCluster) -> None:
    # D27: a crash loop must not run as fast as processes start
    await spent(cluster)
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(runs)]
    assert min(pauses) >= 1.0


async def test_an_alarm_that_is_set_after_the_drop_fires(cluster: LocalCluster) -> None:
    # D27
    deadly = await spent(cluster)
    await deadly.set(1)
    await cluster.advance(30)
    assert len(runs) > 7
