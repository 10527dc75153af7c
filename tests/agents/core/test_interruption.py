import pytest

from agents.core.interruption import (
    Attempts,
    Choice,
    Continue,
    Decision,
    GiveUp,
    Leaf,
    Retry,
    Settle,
    Snapshot,
    Stream,
    count_attempt,
    decide,
)

# The turn answers u2; the conversation before it ended with u2 itself.
FRESH = Snapshot(is_continuation=False, latest_message_id="u2", latest_user_message_id="u2")
# The turn went on with a1, the interrupted answer to u1.
GOING_ON = Snapshot(is_continuation=True, latest_message_id="a1", latest_user_message_id="u1")

QUESTION = Leaf(message_id="u2", role="user")
OLD_ANSWER = Leaf(message_id="a1", role="assistant")
NEW_ANSWER = Leaf(message_id="a2", role="assistant")

NO_STREAM = Stream()
EMPTY = Stream(state="active", message_id="a2")
PARTIAL = Stream(state="active", message_id="a2", has_parts=True)
WITH_TOOL = Stream(state="active", message_id="a2", has_parts=True, has_settled_tool=True)
ENDED = Stream(state="ended", message_id="a2", has_parts=True)
ENDED_EMPTY = Stream(state="ended", message_id="a2")

ONCE = Attempts(count=1)
ELEVENTH = Attempts(count=11)
DROP = Choice(persist=False)
HALT = Choice(is_continued=False)


@pytest.mark.parametrize(
    ("snapshot", "stream", "leaf", "decision"),
    [
        # recovery W2, W6: nothing of an answer exists
        (FRESH, NO_STREAM, QUESTION, Retry(user_message_id="u2")),
        (FRESH, EMPTY, QUESTION, Retry(user_message_id="u2")),
        # recovery W5, W6: a partial answer is stored, and continued in its message
        (FRESH, PARTIAL, QUESTION, Continue(target_message_id="a2", persist=True)),
        (FRESH, PARTIAL, NEW_ANSWER, Continue(target_message_id="a2", persist=True)),
        (GOING_ON, NO_STREAM, OLD_ANSWER, Continue(target_message_id="a1")),
        (
            GOING_ON,
            Stream(state="active", message_id="a1", has_parts=True),
            OLD_ANSWER,
            Continue(target_message_id="a1", persist=True),
        ),
        # recovery W2: the conversation has moved on, or the snapshot is of no use
        (FRESH, NO_STREAM, Leaf(message_id="u3", role="user"), Continue()),
        (FRESH, NO_STREAM, NEW_ANSWER, Continue(target_message_id="a2")),
        (FRESH, NO_STREAM, Leaf(), Continue()),
        (GOING_ON, NO_STREAM, Leaf(), Continue()),
        (GOING_ON, NO_STREAM, Leaf(message_id="u1", role="user"), Continue()),
        (None, NO_STREAM, QUESTION, Continue()),
        (None, PARTIAL, QUESTION, Continue(target_message_id="a2", persist=True)),
        # recovery W6: the stream has its end, the model is not called again
        (FRESH, ENDED, QUESTION, Settle(reason="stream_terminal", persist=True)),
        (FRESH, ENDED, NEW_ANSWER, Settle(reason="stream_terminal")),
        (FRESH, ENDED, Leaf(message_id="u3", role="user"), Settle(reason="stream_terminal", persist=True)),
        (FRESH, ENDED_EMPTY, QUESTION, Settle(reason="stream_terminal")),
        (
            GOING_ON,
            Stream(state="ended", message_id="a1", has_parts=True),
            OLD_ANSWER,
            Settle(reason="stream_terminal", persist=True),
        ),
    ],
)
def test_what_is_left_of_a_turn_decides(
    snapshot: Snapshot | None, stream: Stream, leaf: Leaf, decision: Decision
) -> None:
    assert decide(snapshot, stream, leaf, ONCE) == decision


@pytest.mark.parametrize(
    ("stream", "choice", "decision"),
    [
        # recovery W6: a partial answer that is dropped leaves the question unanswered
        (PARTIAL, DROP, Retry(user_message_id="u2")),
        # recovery W5: settled work is never dropped
        (WITH_TOOL, DROP, Continue(target_message_id="a2", persist=True)),
        (ENDED, DROP, Settle(reason="stream_terminal")),
        (NO_STREAM, HALT, Settle(reason="continue_disabled")),
        (PARTIAL, HALT, Settle(reason="continue_disabled", persist=True)),
        (ENDED, HALT, Settle(reason="stream_terminal", persist=True)),
    ],
)
def test_the_recovery_hook_has_its_say(stream: Stream, choice: Choice, decision: Decision) -> None:
    # recovery W4-W6
    assert decide(FRESH, stream, QUESTION, ONCE, choice) == decision


def test_the_tenth_attempt_still_runs() -> None:
    # FR-02
    assert decide(FRESH, NO_STREAM, QUESTION, Attempts(count=10)) == Retry(user_message_id="u2")


def test_the_eleventh_attempt_gives_up() -> None:
    # FR-02
    assert decide(FRESH, NO_STREAM, QUESTION, ELEVENTH) == GiveUp(reason="max_attempts_exceeded")


def test_giving_up_keeps_the_partial_answer_whatever_the_hook_chose() -> None:
    # recovery W3
    assert decide(FRESH, PARTIAL, QUESTION, ELEVENTH, DROP) == GiveUp(persist=True)


def test_the_first_interruption_is_the_first_attempt() -> None:
    assert count_attempt(Attempts(), 7) == Attempts(count=1, progress=7)
    assert count_attempt(Attempts(), 0) == Attempts(count=1, progress=0)


def test_an_attempt_without_progress_counts() -> None:
    # recovery R4.6
    assert count_attempt(Attempts(count=3, progress=7, has_begun=True), 7) == Attempts(count=4, progress=7)


def test_progress_starts_the_count_anew() -> None:
    # FR-02
    assert count_attempt(Attempts(count=9, progress=7, has_begun=True), 8) == Attempts(count=1, progress=8)


def test_several_wakes_for_one_interruption_count_once() -> None:
    # FR-02, recovery R4.6
    once = count_attempt(Attempts(), 7)
    assert count_attempt(once, 7) == once
