"""How a chat ends early, goes on elsewhere, and what may chat when (turns Q1, Q3, H9, P10, X1)."""

from __future__ import annotations

import asyncio

import pytest

from agents.errors import TurnAborted, TurnFailed, TurnNotAllowed, UnknownTurn
from agents.tools import tool
from runtime import CancelToken
from runtime.errors import UsageError
from tests.agents.chatting import Adder, Broken, Parent, play, ran, told

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
        signal = CancelToken()
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
        signal = CancelToken()
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
