"""Event numbers, frames and batches: the arithmetic of a turn's stream (turns P10, recovery T4-T5).

Every chunk of a turn gets a number: 1, 2, 3, ... without gap or repeat, over the turn and all its recoveries (turns
P10). Chunks travel and are stored in frames. A frame is one JSON array: the number of its first chunk, then the
chunks. The same bytes are one row of the journal and one message on the wire, so that nothing is encoded twice, and a
reader who knows the last number it has seen can ask for the rest and prove that nothing is missing.

``BatchPolicy`` decides which chunks make a frame. A frame is shown to nobody before its commit, so a long wait for a
full one would be seen, and a commit for each chunk would be the slowest way to stream. So whatever has gathered is
flushed as soon as the journal has nothing else to write: a slow model gets a frame for each chunk, a fast one full
frames. The first chunk, which is waited for most, finds the journal free. Chunks do not wait longer than 10 ms for a
slow commit, and what must not be lost, a tool's outcome, does not wait at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agents.core.chunks import Chunk, ToolOutputAvailable, ToolOutputDenied, ToolOutputError

__all__ = ["Batch", "BatchPolicy", "after", "first_number", "is_immediate", "pack", "unpack"]

BATCH_CHUNKS_MAX = 64
# Keeps rows small; a single chunk may be larger, up to the limit below.
BATCH_BYTES_MAX = 512_000
# A chunk waits at most this long for an earlier commit.
BATCH_AGE_MS_MAX = 10
# A chunk above this does not fit into a row: it is shown and not stored.
STORED_CHUNK_BYTES_MAX = 1_800_000
# Frames on their way into the journal; beyond it the model's stream has to wait (measured: 16 reach full speed).
IN_FLIGHT_MAX = 16

_frame_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def pack(number: int, chunk_jsons: Sequence[bytes]) -> bytes:
    """One frame of chunks, the first of which has this number; the chunks' bytes are taken as they are."""
    assert number >= 1, f"event numbers begin at 1, not {number}"
    assert chunk_jsons, f"frame {number} would be empty"
    return b"[%d,%b]" % (number, b",".join(chunk_jsons))


def unpack(frame: bytes) -> list[msgspec.Raw]:
    """The chunks of a frame, each with the bytes it was packed with (``bytes(raw)`` copies them out)."""
    return _frame_decoder.decode(frame)[1:]


def first_number(frame: bytes) -> int:
    """The number of a frame's first chunk."""
    return int(frame[1 : frame.index(b",")])


def after(frames: Iterable[bytes], number: int) -> Iterator[tuple[int, msgspec.Raw]]:
    """The events behind ``number``, in order and each once, from frames in the order in which they were written.

    Frames may overlap or repeat, as they do when a reader attaches again; a missing number is a broken journal.
    """
    for frame in frames:
        chunks = unpack(frame)
        first = first_number(frame)
        assert first <= number + 1, f"events {number + 1} to {first - 1} are missing before frame {first}"
        for chunk in chunks[number + 1 - first :]:
            number += 1
            yield number, chunk


def is_immediate(chunk: Chunk) -> bool:
    """True for chunks that are flushed at once: a tool's outcome must never be lost (recovery T5)."""
    return isinstance(chunk, ToolOutputAvailable | ToolOutputError | ToolOutputDenied)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One frame to write. ``stored`` is what goes into the journal, ``frame`` what goes to readers after the commit.

    They are the same bytes, except for a chunk that is too large to store: it is alone in its batch, and a stub of
    the same number stands for it in the journal, so that the numbers there have no gap.
    """

    number: int
    count: int
    frame: bytes
    stored: bytes


class BatchPolicy:
    """Gathers the chunks of a stream and says which of them to flush, and when.

    Whoever drives it writes each returned batch, calls ``committed`` once for each when it is durable, in order, and
    calls ``tick`` at ``due_at_ms``.

    Args:
        number: The number of the next chunk; above 1 in a stream that goes on after a crash.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.in_flight = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._oldest_at_ms = 0.0

    @property
    def has_room(self) -> bool:
        """False while so many batches wait for their commit that the source has to wait too."""
        return self.in_flight < IN_FLIGHT_MAX

    @property
    def due_at_ms(self) -> float | None:
        """When the oldest chunk has waited long enough; None if nothing waits."""
        return self._oldest_at_ms + BATCH_AGE_MS_MAX if self._pending else None

    def add(self, chunk_json: bytes, now_ms: float, *, is_immediate: bool = False) -> list[Batch]:
        """Take the next chunk; returns the batches to flush now, mostly none or one."""
        if len(chunk_json) > STORED_CHUNK_BYTES_MAX:
            return [*self.drain(), self._oversized(chunk_json)]
        batches: list[Batch] = []
        if self._pending_bytes + len(chunk_json) > BATCH_BYTES_MAX:
            batches = self.drain()
        if not self._pending:
            self._oldest_at_ms = now_ms
        self._pending.append(chunk_json)
        self._pending_bytes += len(chunk_json)
        if self.in_flight == 0 or is_immediate or len(self._pending) >= BATCH_CHUNKS_MAX:
            batches += self.drain()
        return batches

    def committed(self) -> list[Batch]:
        """The oldest batch is durable; returns what to flush now that the journal is free."""
        assert self.in_flight > 0, "a batch was committed that nobody flushed"
        self.in_flight -= 1
        return self.drain() if self.in_flight == 0 else []

    def tick(self, now_ms: float) -> list[Batch]:
        """Time has passed; returns what is too old to wait on."""
        due_at_ms = self.due_at_ms
        return self.drain() if due_at_ms is not None and now_ms >= due_at_ms else []

    def drain(self) -> list[Batch]:
        """Flush what there is: at the end of a stream, before a new one and before a replay."""
        if not self._pending:
            return []
        frame = pack(self.number, self._pending)
        batch = Batch(number=self.number, count=len(self._pending), frame=frame, stored=frame)
        self._pending.clear()
        self._pending_bytes = 0
        return [self._flushed(batch)]

    def _oversized(self, chunk_json: bytes) -> Batch:
        stub = b'{"type":"data-omitted","transient":true,"data":{"bytes":%d}}' % len(chunk_json)
        frame = pack(self.number, [chunk_json])
        return self._flushed(Batch(number=self.number, count=1, frame=frame, stored=pack(self.number, [stub])))

    def _flushed(self, batch: Batch) -> Batch:
        self.number += batch.count
        self.in_flight += 1
        return batch
