import pytest

from agents.core.chunks import (
    Chunk,
    ErrorChunk,
    FileChunk,
    Finish,
    FinishStep,
    JsonObject,
    OtherChunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
)
from agents.core.transcript import MessageBuilder, rebuild, rounds, update_older
from agents.sessions.messages import UIMessage


def built(*chunks: Chunk, parts: tuple[JsonObject, ...] = ()) -> list[JsonObject]:
    builder = MessageBuilder("m", parts)
    for chunk in chunks:
        builder.apply(chunk)
    return builder.parts


def tool(state: str, **fields: object) -> JsonObject:
    return {"type": "tool-look", "toolCallId": "c", "toolName": "look", "state": state, **fields}


INPUT = ToolInputAvailable("c", "look", {"q": 1})
APPROVAL = OtherChunk({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"})


def approval_answer(**fields: object) -> OtherChunk:
    return OtherChunk({"type": "tool-approval-response", "approvalId": "a", **fields})


# --- text and reasoning ---


def test_text_grows_by_its_deltas() -> None:
    parts = built(TextStart("0"), TextDelta("0", "Hel"), TextDelta("0", "lo"))
    assert parts == [{"type": "text", "text": "Hello", "state": "streaming"}]


def test_text_is_done_at_its_end() -> None:
    assert built(TextStart("0"), TextDelta("0", "x"), TextEnd("0")) == [{"type": "text", "text": "x", "state": "done"}]


def test_a_delta_extends_the_last_part_of_its_kind_whatever_its_id() -> None:
    # protocol section 3, recovery T6
    parts = built(TextStart("0"), TextDelta("0", "a"), TextStart("1"), ReasoningStart("2"), TextDelta("0", "b"))
    assert [part["text"] for part in parts] == ["a", "b", ""]


def test_a_delta_without_a_start_creates_its_part() -> None:
    # recovery T6
    assert built(ReasoningDelta("0", "hm")) == [{"type": "reasoning", "text": "hm", "state": "streaming"}]


@pytest.mark.parametrize("end", [TextEnd("0"), ReasoningEnd("0")])
def test_an_end_without_a_start_changes_nothing(end: Chunk) -> None:
    assert built(end) == []


def test_a_signature_is_merged_from_start_deltas_and_end() -> None:
    parts = built(
        ReasoningStart("0", {"v": {"a": 1}}),
        ReasoningDelta("0", "", {"anthropic": {"signature": "s"}}),
        ReasoningEnd("0", {"v": {"b": 2}}),
    )
    assert parts[0]["providerMetadata"] == {"v": {"b": 2}, "anthropic": {"signature": "s"}}


def test_partial_text_joins_the_text_parts() -> None:
    builder = MessageBuilder("m", [{"type": "text", "text": "kept "}])
    for chunk in (ReasoningDelta("0", "no"), TextStart("1"), TextDelta("1", "new")):
        builder.apply(chunk)
    assert builder.partial_text == "kept new"


# --- tools ---


def test_a_call_goes_from_streaming_input_to_output() -> None:
    builder = MessageBuilder("m")
    states = []
    for chunk in (ToolInputStart("c", "look"), ToolInputDelta("c", "{"), INPUT, ToolOutputAvailable("c", {"r": 2})):
        assert builder.apply(chunk)
        states.append(builder.parts[0]["state"])
    assert states == ["input-streaming", "input-streaming", "input-available", "output-available"]
    assert builder.parts == [tool("output-available", input={"q": 1}, output={"r": 2})]


def test_an_input_without_a_start_creates_its_part() -> None:
    assert built(INPUT) == [tool("input-available", input={"q": 1})]


def test_a_call_keeps_title_executor_and_vendor_data() -> None:
    parts = built(
        ToolInputStart("c", "look", provider_executed=True, title="Look"),
        ToolInputAvailable("c", "look", {}, provider_metadata={"v": 1}),
    )
    assert parts == [
        tool("input-available", input={}, title="Look", providerExecuted=True, callProviderMetadata={"v": 1})
    ]


def test_a_dynamic_call_is_stored_under_its_name() -> None:
    # protocol section 1
    assert built(ToolInputStart("c", "look", dynamic=True))[0]["type"] == "tool-look"


def test_a_second_start_of_a_call_changes_nothing() -> None:
    assert built(INPUT, ToolInputStart("c", "look")) == [tool("input-available", input={"q": 1})]


@pytest.mark.parametrize("chunk", [INPUT, ToolInputError("c", "look", {}, "bad")])
def test_an_input_never_moves_a_settled_call_back(chunk: Chunk) -> None:
    # protocol B2
    settled = tool("output-available", input={"q": 0}, output=1)
    assert built(chunk, parts=(settled,)) == [settled]


def test_an_invalid_input_is_an_error_of_the_call() -> None:
    assert built(ToolInputStart("c", "look"), ToolInputError("c", "look", {"q": "x"}, "bad")) == [
        tool("output-error", input={"q": "x"}, errorText="bad")
    ]


def test_an_invalid_input_without_a_start_creates_its_part() -> None:
    assert built(ToolInputError("c", "look", {}, "bad")) == [tool("output-error", input={}, errorText="bad")]


@pytest.mark.parametrize("given", ["", None, [], '{"a":', 3])
def test_a_journalled_call_with_a_damaged_input_is_kept_with_an_empty_one(given: object) -> None:
    # FR-01: such chunks are in old journals
    body = {"type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": given}
    assert built(OtherChunk(body)) == [tool("input-available", input={})]


def test_a_journalled_input_error_with_a_damaged_input_is_kept() -> None:
    body = {"type": "tool-input-error", "toolCallId": "c", "toolName": "look", "input": "x", "errorText": "bad"}
    assert built(OtherChunk(body)) == [tool("output-error", input={}, errorText="bad")]


@pytest.mark.parametrize(
    "fields",
    [
        {"toolName": "look"},
        {"toolCallId": "c"},
        {"toolCallId": 5, "toolName": "look"},
        {"toolCallId": "c", "toolName": "look", "errorText": 5},
    ],
)
def test_a_call_without_id_or_name_is_malformed_and_changes_nothing(fields: JsonObject) -> None:
    assert built(OtherChunk({"type": "tool-input-error", "input": {}, **fields})) == []


def test_a_failed_call_keeps_the_text_of_its_error() -> None:
    assert built(INPUT, ToolOutputError("c", "no")) == [tool("output-error", input={"q": 1}, errorText="no")]


def test_a_preliminary_output_says_so() -> None:
    # protocol K4
    parts = built(INPUT, ToolOutputAvailable("c", 1, preliminary=True))
    assert parts == [tool("output-available", input={"q": 1}, output=1, preliminary=True)]


def test_a_final_output_takes_the_place_of_a_preliminary_one() -> None:
    parts = built(INPUT, ToolOutputAvailable("c", 1, preliminary=True), ToolOutputAvailable("c", 2))
    assert parts == [tool("output-available", input={"q": 1}, output=2)]


def test_a_later_preliminary_output_takes_the_place_of_an_earlier_one() -> None:
    preliminary = [ToolOutputAvailable("c", number, preliminary=True) for number in (1, 2)]
    assert built(INPUT, *preliminary)[0]["output"] == 2


def test_a_replayed_preliminary_output_does_not_replace_the_final_one() -> None:
    # protocol B2
    parts = built(INPUT, ToolOutputAvailable("c", 2), ToolOutputAvailable("c", 1, preliminary=True))
    assert parts == [tool("output-available", input={"q": 1}, output=2)]


def test_an_error_takes_the_place_of_a_preliminary_output() -> None:
    parts = built(INPUT, ToolOutputAvailable("c", 1, preliminary=True), ToolOutputError("c", "no"))
    assert parts == [tool("output-error", input={"q": 1}, errorText="no")]


def test_an_output_takes_the_place_of_an_error() -> None:
    parts = built(INPUT, ToolOutputError("c", "no"), ToolOutputAvailable("c", 1))
    assert parts == [tool("output-available", input={"q": 1}, output=1)]


def test_a_denied_call_is_settled() -> None:
    assert built(INPUT, ToolOutputDenied("c")) == [tool("output-denied", input={"q": 1})]


@pytest.mark.parametrize("state", ["output-available", "output-error", "approval-responded"])
def test_a_denial_changes_no_call_that_is_settled_or_answered(state: str) -> None:
    assert built(ToolOutputDenied("c"), parts=(tool(state),)) == [tool(state)]


@pytest.mark.parametrize(
    "chunk", [ToolOutputAvailable("other", 1), ToolOutputError("other", "no"), ToolOutputDenied("other")]
)
def test_an_outcome_of_an_unknown_call_is_said_to_belong_elsewhere(chunk: Chunk) -> None:
    # protocol B1
    builder = MessageBuilder("m", [tool("input-available")])
    assert not builder.apply(chunk)
    assert builder.parts == [tool("input-available")]


# --- approvals ---


def test_an_approval_is_requested() -> None:
    assert built(INPUT, APPROVAL) == [tool("approval-requested", input={"q": 1}, approval={"id": "a"})]


def test_an_approval_keeps_its_descriptor() -> None:
    request = OtherChunk({**APPROVAL.body, "approvalDescriptor": {"risk": "high"}})
    assert built(INPUT, request)[0]["approval"] == {"id": "a", "descriptor": {"risk": "high"}}


def test_an_approval_without_an_id_is_named_after_its_call() -> None:
    assert built(INPUT, OtherChunk({"type": "tool-approval-request", "toolCallId": "c"}))[0]["approval"] == {"id": "c"}


@pytest.mark.parametrize("state", ["approval-requested", "approval-responded", "output-available", "output-denied"])
def test_a_second_approval_request_changes_nothing(state: str) -> None:
    # recovery T6: the first one wins
    part = tool(state, approval={"id": "first"})
    assert built(APPROVAL, parts=(part,)) == [part]


def test_an_approval_request_for_an_unknown_call_changes_nothing() -> None:
    assert built(APPROVAL) == []


def test_an_approved_call_waits_to_be_run() -> None:
    assert built(INPUT, APPROVAL, approval_answer(approved=True)) == [
        tool("approval-responded", input={"q": 1}, approval={"id": "a", "approved": True})
    ]


def test_a_refused_call_is_denied_with_the_reason() -> None:
    assert built(INPUT, APPROVAL, approval_answer(approved=False, reason="too dear")) == [
        tool("output-denied", input={"q": 1}, approval={"id": "a", "approved": False, "reason": "too dear"})
    ]


def test_the_first_answer_to_an_approval_stays() -> None:
    # FR-13: a double click, or a second tab
    parts = built(INPUT, APPROVAL, approval_answer(approved=True), approval_answer(approved=False))
    assert parts[0]["state"] == "approval-responded"


def test_an_answer_to_another_approval_changes_nothing() -> None:
    answer = OtherChunk({"type": "tool-approval-response", "approvalId": "b", "approved": True})
    assert built(INPUT, APPROVAL, answer)[0]["state"] == "approval-requested"


# --- everything else ---


def test_a_step_begins_with_a_part_and_ends_without_one() -> None:
    assert built(StartStep(), FinishStep()) == [{"type": "step-start"}]


def test_a_file_is_a_part() -> None:
    assert built(FileChunk("image/png", "data:,", {"v": 1})) == [
        {"type": "file", "mediaType": "image/png", "url": "data:,", "providerMetadata": {"v": 1}}
    ]


def test_a_source_is_stored_as_it_came() -> None:
    source = {"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "t"}
    assert built(OtherChunk(source)) == [source]


def test_data_is_appended() -> None:
    data = OtherChunk({"type": "data-note", "data": 1})
    assert built(data, data) == [{"type": "data-note", "data": 1}, {"type": "data-note", "data": 1}]


def test_data_with_a_known_type_and_id_replaces_the_old_in_place() -> None:
    parts = built(
        OtherChunk({"type": "data-note", "id": "n", "data": 1}),
        OtherChunk({"type": "data-other", "id": "n", "data": 2}),
        OtherChunk({"type": "data-note", "id": "m", "data": 3}),
        OtherChunk({"type": "data-note", "id": "n", "data": 4}),
    )
    assert parts == [
        {"type": "data-note", "id": "n", "data": 4},
        {"type": "data-other", "id": "n", "data": 2},
        {"type": "data-note", "id": "m", "data": 3},
    ]


def test_transient_data_is_not_stored() -> None:
    # recovery T6
    assert built(OtherChunk({"type": "data-note", "data": 1, "transient": True})) == []


@pytest.mark.parametrize(
    "chunk",
    [
        OtherChunk({"type": "from-the-future", "x": 1}),
        OtherChunk({"type": 5}),
        OtherChunk({}),
        OtherChunk({"type": "message-metadata", "messageMetadata": 3}),
        ErrorChunk("no"),
    ],
)
def test_chunks_of_unknown_kinds_leave_no_part(chunk: Chunk) -> None:
    assert built(chunk) == []


def test_metadata_is_merged_from_start_finish_and_its_own_chunk() -> None:
    builder = MessageBuilder("m", metadata={"a": 1})
    builder.apply(Start(message_metadata={"b": 2}))
    builder.apply(OtherChunk({"type": "message-metadata", "messageMetadata": {"c": 3}}))
    builder.apply(Finish(message_metadata={"a": 4}))
    assert builder.metadata == {"a": 4, "b": 2, "c": 3}


def test_metadata_of_unknown_kinds_of_chunks_is_not_merged() -> None:
    builder = MessageBuilder("m")
    builder.apply(OtherChunk({"type": "from-the-future", "messageMetadata": {"a": 1}}))
    assert builder.metadata is None


def test_the_first_metadata_needs_none_before_it() -> None:
    builder = MessageBuilder("m")
    builder.apply(Finish(message_metadata={"a": 1}))
    assert builder.metadata == {"a": 1}


def test_start_without_an_id_leaves_the_message_its_name() -> None:
    builder = MessageBuilder("own")
    builder.apply(Start())
    assert builder.message_id == "own"


def test_start_names_the_message() -> None:
    builder = MessageBuilder("old")
    builder.apply(Start("new"))
    assert builder.message_id == "new"


def test_start_of_a_continuation_does_not_name_the_message() -> None:
    # protocol section 3, recovery T7
    builder = MessageBuilder("old", is_continuation=True)
    builder.apply(Start("new"))
    assert builder.message_id == "old"


def test_a_finish_chunk_is_remembered() -> None:
    builder = MessageBuilder("m")
    assert not builder.is_finished
    builder.apply(Finish("length"))
    assert (builder.is_finished, builder.finish_reason) == (True, "length")


def test_finishing_ends_all_that_was_streaming() -> None:
    builder = MessageBuilder(
        "m", [{"type": "text", "text": "kept", "state": "streaming"}, {"type": "text", "text": ""}]
    )
    for chunk in (ReasoningStart("0"), TextStart("1"), ToolInputStart("c", "look")):
        builder.apply(chunk)
    builder.finish()
    assert [part.get("state") for part in builder.parts] == ["done", None, "done", "done", "input-streaming"]


def test_a_message_is_a_copy_that_later_chunks_do_not_change() -> None:
    builder = MessageBuilder("m")
    builder.apply(TextDelta("0", "a"))
    message = builder.message()
    builder.apply(TextDelta("0", "b"))
    assert message == UIMessage("m", "assistant", [{"type": "text", "text": "a", "state": "streaming"}])


def test_the_parts_that_a_builder_begins_with_are_copied() -> None:
    part = tool("input-available")
    built(ToolOutputAvailable("c", 1), parts=(part,))
    assert part == tool("input-available")


# --- rebuild ---


def test_a_rebuild_keeps_the_first_parts_and_puts_the_rest_behind() -> None:
    # recovery T7
    kept = [{"type": "text", "text": "Hel", "state": "done"}, tool("input-available")]
    builder = rebuild(
        kept,
        [
            b'{"type":"text-delta","id":"0","delta":"lo"}',
            b'{"type":"tool-output-available","toolCallId":"c","output":1}',
        ],
        message_id="m",
        is_continuation=True,
    )
    assert builder.message() == UIMessage(
        "m",
        "assistant",
        [kept[0], tool("output-available", output=1), {"type": "text", "text": "lo", "state": "streaming"}],
    )


def test_a_rebuild_skips_malformed_chunks() -> None:
    # recovery T6
    lines = [
        b"{", b"[]", b"null", b'{"type":"\xff"}', b"[" * 100_000,
        b'{"type":"text-delta","id":"0"}', b'{"type":"text-delta","id":"0","delta":"ok"}',
    ]  # fmt: skip
    assert rebuild([], lines).parts == [{"type": "text", "text": "ok", "state": "streaming"}]


# --- older messages ---


def test_an_outcome_reaches_the_older_message_that_has_the_call() -> None:
    # protocol B1, turns C7
    other = {"type": "data-x", "toolCallId": "c", "data": 1}
    messages = [UIMessage("m1", "assistant", [other, tool("input-available"), other]), UIMessage("m2", "assistant", [])]
    changed = update_older(messages, ToolOutputAvailable("c", 1))
    assert changed == UIMessage("m1", "assistant", [other, tool("output-available", output=1), other])
    assert messages[0].parts[1] == tool("input-available")


def test_the_first_outcome_in_an_older_message_stays() -> None:
    messages = [UIMessage("m1", "assistant", [tool("output-error", errorText="no")])]
    assert update_older(messages, ToolOutputAvailable("c", 1)) is None


def test_an_outcome_of_a_call_that_no_message_has_changes_nothing() -> None:
    messages = [UIMessage("m1", "assistant", [tool("input-available"), {"type": "text", "text": ""}])]
    assert update_older(messages, ToolOutputDenied("other")) is None


def test_rounds_are_told_apart_by_step_starts() -> None:
    a, b, step = {"type": "text"}, {"type": "file"}, {"type": "step-start"}
    assert rounds([a, step, b, a, step]) == [[a], [b, a], []]
