import msgspec
import pytest

from agents.core.chunks import JsonObject
from agents.core.truncation import truncate_old
from agents.sessions.messages import UIMessage


def shortened(part: JsonObject) -> JsonObject:
    old = UIMessage("old", "assistant", [part])
    return truncate_old([old, *(UIMessage(str(n), "user", []) for n in range(4))])[0].parts[0]


def output_of(output: object) -> object:
    return shortened({"type": "tool-x", "toolCallId": "c", "output": output})["output"]


def test_the_last_four_messages_stay_whole() -> None:
    # turns A5
    messages = [UIMessage(str(n), "assistant", [{"type": "text", "text": "x" * 20_000}]) for n in range(5)]
    lengths = [len(message.text) for message in truncate_old(messages)]
    assert lengths == [10_027, 20_000, 20_000, 20_000, 20_000]


def test_long_text_is_cut_and_says_how_much_is_missing() -> None:
    # turns A5
    part = shortened({"type": "text", "text": "x" * 10_007})
    assert part["text"] == "x" * 10_000 + "... [truncated 7 chars]"


def test_text_of_ten_thousand_characters_is_not_cut() -> None:
    assert shortened({"type": "text", "text": "x" * 10_000})["text"] == "x" * 10_000


def test_the_stored_message_is_not_changed() -> None:
    message = UIMessage("m", "assistant", [{"type": "text", "text": "x" * 20_000}])
    truncate_old([message] * 5)
    assert len(message.text) == 20_000


def test_a_message_that_needs_no_cut_is_the_same_object() -> None:
    message = UIMessage("m", "assistant", [{"type": "tool-x", "output": "short"}, {"type": "file"}])
    assert truncate_old([message] * 5)[0] is message


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "text": "x" * 20_000},
        {"type": "data-x", "output": "x" * 1_000},
        {"type": "tool-x", "state": "input-available", "input": {"q": "x" * 1_000}},
        {"type": "text", "text": None},
    ],
)
def test_nothing_but_text_and_outputs_is_cut(part: JsonObject) -> None:
    # turns A5
    assert shortened(part) is part


@pytest.mark.parametrize(
    "output",
    [
        "x" * 1_000,
        '"' * 1_000,
        "ü" * 1_000,
        [{"n": n, "line": "y" * 30} for n in range(100)],
        {f"key{n}": ["z" * 100, n] for n in range(100)},
        {"deep": {"deeper": {"deepest": ["x" * 5_000]}}},
        {"k" * 600: 1},
        [10**600, 1],
        ["x" * 465, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        10**600,
    ],
)
def test_an_output_is_at_most_500_characters_of_json(output: object) -> None:
    # turns A5
    assert len(msgspec.json.encode(output_of(output)).decode()) <= 500


def test_cut_text_says_how_much_is_missing() -> None:
    assert output_of("x" * 1_000) == "x" * 473 + "... [truncated 527 chars]"


def test_an_output_of_500_characters_is_not_cut() -> None:
    assert output_of("x" * 498) == "x" * 498


def test_a_list_stays_a_list_of_its_first_items() -> None:
    assert output_of([["a" * 200], ["b" * 200], ["c" * 200]]) == [
        ["a" * 200],
        ["b" * 200],
        ["c" * 59 + "... [truncated 141 chars]"],
    ]


def test_an_object_stays_an_object_with_its_first_fields() -> None:
    assert output_of({"id": 7, "body": "b" * 1_000, "tail": 1}) == {
        "id": 7,
        "body": "b" * 457 + "... [truncated 543 chars]",
    }


def test_a_list_is_cut_where_nothing_more_fits() -> None:
    assert output_of(["a" * 480, "b" * 100, 1]) == ["a" * 480]


def test_escaped_characters_count_as_they_are_written() -> None:
    # 78 of them at 6 characters each, the note (25) and the quotes (2) are 495; one more would be 501
    assert output_of("\x00" * 1_000) == "\x00" * 78 + "... [truncated 922 chars]"
