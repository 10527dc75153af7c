"""A turn as its caller sees it: events, outcome, message (turns P5, P10)."""

from __future__ import annotations

from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
from runtime.testing import LocalCluster, run


class Adder(Think):
    def get_model(self):
        steps = [Scripted.text("Let me see. ") + Scripted.call("add", {"a": 1, "b": 2}, call_id="c1"), "It is three."]
        return Scripted({"sum": steps, "": "Hello."})

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


def test_the_events_of_a_turn_are_numbered_from_one_and_in_the_legal_order(tmp_path):
    # turns P10, protocol section 2
    async def main():
        async with LocalCluster(tmp_path) as cluster:
            seen = []
            async with cluster.get(Adder, "a").chat("sum") as events:
                async for event in events:
                    seen.append((event.number, event.chunk["type"]))
            return seen, events.outcome

    seen, outcome = run(main)
    assert seen == [
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
    assert outcome == "done"


def test_an_awaited_chat_returns_the_message_that_is_stored(tmp_path):
    # turns P10, C2
    async def main():
        async with LocalCluster(tmp_path) as cluster:
            agent = cluster.get(Adder, "a")
            reply = await agent.chat("hi")
            return reply, await agent.get_messages()

    reply, messages = run(main)
    assert reply.text == "Hello."
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[-1] == reply
