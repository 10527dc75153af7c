"""What a call does when its object goes away under it, and what its options do (runtime A1, D34; design 2, Calls)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar

import pytest

from runtime import DurableObject, ObjectId, idempotent, make_stub
from runtime.calls import CallContext, current_call
from runtime.errors import ConnectionLost, ObjectReset, Unavailable, UnknownMethod, UsageError
from runtime.mailbox import KEPT_MS
from runtime.object import AlarmInfo
from runtime.recent import ENDED_BYTES_MAX, ENDED_MAX, RecentCalls
from runtime.stub import DEATHS_MAX
from runtime.testing import LocalCluster

runs: list[str] = []
got: list[int] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


class Counter(DurableObject):
    """Counts outside of itself what it was made to do."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 3600.0}

    async def add(self, seconds: float = 0.0) -> int:
        runs.append("add")
        await asyncio.sleep(seconds)
        count = int(await self.ctx.storage.get("count") or 0) + 1
        await self.ctx.storage.put("count", count)
        return count

    async def take(self, seconds: float = 0.0) -> int:
        runs.append("take")
        await asyncio.sleep(seconds)
        return -1

    @idempotent
    async def look(self, seconds: float = 0.0) -> int:
        runs.append("look")
        await asyncio.sleep(seconds)
        return len(runs)

    async def fail(self) -> None:
        runs.append("fail")
        raise ValueError("once")

    async def forget(self) -> None:
        runs.append("forget")
        self.ctx.abort("forgotten")

    async def swallow(self) -> str:
        """Runs, resets its object, and never returns before the process ends."""
        runs.append("swallow")
        try:
            self.ctx.abort("swallowed")
        except ObjectReset:
            await asyncio.sleep(3600)
        return "never"

    async def numbers(self, count: int, seconds: float = 0.0) -> AsyncGenerator[int, None]:
        runs.append("numbers")
        for number in range(count):
            yield number
            await asyncio.sleep(seconds)


class Hooked(Counter):
    """Overrides hooks without marking them again."""

    async def on_start(self) -> None:
        runs.append("on_start")

    async def alarm(self, info: AlarmInfo) -> None:
        runs.append("alarm")


class Desk(DurableObject):
    """Calls a counter from inside its own calls."""

    async def first(self, counter: str, seconds: float = 0.0) -> int:
        count = await self.ctx.get(Counter, counter).add()
        await asyncio.sleep(seconds)
        return count

    async def second(self, counter: str) -> int:
        return await self.ctx.get(Counter, counter).add()


def stub_of(cluster: LocalCluster, cls: type[DurableObject], name: str) -> Any:
    """A stub with its own methods, which its class has not."""
    return cluster.get(cls, name)


async def read(items: AsyncGenerator[int, None], at_two: Callable[[], Any] | None = None) -> list[int]:
    """The numbers of a stream up to its end or error; ``at_two`` is called in the middle."""
    got.clear()
    async for number in items:
        got.append(number)
        if number == 2 and at_two is not None:
            at_two()
    return got


async def started(call: Any) -> asyncio.Future[Any]:
    """The call, when it runs."""
    running = asyncio.ensure_future(call)
    await asyncio.sleep(0.1)
    return running


# When the object dies


async def test_a_plain_call_whose_object_dies_is_a_lost_connection_and_not_run_again(cluster: LocalCluster) -> None:
    call = await started(cluster.get(Counter, "a").add(5.0))
    cluster.kill(cluster.get(Counter, "a"))
    with pytest.raises(ConnectionLost, match=r"Counter/a\.add.*may have run.*idempotency"):
        await call
    await cluster.advance(60)
    assert runs == ["add"]


async def test_an_idempotent_call_whose_object_dies_runs_again(cluster: LocalCluster) -> None:
    call = await started(cluster.get(Counter, "a").look(5.0))
    cluster.kill(cluster.get(Counter, "a"))
    assert await call == 2


async def test_a_keyed_call_whose_object_dies_runs_again(cluster: LocalCluster) -> None:
    call = await started(stub_of(cluster, Counter, "a").with_options(idempotency_key="k").add(5.0))
    cluster.kill(cluster.get(Counter, "a"))
    assert await call == 1
    assert runs == ["add", "add"]


async def test_a_call_that_kills_its_object_each_time_ends_after_five_more_tries(cluster: LocalCluster) -> None:
    call = asyncio.ensure_future(cluster.get(Counter, "a").look(3600.0))
    while not call.done():
        await asyncio.sleep(1)
        cluster.kill(cluster.get(Counter, "a"))
    with pytest.raises(ConnectionLost, match=f"ended {DEATHS_MAX + 1} times.*perdure logs Counter/a"):
        await call
    assert len(runs) == DEATHS_MAX + 1


