"""Turns whose process dies: what the caller sees, what is stored, what runs again (recovery sections 3 to 6)."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from agents.core.prompt import NUDGE_TEXT
from agents.core.repair import INTERRUPTED_TEXT
from agents.errors import TurnFailed
from agents.models import Scripted
from agents.submissions import Submission
from agents.think import Think
from agents.tools import tool
from runtime.testing import LocalCluster, run

pytestmark = pytest.mark.slow

# What happened in the agents' processes, which are all this one; each test has its own directory and clears this.
ran: Counter[str] = Counter()
models: dict[str, Scripted] = {}
clusters: list[LocalCluster] = []


class Worker(Think):
    max_steps = 25

    def get_model(self):
        return models["Worker"]

    @tool
    async def work(self, step: int) -> str:
        """Do one step."""
        ran[f"work {step}"] += 1
        return f"done {step}"

    @tool
    async def die(self) -> str:
        """Never return."""
        ran["die"] += 1
        clusters[-1].kill(self.ctx.id)
        return "alive"

    async def rows(self) -> list[Submission]:
        rows = self.ctx.store.execute("SELECT body FROM cf_ai_chat_submissions").rows
        return [msgspec.msgpack.decode(bytes(body), type=Submission) for (body,) in rows]  # type: ignore[arg-type]


class Fragile(Worker):
    """Dies at the same first instruction each time it is asked for a model."""

    def get_model(self):
        ran["get_model"] += 1
        if ran["get_model"] <= ran["deaths"]:
            clusters[-1].kill(self.ctx.id)
        return models["Worker"]


class Hooked(Worker):
    async def on_chat_response(self, response) -> None:
        ran[f"response {response.status}"] += 1


class Unrecovered(Worker):
    chat_recovery = False


def play(tmp_path, model, main):
    """Run a test's coroutine with a cluster and a model."""
    ran.clear()
    models["Worker"] = model

    async def started():
        async with LocalCluster(tmp_path) as cluster:
            clusters[:] = [cluster]
            return await main(cluster)

    return run(started)


async def read(stream):
    """All events of a chat, as (numbers, text)."""
    numbers, text = [], ""
    async with stream as events:
        async for event in events:
            numbers.append(event.number)
            text += event.chunk.get("delta", "") if event.chunk["type"] == "text-delta" else ""
    return numbers, text, events.outcome


def told(messages):
    """A transcript without ids, times and part boundaries."""
    told = []
    for message in messages:
        for part in message.parts:
            if part["type"] == "text" and told and told[-1][0] == message.role and isinstance(told[-1][1], str):
                told[-1] = (message.role, told[-1][1] + part["text"])
            elif part["type"] == "text":
                told.append((message.role, part["text"]))
            elif part["type"] != "step-start":
                told.append((part["type"], [part["state"], part["input"], part.get("output")]))
    return told


TWO_STEPS = [
    Scripted.text("One moment. ", chunk_size=4) + Scripted.call("work", {"step": 1}),
    Scripted.text("It is done.", chunk_size=4),
]


def test_a_turn_killed_after_any_effect_is_one_gapless_stream_and_one_message(tmp_path):
    # recovery T4, T5, T7, P1; turns P10; FR-05
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        numbers, text, outcome = await read(agent.chat("go"))
        return numbers, text, outcome, await agent.get_messages(), len(cluster.effects)

    *_, effects = play(tmp_path / "calm", Scripted(TWO_STEPS), main)
    assert effects > 30
    for at in range(1, effects + 1):

        async def crashing(cluster, at=at):
            cluster.crash_at(at)
            return await main(cluster)

        numbers, text, outcome, messages, _ = play(tmp_path / str(at), Scripted(TWO_STEPS), crashing)
        assert numbers == list(range(1, len(numbers) + 1)), f"killed after effect {at}"
        assert (text, outcome) == ("One moment. It is done.", "done"), f"killed after effect {at}"
        assert [message.role for message in messages] == ["user", "assistant"], f"killed after effect {at}"
        assert messages[1].text == "One moment. It is done.", f"killed after effect {at}"
        assert ran["work 1"] <= 1, f"killed after effect {at}"


