"""The streams of an agent's turns: written to the journal, then shown to whoever follows.

A ``StreamLog`` belongs to one chain of runs and has two sides. The turn writes chunks; they are gathered into frames
(``core.streams``), appended to the journal, and published when the append is durable, in order, one hop to the loop
for all that one commit made durable. Followers read from what was published lately, or, when they lag behind that,
from the journal; a turn never waits for them and does not know them. What a follower gets is the frames, byte for
byte as journalled, several in one item when it is behind, and last a JSON object that says how the turn ended.

The numbers of a chain go on over its runs, so a follower of a turn that was interrupted sees one stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future

import msgspec

from agents.core.chunks import (
    Chunk,
    JsonObject,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
    encode_chunk,
)
from agents.core.streams import Batch, BatchPolicy
from runtime import Store

__all__ = [
    "END_ONLY",
    "STREAM_STEPS",
    "Ending",
    "StreamLog",
    "StreamWriter",
    "forget_frames",
    "frames_of",
    "join_frames",
    "stored_frames",
]

CHUNK_TABLE = "cf_ai_chat_stream_chunks"
# Append-only: number is that of the frame's first chunk.
STREAM_STEPS = (
    f"CREATE TABLE {CHUNK_TABLE} (root VARCHAR NOT NULL, stream VARCHAR NOT NULL, number BIGINT NOT NULL, "
    "count INTEGER NOT NULL, frame BLOB NOT NULL)",
)

# A follower that asks for events after this gets only the end.
END_ONLY = 2**62
# Frames kept for followers: all that can be on their way at once, several times over, and few bytes.
RECENT_FRAMES_MAX = 64
RECENT_BYTES_MAX = 4_000_000
# Frames in one item: each item costs a message between processes, and a reader that is behind wants few of them.
ITEM_FRAMES_MAX = 4
ITEM_BYTES_MAX = 500_000
# Batches written without a pause, by a source that never waits: then everybody else on the loop gets a turn.
BATCHES_A_TURN = 16
# ``core.streams.is_immediate`` by type: asked for each chunk, and this is five times as fast.
IMMEDIATE = frozenset((ToolOutputAvailable, ToolOutputError, ToolOutputDenied))
# Frames hold JSON, and JSON text has no raw line feed.
FRAMES_END = b"\n"


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a turn ended: the last item of its stream.

    Attributes:
        end: done, error, aborted or interrupted.
        error: The text of an error, the reason of an abort.
        request_id: The run that ended it.
        message_id: The assistant message.
        number: The last event.
        message: The assistant message, for a follower that asked for the end alone.
    """

    end: str
    error: str = ""
    request_id: str = ""
    message_id: str = ""
    number: int = 0
    message: JsonObject | None = None


def join_frames(frames: Sequence[bytes]) -> bytes:
    """Several frames as one item."""
    return FRAMES_END.join(frames)


def frames_of(item: bytes) -> list[bytes]:
    """The frames of an item."""
    return item.split(FRAMES_END)


class StreamLog:
    """What one chain of runs has shown so far, and how it ended.

    Args:
        store: Where the journal is.
        root: The chain.
        number: The last event that is in the journal already.
        ending: How it ended, for a turn of the past.
    """

    def __init__(self, store: Store, root: str, number: int = 0, ending: Ending | None = None) -> None:
        self.root = root
        self.number = number
        self.ending = ending
        self._store = store
        self._recent: deque[tuple[int, int, bytes]] = deque()
        self._recent_bytes = 0
        self._news = asyncio.Event()

    def publish(self, batches: Sequence[Batch]) -> None:
        """Show frames that are durable."""
        for batch in batches:
            assert batch.number == self.number + 1, f"frame {batch.number} of {self.root} follows event {self.number}"
            self._recent.append((batch.number, batch.count, batch.frame))
            self._recent_bytes += len(batch.frame)
            self.number += batch.count
        while len(self._recent) > RECENT_FRAMES_MAX or (
            self._recent_bytes > RECENT_BYTES_MAX and len(self._recent) > 1
        ):
            self._recent_bytes -= len(self._recent.popleft()[2])
        self._tell()

    def finish(self, ending: Ending) -> None:
        """The turn has ended, durably."""
        assert self.ending is None, f"stream {self.root} ended twice"
        self.ending = ending
        self._tell()

    async def follow(self, after: int) -> AsyncGenerator[bytes, None]:
        """Items with the events behind ``after``, then the ending as one more item."""
        while True:
            frames, after = self._behind(after)
            if frames:
                yield join_frames(frames)
            elif self.ending is not None:
                yield msgspec.json.encode(self.ending)
                return
            else:
                await self._news.wait()

    def _behind(self, after: int) -> tuple[list[bytes], int]:
        """A few frames behind ``after`` and the number of the last event in them."""
        if after >= self.number:
            return [], after
        if not self._recent or self._recent[0][0] > after + 1:
            return self._stored(after)
        frames: list[bytes] = []
        size = 0
        for number, count, frame in self._recent:
            if number + count - 1 <= after:
                continue
            if frames and (len(frames) == ITEM_FRAMES_MAX or size + len(frame) > ITEM_BYTES_MAX):
                break
            frames.append(frame)
            size += len(frame)
            after = number + count - 1
        return frames, after

    def _stored(self, after: int) -> tuple[list[bytes], int]:
        query = (
            f"SELECT number, count, frame FROM {CHUNK_TABLE} WHERE root = ? AND number + count > ? "
            f"ORDER BY number LIMIT {ITEM_FRAMES_MAX}"
        )
        rows = self._store.execute(query, (self.root, after + 1)).rows
        if not rows:  # no longer kept: the reader sees from the ending's number that something is missing
            return [], self.number
        number, count, _ = rows[-1]
        assert isinstance(number, int)
        assert isinstance(count, int)
        return [_bytes(frame) for _, _, frame in rows], number + count - 1

    def _tell(self) -> None:
        """Wake who waits; nobody misses it, since looking and beginning to wait are one stretch."""
        self._news.set()
        self._news.clear()


