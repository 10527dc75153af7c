"""The alarm slot by itself: the table of ``runtime.core.alarms``, row by row (runtime D24 to D27)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.alarms import Slot, begin, cleared, failed, finished, is_due, is_exhausted, set_at

ARMED = Slot(at_ms=1_000, version=1)
RUNNING = Slot(at_ms=None, running_at_ms=1_000, version=2)


def test_setting_arms_an_empty_slot() -> None:
    # runtime D24
    assert set_at(Slot(), 1_000) == Slot(at_ms=1_000, version=1)


def test_setting_replaces_the_time_and_forgets_earlier_failures() -> None:
    # runtime D24
    tried = Slot(at_ms=1_000, retry_count=3, version=7)
    assert set_at(tried, 2_000) == Slot(at_ms=2_000, retry_count=0, version=8)


def test_setting_from_inside_a_retried_handler_keeps_the_count_of_the_run() -> None:
    running = Slot(running_at_ms=1_000, retry_count=2, version=4)
    assert set_at(running, 9_000) == Slot(at_ms=9_000, running_at_ms=1_000, retry_count=2, version=5)


def test_deleting_empties_an_armed_slot() -> None:
    # runtime D26
    assert cleared(ARMED) == Slot(at_ms=None, version=2, is_retry_wanted=False)


def test_deleting_from_inside_a_handler_lets_it_run_on() -> None:
    # runtime D26
    assert cleared(RUNNING).running_at_ms == 1_000


@pytest.mark.parametrize(
    ("slot", "now_ms", "due"),
    [
        (Slot(), 5_000, False),
        (ARMED, 999, False),
        (ARMED, 1_000, True),
        (RUNNING, 0, True),  # a death interrupted it (runtime D27)
    ],
)
def test_an_alarm_is_due_from_its_millisecond_on_and_an_interrupted_one_always(
    slot: Slot, now_ms: int, due: bool
) -> None:
    assert is_due(slot, now_ms) is due


def test_a_slot_is_empty_while_its_handler_runs() -> None:
    # runtime D25
    assert begin(ARMED) == RUNNING


def test_a_run_after_delete_alarm_and_a_new_alarm_is_retried_again() -> None:
    # runtime D26: deleting spoke about the earlier alarm only
    assert begin(set_at(cleared(ARMED), 3_000)).is_retry_wanted is True


def test_a_run_that_a_death_interrupted_is_a_retry_with_its_old_time() -> None:
    # runtime D27
    assert begin(RUNNING) == Slot(running_at_ms=1_000, retry_count=1, version=3)


def test_an_interrupted_run_leaves_the_alarm_that_its_handler_had_set() -> None:
    interrupted = Slot(at_ms=8_000, running_at_ms=1_000, version=3)
    assert begin(interrupted) == Slot(at_ms=8_000, running_at_ms=1_000, retry_count=1, version=4)


def test_a_handler_that_returned_leaves_the_slot_empty() -> None:
    assert finished(RUNNING) == Slot(version=3)


def test_a_handler_that_returned_leaves_the_alarm_that_it_has_set() -> None:
    # runtime D25
    assert finished(set_at(RUNNING, 7_000)) == Slot(at_ms=7_000, version=4)


@pytest.mark.parametrize(
    ("retry_count", "again_at_ms"), [(0, 12_000), (1, 14_000), (2, 18_000), (3, 26_000), (4, 42_000), (5, 74_000)]
)
def test_a_handler_that_raised_runs_again_after_2_4_8_seconds(retry_count: int, again_at_ms: int) -> None:
    # runtime D27
    running = Slot(running_at_ms=1_000, retry_count=retry_count, version=2)
    assert failed(running, 10_000) == Slot(at_ms=again_at_ms, retry_count=retry_count + 1, version=3)


def test_a_handler_that_raised_in_its_sixth_retry_is_dropped() -> None:
    # runtime D27
    assert failed(Slot(running_at_ms=1_000, retry_count=6, version=2), 10_000) == Slot(version=3)


@pytest.mark.parametrize(
    ("slot", "expected"),
    [
        (Slot(running_at_ms=1_000, retry_count=6, version=2), True),
        (Slot(running_at_ms=1_000, retry_count=5, version=2), False),
        (Slot(at_ms=1_000, retry_count=6, version=2), False),
    ],
)
def test_a_sixth_retry_that_a_death_interrupted_was_the_last(slot: Slot, expected: bool) -> None:
    # runtime D27
    assert is_exhausted(slot) is expected


def test_a_handler_that_deleted_the_alarm_and_raised_is_not_retried() -> None:
    # runtime D26
    assert failed(cleared(RUNNING), 10_000) == Slot(version=4)


def test_a_handler_that_set_an_alarm_and_raised_gets_that_one_instead_of_a_retry() -> None:
    # runtime D25
    assert failed(set_at(RUNNING, 7_000), 10_000) == Slot(at_ms=7_000, version=4)


STEPS = st.sampled_from(["set", "clear", "begin", "finish", "fail"])


@given(st.lists(STEPS, max_size=40))
def test_each_change_of_the_slot_has_a_higher_version_and_no_run_more_than_six_retries_by_failing(
    steps: list[str],
) -> None:
    # The keeper, whose messages can overtake each other, keeps the newest (runtime D30).
    slot, now_ms = Slot(), 0
    for step in steps:
        now_ms += 1_000
        before = slot
        match step:
            case "set":
                slot = set_at(slot, now_ms)
            case "clear":
                slot = cleared(slot)
            case "begin" if slot.running_at_ms is None and is_due(slot, now_ms):
                slot = begin(slot)
            case "finish" if slot.running_at_ms is not None:
                slot = finished(slot)
            case "fail" if slot.running_at_ms is not None:
                slot = failed(slot, now_ms)
            case _:
                continue
        assert slot.version == before.version + 1
        assert slot.retry_count <= 6
