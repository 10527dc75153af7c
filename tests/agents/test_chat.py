"""A turn as its caller sees it: events, outcome, message, cancelling, attaching (turns P3, P5, P10, X1)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agents.errors import TurnAborted, TurnFailed, TurnNotAllowed, UnknownTurn
from agents.models import Scripted
from agents.sessions.messages import UIMessage
from agents.think import Think
from agents.tools import tool
from runtime.errors import UsageError
from runtime.testing import LocalCluster, run

# What happened in the agents; cleared by ``play``.
ran: Counter[str] = Counter()
told: list[object] = []


class Adder(Think):
    def get_model(self):
        ran["model"] += 1
        steps = [Scripted.text("Let me see. ") + Scripted.call("add", {"a": 1, "b": 2}, call_id="c1"), "It is three."]
        slow = Scripted.text("abcdefgh", chunk_size=1, delay=1.0)
        self_chat = [Scripted.call("ask_self", call_id="c1"), "ok"]
        return Scripted({"sum": steps, "slow": slow, "self": self_chat, "wait": Scripted.hang(), "": "Hello."})

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool
    async def ask_self(self) -> str:
        """Chat with the agent itself."""
        return (await self.chat("hi")).text

    async def say(self, text: str) -> str:
        return (await self.chat(text)).text

    async def on_chat_response(self, response):
        told.append((response.status, response.message.text, response.error))
        if response.message.text == "Hello." and ran["follow up"] == 0:
            ran["follow up"] += 1
            await self.chat("sum")
            told.append("inner done")
        if response.status == "error":
            raise ValueError("the hook is broken")


class Broken(Adder):
    def get_system_prompt(self):
        raise ValueError("no prompt today")


class Parent(Think):
    async def delegate(self, text: str) -> list[int]:
        child = self.ctx.get(Adder, "child")
        async with child.chat(text) as events:
            return [event.number async for event in events]


class Callback:
    def __init__(self):
        self.calls = []

    def on_start(self, info):
        self.calls.append(("start", info.request_id))

    async def on_event(self, json):
        self.calls.append(("event", json))

    def on_done(self):
        self.calls.append(("done",))

    def on_error(self, text):
        self.calls.append(("error", text))


class Signal:
    def __init__(self):
        self._event = asyncio.Event()
        self.reason = None

    @property
    def cancelled(self):
        return self._event.is_set()

    def cancel(self, reason):
        self.reason = reason
        self._event.set()

    async def wait(self):
        await self._event.wait()


def play(tmp_path, main):
    """Run a test's coroutine with a cluster."""
    ran.clear()
    ran["follow up"] = 1
    told.clear()

    async def started():
        async with LocalCluster(tmp_path) as cluster:
            return await main(cluster)

    return run(started)


# The events


def test_the_events_of_a_turn_are_numbered_from_one_and_in_the_legal_order(tmp_path):
    # turns P10, protocol section 2
    async def main(cluster):
        async with cluster.get(Adder, "a").chat("sum") as events:
            return [(event.number, event.chunk["type"]) async for event in events]

    assert play(tmp_path, main) == [
        (1, "start"),
        (2, "start-step"),
        (3, "text-start"),
        (4, "text-delta"),
        (5, "text-end"),
        (6, "tool-input-start"),
        (7, "tool-input-delta"),
        (8, "tool-input-available"),
        (9, "tool-output-available"),
        (10, "finish-step"),
        (11, "start-step"),
        (12, "text-start"),
        (13, "text-delta"),
        (14, "text-end"),
        (15, "finish-step"),
        (16, "finish"),
    ]


def test_an_event_is_the_json_that_was_journalled_and_the_same_decoded(tmp_path):
    # protocol K7
    async def main(cluster):
        async with cluster.get(Adder, "a").chat("hi") as events:
            return [(event.json, event.chunk) async for event in events]

    assert (
        '{"type":"text-delta","id":"0","delta":"Hello."}',
        {"type": "text-delta", "id": "0", "delta": "Hello."},
    ) in (play(tmp_path, main))


def test_the_start_event_names_the_message_that_is_stored(tmp_path):
    # protocol K6, turns C1
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("hi") as events:
            chunks = [event.chunk async for event in events]
        return chunks[0]["messageId"], events.message_id, (await agent.get_messages())[-1].id

    named, ended, stored = play(tmp_path, main)
    assert named == ended == stored


