"""Turns under random deaths, lost and doubled messages: each is answered once (turns P10, FR-02, FR-05).

A seed fixes everything; a failure names it. ``TURN_SEEDS`` sets how many are run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest

from agents.core.repair import INTERRUPTED_TEXT
from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
from runtime.testing import LocalCluster, run

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("TURN_SEEDS", "8"))
TURNS = 3
ANSWER = "The answer is long enough to be cut in many places."

# How often each call of each agent ran: one counter for all processes.
ran: Counter[str] = Counter()


class Clerk(Think):
    def get_model(self):
        steps = [
            Scripted.text("First ", chunk_size=3) + Scripted.call("note", {"text": "one"}),
            Scripted.text("then ", chunk_size=3) + Scripted.call("note", {"text": "two"}),
            Scripted.text(ANSWER, chunk_size=3),
        ]
        return Scripted(steps, chunk_delay=0.02)

    @tool
    async def note(self, text: str) -> str:
        """Write a line into the book, slowly."""
        ran[f"{self.name} {text}"] += 1
        await asyncio.sleep(0.05)
        return f"noted {text}"


async def disturb(cluster: LocalCluster, agent: Clerk, chance: random.Random) -> None:
    """Kill, lose and double, now and then, for as long as the test runs."""
    while True:
        await asyncio.sleep(chance.uniform(0.03, 0.3))
        match chance.randrange(5):
            case 0:
                cluster.lose(agent, part=chance.choice(["call", "reply"]))
            case 1:
                cluster.double(agent)
            case _:
                cluster.crash_at(chance.randint(1, 12))


async def asked(agent: Clerk, text: str) -> tuple[list[int], str, str | None]:
    numbers, shown = [], ""
    async with agent.chat(text) as events:
        async for event in events:
            numbers.append(event.number)
            shown += event.chunk["delta"] if event.chunk["type"] == "text-delta" else ""
    return numbers, shown, events.outcome


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_turn_is_one_gapless_stream_and_one_message_whatever_dies(tmp_path, seed):
    ran.clear()
    chance = random.Random(seed)

    async def main():
        async with LocalCluster(tmp_path, seed=seed, delay=0.003) as cluster:
            agent = cluster.get(Clerk, "c")
            storm = asyncio.ensure_future(disturb(cluster, agent, chance))
            turns = await asyncio.gather(*(asked(agent, f"question {n}") for n in range(TURNS)))
            storm.cancel()
            return turns, await agent.get_messages(), await agent.open_turns()

    turns, messages, left = run(main)
    assert left == []
    for numbers, _, outcome in turns:
        assert outcome == "done"
        assert numbers == list(range(1, len(numbers) + 1))
    answers = [message for message in messages if message.role == "assistant"]
    assert len(answers) == TURNS
    assert sorted(message.text for message in messages if message.role == "user") == [
        "question 0",
        "question 1",
        "question 2",
    ]
    # A call that was interrupted is not run again, so the script goes on behind it: its text is shown and stored once.
    for answer in answers:
        assert answer.text.endswith(ANSWER)
        assert answer.text.count("First ") == answer.text.count("then ") == 1
    assert sorted(shown for _, shown, _ in turns) == sorted(answer.text for answer in answers)
    # Each call has one outcome, and a recorded result means that the tool ran.
    parts = [part for answer in answers for part in answer.parts if part["type"] == "tool-note"]
    assert {part["state"] for part in parts} <= {"output-available", "output-error"}
    assert all(part["errorText"] == INTERRUPTED_TEXT for part in parts if part["state"] == "output-error")
    done = Counter(part["output"] for part in parts if part["state"] == "output-available")
    assert ran["c one"] >= done["noted one"]
    assert ran["c one"] <= TURNS
    assert ran["c two"] <= TURNS
