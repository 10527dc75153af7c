from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.core.streams import Batch, BatchPolicy, after, first_number, pack, unpack

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def chunk(number: int) -> bytes:
    return b'{"n":%d}' % number


def frames_of(sizes: list[int]) -> list[bytes]:
    frames: list[bytes] = []
    number = 1
    for size in sizes:
        frames.append(pack(number, [chunk(n) for n in range(number, number + size)]))
        number += size
    return frames


@given(SIZES, st.data())
def test_attaching_anywhere_gives_each_later_event_once(sizes: list[int], data: st.DataObject) -> None:
    # turns P10, FR-05
    total = sum(sizes)
    seen = data.draw(st.integers(0, total))
    events = [(number, bytes(raw)) for number, raw in after(frames_of(sizes), seen)]
    assert events == [(number, chunk(number)) for number in range(seen + 1, total + 1)]


@given(SIZES, SIZES, st.data())
def test_attaching_again_and_again_gives_each_event_once(
    sizes: list[int], others: list[int], data: st.DataObject
) -> None:
    # FR-05: the reader dies at any event, comes back, and meets the same events in frames of another cut
    total = min(sum(sizes), sum(others))
    seen: list[int] = []
    while len(seen) < total:
        frames = frames_of(data.draw(st.sampled_from([sizes, others])))
        patience = data.draw(st.integers(1, total))
        for number, _ in after(frames, len(seen)):
            if number > total or patience == 0:
                break
            seen.append(number)
            patience -= 1
    assert seen == list(range(1, total + 1))


class Batches(RuleBasedStateMachine):
    """A stream with a journal of any speed, against what recovery T4 and T5 promise."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = BatchPolicy()
        self.now_ms = 0.0
        self.given: list[bytes] = []
        self.added_at_ms: list[float] = []
        self.flushed: list[bytes] = []
        self.in_flight = 0

    def take(self, batches: list[Batch]) -> None:
        for batch in batches:
            assert first_number(batch.frame) == batch.number == len(self.flushed) + 1
            chunks = [bytes(raw) for raw in unpack(batch.frame)]
            assert 1 <= len(chunks) == batch.count <= 64
            assert sum(map(len, chunks)) <= 512_000 or len(chunks) == 1
            self.flushed += chunks
            self.in_flight += 1

    @rule(size=st.sampled_from([1, 1, 1, 1, 40_000, 300_000, 600_000]), is_immediate=st.booleans())
    def add(self, size: int, is_immediate: bool) -> None:
        self.given.append(b"1" * size)
        self.added_at_ms.append(self.now_ms)
        self.take(self.policy.add(self.given[-1], self.now_ms, is_immediate=is_immediate))
        assert not is_immediate or self.flushed == self.given

    @rule(count=st.integers(1, 70))
    def add_many(self, count: int) -> None:
        for _ in range(count):
            self.add(1, False)

    @precondition(lambda self: self.in_flight > 0)
    @rule()
    def commit(self) -> None:
        self.in_flight -= 1
        self.take(self.policy.committed())

    @rule(elapsed_ms=st.floats(0, 15))
    def wait(self, elapsed_ms: float) -> None:
        self.now_ms += elapsed_ms
        self.take(self.policy.tick(self.now_ms))
        waiting = self.added_at_ms[len(self.flushed) :]
        assert all(self.now_ms - added_at_ms < 10 for added_at_ms in waiting)

    @rule()
    def end(self) -> None:
        self.take(self.policy.drain())
        assert self.flushed == self.given

    @invariant()
    def what_is_flushed_is_what_was_given_in_order(self) -> None:
        assert self.flushed == self.given[: len(self.flushed)]

    @invariant()
    def nothing_waits_while_the_journal_is_free(self) -> None:
        assert self.in_flight > 0 or self.flushed == self.given


TestBatches = Batches.TestCase
TestBatches.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