def test_the_hook_of_a_turn_is_called_once_wherever_its_agent_dies(tmp_path):
    # FR-05: whatever makes a turn terminal, and in whichever moment the process then ends
    async def main(cluster, at):
        if at:
            cluster.crash_at(at)
        async with cluster.get(Hooked, "a").chat("go") as events:
            await anext(events)
            events.detach()
        await cluster.advance(60)
        return len(cluster.effects)

    model = Scripted("Hello.")
    effects = play(tmp_path / "calm", model, lambda cluster: main(cluster, 0))
    for at in range(1, effects + 1):
        play(tmp_path / str(at), model, lambda cluster, at=at: main(cluster, at))
        assert ran == {"response completed": 1}, f"killed after effect {at} of {effects}"


def test_a_turn_killed_in_each_of_its_steps_completes_and_runs_no_tool_twice(tmp_path):
    # FR-02: attempts count only in a row without progress; recovery X2
    steps = [Scripted.text(f"{n}. ") + Scripted.call("work", {"step": n}) for n in range(24)]

    async def main(cluster):
        agent = cluster.get(Worker, "a")
        kills = 0
        async with agent.chat("go") as events:
            async for event in events:
                if event.chunk["type"] == "tool-output-available" or event.chunk.get("delta") == "End":
                    kills += cluster.kill(agent)
        return kills, events.outcome, await agent.get_messages(), await agent.rows()

    model = Scripted([*steps, Scripted.text("End.", chunk_size=3)], chunk_delay=0.5)
    kills, outcome, messages, rows = play(tmp_path, model, main)
    assert kills == 25
    assert outcome == "done"
    assert ran == {f"work {n}": 1 for n in range(24)}
    assert messages[-1].text == "".join(f"{n}. " for n in range(24)) + "End."
    assert rows[0].attempts.count <= 1


def test_a_turn_killed_at_its_first_instruction_is_sealed_after_ten_tries_and_the_next_one_works(tmp_path):
    # FR-02, the opposite; recovery R4.6
    async def main(cluster):
        ran["deaths"] = 11
        agent = cluster.get(Fragile, "a")
        with pytest.raises(TurnFailed, match="10 times in a row without any progress") as failed:
            await agent.chat("go")
        deaths = ran["get_model"]
        return deaths, str(failed.value), (await agent.rows())[0], await agent.chat("again")

    deaths, text, row, reply = play(tmp_path, Scripted("Hello."), main)
    assert deaths == 11
    assert (row.status, row.error) == ("error", text)
    assert "max_attempts_exceeded" in text
    assert reply.text == "Hello."


def test_a_continuation_goes_on_in_the_message_and_its_nudge_is_nowhere(tmp_path):
    # FR-03; recovery P1, X3; turns A9
    model = Scripted(Scripted.text("abcdefghijkl", chunk_size=2), chunk_delay=0.5)

    async def main(cluster):
        agent = cluster.get(Worker, "a")
        seen = []
        async with agent.chat("go") as events:
            async for event in events:
                seen.append(event.json)
                if event.chunk.get("delta") == "ef":
                    cluster.kill(agent)
        return seen, await agent.get_messages()

    seen, messages = play(tmp_path, model, main)
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[1].text == "abcdefghijkl"
    assert model.requests[-1].messages[-1].blocks[0].text == NUDGE_TEXT
    assert NUDGE_TEXT not in "".join(seen)
    assert all(NUDGE_TEXT not in message.text for message in messages)
    assert len(model.requests) == 2


def test_a_continuation_killed_after_any_of_its_writes_is_one_whole_message(tmp_path):
    # recovery W5, P1: the message is in storage already, but only as the run before has left it
    async def main(cluster, crash_at):
        agent = cluster.get(Worker, "a")
        async with agent.chat("go") as events:
            async for event in events:
                if event.chunk.get("delta") == "cd":
                    cluster.kill(agent)
                    first = len(cluster.effects)
                    if crash_at:
                        cluster.crash_at(crash_at)
        writes = [e.number - first for e in cluster.effects[first:] if e.source == "Worker/a" and e.kind == "append"]
        return writes, await agent.get_messages()

    model = Scripted(Scripted.text("abcdefgh", chunk_size=2), chunk_delay=0.5)
    writes, _ = play(tmp_path / "calm", model, lambda cluster: main(cluster, 0))
    assert len(writes) > 4
    for at in writes:
        _, messages = play(tmp_path / str(at), model, lambda cluster, at=at: main(cluster, at))
        assert told(messages) == [("user", "go"), ("assistant", "abcdefgh")], f"killed again after effect {at}"


