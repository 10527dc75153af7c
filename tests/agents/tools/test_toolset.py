"""The tools of a turn (tools G1, G5; turns T1, T3, T4, T7)."""

from __future__ import annotations

import pytest

from agents.errors import ToolInputInvalid
from agents.tools.tool import tool
from agents.tools.toolset import SOURCES, Toolset, check_tools, client_tools, merge, method_tools
from runtime.errors import UsageError


def named(text):
    return tool(description=text, input_schema={}, execute=lambda value: text)


def call(made):
    assert made.execute is not None
    return made.execute()


class Base:
    @tool
    def shared(self) -> str:
        """From Base."""
        return "base"

    @tool
    def only_base(self) -> str:
        """From Base."""
        return "base"


class Derived(Base):
    @tool
    def shared(self) -> str:
        """From Derived."""
        return "derived"

    def helper(self) -> None: ...


def test_the_methods_of_all_base_classes_are_found_and_the_most_derived_wins():
    found = method_tools(Derived())
    assert {name: made.description for name, made in found.items()} == {
        "shared": "From Derived.",
        "only_base": "From Base.",
    }
    assert call(found["shared"]) == "derived"


def test_a_method_that_overrides_a_tool_without_the_decorator_takes_it_away():
    class Quiet(Base):
        def shared(self) -> str:
            return "quiet"

    assert list(method_tools(Quiet())) == ["only_base"]


def test_two_methods_with_one_tool_name_are_refused_and_both_named():
    class Twins:
        @tool(name="send")
        def mail(self) -> None: ...

        @tool(name="send")
        def post(self) -> None: ...

    with pytest.raises(UsageError, match=r"Twins has two tools named 'send': mail and post"):
        check_tools(Twins)


def test_a_renamed_override_does_not_collide_with_what_it_overrides():
    class Renamed(Base):
        @tool(name="other")
        def shared(self) -> str:
            return "renamed"

    assert list(method_tools(Renamed())) == ["other", "only_base"]


def test_the_sources_stand_in_the_order_of_the_specification():
    # tools G1, and G5 for the place of methods
    assert SOURCES == (
        "workspace", "fetch", "methods", "get_tools", "actions", "extensions", "session", "skills", "mcp", "client",
    )  # fmt: skip


def test_of_two_tools_with_one_name_the_one_of_the_later_source_stays():
    sources = {source: {"x": named(source)} for source in reversed(SOURCES)}
    for source in reversed(SOURCES):
        assert merge(sources).find("x").description == source
        del sources[source]


def test_get_tools_wins_over_a_method():
    # tools G5
    merged = merge({"methods": method_tools(Base()), "get_tools": {"shared": named("mine")}})
    assert merged.find("shared").description == "mine"


def test_the_key_in_get_tools_is_the_name():
    @tool
    def add() -> None: ...

    merged = merge({"get_tools": {"plus": add, "minus": named("x")}})
    assert [spec.name for spec in merged.specs()] == ["plus", "minus"]


def test_methods_in_get_tools_get_the_agent():
    merged = merge({"get_tools": {"a": Base.shared, "b": Base().shared}}, agent=Derived())
    assert (call(merged.find("a")), call(merged.find("b"))) == ("base", "base")


def test_a_value_that_is_no_tool_is_refused_with_its_place():
    with pytest.raises(UsageError, match=r"get_tools\['x'\] holds"):
        merge({"get_tools": {"x": 1}})


def test_an_unknown_source_is_refused():
    with pytest.raises(UsageError, match="unknown source of tools: plugins"):
        merge({"plugins": {}})


def test_only_keeps_the_named_and_overlooks_the_missing():
    # turns T3
    assert list(merge({"get_tools": {"a": named("a"), "b": named("b")}}).only(["b", "c"])) == ["b"]


def test_without_drops_the_named():
    # turns T1
    assert list(merge({"get_tools": {"a": named("a"), "b": named("b")}}).without(["b", "c"])) == ["a"]


def test_tools_of_the_turn_lie_on_top():
    # turns T1
    laid = merge({"get_tools": {"a": named("a")}}).laid_under({"a": named("new"), "b": named("b")})
    assert {name: made.description for name, made in laid.tools.items()} == {"a": "new", "b": "b"}


def test_a_tool_that_is_not_there_is_named_with_those_that_are():
    # turns T7
    with pytest.raises(ToolInputInvalid) as caught:
        merge({"get_tools": {"a": named("a"), "b": named("b")}}).find("c")
    assert caught.value.message == "There is no tool 'c'. Available: a, b"


def test_an_empty_set_says_that_there_is_none():
    with pytest.raises(ToolInputInvalid, match="Available: none"):
        Toolset().find("c")


def test_client_tools_have_no_executor_and_take_any_object_by_default():
    # turns T4
    found = client_tools([{"name": "locate"}, {"name": "ask", "description": "d", "parameters": {"properties": {}}}])
    assert [(made.spec().description, made.input_schema, made.is_client_tool) for made in found.values()] == [
        ("", {"type": "object"}, True),
        ("d", {"type": "object", "properties": {}}, True),
    ]


@pytest.mark.parametrize("definition", [{}, {"name": "two words"}, {"name": "a", "parameters": [1]}])
def test_a_client_tool_that_cannot_be_offered_is_refused(definition):
    with pytest.raises(UsageError):
        client_tools([definition])
