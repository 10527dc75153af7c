"""The simulation itself: ``runtime.testing.LocalCluster`` (runtime D7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime import DurableObject, ObjectId
from runtime.errors import ConnectionLost, Unavailable, UsageError
from runtime.testing import LocalCluster, run

after_death: list[str] = []


class Notebook(DurableObject):
    """Writes, and says what it does when it should be dead."""

    async def write(self, key: str, value: object) -> None:
        await self.ctx.storage.put(key, value)

    async def read(self, key: str) -> object:
        return await self.ctx.storage.get(key)

    async def write_late(self, key: str, value: object) -> None:
        self.ctx.storage.kv.put(key, value)
        try:
            await asyncio.sleep(60)
            after_death.append("went on")
        finally:
            after_death.append("finally")

    async def pages(self, count: int) -> AsyncIterator[int]:
        for page in range(count):
            await self.ctx.storage.put("page", page)
            yield page

    async def tell(self, name: str, key: str) -> None:
        await self.ctx.storage.put("told", key)
        await self.ctx.get(Notebook, name).write(key, "told")


@pytest.fixture(autouse=True)
def nothing_after_death() -> None:
    after_death.clear()


async def test_a_killed_object_keeps_what_was_written_and_loses_its_process(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    was_killed, lives = cluster.kill(notebook), cluster.is_alive(notebook)
    assert (was_killed, lives, await notebook.read("x")) == (True, False, 1)


async def test_killing_what_does_not_live_says_so(cluster: LocalCluster) -> None:
    assert not cluster.kill(cluster.get(Notebook, "never"))


async def test_a_caller_sees_the_death_of_what_it_called(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    call = asyncio.create_task(notebook.write_late("x", 1))
    await cluster.advance(1)
    cluster.kill(notebook)
    with pytest.raises(ConnectionLost, match="network connection lost"):
        await call


async def test_a_killed_process_runs_nothing_more_not_even_a_finally(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    call = asyncio.create_task(notebook.write_late("x", 1))
    await cluster.advance(1)
    cluster.kill(notebook)
    await asyncio.gather(call, return_exceptions=True)
    await cluster.advance(3600)
    assert after_death == []


async def test_a_crash_at_an_effect_comes_right_after_it(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    cluster.crash_at(1)
    with pytest.raises(ConnectionLost):
        await notebook.write("x", 2)
    assert (cluster.effects[-1].kind, await notebook.read("x")) == ("commit", 2)


async def test_a_reply_that_left_before_the_crash_arrives(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    cluster.crash_at(1)
    assert (await notebook.read("x"), cluster.effects[-1].kind, cluster.is_alive(notebook)) == (1, "reply", False)


async def test_a_call_that_left_before_its_sender_crashed_is_run(cluster: LocalCluster) -> None:
    first, second = cluster.get(Notebook, "a"), cluster.get(Notebook, "b")
    await first.tell("b", "k")
    cluster.crash_at(2)  # its own commit, then the call
    with pytest.raises(ConnectionLost):
        await first.tell("b", "k2")
    await cluster.advance(0)
    assert ([effect.kind for effect in cluster.effects[-4:]], await second.read("k2")) == (
        ["commit", "call", "commit", "reply"],
        "told",
    )


async def test_items_that_left_before_the_crash_arrive_and_then_the_stream_breaks(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.read("x")
    cluster.crash_at(4)  # commit, item, commit, item
    seen: list[int] = []

    async def read() -> None:
        async for page in notebook.pages(5):
            seen.append(page)

    with pytest.raises(ConnectionLost, match="mid-stream"):
        await read()
    assert seen == [0, 1]


async def test_a_lost_call_never_ran(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    cluster.lose(notebook)
    with pytest.raises(ConnectionLost):
        await notebook.write("x", 2)
    assert await notebook.read("x") == 1


async def test_a_call_whose_reply_is_lost_did_run(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    cluster.lose(notebook, part="reply")
    with pytest.raises(ConnectionLost):
        await notebook.write("x", 2)
    assert await notebook.read("x") == 2


async def test_a_part_of_a_message_that_does_not_exist_cannot_be_lost(cluster: LocalCluster) -> None:
    with pytest.raises(UsageError, match="'call' or 'reply'"):
        cluster.lose(cluster.get(Notebook, "a"), part="half")


async def test_a_full_disk_fails_the_write_and_keeps_what_was_acknowledged(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.write("x", 1)
    cluster.disk_full(notebook)
    with pytest.raises(Unavailable, match="No space left"):
        await notebook.write("x", 2)
    cluster.disk_full(notebook, False)
    assert await notebook.read("x") == 1


async def test_a_slow_disk_takes_its_time_for_each_write(cluster: LocalCluster) -> None:
    notebook = cluster.get(Notebook, "a")
    await notebook.read("x")
    cluster.slow_disk(notebook, 2.0)
    before = cluster.clock.now_ms()
    await notebook.write("x", 1)
    assert cluster.clock.now_ms() - before == 2000


async def test_a_slow_journal_keeps_its_order_and_loses_what_a_crash_overtakes(cluster: LocalCluster) -> None:
    journal = cluster.get(Journal, "a")
    await journal.entries()
    cluster.slow_disk(journal, 1.0)
    call = asyncio.create_task(journal.note("a", "b", "c"))
    await cluster.advance(1.5)
    await journal.note_soon("d")
    cluster.kill(journal)
    await asyncio.gather(call, return_exceptions=True)
    assert await journal.entries() == ["a", "b", "c"]


class Journal(DurableObject):
    """Appends to a table of its own."""

    async def boot(self) -> None:
        self.ctx.migrate("journal", ["CREATE TABLE cf_notes (text VARCHAR)"])

    async def note(self, *texts: str) -> None:
        await asyncio.gather(*(asyncio.wrap_future(self.ctx.store.append("cf_notes", [(text,)])) for text in texts))

    async def note_soon(self, text: str) -> None:
        self.ctx.store.append("cf_notes", [(text,)])

    async def entries(self) -> list[object]:
        return [row[0] for row in self.ctx.store.execute("SELECT text FROM cf_notes ORDER BY rowid").rows]


async def test_another_cluster_on_the_directory_finds_what_this_one_left(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as before:
        await before.get(Notebook, "a").write("x", 1)
    async with LocalCluster(tmp_path) as after:
        assert await after.get(Notebook, "a").read("x") == 1


def test_one_seed_gives_one_run_effect_by_effect(tmp_path: Path) -> None:
    def effects(folder: str, seed: int) -> list[object]:
        async def main() -> list[object]:
            async with LocalCluster(tmp_path / folder, seed=seed, delay=0.5) as cluster:
                names = ("a", "b", "c", "d")
                await asyncio.gather(*(cluster.get(Notebook, name).write("x", 1) for name in names))
                return list(cluster.effects)

        return run(main)

    first, again, other = effects("one", 3), effects("two", 3), effects("three", 4)
    assert (first == again, first == other) == (True, False)


def test_a_failure_inside_names_the_seed_and_how_far_it_came(tmp_path: Path) -> None:
    async def main() -> None:
        async with LocalCluster(tmp_path, seed=9):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        run(main)
    assert caught.value.__notes__[0] == "LocalCluster(seed=9), after 0 effects"


def test_a_cluster_in_real_time_runs_but_has_no_time_to_move(tmp_path: Path) -> None:
    async def main() -> None:
        async with LocalCluster(tmp_path) as cluster:
            await cluster.get(Notebook, "a").write("x", 1)
            await cluster.advance(1)

    with pytest.raises(UsageError, match=r"runtime\.testing\.run"):
        asyncio.run(main())


async def test_a_thing_that_is_no_address_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(UsageError, match="stub or an ObjectId"):
        cluster.kill("Notebook/a")


async def test_an_object_may_be_named_by_its_id_as_well(cluster: LocalCluster) -> None:
    await cluster.get(Notebook, "a").write("x", 1)
    assert cluster.kill(ObjectId.root("Notebook", "a"))
