"""From a Python signature to the JSON Schema that a model is offered.

Every parameter of a tool needs a type hint. The parameters become one closed ``msgspec`` struct, so that the schema and
the check of an input are the same thing: ``ToolInput`` holds both. Descriptions come from the docstring, or from
``Annotated[T, "text"]``, which wins. What msgspec leaves to its caller is done here: the top-level ``$ref`` is inlined,
defaults it drops are put back, the order of ``Literal`` values is that of the source.

A signature that cannot be offered is refused where the tool is defined, with a ``UsageError`` that names function and
parameter. Checking an input is the business of ``validation``.
"""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Union

import msgspec

from agents.core.chunks import JsonObject
from runtime.errors import UsageError

__all__ = ["ToolContext", "ToolInput", "describe", "input_of_function", "input_of_schema"]

# Whether a docstring has anything beyond prose; only then is the parser worth its 18 ms and 2 MB of import.
_SECTIONS = re.compile(
    r"^\s*(Args|Arguments|Parameters|Params|Attributes|Returns?|Yields?|Raises|Examples?|Notes?)\s*(:\s*$|\n\s*-{3,})"
    r"|^\s*:(param|parameter|arg|argument|type|returns?|rtype|raises?|yields?)\b",
    re.MULTILINE,
)


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a tool is running for; a parameter with this hint is filled in and not shown to the model.

    ``tool_call_id`` stays the same when a turn is recovered: it is the key to give to services that must not act twice.
    """

    tool_name: str
    tool_call_id: str


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a tool takes.

    Attributes:
        schema: JSON Schema, type object at the top.
        target: What an input is converted to; None if only the schema is known (``jsonschema`` checks it then).
        is_spread: The fields of the converted input become keyword arguments; else it is the one argument.
        context_parameter: Name of the parameter that gets the ``ToolContext``; None if there is none.
    """

    schema: JsonObject
    target: Any = None  # a type expression that msgspec can convert to
    is_spread: bool = False
    context_parameter: str | None = None


def describe(doc: str | None) -> tuple[str, dict[str, str]]:
    """A docstring's description, and its descriptions of parameters."""
    text = inspect.cleandoc(doc or "")
    if not _SECTIONS.search(text):
        return text, {}
    import docstring_parser  # late: most tools, and all of the workspace's, need no parser

    parsed = docstring_parser.parse(text)
    parts = [part for part in (parsed.short_description, parsed.long_description) if part]
    return "\n\n".join(parts), {p.arg_name: p.description for p in parsed.params if p.description}


def input_of_function(
    function: Callable[..., Any], *, where: str, skips_self: bool, docs: dict[str, str] | None = None
) -> ToolInput:
    """The input of a tool whose parameters are a function's.

    Args:
        function: What runs.
        where: How errors call it, such as ``Editor.word_count``.
        skips_self: The first parameter is the agent.
        docs: Descriptions of parameters.

    Raises:
        UsageError: A parameter that no model can fill in; the message names it.
    """
    parameters = list(inspect.signature(function).parameters.values())[1 if skips_self else 0 :]
    fields: list[tuple[str, Any, Any]] = []
    context_parameter = None
    for parameter in parameters:
        _refuse_kind(parameter, where)
        hint = _hint(function, parameter, where)
        if hint is ToolContext:
            context_parameter = parameter.name
            continue
        fields.append((parameter.name, _field_type(parameter, hint, docs or {}), _field_default(parameter)))
    struct = msgspec.defstruct(
        f"{function.__name__.strip('<>')}_input", fields, kw_only=True, forbid_unknown_fields=True
    )
    schema = _schema(struct, fields, where)
    _put_defaults_back(schema, parameters)
    return ToolInput(schema=schema, target=struct, is_spread=True, context_parameter=context_parameter)


def input_of_schema(given: object, *, where: str) -> ToolInput:
    """The input of a tool whose function takes one value: JSON Schema, or a type msgspec knows (Struct, TypedDict...).

    Raises:
        UsageError: Neither, or not an object at the top.
    """
    if isinstance(given, dict):
        schema: JsonObject = {"type": "object", **given}
        if schema["type"] != "object":
            raise UsageError(f"input_schema of tool {where} must have type object at the top, not {schema['type']!r}")
        return ToolInput(schema=schema)
    schema = _schema(given, [], where)
    if schema.get("type") != "object":
        raise UsageError(f"input_schema of tool {where} must be an object (a Struct, a TypedDict...), not {given!r}")
    return ToolInput(schema=schema, target=given)