def test_a_number_is_seen_once_by_each_of_two_readers(tmp_path):
    # turns P10
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as first:
            await anext(first)
            async with agent.attach(first.request_id) as second:
                late = [event.number async for event in second]
            return [event.number async for event in first], late

    first, second = play(tmp_path, main)
    assert first == list(range(2, len(first) + 2))
    assert second == list(range(1, len(first) + 2))


def test_a_reader_who_dawdles_holds_nothing_up(tmp_path):
    # design, Streams: the turn never waits for a reader
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            await anext(events)
            await cluster.advance(60)
            stored = (await agent.get_messages())[-1].text
            return stored, [event.number async for event in events]

    stored, numbers = play(tmp_path, main)
    assert stored == "abcdefgh"
    assert numbers == list(range(2, 15))


# Awaited


def test_an_awaited_chat_returns_the_message_that_is_stored(tmp_path):
    # turns P10, C2
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        reply = await agent.chat("hi")
        return reply, await agent.get_messages()

    reply, messages = play(tmp_path, main)
    assert reply.text == "Hello."
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[-1] == reply


def test_a_message_may_be_text_an_object_or_several(tmp_path):
    # turns P5
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        await agent.chat("")
        await agent.chat(UIMessage("m1", "user", [{"type": "text", "text": "one"}]))
        await agent.chat([{"id": "m2", "parts": [{"type": "text", "text": "two"}]}, "three"])
        return [message for message in await agent.get_messages() if message.role == "user"]

    messages = play(tmp_path, main)
    assert [message.text for message in messages] == ["", "one", "two", "three"]
    assert [message.id for message in messages][1:3] == ["m1", "m2"]


def test_channel_and_metadata_are_stamped_on_the_user_message(tmp_path):
    # turns P5
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        await agent.chat("hi", channel="mail", metadata={"by": "me"})
        return (await agent.get_messages())[0].metadata

    assert play(tmp_path, main) == {"channel": "mail", "turnMetadata": {"by": "me"}}


def test_a_setup_error_reaches_the_caller(tmp_path):
    # turns P3
    async def main(cluster):
        with pytest.raises(TurnFailed, match="ValueError: no prompt today"):
            await cluster.get(Broken, "a").chat("hi")

    play(tmp_path, main)


def test_tools_given_to_chat_are_ignored_with_a_warning(tmp_path):
    # turns T2
    async def main(cluster):
        with pytest.warns(UserWarning, match="tools belong to the agent"):
            stream = cluster.get(Adder, "a").chat("hi", tools={"x": 1})
        return (await stream).text

    assert play(tmp_path, main) == "Hello."


def test_an_agent_may_chat_with_itself_outside_of_a_turn(tmp_path):
    async def main(cluster):
        return await cluster.get(Adder, "a").say("hi")

    assert play(tmp_path, main) == "Hello."


# Callback


def test_a_callback_gets_start_events_and_done_in_that_order(tmp_path):
    # turns P5
    async def main(cluster):
        callback = Callback()
        assert await cluster.get(Adder, "a").chat("hi", callback) is None
        return callback.calls

    calls = play(tmp_path, main)
    assert [call[0] for call in calls] == ["start", *["event"] * 7, "done"]
    assert calls[1][1].startswith('{"type":"start"')


def test_a_callback_gets_the_error_and_nothing_is_raised(tmp_path):
    # turns P5
    async def main(cluster):
        callback = Callback()
        await cluster.get(Broken, "a").chat("hi", callback)
        return callback.calls

    assert play(tmp_path, main)[-1] == ("error", "ValueError: no prompt today")


def test_a_callback_without_on_error_lets_the_error_through(tmp_path):
    # turns P5
    async def main(cluster):
        with pytest.raises(TurnFailed):
            await cluster.get(Broken, "a").chat("hi", object())

    play(tmp_path, main)


