import msgspec
import pytest

from agents.sessions.messages import (
    UIMessage,
    decode_message,
    encode_message,
    input_from_text,
    message_from_object,
    normalise_input,
    user_message,
)


def test_the_text_of_a_message_is_its_text_parts_joined() -> None:
    message = UIMessage("m", "assistant", [
        {"type": "text", "text": "one "}, {"type": "reasoning", "text": "no"}, {"type": "text", "text": "two"},
    ])  # fmt: skip
    assert message.text == "one two"


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
