"""Event numbers, frames and batches: the arithmetic of a turn's stream.

Every chunk of a turn gets a number: 1, 2, 3, ... without gap or repeat, over the turn and all its recoveries (turns
P10). Chunks travel and are stored in frames. A frame is one JSON array: the number of its first chunk, then the
chunks. The same bytes are one row of the journal and one message on the wire, so that nothing is encoded twice, and a
reader who knows the last number it has seen can ask for the rest and prove that nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

__all__ = ["after", "first_number", "pack", "unpack"]

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
