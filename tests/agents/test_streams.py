"""The journal of a stream and its readers (recovery T4, T5; turns P10)."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import msgspec
import pytest

from agents.core.chunks import TextDelta, ToolOutputAvailable
from agents.core.streams import after, first_number, unpack
from agents.streams import STREAM_STEPS, Ending, StreamLog, StreamWriter, frames_of, stored_frames
from runtime.errors import StorageFailed
from runtime.storage.duckdb import open_store
from runtime.storage.migrations import migrate
from runtime.testing import run


class SlowStore:
    """A journal whose commits happen when the test says so."""

    def __init__(self):
        self.appended = []

    def append(self, table, rows):
        done = Future()
        self.appended.append((rows, done))
        return done

    def commit(self, count=1):
        for _, done in [entry for entry in self.appended if not entry[1].done()][:count]:
            done.set_result(None)

    @property
    def counts(self):
        """How many chunks each append held."""
        return [rows[0][3] for rows, _ in self.appended]


class Side:
    """A writer on a journal, with its log."""

    def __init__(self, store=None, number=0):
        self.store = store or SlowStore()
        self.log = StreamLog(self.store, "root", number)  # pyright: ignore[reportArgumentType]  # a store that is slow to append
        self.commits = 0
        loop = asyncio.get_running_loop()
        self.writer = StreamWriter(self.store, self.log, "root", lambda: round(loop.time() * 1000), self._committed)  # pyright: ignore[reportArgumentType]  # a store that is slow to append

    def _committed(self):
        self.commits += 1

    def write(self, count=1):
        return [self.writer.write(TextDelta("0", f"{n}")) for n in range(count)][-1]


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path, inline=True)
    migrate(store, "streams", STREAM_STEPS)
    yield store
    store.close(checkpoint=False)


def numbers_of(items):
    """The event numbers in the items of a follower, and the ending."""
    frames = [frame for item in items[:-1] for frame in frames_of(item)]
    return [number for number, _ in after(frames, 0)], msgspec.json.decode(items[-1], type=Ending)


# Writing


def test_the_first_chunk_goes_out_at_once_and_what_gathers_meanwhile_with_the_next_commit():
    # recovery T4, T5
    async def main():
        side = Side()
        side.write(4)
        assert side.store.counts == [1]
        side.store.commit()
        await asyncio.sleep(0)
        return side.store.counts

    assert run(main) == [1, 3]


def test_a_chunk_waits_ten_milliseconds_for_a_slow_commit_and_no_longer():
    # recovery T4
    async def main():
        side = Side()
        side.write(2)
        await asyncio.sleep(0.009)
        before = side.store.counts
        await asyncio.sleep(0.002)
        return before, side.store.counts

    assert run(main) == ([1], [1, 1])


def test_a_tools_outcome_does_not_wait():
    # recovery T5
    async def main():
        side = Side()
        side.write(2)
        side.writer.write(ToolOutputAvailable("c", 1))
        return side.store.counts

    assert run(main) == [1, 2]


def test_nothing_is_shown_before_it_is_durable():
    # recovery T5
    async def main():
        side = Side()
        side.write(1)
        before = side.log.number
        side.store.commit()
        await asyncio.sleep(0)
        return before, side.log.number, side.commits

    assert run(main) == (0, 1, 1)


def test_one_hop_shows_all_that_one_commit_made_durable():
    async def main():
        side = Side()
        side.write(1 + 64 * 3)
        side.store.commit(4)
        await asyncio.sleep(0)
        return side.log.number, side.commits

    assert run(main) == (193, 1)


def test_a_source_waits_while_sixteen_batches_are_in_flight():
    # core.streams.IN_FLIGHT_MAX
    async def main():
        side = Side()
        is_full = side.write(1 + 64 * 15)
        waiting = asyncio.ensure_future(side.writer.room())
        await asyncio.sleep(1)
        was_waiting = not waiting.done()
        side.store.commit()
        await waiting
        return is_full, was_waiting

    assert run(main) == (True, True)


def test_a_source_that_never_waits_lets_others_run_now_and_then(store):
    async def main():
        side = Side(store)
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(100):
            if side.write():
                await side.writer.room()
        task.cancel()
        return turns

    assert run(main) >= 6


def test_draining_writes_and_shows_everything():
    async def main():
        side = Side()
        side.write(3)
        drained = asyncio.ensure_future(side.writer.drained())
        await asyncio.sleep(0)
        side.store.commit(5)
        await drained
        return side.log.number

    assert run(main) == 3


def test_a_journal_that_fails_fails_the_turn_and_shows_nothing_behind_the_failure():
    async def main():
        side = Side()
        side.write(2)
        side.store.appended[0][1].set_exception(StorageFailed("the disk is full"))
        with pytest.raises(StorageFailed):
            await side.writer.drained()
        return side.log.number

    assert run(main) == 0


def test_numbers_go_on_behind_those_of_an_earlier_run(store):
    # turns P10
    async def main():
        side = Side(store, number=41)
        side.write(2)
        await side.writer.drained()
        frames = stored_frames(store, "root", 42)
        return first_number(frames[0]), sum(len(unpack(frame)) for frame in frames)

    assert run(main) == (42, 2)


# Following


def test_a_follower_gets_every_event_once_and_then_the_end(store):
    async def main():
        side = Side(store)

        async def read(number):
            return [item async for item in side.log.follow(number)]

        reader = asyncio.ensure_future(read(0))
        for _ in range(300):
            side.write()
            await asyncio.sleep(0)
        side.log.finish(Ending(end="done", number=300))
        return await reader

    numbers, ending = numbers_of(run(main))
    assert numbers == list(range(1, 301))
    assert ending.end == "done"


@pytest.mark.parametrize("number", [0, 1, 299, 300])
def test_a_late_follower_reads_the_journal_from_any_number(store, number):
    async def main():
        side = Side(store)
        side.write(300)
        await side.writer.drained()
        side.log.finish(Ending(end="done", number=300))
        fresh = StreamLog(store, "root", 300, side.log.ending)
        return [item async for item in fresh.follow(number)]

    items = run(main)
    frames = [frame for item in items[:-1] for frame in frames_of(item)]
    assert [seen for seen, _ in after(frames, number)] == list(range(number + 1, 301))


def test_a_follower_that_lags_behind_what_is_in_memory_misses_nothing(store):
    async def main():
        side = Side(store)
        items = side.log.follow(0)
        side.write(1)
        got = [await anext(items)]
        side.write(500)  # a frame each: far more than are kept
        await side.writer.drained()
        side.log.finish(Ending(end="done", number=501))
        return got + [item async for item in items]

    numbers, _ = numbers_of(run(main))
    assert numbers == list(range(1, 502))


def test_a_reader_that_is_behind_gets_several_frames_in_an_item(store):
    async def main():
        side = Side(store)
        side.write(8)
        await side.writer.drained()
        return frames_of(await anext(side.log.follow(0)))

    assert [first_number(frame) for frame in run(main)] == [1, 2, 3, 4]


def test_a_follower_that_goes_away_disturbs_nobody(store):
    async def main():
        side = Side(store)

        async def read():
            return [item async for item in side.log.follow(0)]

        one, other = asyncio.ensure_future(read()), asyncio.ensure_future(read())
        side.write(1)
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.sleep(0)
        side.write(1)
        side.log.finish(Ending(end="done", number=2))
        return await other

    assert numbers_of(run(main))[0] == [1, 2]


def test_a_chunk_too_large_to_store_is_shown_and_a_stub_keeps_its_number(store):
    # recovery T4
    async def main():
        side = Side(store)
        side.writer.write(TextDelta("0", "x" * 1_900_000))
        side.write(1)
        await side.writer.drained()
        shown = await anext(side.log.follow(0))
        return shown, stored_frames(store, "root", 1)

    shown, stored = run(main)
    assert len(frames_of(shown)[0]) > 1_900_000
    assert len(stored[0]) < 200
    assert [first_number(frame) for frame in stored] == [1, 2]
