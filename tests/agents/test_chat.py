"""A turn as its caller sees it: events, message, callback (turns P3, P5, P10)."""

from __future__ import annotations

import pytest

from agents.errors import TurnFailed
from agents.sessions.messages import UIMessage
from runtime.errors import Unavailable, UsageError
from tests.agents.chatting import Adder, Broken, Callback, play

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


def test_the_text_of_a_stream_is_that_of_its_own_turn(tmp_path):
    # turns P10: what is newest in the history may be another caller's
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        async with agent.chat("sum") as events:
            async for _ in events:
                pass
        shown = events.text
        await agent.chat("hi")
        return shown, [message.text for message in await agent.get_messages() if message.role == "assistant"]

    shown, (first, *_) = play(tmp_path, main)
    assert shown == first == "Let me see. It is three."


def test_a_chat_that_is_neither_awaited_nor_entered_is_warned_of(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        with pytest.warns(RuntimeWarning, match=r"nothing came of it: write `await agent\.chat"):
            agent.chat("hi")
        return await agent.get_messages()

    assert play(tmp_path, main) == []


def test_a_timeout_ends_the_wait_for_a_turn_and_not_the_turn(tmp_path):
    async def main(cluster):
        agent = cluster.get(Adder, "a")
        with pytest.raises(Unavailable, match=r"has not ended within 0\.01 s"):
            await agent.with_options(timeout=0.01).chat("slow")
        await cluster.advance(60)
        return [message.role for message in await agent.get_messages()]

    assert play(tmp_path, main) == ["user", "assistant"]
