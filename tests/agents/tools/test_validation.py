"""The check of an input, and what the model reads when it does not fit (tools G2)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest

from agents.errors import ToolInputInvalid
from agents.tools.tool import as_tool, tool
from agents.tools.validation import checked


class Line(msgspec.Struct):
    text: str
    size: int = 1


def invoice(
    unit: Literal["hour", "day"],
    lines: list[Line] = [],  # noqa: B006
    rates: dict[str, int] = {},  # noqa: B006
    note: str | None = None,
    count: Annotated[int, msgspec.Meta(ge=1)] = 1,
) -> None: ...


TAKES = as_tool(tool(invoice)).input


def check(**value):
    return checked(TAKES, value, tool_name="invoice")


def fault(**value):
    with pytest.raises(ToolInputInvalid) as caught:
        check(**value)
    return caught.value.message


def test_a_value_outside_of_a_literal_is_answered_with_its_place_and_the_allowed_ones():
    # facts, typed tools (3)
    assert fault(unit="week") == (
        "Invalid input for tool invoice: Invalid enum value 'week' - at `$.unit`. "
        'Allowed there: {"enum":["hour","day"]}'
    )


def test_a_missing_field_is_answered_with_what_it_may_be():
    assert fault() == (
        "Invalid input for tool invoice: Object missing required field `unit`. "
        'Allowed for `unit`: {"enum":["hour","day"]}'
    )


def test_an_unknown_field_is_answered_with_the_known_ones():
    assert fault(unit="day", color=1) == (
        "Invalid input for tool invoice: Object contains unknown field `color`. "
        "Known fields: unit, lines, rates, note, count"
    )


def test_a_fault_in_a_list_of_structs_is_answered_with_the_schema_of_the_field():
    assert fault(unit="day", lines=[{"text": "a"}, {"text": []}]) == (
        "Invalid input for tool invoice: Expected `str`, got `array` - at `$.lines[1].text`. "
        'Allowed there: {"type":"string"}'
    )


def test_a_fault_in_the_values_of_a_mapping_is_answered_with_their_schema():
    assert fault(unit="day", rates={"x": []}) == (
        "Invalid input for tool invoice: Expected `int`, got `array` - at `$.rates[...]`. "
        'Allowed there: {"type":"integer"}'
    )


def test_a_number_below_its_limit_is_answered_with_the_limit():
    assert fault(unit="day", count=0) == (
        "Invalid input for tool invoice: Expected `int` >= 1 - at `$.count`. "
        'Allowed there: {"type":"integer","minimum":1}'
    )


def test_a_huge_value_is_not_repeated_whole():
    assert len(fault(unit="w" * 100_000)) < 2_000


def test_numbers_in_text_are_taken():
    assert check(unit="day", count="7").count == 7


def test_a_list_in_text_is_read():
    # facts, typed tools (4)
    assert check(unit="day", lines='[{"text": "a"}]').lines == [Line("a")]


def test_an_object_in_text_inside_of_a_list_is_read():
    assert check(unit="day", lines=['{"text": "a"}']).lines == [Line("a")]


def test_text_where_text_is_wanted_is_never_read_as_json():
    assert check(unit="day", note='["a"]').note == '["a"]'


def test_text_that_holds_another_kind_of_json_stays_a_fault():
    assert "Expected `array`, got `str`" in fault(unit="day", lines='{"text": "a"}')


def test_a_fault_inside_of_json_in_text_is_the_one_that_is_told():
    assert "Expected `str`, got `array` - at `$.lines[0].text`" in fault(unit="day", lines='[{"text": []}]')


@pytest.mark.parametrize("text", ["[{", "words"])
def test_text_that_is_no_json_stays_a_fault(text):
    assert "Expected `array`, got `str`" in fault(unit="day", lines=text)


def test_the_given_object_is_not_changed_by_reading_text():
    value = {"unit": "day", "lines": "[]"}
    check(**value)
    assert value == {"unit": "day", "lines": "[]"}


def test_defaults_are_fresh_for_every_call():
    check(unit="day").lines.append(Line("leaked"))
    assert check(unit="day").lines == []


def test_an_absurdly_deep_input_is_a_fault_and_no_crash():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolInputInvalid):
        checked(TAKES, {"unit": "day", "lines": deep}, tool_name="invoice")


RAW = tool(
    description="x",
    input_schema={
        "properties": {"kind": {"enum": ["a", "b"]}, "inner": {"type": "object", "required": ["n"]}},
        "required": ["kind"],
    },
    execute=print,
).input


def test_a_raw_json_schema_passes_the_object_through():
    assert checked(RAW, {"kind": "a", "more": 1}, tool_name="raw") == {"kind": "a", "more": 1}


def test_a_raw_json_schema_names_place_and_allowed_values():
    with pytest.raises(ToolInputInvalid) as caught:
        checked(RAW, {"kind": "c"}, tool_name="raw")
    assert caught.value.message == (
        "Invalid input for tool raw: 'c' is not one of ['a', 'b'] - at `$.kind`. Allowed there: "
        '{"enum":["a","b"]}'
    )


def test_a_raw_json_schema_that_points_to_the_network_fetches_nothing():
    remote = tool(
        description="x",
        input_schema={"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        execute=print,
    ).input
    with pytest.raises(Exception, match="Unresolvable") as caught:
        checked(remote, {"a": 1}, tool_name="remote")
    assert "127.0.0.1" in str(caught.value)