async def test_deaths_that_are_far_apart_do_not_use_up_the_patience_for_one(cluster: LocalCluster) -> None:
    call = asyncio.ensure_future(cluster.get(Counter, "a").look(3600.0))
    for _ in range(3):
        await asyncio.sleep(31)
        cluster.kill(cluster.get(Counter, "a"))
    assert await call == 4


async def test_a_call_that_had_run_in_an_object_that_was_reset_is_not_run_again(cluster: LocalCluster) -> None:
    # a reset is no hibernation: its calls had begun
    with pytest.raises((ObjectReset, ConnectionLost)):
        await cluster.get(Counter, "a").swallow()
    await cluster.advance(60)
    assert runs == ["swallow"]


async def test_a_reset_tells_its_callers_the_reason(cluster: LocalCluster) -> None:
    with pytest.raises(ObjectReset, match="forgotten"):
        await cluster.get(Counter, "a").forget()


async def test_a_stream_whose_object_dies_in_the_middle_ends_with_an_error(cluster: LocalCluster) -> None:
    counter = cluster.get(Counter, "a")
    with pytest.raises(ConnectionLost, match=r"Counter/a\.numbers.*mid-stream"):
        await read(counter.numbers(10, 1.0), lambda: cluster.kill(counter))
    assert (got, runs) == ([0, 1, 2], ["numbers"])


async def test_a_stream_whose_object_is_reset_in_the_middle_repeats_nothing(cluster: LocalCluster) -> None:
    counter = cluster.get(Counter, "a")
    resets = []
    with pytest.raises((ObjectReset, ConnectionLost)):
        await read(counter.numbers(10, 1.0), lambda: resets.append(asyncio.ensure_future(counter.forget())))
    await asyncio.wait(resets)
    assert (got, runs) == ([0, 1, 2], ["numbers", "forget"])


# Messages that are lost or come twice


@pytest.mark.parametrize("part", ["call", "reply"])
async def test_a_keyed_call_survives_a_lost_message_and_runs_once(cluster: LocalCluster, part: str) -> None:
    await cluster.get(Counter, "a").look()
    cluster.lose(cluster.get(Counter, "a"), part=part)
    assert await stub_of(cluster, Counter, "a").with_options(idempotency_key="k").add() == 1
    assert runs == ["look", "add"]


async def test_a_frame_that_comes_twice_runs_once(cluster: LocalCluster) -> None:
    await cluster.get(Counter, "a").look()
    cluster.double(cluster.get(Counter, "a"))
    assert await cluster.get(Counter, "a").add(1.0) == 1
    await cluster.advance(10)
    assert runs == ["look", "add"]


async def test_a_call_that_runs_is_remembered_however_many_come_after_it() -> None:
    recent = RecentCalls()
    recent.began("long")
    for number in range(ENDED_MAX + 10):
        recent.began(str(number))
        recent.ended(str(number), b"x")
    assert recent.get("long") is not None
    assert (recent.get("0"), recent.get("9")) == (None, None)
    assert recent.get("10") is not None