def test_a_tool_that_was_running_is_not_run_again_and_reads_as_interrupted(tmp_path):
    # recovery X1, X2
    steps = [Scripted.call("work", {"step": 1}), Scripted.call("die"), "Over."]

    async def main(cluster):
        agent = cluster.get(Worker, "a")
        await read(agent.chat("go"))
        return (await agent.get_messages())[-1]

    message = play(tmp_path, Scripted(steps), main)
    calls = {part["toolName"]: part for part in message.parts if part["type"].startswith("tool-")}
    assert ran == {"work 1": 1, "die": 1}
    assert calls["work"]["output"] == "done 1"
    assert calls["die"]["errorText"] == INTERRUPTED_TEXT
    assert message.text == "Over."


def test_the_stream_of_a_recovered_turn_shows_the_outcome_of_the_interrupted_tool(tmp_path):
    # recovery X1: what is repaired is shown
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        async with agent.chat("go") as events:
            return [event.chunk async for event in events if "tool-output" in event.chunk["type"]]

    chunks = play(tmp_path, Scripted([Scripted.call("die", call_id="c"), "Over."]), main)
    assert chunks == [{"type": "tool-output-error", "toolCallId": "c", "errorText": INTERRUPTED_TEXT}]


def test_nobody_has_to_call_for_an_interrupted_turn_to_go_on(tmp_path):
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        async with agent.chat("go") as events:
            await anext(events)
            events.detach()
        cluster.kill(agent)
        await cluster.advance(60)
        alive = cluster.is_alive(agent)
        return alive, await agent.get_messages()

    _, messages = play(tmp_path, Scripted(Scripted.text("abcdef", chunk_size=1), chunk_delay=1.0), main)
    assert told(messages) == [("user", "go"), ("assistant", "abcdef")]


def test_queued_turns_run_in_order_after_a_death(tmp_path):
    # recovery T2
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        for text in ("one", "two", "three"):
            async with agent.chat(text) as events:
                await cluster.advance(0.01)
                events.detach()
        cluster.kill(agent)
        await cluster.advance(60)
        return await agent.get_messages()

    messages = play(tmp_path, Scripted("Hello.", chunk_delay=1.0), main)
    assert told(messages) == [
        ("user", "one"),
        ("assistant", "Hello."),
        ("user", "two"),
        ("assistant", "Hello."),
        ("user", "three"),
        ("assistant", "Hello."),
    ]


def test_without_recovery_an_interrupted_turn_ends_as_interrupted_and_keeps_its_partial(tmp_path):
    # recovery D1; FR-05
    async def main(cluster):
        agent = cluster.get(Unrecovered, "a")
        async with agent.chat("go") as events:
            async for event in events:
                if event.chunk.get("delta") == "c":
                    cluster.kill(agent)
        first = events.outcome
        await cluster.advance(60)
        return first, await agent.get_messages(), len(models["Worker"].requests)

    outcome, messages, requests = play(tmp_path, Scripted(Scripted.text("abcdef", chunk_size=1), chunk_delay=1.0), main)
    assert outcome == "interrupted"
    assert told(messages) == [("user", "go"), ("assistant", "abc")]
    assert requests == 1


def test_a_caller_that_does_not_reattach_gets_interrupted_and_the_rest_by_attaching(tmp_path):
    # FR-05: attaching again gives the rest without repeats
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        numbers, outcome = [], None
        async with agent.chat("go", reattach=False) as events:
            async for event in events:
                numbers.append(event.number)
                if event.chunk.get("delta") == "c":
                    cluster.kill(agent)
        outcome = events.outcome
        rest, text, last = await read(agent.attach(events.request_id, after=numbers[-1]))
        return numbers + rest, outcome, last, text

    model = Scripted(Scripted.text("abcdef", chunk_size=1), chunk_delay=1.0)
    numbers, outcome, last, text = play(tmp_path, model, main)
    assert numbers == list(range(1, len(numbers) + 1))
    assert (outcome, last, text) == ("interrupted", "done", "def")


def test_a_cancelled_turn_is_not_revived_by_a_death(tmp_path):
    # FR-08, recovery P3
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        async with agent.chat("go") as events:
            async for event in events:
                if event.chunk.get("delta") == "b":
                    await agent.cancel_chat(events.request_id, "enough")
                    cluster.kill(agent)
        await cluster.advance(60)
        return events.outcome, await agent.get_messages(), len(models["Worker"].requests)

    outcome, messages, requests = play(tmp_path, Scripted(Scripted.text("abcdef", chunk_size=1), chunk_delay=1.0), main)
    assert outcome == "aborted"
    assert told(messages) == [("user", "go"), ("assistant", "ab")]
    assert requests == 1
