"""The two ways to define a tool, and the input of a call (tools G5; FR-01)."""

from __future__ import annotations

import msgspec
import pytest

from agents.errors import ToolInputInvalid
from agents.models.model import ToolSpec
from agents.tools.tool import Tool, as_tool, parse_input, tool
from runtime.errors import UsageError


def call(made, *arguments):
    assert made.execute is not None
    return made.execute(*arguments)


class Agent:
    name = "a-1"

    @tool
    async def greet(self, who: str) -> str:
        """Greet somebody."""
        return f"{self.name} greets {who}"

    @tool(name="farewell", needs_approval=True, timeout=2.5)
    def leave(self) -> str:
        """Say good-bye."""
        return "bye"


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


def test_a_decorated_method_stays_an_ordinary_method():
    assert Agent().leave() == "bye"


def test_the_function_gives_name_description_and_schema():
    spec = as_tool(Agent.greet).spec()
    assert spec == ToolSpec(
        name="greet",
        description="Greet somebody.",
        input_schema={
            "type": "object",
            "properties": {"who": {"type": "string"}},
            "required": ["who"],
            "additionalProperties": False,
        },
    )


def test_the_decorators_options_are_the_tools():
    made = as_tool(Agent.leave)
    assert (made.name, made.needs_approval, made.timeout) == ("farewell", True, 2.5)


def test_a_bound_tool_has_its_agent():
    bound = as_tool(Agent.leave, agent=Agent())
    assert call(bound) == "bye"


def test_a_tool_taken_from_an_instance_is_bound_to_that_instance():
    assert call(as_tool(Agent().leave, agent=None)) == "bye"


def test_a_plain_function_needs_no_agent():
    assert call(as_tool(now)) == "noon"


def test_the_second_form_takes_the_input_as_one_value():
    made = tool(description="Add", input_schema={"properties": {"a": {"type": "integer"}}}, execute=lambda value: value)
    assert made.input_schema == {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert call(made, {"a": 1}) == {"a": 1}


def test_the_second_form_takes_its_schema_from_the_function_if_none_is_given():
    def add(a: int, b: int) -> int:
        return a + b

    assert tool(description="Add", execute=add).input_schema["required"] == ["a", "b"]


def test_the_second_form_takes_a_type_as_schema():
    class Sum(msgspec.Struct):
        a: int

    made = tool(description="Add", input_schema=Sum, execute=lambda value: value.a)
    assert made.input_schema["properties"] == {"a": {"type": "integer"}}


def test_without_execute_the_client_runs_the_tool():
    made = tool(description="Ask where the user is")
    assert made.is_client_tool
    assert made.input_schema == {"type": "object"}


@pytest.mark.parametrize("schema", [{"type": "array"}, list[int], 7])
def test_a_schema_that_is_no_object_is_refused(schema):
    with pytest.raises(UsageError):
        tool(description="Add", input_schema=schema, execute=print)


def test_execute_without_description_is_refused():
    with pytest.raises(UsageError, match="needs description="):
        tool(execute=print)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "dotted.name"])
def test_a_name_that_no_vendor_takes_is_refused(name):
    with pytest.raises(UsageError, match="tool name"):
        tool(name=name)(lambda: None)


@pytest.mark.parametrize("timeout", [0, -1, "5", True])
def test_a_timeout_that_is_no_positive_number_is_refused(timeout):
    with pytest.raises(UsageError, match="timeout must be a positive number of seconds"):
        tool(timeout=timeout)


def test_an_approval_that_is_neither_bool_nor_function_is_refused():
    with pytest.raises(UsageError, match="needs_approval must be a bool or a function"):
        tool(needs_approval="yes")  # type: ignore[call-overload]


def test_the_decorator_on_something_else_than_a_function_is_refused():
    with pytest.raises(UsageError, match="plain function or method"):

        class Wrong:
            @tool
            @staticmethod
            def ping() -> None: ...


def test_a_value_that_is_no_tool_is_refused_with_its_place():
    with pytest.raises(UsageError, match=r"get_tools\(\) holds .* which is no tool"):
        as_tool(print)


def add_tool() -> Tool:
    @tool
    def add(a: int = 0) -> int:
        return a

    return as_tool(add)


@pytest.mark.parametrize("text", ["", "  ", "null", "[]", "{}", "{\n}", " [ ]\n", '"{}"', '"{\\n}"', '""'])
def test_no_arguments_are_the_empty_object_however_the_model_says_it(text):
    # FR-01 (a), (b), (c)
    assert parse_input(add_tool(), text) == {}


@pytest.mark.parametrize("text", ['{"a":1}', '"{\\"a\\":1}"'])
def test_an_object_is_found_also_inside_of_a_string(text):
    # FR-01 (d)
    assert parse_input(add_tool(), text) == {"a": 1}


@pytest.mark.parametrize("text", ['{"a":', '{"a":1', "[1]", "3", "0", "false", '"words"', "true", "\ud800"])
def test_what_is_no_whole_object_is_refused_and_not_run_with_defaults(text):
    # FR-01 (e)
    with pytest.raises(ToolInputInvalid, match="Invalid input for tool add: not a complete JSON object"):
        parse_input(add_tool(), text)


def test_an_object_that_does_not_fit_is_refused():
    with pytest.raises(ToolInputInvalid, match="Expected `int`, got `array`"):
        parse_input(add_tool(), '{"a":[]}')


def test_the_parsed_input_is_what_the_model_wrote_and_not_what_it_was_converted_to():
    assert parse_input(add_tool(), '{"a":"5"}') == {"a": "5"}


def test_the_input_of_a_client_tool_is_only_parsed():
    assert parse_input(tool(description="Ask"), '{"anything":1}') == {"anything": 1}
