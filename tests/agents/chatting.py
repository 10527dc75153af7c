"""The agents of the chat tests, and how a test runs them."""

from __future__ import annotations

from collections import Counter

from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
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


def play(tmp_path, main):
    """Run a test's coroutine with a cluster."""
    ran.clear()
    ran["follow up"] = 1
    told.clear()

    async def started():
        async with LocalCluster(tmp_path) as cluster:
            return await main(cluster)

    return run(started)