async def test_large_answers_are_kept_for_fewer_calls() -> None:
    recent = RecentCalls()
    for name in ("a", "b", "c"):
        recent.began(name)
        recent.ended(name, bytes(ENDED_BYTES_MAX // 2))
    assert [name for name in "abc" if recent.get(name)] == ["b", "c"]


async def test_a_call_that_broke_off_may_come_again() -> None:
    recent = RecentCalls()
    recent.began("a")
    waiting = recent.get("a")
    recent.broke("a")
    assert waiting is not None
    assert waiting.cancelled()
    assert recent.get("a") is None


# Keys


async def test_a_key_answers_from_the_stored_result_also_in_a_later_life(cluster: LocalCluster) -> None:
    keyed = stub_of(cluster, Counter, "a").with_options(idempotency_key="k")
    assert await keyed.add() == 1
    cluster.kill(cluster.get(Counter, "a"))
    assert await keyed.add() == 1
    assert runs == ["add"]


async def test_callers_with_the_same_key_share_one_run(cluster: LocalCluster) -> None:
    keyed = stub_of(cluster, Counter, "a").with_options(idempotency_key="k")
    assert await asyncio.gather(*(keyed.add(1.0) for _ in range(5))) == [1] * 5
    assert runs == ["add"]


async def test_a_key_is_forgotten_after_a_day(cluster: LocalCluster) -> None:
    keyed = stub_of(cluster, Counter, "a").with_options(idempotency_key="k")
    assert await keyed.add() == 1
    await cluster.advance(KEPT_MS / 1000 - 1)
    assert await keyed.add() == 1
    await cluster.advance(2)
    assert await keyed.add() == 2


async def test_a_keyed_call_that_raised_runs_again(cluster: LocalCluster) -> None:
    keyed = stub_of(cluster, Counter, "a").with_options(idempotency_key="k")
    for _ in range(2):
        with pytest.raises(Exception, match="once"):
            await keyed.fail()
    assert runs == ["fail", "fail"]


async def test_one_key_given_to_two_methods_names_two_calls(cluster: LocalCluster) -> None:
    keyed = stub_of(cluster, Counter, "a").with_options(idempotency_key="k")
    assert (await keyed.add(), await keyed.take()) == (1, -1)


async def test_calls_made_inside_a_keyed_call_are_keyed_too(cluster: LocalCluster) -> None:
    desk = stub_of(cluster, Desk, "d").with_options(idempotency_key="k")
    call = await started(desk.first("a", 5.0))
    cluster.kill(cluster.get(Desk, "d"))
    assert await call == 1
    assert runs == ["add"]


async def test_one_key_given_to_two_methods_or_objects_makes_different_keys_inside(cluster: LocalCluster) -> None:
    for name in ("d", "e"):
        desk = stub_of(cluster, Desk, name).with_options(idempotency_key="k")
        await desk.first("a")
        await desk.second("a")
    assert await cluster.get(Counter, "a").add() == 5


def test_calls_to_different_targets_may_come_in_another_order_when_a_call_is_repeated() -> None:
    first, again = CallContext("k"), CallContext("k")
    keys = {what: first.derive(what) for what in ("x", "y")}
    assert {what: again.derive(what) for what in ("y", "x")} == keys


def test_a_repeated_call_derives_the_same_keys_in_the_same_order() -> None:
    first, again, other = CallContext("k"), CallContext("k"), CallContext("l")
    keys = [first.derive("x"), first.derive("x")]
    assert keys == [again.derive("x"), again.derive("x")]
    assert len({*keys, other.derive("x")}) == 3
    assert current_call.get() is None


# Options


async def test_options_add_up(cluster: LocalCluster) -> None:
    stub: Any = stub_of(cluster, Counter, "a").with_options(idempotency_key="k").with_options(timeout=2.0)
    assert stub.perdure_handle[2:] == ("k", 2.0)
    assert stub.without_options().perdure_handle[2:] == ("", None)


async def test_a_timeout_ends_the_wait_and_not_the_call(cluster: LocalCluster) -> None:
    with pytest.raises(Unavailable, match=r"Counter/a\.add did not answer within 2 s"):
        await stub_of(cluster, Counter, "a").with_options(timeout=2.0).add(5.0)
    await cluster.advance(10)
    assert await cluster.get(Counter, "a").add() == 2


async def test_a_call_that_was_never_awaited_is_named_by_python(cluster: LocalCluster) -> None:
    call = cluster.get(Counter, "a").add()
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Counter/a\.add' was never awaited"):
        del call


async def test_a_timeout_ends_a_stream(cluster: LocalCluster) -> None:
    stub = stub_of(cluster, Counter, "a").with_options(timeout=2.5)
    with pytest.raises(Unavailable, match=r"Counter/a\.numbers has not ended within 2.5 s"):
        await read(stub.numbers(10, 1.0))
    assert got == [0, 1, 2]


async def test_a_stream_within_its_timeout_is_whole(cluster: LocalCluster) -> None:
    stub = stub_of(cluster, Counter, "a").with_options(timeout=20)
    assert await read(stub.numbers(3, 1.0)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idempotency_key": " "}, "idempotency_key must be text that is not blank, not ' '"),
        ({"timeout": 0}, "timeout must be seconds above 0, not 0"),
        ({"timeout": float("nan")}, "timeout must be seconds above 0, not nan"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    stub: Any = make_stub(Counter, ObjectId.root("Counter", "a"))
    with pytest.raises(UsageError, match=message):
        stub.with_options(**options)


# Hooks


@pytest.mark.parametrize("hook", ["alarm", "on_start", "boot"])
async def test_no_stub_reaches_a_hook_also_if_it_is_overridden(cluster: LocalCluster, hook: str) -> None:
    with pytest.raises(UnknownMethod, match=f"Hooked.{hook} cannot be called from outside"):
        getattr(cluster.get(Hooked, "h"), hook)
    assert runs == []
