"""Running one call: every outcome is data (tools G2; turns T6, T9)."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from dataclasses import dataclass

import msgspec
import pytest

from agents.tools.execution import ToolOutcome, run_tool, wants_approval
from agents.tools.schema import ToolContext
from agents.tools.tool import as_tool, tool


def made(function):
    return as_tool(tool(function))


async def run(function, /, **value):
    return await run_tool(made(function), value)


async def test_an_async_tool_gives_its_output():
    async def add(a: int, b: int) -> int:
        return a + b

    assert await run(add, a=1, b=2) == ToolOutcome(output=3)


async def test_a_synchronous_tool_gives_its_output():
    def add(a: int, b: int) -> int:
        return a + b

    assert await run(add, a=1, b=2) == ToolOutcome(output=3)


async def test_a_synchronous_tool_that_returns_an_awaitable_is_awaited():
    async def later() -> int:
        return 7

    def ask() -> object:
        return later()

    assert await run(ask) == ToolOutcome(output=7)


async def test_a_tool_that_returns_nothing_gives_null():
    def ping() -> None: ...

    assert await run(ping) == ToolOutcome(output=None)


async def test_a_method_gets_its_agent():
    class Agent:
        name = "a-1"

        @tool
        async def who(self, greeting: str) -> str:
            return f"{greeting} {self.name}"

    outcome = await run_tool(as_tool(Agent.who, agent=Agent()), {"greeting": "hi"})
    assert outcome == ToolOutcome(output="hi a-1")


async def test_the_context_names_the_call():
    def send(text: str, context: ToolContext) -> str:
        return f"{text} {context.tool_name} {context.tool_call_id}"

    outcome = await run_tool(made(send), {"text": "x"}, tool_call_id="call-7")
    assert outcome == ToolOutcome(output="x send call-7")


async def test_arguments_arrive_as_their_types():
    class Point(msgspec.Struct):
        x: int

    def shift(point: Point, by: int = 1) -> int:
        return point.x + by

    assert await run(shift, point={"x": 4}, by="2") == ToolOutcome(output=6)


async def test_a_tool_with_a_schema_gets_the_object():
    double = tool(description="x", input_schema={}, execute=lambda value: value["a"] * 2)
    assert await run_tool(double, {"a": 4}) == ToolOutcome(output=8)


async def test_a_tool_with_a_type_as_schema_gets_an_instance():
    class Sum(msgspec.Struct):
        a: int

    double = tool(description="x", input_schema=Sum, execute=lambda value: value.a * 2)
    assert await run_tool(double, {"a": 4}) == ToolOutcome(output=8)


async def test_an_input_that_does_not_fit_never_reaches_the_tool():
    called = []

    def add(a: int) -> None:
        called.append(a)

    outcome = await run(add, a="x")
    assert called == []
    assert "Expected `int`, got `str` - at `$.a`" in str(outcome.error_text)


async def test_the_input_of_a_hook_is_not_judged_again():
    # turns H5: allow with `input` is not re-validated
    def show(a: int) -> str:
        return f"{a}"

    assert await run_tool(made(show), {"a": "x"}, is_checked=True) == ToolOutcome(output="x")


async def test_a_raising_tool_gives_its_message():
    def fail() -> None:
        raise RuntimeError("boom")

    assert await run(fail) == ToolOutcome(error_text="boom")


@pytest.mark.parametrize(
    ("error", "text"),
    [(RuntimeError(), "RuntimeError"), (KeyError("id"), "KeyError: 'id'"), (ValueError("x" * 20_000), None)],
)
async def test_a_message_that_says_nothing_gets_the_type_and_a_long_one_is_cut(error, text):
    def fail() -> None:
        raise error

    outcome = await run(fail)
    assert outcome.error_text == (text or "x" * 10_000 + "... (truncated)")


async def test_an_error_whose_text_cannot_be_made_fails_only_the_call():
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail() -> None:
        raise Broken

    assert await run(fail) == ToolOutcome(error_text="Broken")


async def test_values_that_json_can_hold_come_out_as_json():
    @dataclass
    class Size:
        width: int

    def measure() -> object:
        return {
            "when": datetime.date(2026, 1, 2),
            "id": uuid.UUID(int=1),
            "sizes": (Size(1), Size(2)),
            1: {3},
        }

    assert (await run(measure)).output == {
        "when": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000001",
        "sizes": [{"width": 1}, {"width": 2}],
        "1": [3],
    }


async def test_what_the_tool_changes_later_is_not_its_output():
    kept = [1]

    def give() -> object:
        return kept

    outcome = await run(give)
    kept.append(2)
    assert outcome.output == [1]


class Socket:
    pass


def _itself() -> list:
    circle: list = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (Socket(), "Socket"),
        ({"a": [1, Socket()]}, "Socket"),
        ({(1, 2): 3}, "dict with tuple keys"),
        (b"raw", "bytes"),
        ("\ud800", "str"),
        (_itself(), "list nested in itself"),
        (iter([1]), "list_iterator"),
    ],
)
async def test_an_output_that_is_no_json_is_an_error_that_names_tool_and_type(value, type_name):
    def fetch() -> object:
        return value

    outcome = await run(fetch)
    assert outcome.output is None
    assert str(outcome.error_text).startswith(f"tool fetch returned a value of type {type_name}, which is ")


async def test_a_property_that_raises_while_the_output_is_read_fails_only_the_call():
    class Odd(dict):
        def items(self):
            raise RuntimeError("odd")

    def fetch() -> object:
        return [Odd(a=1), Socket()]

    assert (await run(fetch)).is_error


async def test_an_async_generator_shows_every_value_and_ends_with_the_last():
    # turns T9
    async def count(to: int):
        for number in range(to):
            yield number

    shown = []
    outcome = await run_tool(made(count), {"to": 3}, on_output=shown.append)
    assert (shown, outcome) == ([0, 1, 2], ToolOutcome(output=2))


async def test_a_plain_generator_shows_every_value_and_ends_with_the_last():
    def count(to: int):
        yield from range(to)

    shown = []
    outcome = await run_tool(made(count), {"to": 3}, on_output=shown.append)
    assert (shown, outcome) == ([0, 1, 2], ToolOutcome(output=2))


async def test_a_generator_that_yields_nothing_gives_null():
    async def silent():
        return
        yield

    assert await run(silent) == ToolOutcome(output=None)


async def test_a_function_that_returns_an_async_iterator_shows_nothing():
    # turns T9
    async def numbers():
        yield 1
        yield 2

    def count() -> object:
        return numbers()

    shown = []
    outcome = await run_tool(made(count), {}, on_output=shown.append)
    assert (shown, outcome) == ([], ToolOutcome(output=2))


async def test_an_async_iterator_that_cannot_be_closed_gives_its_last_value():
    class Numbers:
        left = 3

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    def count() -> object:
        return Numbers()

    assert await run(count) == ToolOutcome(output=0)


async def test_a_generator_is_not_driven_on_before_its_value_is_taken():
    events = []

    async def count():
        events.append("yield 1")
        yield 1
        events.append("yield 2")
        yield 2

    async def take(value):
        await asyncio.sleep(0)
        events.append(f"taken {value}")

    await run_tool(made(count), {}, on_output=take)
    assert events == ["yield 1", "taken 1", "yield 2", "taken 2"]


async def test_a_generator_that_raises_midway_fails_the_call_after_what_it_showed():
    async def count():
        yield 1
        raise RuntimeError("boom")

    shown = []
    outcome = await run_tool(made(count), {}, on_output=shown.append)
    assert (shown, outcome) == ([1], ToolOutcome(error_text="boom"))


async def test_a_failure_of_the_listener_is_the_callers_and_closes_the_generator():
    closed = []

    async def count():
        try:
            yield 1
        finally:
            closed.append(True)

    def refuse(_value):
        raise LookupError("journal is full")

    with pytest.raises(LookupError, match="journal is full"):
        await run_tool(made(count), {}, on_output=refuse)
    assert closed == [True]


def timed(function, seconds):
    return as_tool(tool(timeout=seconds)(function))


class Sleeper:
    """Time that passes when the test says so."""

    def __init__(self):
        self.asked: list[float] = []
        self._alarms: list[asyncio.Event] = []

    async def __call__(self, seconds):
        self.asked.append(seconds)
        alarm = asyncio.Event()
        self._alarms.append(alarm)
        await alarm.wait()

    def ring(self, number=0):
        self._alarms[number].set()


async def test_a_tool_that_takes_too_long_is_cancelled_and_says_so():
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sleep = Sleeper()
    running = asyncio.ensure_future(run_tool(timed(hang, 2.5), {}, sleep=sleep))
    await asyncio.sleep(0.001)
    sleep.ring()
    assert await running == ToolOutcome(error_text="timed out after 2.5 s")
    assert (sleep.asked[0], cancelled.is_set()) == (2.5, True)


async def test_a_tool_that_is_in_time_leaves_no_timer_behind():
    async def quick() -> int:
        return 1

    outcome = await run_tool(timed(quick, 5.0), {}, sleep=Sleeper())
    await asyncio.sleep(0)
    assert outcome == ToolOutcome(output=1)
    assert len(asyncio.all_tasks()) == 1


async def test_a_tool_that_ignores_its_cancellation_is_left_behind_after_the_grace():
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    sleep = Sleeper()
    running = asyncio.ensure_future(run_tool(timed(stubborn, 1.0), {}, sleep=sleep))
    await asyncio.sleep(0.001)
    sleep.ring(0)
    await asyncio.sleep(0.001)
    sleep.ring(1)
    assert await running == ToolOutcome(error_text="timed out after 1 s")
    assert sleep.asked == [1.0, 5.0]
    release.set()
    await asyncio.sleep(0.001)


async def test_a_timed_tool_that_cancels_itself_fails_only_the_call():
    async def odd() -> None:
        raise asyncio.CancelledError

    outcome = await run_tool(timed(odd, 1.0), {}, sleep=Sleeper())
    assert outcome == ToolOutcome(error_text="the tool cancelled itself")


@pytest.mark.parametrize("seconds", [None, 5.0])
async def test_cancelling_the_caller_cancels_the_tool_and_is_not_swallowed(seconds):
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    running = asyncio.ensure_future(run_tool(timed(hang, seconds), {}, sleep=Sleeper()))
    await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("needs", "amount", "answer"),
    [(True, 1, True), (False, 1, False), (lambda value: value["amount"] > 9, 10, True), (lambda value: 0, 10, False)],
)
async def test_approval_is_a_fact_or_a_question_about_the_input(needs, amount, answer):
    # turns T8
    refund = tool(description="x", execute=lambda amount: None, input_schema={}, needs_approval=needs)
    assert await wants_approval(refund, {"amount": amount}) is answer


async def test_approval_may_be_asked_asynchronously():
    async def large(value):
        return value["amount"] > 9

    refund = tool(description="x", execute=print, input_schema={}, needs_approval=large)
    assert await wants_approval(refund, {"amount": 10}) is True
