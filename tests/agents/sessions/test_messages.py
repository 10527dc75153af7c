import msgspec
import pytest

from agents.core.chunks import JsonObject
from agents.sessions.messages import (
    UIMessage,
    decode_message,
    encode_message,
    input_from_text,
    message_from_object,
    normalise_input,
    sanitise,
    user_message,
)


def test_the_text_of_a_message_is_its_text_parts_joined() -> None:
    message = UIMessage("m", "assistant", [
        {"type": "text", "text": "one "}, {"type": "reasoning", "text": "no"}, {"type": "text", "text": "two"},
    ])  # fmt: skip
    assert message.text == "one two"


def test_words_before_and_behind_a_tool_call_are_paragraphs_of_the_text() -> None:
    call = {"type": "tool-list", "toolCallId": "c1", "state": "output-available"}
    step: JsonObject = {"type": "step-start"}
    first, second = {"type": "text", "text": "I look first."}, {"type": "text", "text": "I fou"}
    # An interrupted text goes on in a part of its own, in mid-word.
    message = UIMessage("m", "assistant", [first, call, step, second, step, {"type": "text", "text": "nd it."}])
    assert message.text == "I look first.\n\nI found it."


def test_the_text_of_a_message_has_no_gap_beyond_that_which_its_writer_made() -> None:
    call = {"type": "dynamic-tool", "toolCallId": "c1", "toolName": "add"}
    parts: list[JsonObject] = [{"type": "text", "text": "Let me see. "}, call, {"type": "text", "text": "Three."}]
    assert UIMessage("m", "assistant", parts).text == "Let me see. Three."


def test_damaged_text_parts_do_not_break_the_text_of_a_message() -> None:
    assert UIMessage("m", "user", [{"type": "text"}, {"type": "text", "text": None}, {}]).text == ""


def test_text_becomes_a_user_message_with_one_part() -> None:
    assert user_message("hi", "m1") == UIMessage("m1", "user", [{"type": "text", "text": "hi"}])


def test_empty_text_becomes_a_user_message_too() -> None:
    # turns P5
    assert user_message("", "m1") == UIMessage("m1", "user", [{"type": "text", "text": ""}])


def test_a_message_passed_as_input_keeps_its_id() -> None:
    message = UIMessage("own", "user", [])
    assert user_message(message, "fresh") is message


def test_a_message_without_an_id_gets_the_fresh_one() -> None:
    assert user_message(UIMessage("", "user", []), "fresh") == UIMessage("fresh", "user", [])


def test_a_json_object_without_id_and_role_is_a_user_message() -> None:
    assert user_message({"parts": [{"type": "text", "text": "x"}]}, "fresh") == UIMessage(
        "fresh", "user", [{"type": "text", "text": "x"}]
    )


def test_a_json_object_keeps_its_own_id_and_role() -> None:
    assert user_message({"id": "own", "role": "system", "parts": []}, "fresh") == UIMessage("own", "system", [])


def test_unknown_keys_and_parts_survive_the_codec() -> None:
    text = b'{"createdAt":5,"id":"m","role":"user","parts":[{"type":"data-x","data":[1],"new":{}}],"metadata":{"a":1}}'
    message = decode_message(text)
    assert message.extra == {"createdAt": 5}
    assert msgspec.json.decode(encode_message(message)) == msgspec.json.decode(text)


def test_a_message_without_metadata_is_written_without_it() -> None:
    assert encode_message(UIMessage("m", "user", [])) == b'{"id":"m","role":"user","parts":[]}'


def test_an_unknown_key_cannot_replace_a_known_one() -> None:
    assert encode_message(UIMessage("m", "user", [], None, {"id": "forged"})) == b'{"id":"m","role":"user","parts":[]}'


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {"role": "user", "parts": []},
        {"id": "m", "role": "robot", "parts": []},
        {"id": "m", "role": "user", "parts": ["text"]},
        {"id": "m", "role": "user", "parts": {}},
    ],
)
def test_what_is_no_message_is_refused(value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        message_from_object(value)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ("", {}),
        ("[]", {}),
        ('{"a":', {}),
        ("\ud800", {}),
        ("[" * 100_000, {}),
        (None, {}),
        ([], {}),
        (3, {}),
    ],
)
def test_an_input_is_always_an_object(given: object, stored: object) -> None:
    # protocol U1
    assert normalise_input(given) == stored


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", {}),
        ("null", {}),
        ("[]", {}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ('{"a":', {}),
    ],
)
def test_argument_text_of_a_model_becomes_an_object(text: str, stored: object) -> None:
    # FR-01, cases a to e
    assert input_from_text(text) == stored


@pytest.mark.parametrize("kind", ["tool-x", "dynamic-tool"])
def test_a_message_is_written_with_objects_as_tool_inputs(kind: str) -> None:
    # protocol U1
    message = UIMessage("m", "assistant", [{"type": "text", "text": ""}, {"type": kind, "input": '{"a":1}'}])
    assert decode_message(encode_message(message)).parts == [
        {"type": "text", "text": ""},
        {"type": kind, "input": {"a": 1}},
    ]


def test_an_input_that_is_not_a_tools_is_left_alone() -> None:
    message = UIMessage("m", "assistant", [{"type": "data-x", "input": "text"}])
    assert decode_message(encode_message(message)).parts == [{"type": "data-x", "input": "text"}]


@pytest.mark.parametrize("key", ["providerMetadata", "callProviderMetadata"])
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"openai": {"itemId": "i"}}, None),
        ({"openai": {"reasoningEncryptedContent": "x", "kept": 1}}, {"openai": {"kept": 1}}),
        ({"openai": {"itemId": "i"}, "anthropic": {"signature": "s"}}, {"anthropic": {"signature": "s"}}),
        ({"anthropic": {"itemId": "i"}}, {"anthropic": {"itemId": "i"}}),
        ({"openai": 5}, {"openai": 5}),
        (5, 5),
    ],
)
def test_ids_that_are_valid_once_are_not_stored(key: str, given: object, stored: object) -> None:
    # turns C8
    part = {"type": "text", "text": "x"}
    expected = part if stored is None else {**part, key: stored}
    assert sanitise(UIMessage("m", "assistant", [{**part, key: given}])).parts == [expected]


@pytest.mark.parametrize("words", ["", " \n"])
def test_blank_reasoning_is_not_stored(words: str) -> None:
    # turns C8
    assert sanitise(UIMessage("m", "assistant", [{"type": "reasoning", "text": words}])).parts == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "text": "hm"},
        {"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"redactedData": "x"}}},
        {"type": "text", "text": ""},
    ],
)
def test_other_parts_are_stored_as_they_are(part: JsonObject) -> None:
    message = UIMessage("m", "assistant", [part])
    assert sanitise(message) is message
