"""What a turn does: its steps, its tools, its prompt, its errors (turns sections 3 to 6)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from agents.core.chunks import ErrorChunk, TextDelta, TextStart
from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused, TurnFailed
from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
from runtime.testing import LocalCluster, run

# What happened in the agents, and what they are to do; cleared by ``play``.
ran: Counter[str] = Counter()
models: list[Scripted] = []


class Worker(Think):
    def get_model(self):
        return models[-1]

    @tool
    async def wait(self, seconds: float) -> float:
        """Wait."""
        ran["wait"] += 1
        await asyncio.sleep(seconds)
        return seconds

    @tool
    async def fail(self) -> str:
        """Raise."""
        raise ValueError("the pipe is closed")

    @tool
    async def now(self) -> str:
        """Tell the time; takes nothing."""
        ran["now"] += 1
        return "noon"

    @tool
    async def count(self, to: int):
        """Count, one by one."""
        for n in range(1, to + 1):
            yield n

    async def put_bad_part(self, value: str) -> None:
        """Damage the stored conversation."""
        self.ctx.storage.sql.exec("UPDATE assistant_messages SET content = replace(content, '\"input\":{}', ?)", value)


class Silent(Worker):
    send_reasoning = False


class Short(Worker):
    max_steps = 2


class Modelless(Think):
    pass


class Prompted(Worker):
    def get_system_prompt(self):
        return "You are a pirate."

    def get_tools(self):
        return {"lookup": Worker.now}


def play(tmp_path, model, main):
    """Run a test's coroutine with a cluster and a model."""
    ran.clear()
    models[:] = [model]

    async def started():
        async with LocalCluster(tmp_path) as cluster:
            return await main(cluster)

    return run(started)


def faulty(tmp_path, step):
    """A model whose faults are counted for this test alone."""
    return Scripted(step, count_file=str(tmp_path / "requests"))


async def chunks_of(agent, text="go"):
    async with agent.chat(text) as events:
        return [event.chunk async for event in events]


def outputs(chunks):
    return [chunk for chunk in chunks if chunk["type"].startswith(("tool-output", "tool-input-error"))]


def call(name, value=None, **options):
    return Scripted.call(name, value, call_id=options.pop("call_id", "c1"), **options)


# Tools


def test_the_calls_of_a_step_run_together_and_their_results_come_as_they_are_done(tmp_path):
    # turns T5
    async def main(cluster):
        chunks = await chunks_of(cluster.get(Worker, "a"))
        return outputs(chunks), cluster.clock.passed

    step = call("wait", {"seconds": 3}, call_id="slow") + call("wait", {"seconds": 1}, call_id="fast")
    seen, passed = play(tmp_path, Scripted([step, "ok"]), main)
    assert [chunk["toolCallId"] for chunk in seen] == ["fast", "slow"]
    assert 3 <= passed < 4


def test_tools_run_only_after_the_models_message_has_ended(tmp_path):
    # turns T5
    async def main(cluster):
        async with cluster.get(Worker, "a").chat("go") as events:
            async for event in events:
                if event.chunk.get("delta") == "a":
                    return ran["now"]

    step = call("now") + Scripted.text("ab", chunk_size=1)
    assert play(tmp_path, Scripted([step, "ok"], chunk_delay=1.0), main) == 0


def test_calls_of_a_message_that_was_cut_off_do_not_run(tmp_path):
    # turns T5: finish reason length
    async def main(cluster):
        return await chunks_of(cluster.get(Worker, "a"))

    chunks = play(tmp_path, Scripted([call("now") + Scripted.finish("length")]), main)
    assert ran["now"] == 0
    assert chunks[-1] == {"type": "finish", "finishReason": "length"}


def test_a_tool_that_raises_is_an_error_for_the_model_and_the_turn_goes_on(tmp_path):
    # turns T6
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        return outputs(await chunks_of(agent)), (await agent.get_messages())[-1].text

    seen, text = play(tmp_path, Scripted([call("fail"), "I see."]), main)
    assert seen == [{"type": "tool-output-error", "toolCallId": "c1", "errorText": "the pipe is closed"}]
    assert text == "I see."
    result = models[-1].requests[-1].messages[-1].blocks[0]
    assert (result.is_error, result.text) == (True, "the pipe is closed")


def test_an_unknown_tool_is_an_input_error_and_an_output_error(tmp_path):
    # turns T7
    async def main(cluster):
        return outputs(await chunks_of(cluster.get(Worker, "a")))

    seen = play(tmp_path, Scripted([call("fly", {"to": "Rome"}), "ok"]), main)
    assert [chunk["type"] for chunk in seen] == ["tool-input-error", "tool-output-error"]
    assert seen[0]["input"] == {"to": "Rome"}
    assert "There is no tool 'fly'" in seen[0]["errorText"]