def _refuse_kind(parameter: inspect.Parameter, where: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise UsageError(
            f"tool {where}: parameter {stars}{parameter.name} cannot be offered to a model; name each parameter"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(f"tool {where}: parameter {parameter.name} is positional-only; arguments come by name")
    if parameter.annotation is parameter.empty:
        raise UsageError(f"tool {where}: parameter {parameter.name} has no type hint; add one, such as `str`")


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    """The hint as a type, resolved where the tool is defined, with ``Annotated`` kept."""
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        try:
            return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
        except NameError:
            # The hint may name a class of the function around it, or of the class body: neither is global.
            return typing.get_type_hints(holder, names, _local_names(names), include_extras=True)[parameter.name]
    except Exception as error:  # evaluating a hint can raise anything
        raise UsageError(
            f"tool {where}: the type hint {parameter.annotation!r} of parameter {parameter.name} cannot be resolved "
            f"({error}); define it above the tool, and import it at run time, not under TYPE_CHECKING"
        ) from error


def _local_names(names: dict[str, Any]) -> dict[str, Any]:
    """Local variables of all running frames of the module whose globals are ``names``, inner ones winning."""
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals is names:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _field_type(parameter: inspect.Parameter, hint: Any, docs: dict[str, str]) -> Any:
    hint = _with_descriptions(hint)
    if parameter.default is None and not _allows_none(hint):
        hint = Union[hint, None]  # noqa: UP007  # `hint | None` fails for hints that are still text inside
    if parameter.name in docs and not _is_described(hint):
        hint = Annotated[hint, msgspec.Meta(description=docs[parameter.name])]
    return hint


def _field_default(parameter: inspect.Parameter) -> Any:
    """A factory for every default: msgspec refuses mutable ones, and the function's own must not be shared."""
    if parameter.default is parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(parameter.default, list | dict | set | bytearray):
        return msgspec.field(default_factory=functools.partial(copy.deepcopy, parameter.default))
    return msgspec.field(default_factory=lambda: parameter.default)


def _with_descriptions(hint: Any) -> Any:
    """``Annotated[T, "text"]`` as msgspec spells it, at any depth."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        notes = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in hint.__metadata__]
        return Annotated[(_with_descriptions(hint.__origin__), *notes)]
    if origin is None or origin is Literal:
        return hint
    inner = tuple(_with_descriptions(arg) for arg in args)
    if all(new is old for new, old in zip(inner, args, strict=True)):
        return hint
    if origin in (Union, types.UnionType):
        return Union[inner]  # noqa: UP007  # made from a tuple
    return types.GenericAlias(origin, inner)


def _is_described(hint: Any) -> bool:
    notes = getattr(hint, "__metadata__", ())
    return any(isinstance(note, msgspec.Meta) and note.description is not None for note in notes)


def _allows_none(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _allows_none(hint.__origin__)
    return hint in (None, type(None), Any) or type(None) in typing.get_args(hint)


def _schema(target: Any, fields: Sequence[tuple[str, Any, Any]], where: str) -> JsonObject:
    """JSON Schema of a type, ready for a model, once msgspec has agreed to decode it too."""
    try:
        schema = msgspec.json.schema(target)
        msgspec.json.Decoder(target)  # a union of two untagged structs is only refused here
    except Exception as error:  # types of other libraries raise what they like in here
        raise UsageError(f"tool {where}: {_refusal(fields, error)}") from error
    definitions: JsonObject = schema.get("$defs", {})
    top: JsonObject = schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        top = definitions.pop(name) if not _refers_to(definitions, schema["$ref"]) else dict(definitions[name])
        if definitions:
            top["$defs"] = definitions
    top.pop("title", None)
    # A closed set without fields has no "properties"; vendors want the key.
    top.setdefault("properties", {})
    orders = {frozenset(values): values for hint in (f[1] for f in fields) for values in _value_lists(hint)}
    _order_values(top, orders)
    return top


def _refers_to(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_refers_to(value, reference) for value in node.values())
    return isinstance(node, list) and any(_refers_to(value, reference) for value in node)


def _refusal(fields: Sequence[tuple[str, Any, Any]], error: Exception) -> str:
    """Which parameter it is, found by trying each alone."""
    for name, hint, _default in fields:
        try:
            probe = msgspec.defstruct("probe", [(name, hint)])
            msgspec.json.schema(probe)
            msgspec.json.Decoder(probe)
        except Exception as cause:
            return (
                f"the type {hint!r} of parameter {name} cannot be offered to a model; use JSON types, msgspec Structs, "
                f"dataclasses or TypedDicts ({_last_line(cause)})"
            )
    return f"its input cannot be offered to a model ({_last_line(error)})"


def _last_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().rpartition("\n")[2]


def _value_lists(hint: Any) -> Iterator[list[Any]]:
    """The values of every ``Literal`` and enum in a hint, as written."""
    if typing.get_origin(hint) is Literal:
        yield list(typing.get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield [member.value for member in hint]
    else:
        for arg in typing.get_args(hint):
            yield from _value_lists(arg)


def _order_values(node: Any, orders: dict[frozenset[Any], list[Any]]) -> None:
    if isinstance(node, list):
        for value in node:
            _order_values(value, orders)
    elif isinstance(node, dict):
        values = node.get("enum")
        if isinstance(values, list):
            node["enum"] = orders.get(frozenset(values), values)
        for value in node.values():
            _order_values(value, orders)


def _put_defaults_back(schema: JsonObject, parameters: Sequence[inspect.Parameter]) -> None:
    """The defaults, which the schema lost because they are factories; one that is no JSON stays unsaid."""
    for parameter in parameters:
        if parameter.default is parameter.empty or parameter.name not in schema["properties"]:
            continue
        try:
            schema["properties"][parameter.name]["default"] = msgspec.json.decode(
                msgspec.json.encode(parameter.default)
            )
        except (TypeError, ValueError):
            continue
