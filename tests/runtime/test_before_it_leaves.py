"""What must have happened before something leaves an object or is believed by the keeper (runtime D9, D24, D30)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from agents import Agent
from fibers import FiberContext
from runtime import DurableObject
from runtime.errors import ObjectReset, StorageFailed
from runtime.storage.transactions import Transaction
from runtime.testing import LocalCluster
from runtime.wire import Activation, ClassRef


class Source(DurableObject):
    async def numbers(self) -> AsyncGenerator[int, None]:
        yield 1


class Reader(DurableObject):
    async def write_and_read(self) -> list[int]:
        self.ctx.storage.kv.put("read", True)
        return [number async for number in self.ctx.get(Source, "s").numbers()]


class Hasty(DurableObject):
    async def arm_and_commit(self) -> None:
        self.ctx.storage.put("armed", True)
        _ = self.ctx.storage.set_alarm(self.ctx.clock.now_ms() / 1000 + 3600)
        self.ctx.commit()  # as stash() does: on disk on return, without waiting for anybody
        await self.ctx.clock.sleep(60)


class Worker(Agent):
    """Has fibers."""

    async def is_open_at_the_start_of_a_fiber(self) -> bool:
        """With the agent awake and watched already, nothing but the fiber itself commits its row."""
        lease = await self.keep_alive()
        try:
            await self.ctx.flush()
            return await self.run_fiber("inner", self._is_open)
        finally:
            lease.release()

    async def _is_open(self, fiber: FiberContext) -> bool:
        return self.ctx.store.is_open_transaction


def kinds(cluster: LocalCluster, source: str) -> list[str]:
    return [f"{effect.kind} {effect.detail}".strip() for effect in cluster.effects if effect.source == source]


async def test_a_stream_of_another_object_is_asked_for_behind_the_commit(cluster: LocalCluster) -> None:
    # D9: also an outbound request
    for _ in range(2):  # the first time, the class is announced in between
        assert await cluster.get(Reader, "r").write_and_read() == [1]
    seen = kinds(cluster, "Reader/r")
    assert seen[-3:] == ["commit", "call Source/s.numbers", "reply write_and_read"]


async def test_the_keeper_believes_the_newest_version_of_an_alarm_and_not_the_last_message(
    cluster: LocalCluster,
) -> None:
    # D24, D30: messages overtake each other
    ref = ClassRef(name="Source", module="m", qualname="Source", import_root="/")
    activation = Activation(path=(("Source", "s"),), cls=ref, data_dir=str(cluster.data_dir))
    far = cluster.clock.now_ms() + 10**9
    await cluster.keeper.register_class(ref)
    await cluster.keeper.register(activation)
    await cluster.keeper.set_alarm(activation, far + 5, 5)
    await cluster.keeper.set_alarm(activation, far + 4, 4)
    assert [known.alarm_at_ms for known in await cluster.keeper.list_objects()] == [far + 5]
    await cluster.keeper.set_alarm(activation, None, 6)
    assert [known.alarm_at_ms for known in await cluster.keeper.list_objects()] == [None]


async def test_an_alarm_that_was_committed_without_waiting_is_told_to_the_keeper_at_once_behind_it(
    cluster: LocalCluster,
) -> None:
    # D30
    call = asyncio.ensure_future(cluster.get(Hasty, "h").arm_and_commit())
    await cluster.advance(10)
    assert not call.done()
    assert [known.alarm_at_ms is not None for known in await cluster.keeper.list_objects()] == [True]
    await call


async def test_a_fiber_begins_when_its_row_is_on_disk_also_if_the_agent_is_awake_already(
    cluster: LocalCluster,
) -> None:
    # recovery F1
    assert await cluster.get(Worker, "a").is_open_at_the_start_of_a_fiber() is False


class Banker(DurableObject):
    """Moves money in a transaction of its own, and looks away when that fails."""

    async def move(self) -> str:
        async def moved(txn: Transaction) -> None:
            await txn.put("moved", True)

        with contextlib.suppress(StorageFailed):
            await self.ctx.storage.transaction(moved)
        return "moved"

    async def moved(self) -> object:
        return await self.ctx.storage.get("moved")


async def test_a_transaction_that_cannot_be_committed_resets_its_object_whatever_the_method_answers(
    cluster: LocalCluster,
) -> None:
    # D9
    banker = cluster.get(Banker, "b")
    assert await banker.moved() is None
    cluster.disk_full(banker)
    with pytest.raises(ObjectReset, match="could not be made durable"):
        await banker.move()
    cluster.disk_full(banker, False)
    assert await banker.moved() is None
