"""The keeper: who is known, who is watched, and what happens after each kind of death (runtime D2, D6; design 2)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

import pytest

from runtime import DurableObject, Lease, ObjectId
from runtime.errors import PerdureError, UnknownObject, UsageError
from runtime.keeper import KEEPER_ID, KeeperClient
from runtime.stub import current_caller
from runtime.testing import LocalCluster
from runtime.testing.transport import LocalTransport
from runtime.wire import Activation, ClassRef

# When each life of a worker began, in seconds of the test's loop.
births: list[float] = []
# What the start-up of a worker does.
trouble: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    births.clear()
    trouble.clear()


class Worker(DurableObject):
    """Works for as long as it is told to."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 5.0}
    lease: Lease | None = None

    async def on_start(self) -> None:
        births.append(asyncio.get_running_loop().time())
        if trouble.get("fails"):
            raise ValueError("no start")
        if trouble.get("works at start"):
            await self.work()

    async def work(self, has_progress: bool = False) -> None:
        self.lease = await self.ctx.keep_alive()
        if has_progress:
            self.ctx.progressed()

    async def rest(self) -> None:
        assert self.lease is not None
        self.lease.release()

    async def reset(self) -> None:
        self.ctx.abort("of its own will")


class Elsewhere:
    """As another module would be."""

    class Worker(Worker):
        """Of the same name."""


async def die_again_and_again(cluster: LocalCluster, times: int) -> list[float]:
    """Kill the worker whenever it lives; the pauses until it lived again."""
    worker = cluster.get(Worker, "w")
    pauses = []
    for _ in range(times):
        cluster.kill(worker)
        died = asyncio.get_running_loop().time()
        known = len(births)
        while len(births) == known:
            await cluster.advance(0.1)
        pauses.append(float(round(births[-1] - died)))
    return pauses


# The watch


async def test_a_working_object_that_dies_is_created_again_at_once_with_nobody_calling(cluster: LocalCluster) -> None:
    trouble["works at start"] = True
    await cluster.get(Worker, "w").work()
    assert await die_again_and_again(cluster, 1) == [0.0]


async def test_one_that_is_reset_comes_back_too(cluster: LocalCluster) -> None:
    await cluster.get(Worker, "w").work()
    with pytest.raises(PerdureError, match="of its own will"):
        await cluster.get(Worker, "w").reset()
    await cluster.advance(1)
    assert len(births) == 2


async def test_one_that_dies_again_without_progress_comes_back_later_each_time(cluster: LocalCluster) -> None:
    trouble["works at start"] = True
    await cluster.get(Worker, "w").work()
    assert await die_again_and_again(cluster, 8) == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_progress_makes_the_pause_start_anew(cluster: LocalCluster) -> None:
    trouble["works at start"] = True
    worker = cluster.get(Worker, "w")
    await worker.work()
    assert await die_again_and_again(cluster, 3) == [0.0, 1.0, 2.0]
    await worker.work(has_progress=True)
    await cluster.advance(0.2)
    assert await die_again_and_again(cluster, 2) == [0.0, 1.0]


async def test_an_object_that_rests_is_not_created_again(cluster: LocalCluster) -> None:
    worker = cluster.get(Worker, "w")
    await worker.work()
    await worker.rest()
    await cluster.advance(10)
    assert not cluster.is_alive(worker)
    await cluster.advance(100)
    assert (len(births), [known.is_watched for known in await cluster.keeper.list_objects()]) == (1, [False])