class StreamWriter:
    """The turn's side of a stream, for one run.

    Args:
        store: Where the journal is.
        log: Where durable frames are shown.
        stream: The run's request id.
        now_ms: Gives epoch milliseconds.
        progressed: Called for each commit that made frames durable.
    """

    def __init__(
        self, store: Store, log: StreamLog, stream: str, now_ms: Callable[[], int], progressed: Callable[[], None]
    ) -> None:
        self._store = store
        self._log = log
        self._stream = stream
        self._now_ms = now_ms
        self._progressed = progressed
        self._policy = BatchPolicy(log.number + 1)
        self._loop = asyncio.get_running_loop()
        self._landed: deque[tuple[Batch, Future[None]]] = deque()
        self._is_hopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._failure: BaseException | None = None
        self._batches = 0

    def write(self, chunk: Chunk) -> bool:
        """Put a chunk on the stream; returns whether it ``is_full`` now."""
        batches = self._policy.add(encode_chunk(chunk), self._now_ms(), is_immediate=type(chunk) in IMMEDIATE)
        if batches:
            self._append(batches)
            return self.is_full
        if self._timer is None:
            self._arm()
        return False

    @property
    def is_full(self) -> bool:
        """Whether the source has to wait in ``drained`` or ``room`` before it writes more."""
        return not self._policy.has_room or self._batches >= BATCHES_A_TURN

    async def room(self) -> None:
        """Return when there is room for more, and let others run.

        Raises:
            PerdureError: The journal cannot be written.
        """
        self._batches = 0
        if self._policy.has_room:
            await asyncio.sleep(0)
        while not self._policy.has_room:
            await self._landing()
        self._check()

    async def drained(self) -> None:
        """Return when everything written is durable and shown.

        Raises:
            PerdureError: The journal cannot be written.
        """
        self._append(self._policy.drain())
        while self._policy.in_flight:
            await self._landing()
            self._append(self._policy.drain())
        self._check()

    def close(self) -> None:
        """Stop the timer; nothing is written any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _landing(self) -> None:
        self._check()
        await self._room.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _append(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._batches += 1
            row = (self._log.root, self._stream, batch.number, batch.count, batch.stored)
            done = self._store.append(CHUNK_TABLE, (row,))
            if done.done():  # a store that writes at once
                self._landed.append((batch, done))
            else:
                done.add_done_callback(functools.partial(self._hop, batch))
        if self._landed and not self._is_hopping:
            self._land()

    def _hop(self, batch: Batch, done: Future[None]) -> None:
        # On the journal's thread, in order. One commit settles many appends: only the first of them wakes the loop.
        # ``_land`` lowers the flag before it empties the queue, so nothing put in here is left behind.
        self._landed.append((batch, done))
        if not self._is_hopping:
            self._is_hopping = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._land)

    def _land(self) -> None:
        self._is_hopping = False
        durable: list[Batch] = []
        while self._landed:
            batch, done = self._landed.popleft()
            self._failure = self._failure or done.exception()
            if self._failure is not None:
                continue
            durable.append(batch)
        if durable:
            self._log.publish(durable)
            self._progressed()
        more: list[Batch] = []
        for _ in durable:
            more += self._policy.committed()
        if more:
            self._append(more)
        self._room.set()
        self._room.clear()

    def _arm(self) -> None:
        """Flush the oldest chunk when it has waited long enough for an earlier commit."""
        due_at_ms = self._policy.due_at_ms
        if due_at_ms is not None:
            seconds = max(0.0, (due_at_ms - self._now_ms()) / 1000)
            self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._append(self._policy.tick(self._now_ms()))
        self._arm()


def stored_frames(store: Store, root: str, first_number: int) -> list[bytes]:
    """The frames of a chain from the one that begins with this event on, in order."""
    query = f"SELECT frame FROM {CHUNK_TABLE} WHERE root = ? AND number >= ? ORDER BY number"
    return [_bytes(frame) for (frame,) in store.execute(query, (root, first_number)).rows]


def forget_frames(store: Store, roots: Sequence[str]) -> None:
    """Remove the journal of chains that nobody may read any more."""
    marks = ", ".join("?" * len(roots))
    store.execute(f"DELETE FROM {CHUNK_TABLE} WHERE root IN ({marks})", tuple(roots))


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
