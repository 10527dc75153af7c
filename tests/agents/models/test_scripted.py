"""The scripted model: what comes next follows from the request alone."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from agents.core.chunks import (
    FileChunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
)
from agents.errors import ModelOverloaded, ModelRefused
from agents.models import Scripted
from agents.models.model import ModelFinish, ModelMessage, ReasoningBlock, TextBlock, ToolCall, Usage
from agents.models.script import Step
from runtime.errors import UsageError

from .requests import (
    called,
    calls_of,
    collect,
    deltas_of,
    fragments_of,
    nudge,
    reasoning_of,
    request,
    result,
    said,
    text_of,
    user,
)

TWO_STEPS: list[Step | str] = [
    Scripted.text("Let me look. ") + Scripted.call("read", {"path": "/a"}, call_id="c1"),
    "It says hello.",
]


async def test_a_text_step_is_one_block_in_deltas_and_a_finish() -> None:
    parts = await collect(Scripted(Scripted.text("abcdef", chunks=3)).stream(request(user("hi"))))

    assert parts == [
        TextStart("0"),
        TextDelta("0", "ab"),
        TextDelta("0", "cd"),
        TextDelta("0", "ef"),
        TextEnd("0"),
        ModelFinish(finish_reason="stop", usage=Usage(input_tokens=0, output_tokens=1)),
    ]


async def test_a_call_step_streams_fragments_and_then_the_whole_call() -> None:
    model = Scripted(Scripted.call("read", {"path": "/a"}, fragments=2, preamble="I look.", call_id="c1"))

    parts = await collect(model.stream(request(user("hi"))))

    assert parts[3:-1] == [
        ToolInputStart("c1", "read"),
        ToolInputDelta("c1", '{"path'),
        ToolInputDelta("c1", '":"/a"}'),
        ToolCall(tool_call_id="c1", tool_name="read", input_text='{"path":"/a"}'),
    ]
    assert parts[-1].finish_reason == "tool-calls"


async def test_chunks_are_as_many_as_asked_for_even_if_the_text_does_not_divide() -> None:
    parts = await collect(Scripted(Scripted.text("abcdefghij", chunks=6)).stream(request(user("hi"))))

    assert deltas_of(parts) == ["a", "bc", "de", "f", "gh", "ij"]


async def test_several_calls_of_one_step_have_ids_of_their_own() -> None:
    model = Scripted(Scripted.call("read") + Scripted.call("read"))

    first, second = calls_of(await collect(model.stream(request(user("hi")))))

    assert first.tool_call_id != second.tool_call_id


async def test_an_answered_round_leads_to_the_next_step() -> None:
    asked = request(user("hi"), called("c1", text="Let me look. "), result("c1"))

    assert text_of(await collect(Scripted(TWO_STEPS).stream(asked))) == "It says hello."


async def test_results_in_several_messages_are_one_round() -> None:
    both = ModelMessage(role="assistant", blocks=(*called("c1").blocks, *called("c2").blocks))

    parts = await collect(
        Scripted(["one", "two", "three"]).stream(request(user("a"), both, result("c1"), result("c2")))
    )

    assert text_of(parts) == "two"


async def test_a_new_user_message_begins_the_script_again() -> None:
    asked = request(user("hi"), called("c1"), result("c1"), said("It says hello."), user("again"))

    assert text_of(await collect(Scripted(TWO_STEPS).stream(asked))) == "Let me look. "


@pytest.mark.parametrize("already", ["I", "It says", "It says hello"])
async def test_an_interrupted_text_goes_on_where_it_stops_even_inside_a_chunk(already: str) -> None:
    model = Scripted([TWO_STEPS[0], Scripted.text("It says hello.", chunk_size=3)])

    parts = await collect(model.stream(request(user("hi"), called("c1"), result("c1"), said(already), nudge())))

    assert already + text_of(parts) == "It says hello."


async def test_chunks_behind_the_resumption_are_the_chunks_of_an_undisturbed_answer() -> None:
    model = Scripted(Scripted.text("abcdefghi", chunk_size=3))

    assert deltas_of(await collect(model.stream(request(user("hi"), said("abcd"), nudge())))) == ["ef", "ghi"]


async def test_an_answer_that_was_whole_is_only_finished() -> None:
    parts = await collect(Scripted("Hello.").stream(request(user("hi"), said("Hello."), nudge())))

    assert [type(part) for part in parts] == [ModelFinish]


async def test_an_interrupted_preamble_is_finished_before_the_call_is_made() -> None:
    parts = await collect(Scripted(TWO_STEPS).stream(request(user("hi"), said("Let me"), nudge())))

    assert (text_of(parts), [call.tool_name for call in calls_of(parts)]) == (" look. ", ["read"])


async def test_text_that_is_not_the_steps_does_not_count_as_said() -> None:
    assert text_of(await collect(Scripted("Hello.").stream(request(user("hi"), said("Bye"), nudge())))) == "Hello."


async def test_a_text_in_two_items_resumes_in_the_second() -> None:
    model = Scripted(Scripted.text("Hello, ") + Scripted.text("world."))

    assert text_of(await collect(model.stream(request(user("hi"), said("Hello, wo"), nudge())))) == "rld."


async def test_a_new_process_gives_calls_the_same_ids() -> None:
    asked = request(user("hi"), called("c1"), result("c1"))
    script: list[Step | str] = ["never", Scripted.call("read")]

    first = calls_of(await collect(Scripted(script).stream(asked)))

    assert first == calls_of(await collect(Scripted(script).stream(asked)))


async def test_the_same_words_in_a_later_turn_give_other_call_ids() -> None:
    model = Scripted([Scripted.call("read"), "done"])
    (first,) = calls_of(await collect(model.stream(request(user("hi")))))
    history = (user("hi"), called(first.tool_call_id), result(first.tool_call_id), said("done"))

    (second,) = calls_of(await collect(model.stream(request(*history, user("hi")))))

    assert first.tool_call_id != second.tool_call_id


async def test_reasoning_is_signed() -> None:
    parts = await collect(
        Scripted(Scripted.reason("hmm", signature="s1") + Scripted.text("ok")).stream(request(user("a")))
    )

    assert parts[:4] == [
        ReasoningStart("0"),
        ReasoningDelta("0", "hmm"),
        ReasoningDelta("0", "", {"anthropic": {"signature": "s1"}}),
        ReasoningEnd("0"),
    ]


async def test_reasoning_is_not_repeated_once_its_text_has_begun() -> None:
    model = Scripted(Scripted.reason("hmm") + Scripted.text("okay"))

    parts = await collect(model.stream(request(user("hi"), said("ok"), nudge())))

    assert (reasoning_of(parts), text_of(parts)) == ("", "ay")


async def test_interrupted_reasoning_goes_on_where_it_stops() -> None:
    thought = ReasoningBlock(text="first t", provider_metadata={"anthropic": {"signature": "s"}})
    message = ModelMessage(role="assistant", blocks=(thought, TextBlock(text="")))
    model = Scripted(Scripted.reason("first that") + Scripted.text("ok"), strict=False)

    parts = await collect(model.stream(request(user("hi"), message, nudge())))

    assert (reasoning_of(parts), text_of(parts)) == ("hat", "ok")


async def test_steps_may_depend_on_the_users_text() -> None:
    model = Scripted({"weather": "Rain.", "": "What?"})

    rain = text_of(await collect(model.stream(request(user("How is the weather?")))))

    assert (rain, text_of(await collect(model.stream(request(user("Hm?")))))) == ("Rain.", "What?")


async def test_steps_may_be_a_function_of_the_users_text() -> None:
    assert text_of(await collect(Scripted(lambda text: text.upper()).stream(request(user("hi"))))) == "HI"


async def test_a_mapping_without_a_fitting_key_is_an_error_that_names_the_text() -> None:
    with pytest.raises(UsageError, match="no steps for 'bye'"):
        await collect(Scripted({"hi": "Hello."}).stream(request(user("bye"))))


async def test_a_script_that_is_too_short_says_so() -> None:
    with pytest.raises(UsageError, match=r"1 step\(s\), but this request has 1 answered round"):
        await collect(Scripted([Scripted.call("read")]).stream(request(user("hi"), called("c1"), result("c1"))))


@pytest.mark.parametrize(
    "input_text",
    ["", "null", "[]", '"{\\"a\\":1}"', '{"a": 1, "b'],
    ids=["none", "null", "list", "JSON in a string", "cut off"],
)
async def test_broken_input_reaches_the_turn_as_it_stands(input_text: str) -> None:
    """FR-01: what the turn must repair, the script can say."""
    parts = await collect(Scripted(Scripted.call("read", input_text, fragments=2)).stream(request(user("hi"))))

    assert ([call.input_text for call in calls_of(parts)], "".join(fragments_of(parts))) == ([input_text], input_text)


async def test_a_call_without_input_streams_no_delta() -> None:
    parts = await collect(Scripted(Scripted.call("read")).stream(request(user("hi"))))

    assert [type(part) for part in parts] == [ToolInputStart, ToolCall, ModelFinish]


@pytest.mark.parametrize("strict", [True, False])
async def test_a_request_that_ends_with_the_assistant_is_refused(strict: bool) -> None:
    """FR-03, recovery X3."""
    with pytest.raises(ModelRefused, match="must end with a user message") as caught:
        await collect(Scripted("Hello.", strict=strict).stream(request(user("hi"), said("Hel"))))

    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((user("hi"), called("c1"), user("and?")), "tool call c1 has no result"),
        ((user("hi"), said("ok"), result("c1")), "tool result c1 has no tool call"),
        ((user("hi"), called("c1"), result("c1"), result("c1"), said(""), user("x")), "must not be empty"),
        ((said("ok"), user("hi")), "first message must be the user's"),
        ((), "at least one message"),
    ],
)
async def test_what_vendors_refuse_is_refused(messages: tuple[ModelMessage, ...], text: str) -> None:
    with pytest.raises(ModelRefused, match=text):
        await collect(Scripted("Hello.").stream(request(*messages)))


async def test_a_fault_happens_in_as_many_requests_as_it_says() -> None:
    model = Scripted(Scripted.text("ab") + Scripted.fail(ModelOverloaded("busy"), times=1) + Scripted.text("cd"))
    with pytest.raises(ModelOverloaded, match="busy"):
        await collect(model.stream(request(user("a fault that happens once"))))

    parts = await collect(model.stream(request(user("a fault that happens once"), said("ab"), nudge())))

    assert text_of(parts) == "cd"


async def test_a_fault_without_times_happens_in_each_request() -> None:
    model = Scripted(Scripted.text("ab") + Scripted.fail(ModelOverloaded) + Scripted.text("cd"))

    for _ in range(3):
        with pytest.raises(ModelOverloaded):
            await collect(model.stream(request(user("hi"), said("ab"), nudge())))


async def test_a_fault_before_the_resumption_is_past() -> None:
    model = Scripted(Scripted.text("ab") + Scripted.fail(ModelOverloaded) + Scripted.text("cd"))

    assert text_of(await collect(model.stream(request(user("hi"), said("abc"), nudge())))) == "d"


async def test_faults_are_counted_over_processes_in_the_count_file(tmp_path) -> None:
    path = str(tmp_path / "count.jsonl")
    script = Scripted.fail(ModelOverloaded, times=2) + Scripted.text("ok")
    outcomes = []
    for _ in range(3):
        try:
            outcomes.append(text_of(await collect(Scripted(script, count_file=path).stream(request(user("hi"))))))
        except ModelOverloaded:
            outcomes.append("busy")

    assert outcomes == ["busy", "busy", "ok"]


async def test_each_request_is_a_line_in_the_count_file(tmp_path) -> None:
    path = tmp_path / "count.jsonl"
    model = Scripted(TWO_STEPS, count_file=str(path))
    await collect(model.stream(request(user("hi"), request_id="r1")))
    await collect(model.stream(request(user("hi"), called("c1"), result("c1"), said("It "), nudge(), request_id="r2")))

    lines = [json.loads(line) for line in path.read_text().splitlines()]

    told = [(line["request_id"], line["step"], line["resumed_at"], line["pid"]) for line in lines]
    assert told == [("r1", 0, 0, os.getpid()), ("r2", 1, 3, os.getpid())]


async def test_a_request_that_is_closed_early_is_noted(tmp_path) -> None:
    """FR-08: that an abort reached the model can be seen from outside."""
    path = tmp_path / "closed.jsonl"
    stream = Scripted(Scripted.text("abcdef", chunk_size=2), closed_file=str(path)).stream(request(user("hi")))
    assert await anext(stream) == TextStart("0")
    assert await anext(stream) == TextDelta("0", "ab")
    await stream.aclose()

    assert [json.loads(line)["resumed_at"] for line in path.read_text().splitlines()] == [2]


async def test_delays_are_slept_on_the_given_clock() -> None:
    class Sleepless:
        def __init__(self) -> None:
            self.slept: list[float] = []

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    clock = Sleepless()
    script = Scripted.text("abcd", chunk_size=2) + Scripted.hang(9.0) + Scripted.call("read", {}, delay=0.5)
    await collect(Scripted(script, chunk_delay=0.1, start_delay=1.0, clock=clock).stream(request(user("hi"))))

    assert clock.slept == [1.0, 0.1, 0.1, 9.0, 0.5]


async def test_a_hanging_request_can_be_cancelled() -> None:
    task = asyncio.ensure_future(collect(Scripted(Scripted.hang()).stream(request(user("hi")))))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_long_script_without_delay_lets_a_cancel_in() -> None:
    task = asyncio.ensure_future(collect(Scripted(Scripted.text("x" * 1000, chunks=1000)).stream(request(user("hi")))))
    await asyncio.sleep(0)

    assert task.cancel()


async def test_reason_of_finish_and_usage_can_be_scripted() -> None:
    script = Scripted.text("ab") + Scripted.finish("length", usage=Usage(input_tokens=7))

    finish = (await collect(Scripted(script).stream(request(user("hi")))))[-1]

    assert finish == ModelFinish(finish_reason="length", usage=Usage(input_tokens=7))


async def test_raw_chunks_go_through() -> None:
    chunk = FileChunk("image/png", "data:image/png;base64,AA==")

    assert chunk in await collect(Scripted(Scripted.emit(chunk)).stream(request(user("hi"))))


@pytest.mark.parametrize("options", [{"chunks": 2, "chunk_size": 2}, {"chunks": 0}, {"chunk_size": 0}])
def test_a_text_that_cannot_be_cut_so_is_refused_when_the_script_is_made(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="chunk"):
        Scripted.text("abc", **options)


async def test_the_requests_are_kept_for_the_test_to_look_at() -> None:
    model = Scripted("Hello.")
    asked = request(user("hi"))
    await collect(model.stream(asked))

    assert list(model.requests) == [asked]
