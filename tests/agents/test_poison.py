"""What a chat is given that it cannot take: an error for that turn, never the end of the chat (FR-01, turns X1, L3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agents.core.turn import INTERRUPTED_STEPS_MAX
from agents.errors import TurnAborted, TurnFailed
from agents.models import Scripted
from agents.think import REQUEST_BYTES_MAX, Think
from agents.tools import tool
from agents.tools.execution import OUTPUT_BYTES_MAX
from runtime.errors import UsageError
from runtime.testing import LocalCluster, run

calls: list[str] = []
where: list[LocalCluster] = []


class Bot(Think):
    def get_model(self):
        calls.append("model")
        slow = Scripted.text("abcdefgh", chunk_size=1, delay=1.0)
        large = [Scripted.call("large", {"size": OUTPUT_BYTES_MAX}), "Too large."]
        return Scripted({"slow": slow, "large": large, "hang": Scripted.hang(), "": "Hello."})

    @tool
    async def large(self, size: int) -> str:
        """Return much."""
        return "x" * size


class Doomed(Think):
    max_steps = 3

    def get_model(self):
        return Scripted([Scripted.call("boom") for _ in range(1000)])

    @tool
    async def boom(self) -> str:
        """End the process."""
        calls.append("boom")
        where[0].kill(where[0].get(Doomed, "d"))
        return "never"


def play(tmp_path: Any, main: Any) -> Any:
    async def whole() -> Any:
        async with LocalCluster(tmp_path) as cluster:
            where[:] = [cluster]
            return await main(cluster)

    calls.clear()
    return run(whole)


TOOL_PART = {"type": "tool-x", "toolCallId": "c", "input": {}, "output": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "parts": [{**TOOL_PART, "state": []}]},
        {"role": "user", "parts": [{"type": "text", "text": "hi", "state": {}}]},
        {"role": "user", "parts": [{"type": "text", "text": 5}]},
        {"role": "assistant", "parts": [{**TOOL_PART, "state": "approval-responded", "approval": "yes"}]},
    ],
)
def test_a_message_of_a_wrong_shape_fails_its_turn_and_the_next_one_works(tmp_path, message):
    # FR-01
    async def main(cluster):
        bot = cluster.get(Bot, "b")
        with pytest.raises((TurnFailed, UsageError)):
            await bot.chat(message)
        first = (await bot.chat("again")).text
        cluster.kill(bot)
        return first, (await bot.chat("again")).text

    assert play(tmp_path, main) == ("Hello.", "Hello.")


def test_messages_over_the_limit_are_refused_by_their_size_and_the_next_turn_works(tmp_path):
    # FR-01
    async def main(cluster):
        bot = cluster.get(Bot, "b")
        with pytest.raises(UsageError, match=r"may have 4,000,000 bytes, these have 4,000,\d+: put what is large"):
            await bot.chat("x" * REQUEST_BYTES_MAX)
        return (await bot.chat("again")).text, len(await bot.get_messages())

    assert play(tmp_path, main) == ("Hello.", 2)


def test_an_output_over_the_limit_is_an_error_that_the_model_reads(tmp_path):
    # FR-01
    async def main(cluster):
        message = await cluster.get(Bot, "b").chat("large")
        return [part.get("errorText", "")[:70] for part in message.parts if part["type"] == "tool-large"], message.text

    errors, text = play(tmp_path, main)
    assert errors == ["tool large returned a value of type str, which is 1,000,002 bytes, ove"]
    assert text == "Too large."


@pytest.mark.parametrize("reason", [5, b"x", ["x"], None])
def test_a_reason_that_is_no_text_is_refused_and_nothing_is_stored(tmp_path, reason):
    # turns X1
    async def main(cluster):
        bot: Any = cluster.get(Bot, "b")
        async with bot.chat("slow") as events:
            await anext(events)
            with pytest.raises(UsageError, match="the reason of an abort must be text"):
                await bot.cancel_chat(events.request_id, reason)
            events.detach()
        cluster.kill(bot)
        return (await bot.chat("again")).text

    assert play(tmp_path, main) == "Hello."


@pytest.mark.parametrize(("request_", "request_id"), [(5, "r"), ([1], "r"), (b"{}", 5), (b"{}", ""), (b"{}", None)])
def test_a_turn_that_is_asked_for_in_a_wrong_type_is_refused_and_nothing_is_stored(tmp_path, request_, request_id):
    async def main(cluster):
        bot: Any = cluster.get(Bot, "b")
        with pytest.raises(UsageError, match="of a turn must be"):
            await bot.begin_turn(request_, request_id)
        cluster.kill(bot)
        return (await bot.chat("again")).text, await bot.open_turns()

    assert play(tmp_path, main) == ("Hello.", [])


def test_a_turn_without_a_message_that_is_cancelled_is_aborted_for_who_awaits_it(tmp_path):
    # turns P10
    async def main(cluster):
        bot = cluster.get(Bot, "b")
        stream = bot.chat("hang")

        async def awaited():
            return await stream

        waiting = asyncio.ensure_future(awaited())
        await asyncio.sleep(1)
        await bot.cancel_chat(stream.request_id, "stop")
        with pytest.raises(TurnAborted, match="stop"):
            await waiting

    play(tmp_path, main)


def test_a_tool_that_ends_its_process_each_time_does_not_buy_steps_without_end(tmp_path):
    # turns L3, FR-02
    async def main(cluster):
        agent = cluster.get(Doomed, "d")
        turn = asyncio.ensure_future(_ended(agent))
        await cluster.advance(1_000)
        return turn.done(), await agent.open_turns()

    assert play(tmp_path, main) == (True, [])
    assert calls.count("boom") == INTERRUPTED_STEPS_MAX + 3


async def _ended(agent: Any) -> None:
    try:
        await agent.chat("go")
    except TurnFailed:
        return
