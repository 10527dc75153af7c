"""The states of an instance, and what keeps it awake (runtime D4, D5, D6)."""

from __future__ import annotations

import itertools

import pytest

from runtime.core.lifecycle import Busy, State, may_move, stays_awake

MOVES = {
    ("created", "starting"),
    ("created", "closing"),
    ("created", "reset"),
    ("starting", "active"),
    ("starting", "created"),
    ("starting", "reset"),
    ("active", "closing"),
    ("active", "reset"),
    ("closing", "closed"),
    ("closing", "reset"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_an_instance_moves_as_the_table_says_and_not_otherwise(before: State, after: State) -> None:
    assert may_move(before, after) is ((before.value, after.value) in MOVES)


def test_an_instance_that_does_nothing_may_hibernate() -> None:
    # runtime D4
    assert stays_awake(Busy()) == ""


@pytest.mark.parametrize(
    ("busy", "reason"),
    [
        (Busy(calls=2), "2 calls"),
        (Busy(streams=1), "1 stream"),
        (Busy(background=1), "1 wait_until"),  # runtime D5
        (Busy(leases=3), "3 keep-alive"),
        (Busy(alarm_running=True), "1 alarm"),
        (Busy(commits=1), "1 commit"),
    ],
)
def test_each_kind_of_work_keeps_an_instance_awake(busy: Busy, reason: str) -> None:
    assert stays_awake(busy) == reason


def test_all_that_keeps_an_instance_awake_is_told() -> None:
    assert stays_awake(Busy(calls=1, leases=1, commits=1)) == "1 call, 1 keep-alive, 1 commit"