async def test_work_that_begins_while_the_end_of_the_last_life_is_being_told_is_watched(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = LocalTransport.control

    async def slow(self: LocalTransport, target: ObjectId, data: bytes) -> bytes:
        answer = await control(self, target, data)
        await asyncio.sleep(1)
        return answer

    monkeypatch.setattr(LocalTransport, "control", slow)
    worker = cluster.get(Worker, "w")
    await worker.work()
    await worker.rest()
    while cluster.is_alive(worker):
        await cluster.advance(0.1)
    await worker.work()
    await cluster.advance(2)
    cluster.kill(worker)
    await cluster.advance(3)
    assert len(births) == 3


async def test_a_working_object_whose_next_start_fails_is_tried_again(cluster: LocalCluster) -> None:
    worker = cluster.get(Worker, "w")
    await worker.work()
    trouble["fails"] = True
    cluster.kill(worker)
    await cluster.advance(120)
    failed = len(births) - 1
    assert failed >= 3
    trouble["fails"] = False
    await cluster.advance(60)
    assert len(births) == failed + 2


async def test_a_working_object_whose_first_call_is_lost_on_its_way_starts_all_the_same(cluster: LocalCluster) -> None:
    trouble["works at start"] = True
    worker = cluster.get(Worker, "w")
    await worker.work()
    for life in range(2, 5):
        cluster.lose(worker, times=1)
        cluster.kill(worker)
        await cluster.advance(60)
        assert len(births) == life


# The keeper dies


async def test_a_keeper_that_was_killed_goes_on_watching_with_nobody_calling(cluster: LocalCluster) -> None:
    worker = cluster.get(Worker, "w")
    await worker.work()
    cluster.kill(cluster.keeper)
    await cluster.advance(1)
    cluster.kill(worker)
    await cluster.advance(1)
    assert len(births) == 2


async def test_what_died_while_there_was_no_keeper_is_created_again_by_the_next_one(cluster: LocalCluster) -> None:
    worker = cluster.get(Worker, "w")
    await worker.work()
    cluster.kill(worker)
    cluster.kill(cluster.keeper)
    await cluster.advance(1)
    assert len(births) == 2


async def test_a_keeper_that_resets_itself_comes_back_with_nobody_calling(cluster: LocalCluster) -> None:
    worker = cluster.get(Worker, "w")
    await worker.work()
    cluster.disk_full(cluster.keeper)
    with pytest.raises(PerdureError, match="No space left"):
        await cluster.keeper.register_class(ClassRef(name="New", module="m", qualname="New", import_root="/"))
    cluster.disk_full(cluster.keeper, False)
    await cluster.advance(1)
    cluster.kill(worker)
    await cluster.advance(1)
    assert len(births) == 2


async def test_the_keeper_is_not_evicted(cluster: LocalCluster) -> None:
    await cluster.get(Worker, "w").work()
    answer = await cluster.evict(cluster.keeper)
    assert answer is not None
    assert (answer.is_ending, answer.busy) == (False, "the keeper of all others")


# The directory


async def test_objects_are_listed_oldest_first(cluster: LocalCluster) -> None:
    for name in ("b", "a"):
        await cluster.get(Worker, name).work()
        await cluster.advance(1)
    assert [str(known.object_id) for known in await cluster.keeper.list_objects()] == ["Worker/b", "Worker/a"]


async def test_a_second_class_of_the_same_name_is_refused_by_both_their_names(cluster: LocalCluster) -> None:
    one = ClassRef(name="Worker", module="shop", qualname="Worker", import_root="/srv/one")
    other = ClassRef(name="Worker", module="shop", qualname="Worker", import_root="/srv/two")
    await cluster.keeper.register_class(one)
    with pytest.raises(UsageError, match=r"shop\.Worker in /srv/one and shop\.Worker in /srv/two"):
        await cluster.keeper.register_class(other)
    assert (await cluster.keeper.find_class("Worker")).import_root == "/srv/one"


async def test_a_second_class_of_the_same_name_is_refused_also_in_the_process_that_knows_the_first(
    cluster: LocalCluster,
) -> None:
    await cluster.get(Worker, "w").work()
    with pytest.raises(UsageError, match=r"two classes named 'Worker'"):
        await cluster.get(Elsewhere.Worker, "w").work()


async def test_a_class_that_the_directory_does_not_know_is_an_error_that_names_those_it_knows(
    cluster: LocalCluster,
) -> None:
    await cluster.get(Worker, "w").work()
    with pytest.raises(UnknownObject, match=r"no class 'Walker'; it knows Worker\."):
        await cluster.keeper.find_class("Walker")


async def test_an_object_whose_class_cannot_be_loaded_any_more_is_tried_ever_later(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    gone = ClassRef(name="Gone", module="no_such_module", qualname="Gone", import_root="/nowhere")
    await cluster.keeper.register_class(gone)
    activation = Activation(path=(("Gone", "g"),), cls=gone, data_dir=str(cluster.data_dir))
    with caplog.at_level(logging.WARNING, logger="perdure"):
        await cluster.keeper.watch(activation)
        await cluster.advance(100)
    tries = [record for record in caplog.records if "Gone/g cannot be watched" in record.getMessage()]
    assert 5 <= len(tries) <= 12


def test_the_keeper_has_a_fixed_address() -> None:
    assert ObjectId.root("PerdureKeeper", "keeper") == KEEPER_ID


async def test_a_keeper_that_does_not_answer_within_the_time_is_unavailable(cluster: LocalCluster) -> None:
    # The caller's own patience is longer than that of an alarm.
    worker = cluster.get(Worker, "w")
    await worker.work()
    cluster.lose(cluster.keeper, times=1_000_000)
    began = asyncio.get_running_loop().time()
    keeping = KeeperClient(current_caller())
    ref = ClassRef(name="Worker", module="m", qualname="Worker", import_root="/")
    activation = Activation(path=(("Worker", "w"),), cls=ref, data_dir=str(cluster.data_dir))
    with pytest.raises(PerdureError, match="the keeper's set_alarm did not answer within 5 s"):
        await keeping.set_alarm(activation, 1, 1, timeout=5.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)
