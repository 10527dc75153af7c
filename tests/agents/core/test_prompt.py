import pytest

from agents.core.chunks import JsonObject
from agents.core.prompt import NUDGE_TEXT, system_text, to_model_messages, with_nudge
from agents.models.model import FileBlock, ModelMessage, ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from agents.sessions.messages import UIMessage

STEP: JsonObject = {"type": "step-start"}


def user(*parts: JsonObject) -> UIMessage:
    return UIMessage("u", "user", list(parts))


def assistant(*parts: JsonObject) -> UIMessage:
    return UIMessage("a", "assistant", list(parts))


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def call(call_id: str = "c", **fields: object) -> JsonObject:
    part = {"type": "tool-look", "toolCallId": call_id, "toolName": "look", "state": "output-available"}
    return {**part, "input": {"q": call_id}, "output": f"result {call_id}", **fields}


def said(*blocks: object) -> ModelMessage:
    return ModelMessage(role="assistant", blocks=blocks)  # type: ignore[arg-type]


def asked(*blocks: object) -> ModelMessage:
    return ModelMessage(role="user", blocks=blocks)  # type: ignore[arg-type]


def use(call_id: str = "c") -> ToolUseBlock:
    return ToolUseBlock(tool_call_id=call_id, tool_name="look", input={"q": call_id})


def result(words: str, call_id: str = "c", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(tool_call_id=call_id, tool_name="look", text=words, is_error=is_error)


def test_text_of_both_roles_becomes_text_blocks() -> None:
    prompt = to_model_messages([user(text("hi")), assistant(STEP, text("hello"))])
    assert prompt == (asked(TextBlock(text="hi")), said(TextBlock(text="hello")))


def test_every_use_has_its_result_in_the_next_message() -> None:
    # turns A6: two parallel calls, then the answer
    prompt = to_model_messages([assistant(STEP, text("I look."), call("c1"), call("c2"), STEP, text("Found."))])
    assert prompt == (
        said(TextBlock(text="I look."), use("c1"), use("c2")),
        asked(result("result c1", "c1"), result("result c2", "c2")),
        said(TextBlock(text="Found.")),
    )


def test_an_answer_that_was_cut_and_continued_reads_like_one() -> None:
    prompt = to_model_messages([assistant(STEP, text("Hello wor"), STEP, text("ld."), call())])
    assert prompt == (said(TextBlock(text="Hello world."), use()), asked(result("result c")))


@pytest.mark.parametrize(("output", "words"), [("plain", "plain"), ({"a": [1]}, '{"a":[1]}'), (None, "null"), ("", "")])
def test_an_output_is_sent_as_text(output: object, words: str) -> None:
    assert to_model_messages([assistant(call(output=output))])[1] == asked(result(words))


def test_a_failed_call_is_sent_as_an_error() -> None:
    # turns T6
    part = {key: value for key, value in call(state="output-error", errorText="broken").items() if key != "output"}
    assert to_model_messages([assistant(part)])[1] == asked(result("broken", is_error=True))


@pytest.mark.parametrize("state", ["output-denied", "approval-responded"])
@pytest.mark.parametrize(("reason", "words"), [("too dear", "too dear"), (None, "Tool call execution denied.")])
def test_a_denied_call_is_sent_as_an_error_with_the_reason(state: str, reason: str | None, words: str) -> None:
    # turns A6
    part: JsonObject = {"type": "tool-look", "toolCallId": "c", "state": state, "input": {"q": "c"}}
    part["approval"] = {"id": "a", "approved": False, "reason": reason}
    assert to_model_messages([assistant(part)]) == (said(use()), asked(result(words, is_error=True)))


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested", "approval-responded"])
def test_a_call_without_an_outcome_is_not_sent(state: str) -> None:
    # turns A6
    part: JsonObject = {
        "type": "tool-look",
        "toolCallId": "c",
        "state": state,
        "approval": {"id": "a", "approved": True},
    }
    assert to_model_messages([assistant(text("x"), part)]) == (said(TextBlock(text="x")),)


@pytest.mark.parametrize("call_id", ["", None, 5])
def test_a_call_without_an_id_is_not_sent(call_id: object) -> None:
    assert to_model_messages([assistant({**call(), "toolCallId": call_id})]) == ()


def test_an_id_is_sent_once() -> None:
    # a second use of an id makes vendors refuse the whole conversation
    prompt = to_model_messages([assistant(call()), assistant(call(output="again"), text("x"))])
    assert prompt == (said(use()), asked(result("result c")), said(TextBlock(text="x")))


def test_a_damaged_input_is_sent_as_an_object() -> None:
    # FR-01
    prompt = to_model_messages([assistant({**call(), "input": ""})])
    assert prompt[0] == said(ToolUseBlock(tool_call_id="c", tool_name="look", input={}))


def test_the_name_of_a_call_is_taken_from_its_type_if_it_has_no_other() -> None:
    part = {key: value for key, value in call().items() if key != "toolName"}
    assert to_model_messages([assistant(part)]) == (said(use()), asked(result("result c")))


def test_a_dynamic_call_has_its_name_beside_its_type() -> None:
    assert to_model_messages([assistant({**call(), "type": "dynamic-tool"})])[0] == said(use())


def test_a_failed_call_without_a_text_says_that_it_failed() -> None:
    assert to_model_messages([assistant(call(state="output-error"))])[1] == asked(
        result("The tool failed.", is_error=True)
    )


def test_a_denied_call_without_its_approval_is_sent_as_denied() -> None:
    prompt = to_model_messages([assistant(call(state="output-denied", approval=None))])
    assert prompt[1] == asked(result("Tool call execution denied.", is_error=True))


def test_signed_reasoning_goes_back_unchanged() -> None:
    signed = {"anthropic": {"signature": "s"}}
    part = {"type": "reasoning", "text": "hm", "providerMetadata": signed}
    prompt = to_model_messages([assistant(part, call())])
    assert prompt[0] == said(ReasoningBlock(text="hm", provider_metadata=signed), use())


def test_reasoning_without_a_signature_is_not_sent() -> None:
    assert to_model_messages([assistant({"type": "reasoning", "text": "hm"}, text("x"))]) == (
        said(TextBlock(text="x")),
    )


def test_no_assistant_message_ends_with_reasoning() -> None:
    part = {"type": "reasoning", "text": "hm", "providerMetadata": {"anthropic": {"signature": "s"}}}
    assert to_model_messages([assistant(text("x"), part)]) == (said(TextBlock(text="x")),)


def test_data_and_sources_are_not_sent() -> None:
    # turns A6
    parts: tuple[JsonObject, ...] = (
        {"type": "data-note", "data": 1},
        {"type": "source-url", "url": "u"},
        {"type": 5},
        {},
        {"type": "file"},
    )
    assert to_model_messages([assistant(*parts), user(text("x"), *parts)]) == (asked(TextBlock(text="x")),)


def test_files_and_reasoning_of_the_wrong_role_are_not_sent() -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "data:,", "providerMetadata": {"v": 1}}
    reasoning = {"type": "reasoning", "text": "hm", "providerMetadata": {"v": 1}}
    assert to_model_messages([assistant(file, text("x")), user(reasoning, text("y"))]) == (
        said(TextBlock(text="x")),
        asked(TextBlock(text="y")),
    )


