"""Claude through the real SDK, against a real server: what it sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from agents.core.chunks import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputStart,
)
from agents.errors import ModelRefused
from agents.models import Claude, default_model
from agents.models.model import (
    FileBlock,
    ModelFinish,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolSpec,
    Usage,
)
from tests.anthropic_server import (
    AnthropicServer,
    Raw,
    Stall,
    message,
    redacted,
    text,
    thinking,
    tool_use,
)

from .requests import called, calls_of, collect, fragments_of, nudge, request, result, said, text_of, user

pytestmark = pytest.mark.usefixtures("in_process")

READ = ToolSpec(name="read", description="Reads.", input_schema={"type": "object", "properties": {}})


async def sent_for(asked: ModelRequest, **options) -> dict:
    """The body that reaches the service."""
    async with AnthropicServer() as server:
        await collect(Claude(base_url=server.url, **options).stream(asked))
        return server.requests[0].body


async def test_text_comes_as_one_block_of_deltas() -> None:
    async with AnthropicServer(message(text("Hello.", 2), usage={"output_tokens": 5})) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts == [
        TextStart("0"),
        TextDelta("0", "Hel"),
        TextDelta("0", "lo."),
        TextEnd("0"),
        ModelFinish(
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=5),
            provider_metadata={
                "anthropic": {
                    "messageId": "msg_1",
                    "model": "claude",
                    "stopReason": "end_turn",
                    "cacheCreationInputTokens": 0,
                }
            },
        ),
    ]


async def test_thinking_keeps_its_signature_and_redacted_thinking_its_data() -> None:
    async with AnthropicServer(message(thinking("hmm", "s1"), redacted("xyz"), text("ok"))) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts[:6] == [
        ReasoningStart("0"),
        ReasoningDelta("0", "hmm"),
        ReasoningDelta("0", "", {"anthropic": {"signature": "s1"}}),
        ReasoningEnd("0"),
        ReasoningStart("1", {"anthropic": {"redactedData": "xyz"}}),
        ReasoningEnd("1"),
    ]


async def test_a_tool_call_comes_in_fragments_and_then_whole() -> None:
    answer = message(tool_use("read", '{"path"', ': "/a"}', call_id="t1"), stop_reason="tool_use")
    async with AnthropicServer(answer) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts[:4] == [
        ToolInputStart("t1", "read"),
        ToolInputDelta("t1", '{"path"'),
        ToolInputDelta("t1", ': "/a"}'),
        ToolCall(tool_call_id="t1", tool_name="read", input_text='{"path": "/a"}'),
    ]
    assert parts[4].finish_reason == "tool-calls"


@pytest.mark.parametrize(
    "fragments",
    [(), ("",), ("null",), ("[]",), ('"{\\"a', '\\":1}"'), ('{"a": 1, "b',)],
    ids=["no deltas", "an empty delta", "null", "list", "JSON in a string", "cut off"],
)
async def test_input_reaches_the_turn_as_the_model_wrote_it(fragments: tuple[str, ...]) -> None:
    """FR-01: the SDK's accumulating stream would mend these in silence; the turn decides what becomes of them."""
    async with AnthropicServer(message(tool_use("read", *fragments), stop_reason="tool_use")) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    told = "".join(fragments)
    assert ([call.input_text for call in calls_of(parts)], "".join(fragments_of(parts))) == ([told], told)


async def test_input_that_comes_with_the_start_of_the_block_is_taken() -> None:
    block = ({"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}}, ())
    async with AnthropicServer(message(block, stop_reason="tool_use")) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert [call.input_text for call in calls_of(parts)] == ['{"a":1}']


async def test_unknown_events_blocks_and_deltas_are_passed_over() -> None:
    new_block = ({"type": "hologram", "text": "?"}, ({"type": "light_delta", "text": "?"},))
    odd_delta = (
        {"type": "text", "text": ""},
        ({"type": "smell_delta", "text": "?"}, {"type": "text_delta", "text": "ok"}),
    )
    answer = message(new_block, odd_delta)
    answer = answer.first(2, {"type": "weather_event"}, *answer.parts[2:])
    async with AnthropicServer(answer) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts[:-1] == [TextStart("1"), TextDelta("1", "ok"), TextEnd("1")]


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("something_new", "other"),
    ],
)
async def test_stop_reasons_have_the_names_of_the_protocol(stop_reason: str, finish_reason: str) -> None:
    async with AnthropicServer(message(text("ok"), stop_reason=stop_reason)) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts[-1].finish_reason == finish_reason


async def test_input_tokens_include_those_of_the_cache() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 3}
    async with AnthropicServer(message(text("ok"), usage=usage)) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert parts[-1].usage == Usage(input_tokens=125, output_tokens=3, cached_tokens=100)


