"""The input gate by itself (runtime D8, D11, D35)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.core.gates import InputGate, Limits


def test_an_open_gate_lets_pass_at_once() -> None:
    assert InputGate(Limits()).arrive(1, 10, 0) is True


def test_a_gate_that_is_held_twice_opens_with_the_second_release() -> None:
    # runtime D11: a block inside of a block
    gate = InputGate(Limits())
    gate.hold()
    gate.hold()
    assert gate.arrive(1, 10, 0) is False
    assert gate.release() == []
    assert gate.arrive(2, 10, 0) is False
    assert gate.release() == [1, 2]


def test_who_gave_up_is_not_admitted_and_makes_room() -> None:
    # runtime D35
    gate = InputGate(Limits(waiting_max=1))
    gate.hold()
    gate.arrive(1, 10, 0)
    gate.leave(1)
    assert gate.arrive(2, 10, 0) is False
    assert gate.release() == [2]


def test_who_gave_up_takes_its_bytes_along() -> None:
    # runtime D35
    gate = InputGate(Limits(waiting_bytes_max=10))
    gate.hold()
    gate.arrive(1, 10, 0)
    gate.leave(1)
    assert gate.arrive(2, 10, 0) is False


def test_one_who_was_turned_away_leaves_no_trace() -> None:
    # runtime D35
    gate = InputGate(Limits(waiting_bytes_max=10, arrivals_max=2))
    gate.hold()
    assert gate.arrive(1, 10, 0) is False
    assert gate.arrive(2, 1, 0) is not True
    assert gate.release() == [1]
    assert gate.arrive(3, 1, 0) is True


@given(st.lists(st.sampled_from(["arrive", "hold", "release", "leave"]), max_size=60))
def test_events_are_admitted_once_each_in_order_of_arrival(steps: list[str]) -> None:
    # runtime D8: whatever blocks, for however long
    gate, holders, waiting, ticket = InputGate(Limits()), 0, [], 0
    for step in steps:
        if step == "arrive":
            ticket += 1
            is_admitted = gate.arrive(ticket, 1, 0)
            assert is_admitted is (holders == 0)
            waiting += [] if is_admitted else [ticket]
        elif step == "hold":
            gate.hold()
            holders += 1
        elif step == "release" and holders:
            holders -= 1
            admitted = gate.release()
            assert admitted == ([] if holders else waiting)
            waiting = waiting if holders else []
        elif step == "leave" and waiting:
            gate.leave(waiting.pop(0))