def test_an_input_that_does_not_fit_is_an_error_and_the_tool_does_not_run(tmp_path):
    # turns T7
    async def main(cluster):
        return outputs(await chunks_of(cluster.get(Worker, "a")))

    seen = play(tmp_path, Scripted([call("wait", {"seconds": "long"}), "ok"]), main)
    assert [chunk["type"] for chunk in seen] == ["tool-input-error", "tool-output-error"]
    assert ran["wait"] == 0


@pytest.mark.parametrize("text", ["", "null", "[]", '"{\\"a\\":1}"', '{"cut": "o'])
def test_an_input_that_is_no_object_is_stored_as_one_and_the_next_turn_works(tmp_path, text):
    # FR-01
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        await agent.chat("go")
        await agent.chat("again")
        return await agent.get_messages()

    messages = play(tmp_path, Scripted({"go": [call("now", text), "ok"], "again": "fine"}), main)
    inputs = [part["input"] for message in messages for part in message.parts if "input" in part]
    assert all(isinstance(value, dict) for value in inputs)
    assert messages[-1].text == "fine"


def test_a_damaged_input_in_storage_is_healed_by_the_next_turn(tmp_path):
    # FR-01: put a bad part in storage by SQL, wake, chat
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        await agent.chat("go")
        await agent.put_bad_part('"input":"oops"')
        cluster.kill(agent)
        await agent.chat("again")
        return await agent.get_messages()

    messages = play(tmp_path, Scripted({"go": [call("now"), "ok"], "again": "fine"}), main)
    assert [part["input"] for part in messages[1].parts if "input" in part] == [{}]
    assert messages[-1].text == "fine"


def test_a_generator_tool_shows_each_value_and_the_last_one_as_the_output(tmp_path):
    # turns T9
    async def main(cluster):
        return outputs(await chunks_of(cluster.get(Worker, "a")))

    seen = play(tmp_path, Scripted([call("count", {"to": 2}), "ok"]), main)
    assert [(chunk["output"], chunk.get("preliminary", False)) for chunk in seen] == [(1, True), (2, True), (2, False)]


def test_a_client_tool_is_streamed_and_ends_the_turn(tmp_path):
    # turns T4
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        tools = [{"name": "locate", "parameters": {"properties": {"high": {"type": "boolean"}}}}]
        async with agent.chat("go", client_tools=tools) as events:
            chunks = [event.chunk async for event in events]
        return chunks, models[-1].requests[0].tools

    chunks, offered = play(tmp_path, Scripted([call("locate", {"high": True}), "never"]), main)
    assert chunks[-2:] == [{"type": "finish-step"}, {"type": "finish", "finishReason": "tool-calls"}]
    assert not outputs(chunks)
    assert next(spec for spec in offered if spec.name == "locate").input_schema["type"] == "object"


# Steps


def test_the_loop_ends_at_max_steps_and_the_tools_of_the_last_step_still_run(tmp_path):
    # turns L3
    async def main(cluster):
        return await chunks_of(cluster.get(Short, "a"))

    steps = [call("now", call_id="c1"), call("now", call_id="c2"), "never"]
    chunks = play(tmp_path, Scripted(steps), main)
    assert ran["now"] == 2
    assert chunks[-1] == {"type": "finish", "finishReason": "tool-calls"}
    assert len(models[-1].requests) == 2


def test_reasoning_is_left_out_of_stream_and_message_but_not_of_the_next_request(tmp_path):
    # turns L4
    async def main(cluster):
        agent = cluster.get(Silent, "a")
        return await chunks_of(agent), (await agent.get_messages())[-1]

    steps = [Scripted.reason("Hm.") + call("now"), "ok"]
    chunks, message = play(tmp_path, Scripted(steps), main)
    assert not [chunk for chunk in chunks if "reasoning" in chunk["type"]]
    assert not [part for part in message.parts if part["type"] == "reasoning"]
    assert [type(block).__name__ for block in models[-1].requests[-1].messages[1].blocks] == [
        "ReasoningBlock",
        "ToolUseBlock",
    ]


def test_the_second_turn_reads_the_first(tmp_path):
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        await agent.chat("one")
        await agent.chat("two")

    play(tmp_path, Scripted("Yes."), main)
    said = [(message.role, message.blocks[0].text) for message in models[-1].requests[-1].messages]
    assert said == [("user", "one"), ("assistant", "Yes."), ("user", "two")]


# Prompt


