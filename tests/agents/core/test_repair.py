import pytest

from agents.core.chunks import JsonObject
from agents.core.repair import (
    INTERRUPTED_TEXT,
    approved_parts,
    interrupted_part,
    is_interrupted,
    keep_outcomes,
    repair_transcript,
)
from agents.sessions.messages import UIMessage


def tool(state: str, call_id: str = "c", **fields: object) -> JsonObject:
    return {"type": "tool-look", "toolCallId": call_id, "state": state, "input": {}, **fields}


def message(*parts: JsonObject, role: str = "assistant") -> UIMessage:
    return UIMessage("m", role, list(parts))


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested"])
def test_an_open_call_becomes_an_error(state: str) -> None:
    # turns A4, recovery section 5
    repaired, changed = repair_transcript([message(tool(state))])
    assert repaired == [message(tool("output-error", errorText=INTERRUPTED_TEXT))]
    assert changed == repaired


@pytest.mark.parametrize(
    "part",
    [
        tool("output-available", output=1),
        tool("output-error", errorText="no"),
        tool("output-denied"),
        tool("input-available", output=None),
        tool("input-available", result=1),
        tool("approval-responded", approval={"id": "a", "approved": True}),
        {"type": "text", "text": "x"},
    ],
)
def test_what_is_settled_or_approved_stays_as_it_is(part: JsonObject) -> None:
    # recovery X1
    given = message(part)
    repaired, changed = repair_transcript([given])
    assert repaired[0] is given
    assert changed == []


@pytest.mark.parametrize(
    ("given", "stored"), [('{"a":1}', {"a": 1}), ("", {}), (None, {}), ([], {}), (3, {}), ('{"a":', {})]
)
def test_a_settled_call_with_a_damaged_input_heals(given: object, stored: JsonObject) -> None:
    # FR-01
    damaged = message({**tool("output-available", output=1), "input": given})
    assert repair_transcript([damaged])[0] == [message({**tool("output-available", output=1), "input": stored})]


def test_a_call_whose_input_never_came_gets_an_empty_one() -> None:
    part = {"type": "tool-look", "toolCallId": "c", "state": "input-streaming"}
    assert repair_transcript([message(part)])[0][0].parts[0]["input"] == {}


def test_an_interrupted_call_keeps_no_open_approval() -> None:
    assert "approval" not in interrupted_part(tool("approval-requested", approval={"id": "a"}))


def test_a_hook_may_replace_an_interrupted_part_by_text() -> None:
    repaired, _ = repair_transcript([message(tool("input-available"))], lambda part: {"type": "text", "text": "gone"})
    assert repaired == [message({"type": "text", "text": "gone"})]


def test_only_changed_messages_are_reported_and_the_given_ones_stay() -> None:
    whole, broken = message({"type": "text", "text": "x"}), message(tool("input-available"))
    repaired, changed = repair_transcript([whole, broken])
    assert changed == [repaired[1]]
    assert broken.parts == [tool("input-available")]


def test_messages_of_users_are_not_repaired() -> None:
    given = message(tool("input-available"), role="user")
    assert repair_transcript([given]) == ([given], [])


def test_a_repaired_transcript_needs_no_second_repair() -> None:
    repaired, _ = repair_transcript([message(tool("input-streaming"), tool("approval-requested", "d"))])
    assert repair_transcript(repaired)[1] == []


def test_a_failed_call_is_not_an_interrupted_one() -> None:
    assert not is_interrupted(tool("output-error", errorText="no"))
    assert is_interrupted(interrupted_part(tool("input-available")))


def test_approved_calls_that_nobody_ran_are_found() -> None:
    # turns T8
    approved = tool("approval-responded", "c1", approval={"id": "a", "approved": True})
    messages = [
        message(approved, tool("approval-responded", "c2", approval={"id": "b", "approved": False})),
        message(tool("output-available", "c3", output=1, approval={"id": "c", "approved": True})),
        message(tool("approval-responded", "c4", output=1, approval={"id": "d", "approved": True})),
        message({"type": "text", "text": "x"}),
        message({**approved, "toolCallId": "c5"}, role="user"),
    ]
    assert approved_parts(messages) == [approved]


def test_storing_a_rebuilt_message_again_does_not_take_back_a_later_result() -> None:
    # recovery T7, turns R2
    rebuilt = message(tool("input-available", "c1"), tool("input-available", "c2"), {"type": "text", "text": "new"})
    stored = message(tool("output-available", "c1", output=1), tool("input-available", "c2"))
    assert keep_outcomes(rebuilt, stored) == message(
        tool("output-available", "c1", output=1), tool("input-available", "c2"), {"type": "text", "text": "new"}
    )


def test_storing_a_rebuilt_message_again_does_not_take_back_an_approval() -> None:
    approved = tool("approval-responded", approval={"id": "a", "approved": True})
    asked = tool("approval-requested", approval={"id": "a"})
    assert keep_outcomes(message(asked), message(approved)) == message(approved)


def test_an_open_call_in_storage_is_no_newer_than_the_stream() -> None:
    asked = tool("approval-requested", approval={"id": "a"})
    assert keep_outcomes(message(asked), message(tool("input-available"))) == message(asked)


def test_a_rebuilt_result_is_not_replaced_by_a_stored_approval() -> None:
    rebuilt = message(tool("output-available", output=1))
    stored = message(tool("approval-responded", approval={"id": "a", "approved": True}))
    assert keep_outcomes(rebuilt, stored) == rebuilt


def test_a_rebuilt_message_that_was_never_stored_stays() -> None:
    assert keep_outcomes(message(tool("input-available")), None) == message(tool("input-available"))
