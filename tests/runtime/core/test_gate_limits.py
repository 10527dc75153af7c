"""What an input gate turns away, and with which reason (runtime D35)."""

from __future__ import annotations

from runtime.core.gates import InputGate, Limits, Overloaded

TOO_MANY_QUEUED = Overloaded("too many requests queued")
TOO_MUCH_DATA = Overloaded("too much data queued")
TOO_MANY_IN_10_S = Overloaded("too many requests within a 10 s window")


def held(limits: Limits) -> InputGate:
    gate = InputGate(limits)
    gate.hold()
    return gate


def test_one_event_more_than_may_wait_is_turned_away() -> None:
    gate = held(Limits(waiting_max=2))
    assert [gate.arrive(ticket, 1, 0) for ticket in (1, 2, 3)] == [False, False, TOO_MANY_QUEUED]


def test_one_byte_more_than_may_wait_is_turned_away() -> None:
    gate = held(Limits(waiting_bytes_max=10))
    assert [gate.arrive(1, 4, 0), gate.arrive(2, 7, 0), gate.arrive(3, 6, 0)] == [False, TOO_MUCH_DATA, False]


def test_what_was_admitted_makes_room_for_bytes() -> None:
    gate = held(Limits(waiting_bytes_max=10))
    gate.arrive(1, 10, 0)
    assert gate.release() == [1]
    gate.hold()
    assert gate.arrive(2, 10, 0) is False


def test_one_arrival_more_than_the_window_allows_is_turned_away_although_the_gate_is_open() -> None:
    gate = InputGate(Limits(arrivals_max=2))
    assert [gate.arrive(ticket, 1, 0) for ticket in (1, 2, 3)] == [True, True, TOO_MANY_IN_10_S]


def test_an_arrival_counts_for_ten_seconds_and_no_longer() -> None:
    gate = InputGate(Limits(arrivals_max=1))
    assert [gate.arrive(1, 1, 0), gate.arrive(2, 1, 9_999), gate.arrive(3, 1, 10_000)] == [True, TOO_MANY_IN_10_S, True]