def test_a_callback_that_raises_cancels_the_turn(tmp_path):
    class Picky:
        def on_event(self, json):
            if '"c"' in json:
                raise ValueError("enough")

    async def main(cluster):
        agent = cluster.get(Adder, "a")
        with pytest.raises(ValueError, match="enough"):
            await agent.chat("slow", Picky())
        await cluster.advance(60)
        return (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == "abc"


def test_a_block_takes_no_callback(tmp_path):
    async def main(cluster):
        with pytest.raises(UsageError, match="is awaited"):
            async with cluster.get(Adder, "a").chat("hi", Callback()):
                pass

    play(tmp_path, main)


# Leaving, cancelling


def test_leaving_the_block_early_cancels_the_turn_and_keeps_the_partial(tmp_path):
    # turns P10, C5
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            async for event in events:
                if event.chunk.get("delta") == "c":
                    break
        await cluster.advance(60)
        return (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == "abc"


def test_a_detached_turn_runs_on_when_the_block_is_left(tmp_path):
    # turns P10
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            events.detach()
        await cluster.advance(60)
        return (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == "abcdefgh"


def test_a_block_that_is_left_unread_has_started_and_cancelled_its_turn(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow"):
            pass
        await cluster.advance(60)
        return (await agent.get_messages())[0].text

    assert play(tmp_path, main) == "slow"
    assert told == [("aborted", "", None)]


def test_cancelling_by_id_ends_the_stream_as_aborted(tmp_path):
    # turns X1, C5
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            async for event in events:
                if event.chunk.get("delta") == "b":
                    await agent.cancel_chat(events.request_id, "enough")
        return events.outcome, (await agent.get_messages())[-1].text

    outcome, text = play(tmp_path, main)
    assert outcome == "aborted"
    assert text in ("ab", "abc")


def test_a_cancelled_awaited_chat_raises_with_the_reason(tmp_path):
    # turns P10
    async def main(cluster):
        signal = Signal()
        asyncio.get_running_loop().call_later(2.5, signal.cancel, "no time")
        with pytest.raises(TurnAborted) as aborted:
            await cluster.get(Adder, "a").chat("slow", signal=signal)
        return aborted.value.reason, cluster.clock.passed

    reason, passed = play(tmp_path, main)
    assert reason == "no time"
    assert passed < 3


def test_a_signal_that_fired_before_stores_the_message_and_calls_no_model(tmp_path):
    # turns P3
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        signal = Signal()
        signal.cancel("too late")
        with pytest.raises(TurnAborted):
            await agent.chat("hi", signal=signal)
        return [message.text for message in await agent.get_messages()]

    assert play(tmp_path, main) == ["hi"]
    assert ran["model"] == 0


def test_a_model_that_says_nothing_is_cancelled_too(tmp_path):
    # FR-08
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("wait") as events:
            await anext(events)
            await agent.abort_all_requests()
            return [event async for event in events], events.outcome

    assert play(tmp_path, main) == ([], "aborted")


def test_a_cancelled_turn_in_the_queue_never_runs_and_stores_nothing(tmp_path):
    # turns P8
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as first:
            await anext(first)
            async with agent.chat("hi") as second:
                await cluster.advance(0.1)
                await agent.cancel_chat(second.request_id)
                assert [event async for event in second] == []
            assert second.outcome == "aborted"
            async for _ in first:
                pass
        return [message.text for message in await agent.get_messages()]

    assert play(tmp_path, main) == ["slow", "abcdefgh"]


def test_cancelling_what_is_not_known_or_over_is_no_error(tmp_path):
    # turns X1, P3
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("hi") as events:
            async for _ in events:
                pass
        await agent.cancel_chat(events.request_id)
        await agent.abort_request("never heard of")
        return events.outcome, (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == ("done", "Hello.")


def test_a_caller_that_stops_waiting_cancels_the_turn(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.chat("slow"), 3.5)
        await cluster.advance(60)
        return (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == "abc"


def test_a_caller_that_dies_cancels_nothing(tmp_path):
    # turns P10; FR-05: repeat killing the parent
    async def main(cluster):
        parent = cluster.get(Parent, "p")
        work = asyncio.ensure_future(parent.delegate("slow"))
        await cluster.advance(3)
        cluster.kill(parent)
        await asyncio.wait({work})
        work.exception()
        await cluster.advance(60)
        return (await cluster.get(Adder, "child").get_messages())[-1].text

    assert play(tmp_path, main) == "abcdefgh"


def test_a_parent_sees_every_event_of_a_child_that_is_killed(tmp_path):
    # FR-05
    async def main(cluster):
        work = asyncio.ensure_future(cluster.get(Parent, "p").delegate("slow"))
        await cluster.advance(4)
        cluster.kill(cluster.get(Adder, "child"))
        return await work

    numbers = play(tmp_path, main)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 14


# Attaching


def test_attaching_gives_the_events_behind_a_number_also_after_the_end(tmp_path):
    # turns P10
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("hi") as events:
            seen = [event.json async for event in events]
        cluster.kill(agent)
        async with agent.attach(events.request_id, after=3) as later:
            return seen, [event.json async for event in later], later.outcome

    seen, later, outcome = play(tmp_path, main)
    assert later == seen[3:]
    assert outcome == "done"


def test_attaching_to_an_unknown_turn_raises(tmp_path):
    async def main(cluster):
        async with cluster.get(Adder, "a").attach("nothing") as events:
            with pytest.raises(UnknownTurn):
                await anext(events)

    play(tmp_path, main)


def test_leaving_an_attached_stream_cancels_nothing(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            await anext(events)
            events.detach()
        async with agent.attach(events.request_id) as later:
            await anext(later)
        await cluster.advance(60)
        return (await agent.get_messages())[-1].text

    assert play(tmp_path, main) == "abcdefgh"


def test_the_same_key_names_the_same_turn(tmp_path):
    # design, Calls: for chat the key names the turn
    async def main(cluster):
        agent = cluster.get(Adder, "a").with_options(idempotency_key="k1")
        first = await agent.chat("hi")
        cluster.kill(agent)
        second = await agent.chat("hi")
        return first, second, len(await agent.get_messages())

    first, second, count = play(tmp_path, main)
    assert first == second
    assert count == 2
    assert ran["model"] == 1


def test_two_callers_with_one_key_follow_one_turn(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a").with_options(idempotency_key="k1")
        return await asyncio.gather(agent.chat("slow"), agent.chat("slow"))

    one, other = play(tmp_path, main)
    assert one == other
    assert ran["model"] == 1


# Inside of a turn, and behind it


def test_chatting_with_itself_inside_of_a_turn_fails_at_once(tmp_path):
    # turns Q3
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        await agent.chat("self")
        return [part for part in (await agent.get_messages())[-1].parts if part["type"] == "tool-ask_self"]

    (part,) = play(tmp_path, main)
    assert part["state"] == "output-error"
    assert "cannot be called from inside an active turn" in part["errorText"]


def test_a_stub_of_itself_is_refused_inside_of_a_turn_too(tmp_path, monkeypatch):
    # turns Q3
    async def through_stub(self):
        return (await self.ctx.stub(Adder, self.ctx.id).chat("hi")).text

    monkeypatch.setattr(Adder, "ask_self", tool(through_stub))
    monkeypatch.setattr(Adder.ask_self, "__perdure_tool__", tool(name="ask_self")(through_stub).__perdure_tool__)

    async def main(cluster):
        agent = cluster.get(Adder, "a")
        await agent.chat("self")
        return [part for part in (await agent.get_messages())[-1].parts if part["type"] == "tool-ask_self"]

    (part,) = play(tmp_path, main)
    assert "cannot be called from inside an active turn" in part["errorText"]


def test_a_turn_is_not_allowed_names_the_agent():
    error = TurnNotAllowed("chat() of Adder/a cannot be called from inside an active turn")
    assert isinstance(error, UsageError)


def test_the_response_hook_runs_behind_the_turn_and_may_chat(tmp_path):
    # turns H9: the inner turn's hook runs after the outer returned
    async def main(cluster):
        ran["follow up"] = 0
        agent = cluster.get(Adder, "a")
        await agent.chat("hi")
        await cluster.advance(10)
        return [message.text for message in await agent.get_messages()]

    assert play(tmp_path, main) == ["hi", "Hello.", "sum", "Let me see. It is three."]
    assert told == [
        ("completed", "Hello.", None),
        "inner done",
        ("completed", "Let me see. It is three.", None),
    ]


def test_the_response_hook_is_told_of_aborted_turns_and_not_of_setup_failures(tmp_path):
    # turns H9
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("slow") as events:
            async for event in events:
                if event.chunk.get("delta") == "b":
                    break
        with pytest.raises(TurnFailed):
            await cluster.get(Broken, "b").chat("hi")
        await cluster.advance(10)

    play(tmp_path, main)
    assert told == [("aborted", "ab", None)]


def test_turns_of_one_agent_run_one_at_a_time_in_order(tmp_path):
    # turns Q1
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        first = asyncio.ensure_future(agent.say("slow"))
        await cluster.advance(0.5)
        second = await agent.chat("hi")
        return await first, second.text, [message.text for message in await agent.get_messages()]

    assert play(tmp_path, main) == ("abcdefgh", "Hello.", ["slow", "abcdefgh", "hi", "Hello."])