async def test_calls_and_results_are_sent_in_neighbouring_messages() -> None:
    body = await sent_for(
        request(user("hi"), called("c1", path="/a"), result("c1", "no", is_error=True)), prompt_caching=False
    )

    assert body["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "/a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}]},
    ]


async def test_results_stand_before_what_else_a_user_message_holds() -> None:
    image = FileBlock(media_type="image/png", url="data:image/png;base64,AA==")
    mixed = ModelMessage(role="user", blocks=(TextBlock(text="see"), image, *result("c1").blocks))

    body = await sent_for(request(user("hi"), called("c1"), mixed))

    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text", "image"]


async def test_thinking_is_sent_back_unchanged() -> None:
    thought = ReasoningBlock(text="hmm", provider_metadata={"anthropic": {"signature": "s1"}})
    hidden = ReasoningBlock(text="", provider_metadata={"anthropic": {"redactedData": "xyz"}})
    foreign = ReasoningBlock(text="mine", provider_metadata={"other": {}})
    history = ModelMessage(role="assistant", blocks=(thought, hidden, foreign, *called("c1").blocks))

    body = await sent_for(request(user("hi"), history, result("c1")))

    assert body["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "hmm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    assert len(body["messages"][1]["content"]) == 3


@pytest.mark.parametrize(
    ("file", "block"),
    [
        (
            FileBlock(media_type="image/png", url="data:image/png;base64,AA=="),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        ),
        (
            FileBlock(media_type="application/pdf", url="data:application/pdf;base64,AA==", filename="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
                "title": "a.pdf",
            },
        ),
        (
            FileBlock(media_type="image/jpeg", url="https://example.org/a.jpg"),
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.jpg"}},
        ),
        (
            FileBlock(media_type="text/csv", url="data:text/csv,a%2Cb"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        ),
        (
            FileBlock(media_type="video/mp4", url="data:video/mp4;base64,AA==", filename="a.mp4"),
            {"type": "text", "text": "[a.mp4 of type video/mp4 cannot be shown to this model]"},
        ),
        (
            FileBlock(media_type="image/png", url="ftp://example.org/a.png"),
            {"type": "text", "text": "[a file of type image/png cannot be shown to this model]"},
        ),
    ],
    ids=["image", "PDF", "URL", "text", "video", "no URL"],
)
async def test_files_become_what_the_service_can_read(file: FileBlock, block: dict) -> None:
    asked = request(ModelMessage(role="user", blocks=(file,)))

    body = await sent_for(asked, prompt_caching=False)

    assert body["messages"][0]["content"] == [block]


async def test_system_last_tool_and_last_user_block_are_marked_for_the_cache() -> None:
    asked = request(user("one"), said("two"), user("three"), tools=(READ, READ), system="sys")
    mark = {"type": "ephemeral"}

    body = await sent_for(asked)

    assert body["system"] == [{"type": "text", "text": "sys", "cache_control": mark}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
    assert [each["content"][-1].get("cache_control") for each in body["messages"]] == [None, None, mark]


async def test_a_nudge_is_not_marked_for_the_cache() -> None:
    """Turns A9: it will not be there next time."""
    body = await sent_for(request(user("one"), said("two"), nudge()))

    assert ["cache_control" in each["content"][-1] for each in body["messages"]] == [True, False, False]


async def test_nothing_is_marked_without_prompt_caching() -> None:
    assert "cache_control" not in json.dumps(await sent_for(request(user("hi"), tools=(READ,)), prompt_caching=False))


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "tool", "toolName": "read"}, {"type": "tool", "name": "read"}),
    ],
)
async def test_tool_choice_has_the_vendors_names(choice: str | dict, sent: dict) -> None:
    body = await sent_for(request(user("hi"), tools=(READ,), tool_choice=choice))

    assert body["tool_choice"] == sent


async def test_settings_and_options_reach_the_service_unchanged() -> None:
    """Turns L5; the SDK itself takes no temperature."""
    settings = {"temperature": 0.5, "top_k": 3, "stop_sequences": ["END"], "headers": {"x-one": "1"}, "timeout": 9.0}
    options = {"anthropic": {"service_tier": "auto"}, "other": {"a": 1}}
    asked = request(user("hi"), settings=settings, provider_options=options, max_output_tokens=77)
    async with AnthropicServer() as server:
        await collect(Claude(base_url=server.url, headers={"x-two": "2"}).stream(asked))
        sent = server.requests[0]

    expected = {"temperature": 0.5, "top_k": 3, "stop_sequences": ["END"], "service_tier": "auto", "max_tokens": 77}
    assert {key: sent.body.get(key) for key in expected} == expected
    assert (sent.headers["x-one"], sent.headers["x-two"], sent.headers["x-stainless-read-timeout"]) == ("1", "2", "9.0")
    assert not {"headers", "timeout", "a", "other"} & sent.body.keys()