def test_the_default_prompt_is_followed_by_what_the_agent_can_do(tmp_path):
    # turns A3
    async def main(cluster):
        await cluster.get(Worker, "a").chat("go")

    play(tmp_path, Scripted("ok"), main)
    lines = models[-1].requests[-1].system.splitlines()
    assert lines[0] == "You are a helpful assistant."
    assert "Think agent" in lines[2]
    assert "read, write, list, find, grep" in lines[3]


def test_prompt_and_tools_come_from_the_agents_methods(tmp_path):
    # turns section 4: get_tools lies over the methods
    async def main(cluster):
        await cluster.get(Prompted, "a").chat("go")

    play(tmp_path, Scripted("ok"), main)
    request = models[-1].requests[-1]
    assert request.system.startswith("You are a pirate.\n\n")
    assert {"read", "write", "wait", "now", "lookup"} <= {spec.name for spec in request.tools}


# Errors


def test_an_agent_without_a_model_fails_naming_the_method(tmp_path):
    # turns W4
    async def main(cluster):
        with pytest.raises(TurnFailed, match=r"override get_model\(\)"):
            await cluster.get(Modelless, "a").chat("go")

    play(tmp_path, Scripted("ok"), main)


def test_a_refused_request_fails_the_turn_keeps_the_partial_and_the_next_turn_works(tmp_path):
    # turns C4
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        with pytest.raises(TurnFailed, match="context is too long"):
            await agent.chat("bad")
        reply = await agent.chat("good")
        return [message.text for message in await agent.get_messages()], reply.text

    refused = Scripted.text("Part") + Scripted.fail(ModelRefused("the context is too long", status=400))
    texts, reply = play(tmp_path, Scripted({"bad": refused, "good": "Fine."}), main)
    assert texts == ["bad", "Part", "good", "Fine."]
    assert reply == "Fine."


def test_an_error_chunk_of_the_model_is_terminal(tmp_path):
    # turns C4, protocol K5
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        seen, text = [], ""
        try:
            async with agent.chat("go") as events:
                async for event in events:
                    seen.append(event.chunk["type"])
        except TurnFailed as error:
            text = error.message
        return seen, events.outcome, text

    chunks = (TextStart("0"), TextDelta("0", "a"), ErrorChunk("too hot"), TextDelta("0", "b"))
    seen, outcome, text = play(tmp_path, Scripted(Scripted.emit(*chunks)), main)
    assert seen == ["start", "start-step", "text-start", "text-delta"]
    assert (outcome, text) == ("error", "too hot")


@pytest.mark.parametrize("error", [ModelOverloaded("busy"), ModelConnectionLost("reset")])
def test_a_model_that_fails_in_passing_is_asked_again_twice(tmp_path, error):
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        return await chunks_of(agent), (await agent.get_messages())[-1].text, cluster.clock.passed

    chunks, text, passed = play(tmp_path, faulty(tmp_path, Scripted.fail(error, times=2) + Scripted.text("ok")), main)
    assert text == "ok"
    assert [chunk["type"] for chunk in chunks].count("start-step") == 1
    assert passed == pytest.approx(1.5, abs=0.2)
    assert len(models[-1].requests) == 3


def test_a_model_that_fails_a_third_time_in_a_row_fails_the_turn(tmp_path):
    async def main(cluster):
        with pytest.raises(TurnFailed, match="busy"):
            await cluster.get(Worker, "a").chat("go")

    play(tmp_path, Scripted(Scripted.fail(ModelOverloaded("busy"))), main)
    assert len(models[-1].requests) == 3


def test_a_model_that_names_a_time_is_left_alone_until_then(tmp_path):
    async def main(cluster):
        await cluster.get(Worker, "a").chat("go")
        return cluster.clock.passed

    fault = Scripted.fail(ModelOverloaded("busy", retry_after=7.0), times=1)
    assert play(tmp_path, faulty(tmp_path, fault + Scripted.text("ok")), main) == pytest.approx(7.0, abs=0.2)


def test_an_answer_that_breaks_off_is_continued_behind_what_was_shown(tmp_path):
    async def main(cluster):
        agent = cluster.get(Worker, "a")
        chunks = await chunks_of(agent)
        return "".join(chunk.get("delta", "") for chunk in chunks), (await agent.get_messages())[-1].text

    step = Scripted.text("abc") + Scripted.fail(ModelConnectionLost("cut"), times=1) + Scripted.text("def")
    shown, stored = play(tmp_path, faulty(tmp_path, step), main)
    assert (shown, stored) == ("abcdef", "abcdef")
    assert models[-1].requests[-1].messages[-1].is_nudge
