import msgspec
import pytest

from agents.core.chunks import Chunk, StartStep, TextDelta, ToolOutputAvailable, ToolOutputDenied, ToolOutputError
from agents.core.streams import Batch, BatchPolicy, after, first_number, is_immediate, pack, unpack


def numbers_after(frames: list[bytes], number: int) -> list[tuple[int, bytes]]:
    return [(found, bytes(chunk)) for found, chunk in after(frames, number)]


A, B, C, D = b'{"a":1}', b'{"b": "\\u00fc"}', b'{"c":[]}', b'{"d":{}}'
FRAMES = [pack(1, [A, B]), pack(3, [C]), pack(4, [D])]


def test_a_frame_is_a_json_array_of_its_first_number_and_its_chunks() -> None:
    frame = pack(7, [A, B])
    assert frame == b'[7,{"a":1},{"b": "\\u00fc"}]'
    assert msgspec.json.decode(frame) == [7, {"a": 1}, {"b": "ü"}]


def test_chunks_come_out_of_a_frame_byte_for_byte() -> None:
    # protocol K7
    assert [bytes(chunk) for chunk in unpack(pack(7, [A, B]))] == [A, B]


def test_a_frame_knows_its_first_number() -> None:
    assert first_number(pack(1_234, [A])) == 1_234


@pytest.mark.parametrize(("number", "chunks"), [(0, [A]), (-1, [A]), (1, [])])
def test_a_frame_without_chunks_or_with_a_number_below_one_is_refused(number: int, chunks: list[bytes]) -> None:
    with pytest.raises(AssertionError):
        pack(number, chunks)


@pytest.mark.parametrize(
    ("number", "events"),
    [
        (0, [(1, A), (2, B), (3, C), (4, D)]),
        (1, [(2, B), (3, C), (4, D)]),
        (2, [(3, C), (4, D)]),
        (4, []),
        (9, []),
    ],
)
def test_attaching_gives_the_events_behind_a_number(number: int, events: list[tuple[int, bytes]]) -> None:
    # turns P10
    assert numbers_after(FRAMES, number) == events


def test_repeated_and_overlapping_frames_give_each_event_once() -> None:
    # FR-05
    frames = [FRAMES[0], FRAMES[0], pack(2, [B, C]), FRAMES[1], FRAMES[2]]
    assert numbers_after(frames, 0) == [(1, A), (2, B), (3, C), (4, D)]


@pytest.mark.parametrize(("frames", "number"), [([FRAMES[0], FRAMES[2]], 0), (FRAMES[1:], 0), (FRAMES[2:], 2)])
def test_a_missing_event_is_never_passed_over(frames: list[bytes], number: int) -> None:
    # turns P10
    with pytest.raises(AssertionError):
        numbers_after(frames, number)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (ToolOutputAvailable("c", 1), True),
        (ToolOutputError("c", "no"), True),
        (ToolOutputDenied("c"), True),
        (TextDelta("0", "x"), False),
        (StartStep(), False),
    ],
)
def test_only_outcomes_of_tools_are_immediate(chunk: Chunk, expected: bool) -> None:
    # recovery T5
    assert is_immediate(chunk) is expected


# --- batches ---


def batch(number: int, *chunks: bytes) -> Batch:
    frame = pack(number, chunks)
    return Batch(number=number, count=len(chunks), frame=frame, stored=frame)


def busy(number: int = 1) -> BatchPolicy:
    """A policy whose first batch, one chunk, waits for its commit since 0 ms."""
    policy = BatchPolicy(number)
    policy.add(A, 0)
    return policy


def test_the_first_chunk_is_flushed_at_once() -> None:
    # recovery T5
    assert BatchPolicy().add(A, 0) == [batch(1, A)]


def test_a_stream_that_goes_on_counts_on() -> None:
    # turns P10
    assert BatchPolicy(41).add(A, 0) == [batch(41, A)]


def test_chunks_gather_while_a_commit_is_under_way() -> None:
    policy = busy()
    assert policy.add(B, 1) == []
    assert policy.add(C, 2) == []


def test_what_has_gathered_is_flushed_when_the_previous_flush_is_committed() -> None:
    # recovery T4
    policy = busy()
    policy.add(B, 1)
    policy.add(C, 2)
    assert policy.committed() == [batch(2, B, C)]


def test_a_commit_with_nothing_gathered_flushes_nothing() -> None:
    policy = busy()
    assert policy.committed() == []
    assert policy.add(B, 5) == [batch(2, B)]


def test_gathered_chunks_wait_for_the_last_of_several_commits() -> None:
    policy = busy()
    policy.add(B, 1, is_immediate=True)
    policy.add(C, 2)
    assert policy.committed() == []
    assert policy.committed() == [batch(3, C)]


def test_the_oldest_chunk_waits_ten_milliseconds_at_most() -> None:
    # recovery T4
    policy = busy()
    policy.add(B, 3)
    policy.add(C, 9)
    assert policy.due_at_ms == 13
    assert policy.tick(12.9) == []
    assert policy.tick(13) == [batch(2, B, C)]
    assert policy.due_at_ms is None


def test_time_alone_flushes_nothing() -> None:
    assert busy().tick(1_000) == []


def test_sixty_four_chunks_are_flushed_without_waiting() -> None:
    # recovery T4
    policy = busy()
    flushed = [policy.add(A, 1) for _ in range(64)]
    assert flushed[:63] == [[]] * 63
    assert flushed[63] == [batch(2, *[A] * 64)]


def test_a_batch_never_exceeds_512000_bytes() -> None:
    # recovery T4
    policy = busy()
    half = b"1" * 256_000
    assert policy.add(half, 1) == []
    assert policy.add(half, 1) == []
    assert policy.add(b"2", 1) == [batch(2, half, half)]
    assert policy.drain() == [batch(4, b"2")]


def test_the_outcome_of_a_tool_is_flushed_at_once_with_all_before_it() -> None:
    # recovery T5
    policy = busy()
    policy.add(B, 1)
    assert policy.add(C, 1, is_immediate=True) == [batch(2, B, C)]


def test_the_end_of_a_stream_flushes_the_rest() -> None:
    # recovery T4
    policy = busy()
    policy.add(B, 1)
    assert policy.drain() == [batch(2, B)]
    assert policy.drain() == []


def test_a_chunk_that_fits_into_no_row_is_shown_and_not_stored() -> None:
    # recovery T4; a stub keeps the journal's numbers whole
    policy = busy()
    policy.add(B, 1)
    huge = b'"' + b"x" * 1_799_999 + b'"'
    before, alone = policy.add(huge, 1)
    assert before == batch(2, B)
    assert (alone.number, alone.count, alone.frame) == (3, 1, b"[3," + huge + b"]")
    assert alone.stored == b'[3,{"type":"data-omitted","transient":true,"data":{"bytes":1800001}}]'
    assert policy.number == 4


def test_a_chunk_of_the_largest_stored_size_is_stored() -> None:
    largest = b"1" * 1_800_000
    assert BatchPolicy().add(largest, 0) == [batch(1, largest)]


def test_the_source_has_to_wait_behind_sixteen_commits() -> None:
    policy = BatchPolicy()
    for _ in range(15):
        policy.add(A, 0, is_immediate=True)
    assert policy.has_room
    policy.add(A, 0, is_immediate=True)
    assert not policy.has_room


def test_a_commit_that_nobody_asked_for_is_a_fault_of_the_driver() -> None:
    with pytest.raises(AssertionError):
        BatchPolicy().committed()
