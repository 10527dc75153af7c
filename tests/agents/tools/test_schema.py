"""From a signature to a JSON Schema: the traps of msgspec, and what is refused at the definition (tools G5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from agents.tools.schema import ToolContext, describe
from agents.tools.tool import as_tool, tool
from runtime.errors import UsageError


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Circle(msgspec.Struct):
    radius: float


@dataclass
class Size:
    width: int


class Options(TypedDict):
    depth: int


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def schema_of(function):
    return as_tool(tool(function)).input_schema


def refusal(function):
    with pytest.raises(UsageError) as caught:
        tool(function)
    return caught.value.message


def test_a_signature_becomes_one_closed_object_with_what_has_no_default_required():
    def weather(city: str, days: int = 3) -> None: ...

    assert schema_of(weather) == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_tool_without_parameters_takes_the_empty_object():
    def ping() -> None: ...

    assert schema_of(ping) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_the_top_level_reference_is_inlined_and_other_definitions_are_kept():
    # facts, typed tools (1)
    def draw(points: list[Point]) -> None: ...

    schema = schema_of(draw)
    assert schema["properties"]["points"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert list(schema["$defs"]) == ["Point"]
    assert "$ref" not in schema


def test_dataclasses_and_typed_dicts_are_offered_like_structs():
    def resize(size: Size, options: Options) -> None: ...

    definitions = schema_of(resize)["$defs"]
    assert definitions["Size"]["properties"] == {"width": {"type": "integer"}}
    assert definitions["Options"]["properties"] == {"depth": {"type": "integer"}}


def test_text_in_annotated_is_the_description_of_the_parameter():
    # facts, typed tools (2)
    def weather(city: Annotated[str, "Name of the city"]) -> None: ...

    assert schema_of(weather)["properties"]["city"] == {"type": "string", "description": "Name of the city"}


def test_text_in_annotated_describes_the_items_of_a_list_too():
    def weather(cities: list[Annotated[str, "Name of a city"]]) -> None: ...

    items = schema_of(weather)["properties"]["cities"]["items"]
    assert items == {"type": "string", "description": "Name of a city"}


def test_text_in_annotated_stands_beside_limits():
    def weather(days: Annotated[int, msgspec.Meta(ge=1), "How many days"]) -> None: ...

    assert schema_of(weather)["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many days",
    }


def test_a_union_of_two_untagged_structs_is_refused_and_the_parameter_named():
    # facts, typed tools (5)
    def draw(name: str, shape: Point | Circle) -> None: ...

    message = refusal(draw)
    assert "draw: the type" in message
    assert "of parameter shape" in message


def test_a_mutable_default_stays_visible_in_the_schema():
    # facts, typed tools (6)
    def search(tags: list[str] = ["new"], weights: dict[str, float] = {}) -> None: ...  # noqa: B006

    properties = schema_of(search)["properties"]
    assert properties["tags"]["default"] == ["new"]
    assert properties["weights"]["default"] == {}


def test_a_default_that_is_no_json_stays_unsaid():
    marker: Any = object()

    def search(tag: str = marker) -> None: ...

    assert schema_of(search)["properties"]["tag"] == {"type": "string"}


def test_literal_values_keep_the_order_of_the_source():
    # facts, typed tools (6)
    def mail(priority: Literal["urgent", "normal", "low"]) -> None: ...

    assert schema_of(mail)["properties"]["priority"] == {"enum": ["urgent", "normal", "low"]}


def test_enum_values_keep_the_order_of_the_source():
    def paint(color: Color) -> None: ...

    assert schema_of(paint)["$defs"]["Color"]["enum"] == ["red", "blue"]


def test_a_default_of_none_makes_null_an_allowed_value():
    def search(limit: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    limit = schema_of(search)["properties"]["limit"]
    assert limit == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}


def test_a_star_parameter_is_refused_and_named():
    # facts, typed tools (7)
    def search(*words: str) -> None: ...

    assert refusal(search) == ("tool search: parameter *words cannot be offered to a model; name each parameter")


def test_a_double_star_parameter_is_refused_and_named():
    def search(**options: str) -> None: ...

    assert "tool search: parameter **options cannot be offered" in refusal(search)


def test_a_positional_only_parameter_is_refused_and_named():
    def search(word: str, /) -> None: ...

    assert "tool search: parameter word is positional-only" in refusal(search)


def test_a_missing_hint_is_refused_and_named():
    def search(word) -> None: ...

    assert refusal(search) == "tool search: parameter word has no type hint; add one, such as `str`"


def test_a_refusal_names_the_class_of_a_method():
    with pytest.raises(UsageError, match=r"tool Editor\.count: parameter path has no type hint"):

        class Editor:
            @tool
            def count(self, path) -> None: ...


@pytest.mark.parametrize("hint", [object, complex, type, pydantic.BaseModel])
def test_a_type_that_json_does_not_have_is_refused_and_the_parameter_named(hint):
    def search(good: int, bad: hint) -> None: ...  # type: ignore[valid-type]

    assert "of parameter bad cannot be offered to a model" in refusal(search)


def test_a_hint_that_names_nothing_is_refused_and_the_parameter_named():
    def search(word: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    message = refusal(search)
    assert "tool search: the type hint 'Missing' of parameter word cannot be resolved" in message
    assert "TYPE_CHECKING" in message


def test_a_hint_may_name_a_class_of_the_function_around_it():
    class Place(msgspec.Struct):
        city: str

    def weather(place: Place) -> None: ...

    assert schema_of(weather)["$defs"]["Place"]["required"] == ["city"]


def test_a_hint_may_name_a_class_of_the_class_body():
    class Agent:
        class Place(msgspec.Struct):
            city: str

        @tool
        def weather(self, place: Place) -> None: ...  # found in the class body

    assert list(as_tool(Agent.weather).input_schema["$defs"]) == ["Place"]


def test_a_return_hint_that_names_nothing_is_no_fault():
    def search(word: str) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    assert schema_of(search)["required"] == ["word"]


def test_a_recursive_struct_keeps_its_definition():
    def walk(tree: Tree) -> None: ...

    assert schema_of(walk)["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


class Tree(msgspec.Struct):
    children: list[Tree]


def test_the_context_is_not_shown_to_the_model():
    def send(text: str, context: ToolContext) -> None: ...

    assert list(schema_of(send)["properties"]) == ["text"]


def test_a_docstring_gives_the_description_and_those_of_the_parameters():
    def weather(city: str, days: int = 1) -> None:
        """Forecast the weather.

        It knows every city.

        Args:
            city: Name of the city.
            days: How many days.

        Returns:
            A sentence.
        """

    made = as_tool(tool(weather))
    assert made.description == "Forecast the weather.\n\nIt knows every city."
    assert made.input_schema["properties"]["city"]["description"] == "Name of the city."
    assert made.input_schema["properties"]["days"]["description"] == "How many days."


@pytest.mark.parametrize(
    "doc",
    [
        "Forecast.\n\nParameters\n----------\ncity : str\n    Name of the city.\n",
        "Forecast.\n\n:param city: Name of the city.\n",
    ],
    ids=["numpy", "sphinx"],
)
def test_other_styles_of_docstrings_are_read_too(doc):
    assert describe(doc) == ("Forecast.", {"city": "Name of the city."})


def test_annotated_wins_over_the_docstring():
    def weather(city: Annotated[str, "From the hint"]) -> None:
        """Forecast.

        Args:
            city: From the docstring.
        """

    assert schema_of(weather)["properties"]["city"]["description"] == "From the hint"


def test_a_plain_docstring_is_taken_whole():
    assert describe("One line.\n\n    - a\n    - b\n") == ("One line.\n\n- a\n- b", {})