@pytest.mark.parametrize(
    ("thinking_option", "sent"),
    [
        (2048, {"type": "enabled", "budget_tokens": 2048}),
        ("adaptive", {"type": "adaptive"}),
        ({"type": "disabled"}, {"type": "disabled"}),
    ],
)
async def test_thinking_can_be_asked_for_in_three_forms(thinking_option, sent: dict) -> None:
    assert (await sent_for(request(user("hi")), thinking=thinking_option))["thinking"] == sent


async def test_effort_is_a_field_of_the_output_config() -> None:
    assert (await sent_for(request(user("hi")), effort="low"))["output_config"] == {"effort": "low"}


async def test_what_is_sent_is_the_default_model_with_16_000_tokens() -> None:
    body = await sent_for(request(user("hi")))

    assert (body["model"], body["max_tokens"], body["stream"]) == ("claude-sonnet-5-5", 16_000, True)


async def test_a_request_that_ends_with_the_assistant_is_not_sent() -> None:
    """FR-03: a turn that forgets the nudge is a fault of ours, seen before the service sees it."""
    async with AnthropicServer() as server:
        with pytest.raises(AssertionError, match="ends with a user message"):
            await collect(Claude(base_url=server.url).stream(request(user("hi"), said("Hel"))))

        assert server.requests == []


async def test_a_continuation_with_a_nudge_is_taken() -> None:
    """FR-03, recovery X3: the server refuses what ends with the assistant, as the vendor does."""
    async with AnthropicServer(message(text("lo."))) as server:
        parts = await collect(Claude(base_url=server.url).stream(request(user("hi"), said("Hel"), nudge())))

    assert text_of(parts) == "lo."


async def test_closing_the_stream_closes_the_connection_even_if_the_service_is_silent() -> None:
    async with AnthropicServer(message(text("Hello.", 3)).first(4, Stall())) as server:
        stream = Claude(base_url=server.url).stream(request(user("hi")))
        assert [await anext(stream), await anext(stream)] == [TextStart("0"), TextDelta("0", "He")]
        await stream.aclose()
        await asyncio.wait_for(server.wait_aborted(), 5)

    assert server.aborted == 1


async def test_cancelling_the_reader_closes_the_connection() -> None:
    async with AnthropicServer(message(text("Hello.")).first(4, Stall())) as server:
        task = asyncio.ensure_future(collect(Claude(base_url=server.url).stream(request(user("hi")))))
        await server.wait_requested()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.wait_aborted(), 5)

    assert server.aborted == 1


async def test_requests_with_different_keys_do_not_mix() -> None:
    async with AnthropicServer() as server:
        for key in ("one", "two", "one"):
            await collect(Claude(base_url=server.url, api_key=key).stream(request(user("hi"))))

        sent = [each.headers["authorization"] for each in server.requests]

    assert sent == ["Bearer one", "Bearer two", "Bearer one"]


async def test_a_missing_key_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)

    with pytest.raises(ModelRefused, match=r"claude-sonnet-5-5 at api\.anthropic\.com needs a key.* ANTHROPIC_API_KEY"):
        await collect(Claude().stream(request(user("hi"))))


async def test_key_and_address_come_from_the_variables_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnthropicServer(keys=["from the variable"]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "from the variable")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)

        assert text_of(await collect(Claude().stream(request(user("hi"))))) == "Hello."


def test_a_key_is_never_shown() -> None:
    assert "sk-secret" not in repr(Claude(api_key="sk-secret")) + str(Claude(api_key="sk-secret"))


@pytest.mark.parametrize(("key", "model_id"), [("sk-1", "claude-sonnet-5-5"), ("", "offline")])
def test_the_default_model_follows_from_the_key(key: str, model_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)

    assert default_model().model_id == model_id


async def test_a_text_file_in_base64_is_decoded() -> None:
    data = base64.b64encode("grüße".encode()).decode()
    file = FileBlock(media_type="text/plain", url=f"data:text/plain;base64,{data}")

    body = await sent_for(request(ModelMessage(role="user", blocks=(file,))))

    assert body["messages"][0]["content"][0]["source"]["data"] == "grüße"


async def test_raw_pings_and_comments_do_not_disturb() -> None:
    answer = message(text("ok"))
    answer = answer.first(3, Raw(b": comment\n\n"), *answer.parts[3:])
    async with AnthropicServer(answer) as server:
        assert text_of(await collect(Claude(base_url=server.url).stream(request(user("hi"))))) == "ok"