def test_a_file_of_unknown_kind_is_sent_as_bytes() -> None:
    assert to_model_messages([user({"type": "file", "url": "data:,"})]) == (
        asked(FileBlock(media_type="application/octet-stream", url="data:,")),
    )


def test_files_of_users_are_sent() -> None:
    part = {"type": "file", "mediaType": "image/png", "url": "data:,", "filename": "a.png"}
    assert to_model_messages([user(part)]) == (
        asked(FileBlock(media_type="image/png", url="data:,", filename="a.png")),
    )


def test_a_user_message_without_content_is_not_blank() -> None:
    # a blank text block makes vendors refuse every later request of the conversation
    assert to_model_messages([user(text(" \n")), user()]) == (
        asked(TextBlock(text="(empty message)")),
        asked(TextBlock(text="(empty message)")),
    )


@pytest.mark.parametrize("words", ["", "  \n", None, 7])
def test_blank_text_of_the_assistant_is_not_sent(words: object) -> None:
    assert to_model_messages([assistant({"type": "text", "text": words})]) == ()


def test_system_messages_join_the_system_prompt() -> None:
    messages = [UIMessage("s", "system", [text(words)]) for words in ("Be brief.", " ", "Be kind.")]
    assert system_text([*messages, user(text("hi"))]) == "Be brief.\n\nBe kind."
    assert to_model_messages(messages) == ()


def test_a_prompt_that_ends_with_the_assistant_is_nudged() -> None:
    # turns A9, recovery X3, FR-03
    prompt = to_model_messages([user(text("hi")), assistant(text("Hel"))])
    assert with_nudge(prompt) == (
        *prompt,
        ModelMessage(role="user", blocks=(TextBlock(text=NUDGE_TEXT),), is_nudge=True),
    )


@pytest.mark.parametrize("messages", [[], [user(text("hi"))], [user(text("hi")), assistant(call())]])
def test_a_prompt_that_ends_with_a_user_or_a_tool_result_is_not_nudged(messages: list[UIMessage]) -> None:
    # FR-03
    prompt = to_model_messages(messages)
    assert with_nudge(prompt) is prompt


def test_blank_text_between_two_cuts_is_sent_with_its_neighbours() -> None:
    # recovery T6: a continuation that does not see the blank writes what comes before it once more
    parts = [{"type": "text", "text": text} for text in ("abc", " ", "def")]
    prompt = to_model_messages([UIMessage(id="a", role="assistant", parts=parts)])
    assert prompt[-1].blocks == (TextBlock(text="abc def"),)
