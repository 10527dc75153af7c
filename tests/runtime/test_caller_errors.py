"""What a caller sees of a failure: flags, overload, classes of errors (runtime D29, D34, D35, D37)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents import Agent
from runtime.core.gates import InputGate, Limits, Overloaded
from runtime.errors import (
    ConnectionLost,
    ObjectReset,
    PerdureError,
    RemoteError,
    Unavailable,
    is_connection_lost,
    is_memory_limit,
    is_platform_transient,
    is_superseded,
)
from runtime.testing import LocalCluster, run
from runtime.wire import error_from, failure_from


class Child(Agent):
    async def set(self) -> None:
        await self.ctx.storage.set_alarm(1e9)

    async def armed(self) -> float | None:
        return await self.ctx.storage.get_alarm()


class Parent(Agent):
    async def try_child(self) -> str:
        child = await self.sub_agent(Child, "c")
        try:
            await child.set()
        except PerdureError as error:
            return f"{type(error).__name__} {await child.armed()}"
        return "set"


def test_a_sub_agent_has_no_alarm_slot(tmp_path: Path) -> None:
    # runtime D29
    async def main() -> str:
        async with LocalCluster(tmp_path) as cluster:
            return await cluster.get(Parent, "p").try_child()

    assert run(main) == "UsageError None"


@pytest.mark.parametrize(
    ("error", "flags"),
    [
        (ValueError("x"), (True, False, False)),
        (ConnectionLost("x"), (False, True, False)),
        (Unavailable("x", retryable=False, overloaded=True), (False, False, True)),
        (ObjectReset("x"), (False, True, False)),
    ],
)
def test_the_three_flags_cross_to_the_caller(error: Exception, flags: tuple[bool, bool, bool]) -> None:
    # runtime D34
    seen: Any = error_from(failure_from(error))
    assert (seen.remote, seen.retryable, seen.overloaded) == flags


def test_a_user_error_keeps_its_type_name_message_and_traceback() -> None:
    # runtime D34
    try:
        raise KeyError("lost")
    except KeyError as error:
        seen = error_from(failure_from(error))
    assert isinstance(seen, RemoteError)
    assert (seen.type_name, seen.message) == ("KeyError", "'lost'")
    assert "raise KeyError" in seen.remote_traceback


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(waiting_max=1), "too many requests queued"),
        (Limits(waiting_bytes_max=15), "too much data queued"),
        (Limits(arrivals_max=1), "too many requests within a 10 s window"),
    ],
)
def test_a_held_gate_turns_away_what_goes_over_a_bound(limits: Limits, reason: str) -> None:
    # runtime D35
    gate = InputGate(limits)
    gate.hold()
    assert gate.arrive(1, 10, 0) is False
    assert gate.arrive(2, 10, 0) == Overloaded(reason)


def test_the_window_of_arrivals_moves_on() -> None:
    # runtime D35
    gate = InputGate(Limits(arrivals_max=1))
    assert gate.arrive(1, 1, 0) is True
    assert gate.arrive(2, 1, 9_999) == Overloaded("too many requests within a 10 s window")
    assert gate.arrive(3, 1, 10_000) is True


def caused(depth: int, message: str) -> Exception:
    error: Exception = ValueError(message)
    for _ in range(depth):
        outer = RuntimeError("around")
        outer.__cause__ = error
        error = outer
    return error


@pytest.mark.parametrize(
    ("message", "classes"),
    [
        ("Durable Object RESET because its code was updated.", (True, False, False, True)),
        ("This script has been upgraded", (True, False, False, True)),
        ("Network connection lost.", (False, True, False, True)),
        ("object exceeded its memory limit and was reset", (False, False, True, False)),
        ("something else", (False, False, False, False)),
    ],
)
@pytest.mark.parametrize("depth", [0, 7])
def test_errors_are_classed_by_their_message_through_seven_causes(
    message: str, classes: tuple[bool, ...], depth: int
) -> None:
    # runtime D37: the error itself and seven causes are the eight looked at
    error = caused(depth, message)
    found = (is_superseded(error), is_connection_lost(error), is_memory_limit(error), is_platform_transient(error))
    assert found == classes


def test_a_ninth_cause_is_not_looked_at() -> None:
    # runtime D37
    assert is_connection_lost(caused(8, "network connection lost")) is False


def test_a_dead_actor_is_a_lost_connection_that_may_be_tried_again() -> None:
    # runtime D37
    error = ConnectionLost("the process ended")
    assert (is_connection_lost(error), is_platform_transient(error), error.retryable) == (True, True, True)
