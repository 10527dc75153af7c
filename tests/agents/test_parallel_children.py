"""A keyed call that works with several children at once, repeated (decision 0004; turns P10)."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
from runtime.testing import LocalCluster, run

# Which tools ran, and how long each child is waited for, in this life of the parent.
ran: list[str] = []
delays: dict[str, float] = {}


class Worker(Think):
    def get_model(self):
        return Scripted([Scripted.call("look", {}), Scripted.text("seen", chunk_size=1)], chunk_delay=0.2)

    @tool
    async def look(self) -> str:
        """Look."""
        ran.append(self.name)
        return "looked"


class Boss(Think):
    async def both(self) -> list[str]:
        return list(await asyncio.gather(self.one("a"), self.one("b")))

    async def one(self, name: str) -> str:
        await asyncio.sleep(delays[name])
        worker = await self.sub_agent(Worker, name)
        reply = await worker.chat(f"task of {name}")
        return f"{name}: {reply.text if reply else ''}"


def test_children_that_come_in_another_order_the_next_time_are_not_paid_for_twice(tmp_path):
    async def main() -> tuple[Any, list[int]]:
        async with LocalCluster(tmp_path) as cluster:
            boss: Any = cluster.get(Boss, "boss")
            delays.update(a=0.0, b=0.1)
            call = asyncio.ensure_future(boss.with_options(idempotency_key="k").both())
            await asyncio.sleep(1)
            delays.update(a=0.1, b=0.0)
            cluster.kill(boss)
            answer = await call
            turns = [
                len(await cluster.stub(Worker, boss.object_id.child("Worker", name)).get_messages()) for name in "ab"
            ]
            return answer, turns

    ran.clear()
    answer, turns = run(main)
    assert answer == ["a: seen", "b: seen"]
    assert sorted(ran) == ["a", "b"]
    assert turns == [2, 2]
