"""Checks an input that a model wrote against what a tool takes, and tells the model how to mend it.

``checked`` is the one way in. For a tool with a Python type msgspec converts, leniently (``"5"`` is an ``int``), and
text that holds the JSON of a wanted list or object is read once. msgspec names the first fault and its place, but not
what would be right; the part of the schema at that place is appended. A tool that only has a JSON Schema is checked
with ``jsonschema``.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from agents.core.chunks import JsonObject
from agents.errors import ToolInputInvalid
from agents.tools.schema import ToolInput

__all__ = ["FRAGMENT_CHARACTERS_MAX", "checked"]

# A model needs the allowed values, not a page of nested schema.
FRAGMENT_CHARACTERS_MAX = 600
# The fault itself quotes the model's own value, which may be of any length.
FAULT_CHARACTERS_MAX = 600
# Schemas may be recursive and inputs are the model's: deeper text is left as it is.
NESTING_MAX = 20

_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
_TOKEN = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"(missing required|contains unknown) field `([^`]*)`")


def checked(tool_input: ToolInput, value: JsonObject, *, tool_name: str) -> Any:
    """The input as the tool wants it: an instance of ``tool_input.target``, or the object itself without one.

    Raises:
        ToolInputInvalid: It does not fit; the message is for the model.
    """
    if tool_input.target is None:
        _check_schema(tool_input.schema, value, tool_name)
        return value
    try:
        return msgspec.convert(value, tool_input.target, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        fault = error
    unwrapped = _unwrapped(value, tool_input.schema, tool_input.schema.get("$defs", {}), 0)
    if unwrapped is not value:
        try:
            return msgspec.convert(unwrapped, tool_input.target, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            fault = error
    raise ToolInputInvalid(_explanation(str(fault), tool_input.schema, tool_name)) from fault


def _explanation(fault: str, schema: JsonObject, tool_name: str) -> str:
    """The fault with its place, and what the schema allows there."""
    definitions = schema.get("$defs", {})
    place = _PLACE.search(fault)
    node = _node_at(schema, place.group(1) if place else "", definitions)
    field = _FIELD.search(fault)
    properties = node.get("properties", {})
    if field and field.group(1) == "contains unknown":
        allowed = f"Known fields: {', '.join(properties) or 'none'}"
    elif field and field.group(2) in properties:
        allowed = f"Allowed for `{field.group(2)}`: {_fragment(_resolved(properties[field.group(2)], definitions))}"
    else:
        allowed = f"Allowed there: {_fragment(node)}"
    return f"Invalid input for tool {tool_name}: {_cut(fault, FAULT_CHARACTERS_MAX)}. {allowed}"


def _cut(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    half = characters_max // 2  # the end of a fault names the place
    return f"{text[:half]}...{text[-half:]}"


def _fragment(node: JsonObject) -> str:
    shown = {key: value for key, value in node.items() if key not in ("description", "title", "default", "$defs")}
    return _cut(msgspec.json.encode(shown).decode(), FRAGMENT_CHARACTERS_MAX)


def _node_at(schema: JsonObject, path: str, definitions: JsonObject) -> JsonObject:
    """The part of a schema at a msgspec path such as ``.items[0].name``; the nearest known one above it otherwise."""
    node = schema
    for name, index in _TOKEN.findall(path):
        steps = (_below(choice, name, index) for choice in _alternatives(node, definitions))
        found = next((step for step in steps if step is not None), None)
        if found is None:
            break
        node = _resolved(found, definitions)
    return node


def _below(node: JsonObject, name: str, index: str) -> JsonObject | None:
    if name:
        found = node.get("properties", {}).get(name)
    elif index == "..." or "items" not in node:
        found = node.get("additionalProperties", node.get("items"))
    else:
        found = node["items"]
    return found if isinstance(found, dict) else None


def _resolved(node: JsonObject, definitions: JsonObject) -> JsonObject:
    if "$ref" not in node:
        return node
    found: JsonObject = definitions.get(node["$ref"].rpartition("/")[2], {})
    return found


def _alternatives(node: JsonObject, definitions: JsonObject) -> list[JsonObject]:
    node = _resolved(node, definitions)
    return [_resolved(each, definitions) for each in node.get("anyOf", [node])]


def _unwrapped(value: Any, schema: JsonObject, definitions: JsonObject, depth: int) -> Any:
    """The value with JSON text read wherever only a list or an object fits; the same value if nothing changed."""
    if depth > NESTING_MAX:
        return value
    choices = _alternatives(schema, definitions)
    kinds = {choice.get("type") for choice in choices}
    if isinstance(value, str) and kinds <= {"array", "object", "null"} and kinds - {"null"}:
        return _read(value, kinds)
    for choice in choices:
        if isinstance(value, dict) and choice.get("type") == "object":
            changed = {
                key: _unwrapped(v, _below(choice, key, "...") or {}, definitions, depth + 1) for key, v in value.items()
            }
            return changed if any(changed[key] is not value[key] for key in value) else value
        if isinstance(value, list) and choice.get("type") == "array" and isinstance(choice.get("items"), dict):
            items = [_unwrapped(each, choice["items"], definitions, depth + 1) for each in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _read(text: str, kinds: set[Any]) -> Any:
    try:
        parsed = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    kind = "array" if isinstance(parsed, list) else "object" if isinstance(parsed, dict) else ""
    return parsed if kind in kinds else text


def _check_schema(schema: JsonObject, value: JsonObject, tool_name: str) -> None:
    # Late: 80 ms and 7 MB that only tools with a raw JSON Schema need.
    import jsonschema  # type: ignore[import-untyped]
    import referencing
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    # A registry of our own, or a "$ref" to a URL would be fetched.
    validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
    fault = best_match(validator.iter_errors(value))
    if fault is not None:
        what = f"{_cut(fault.message, FAULT_CHARACTERS_MAX)} - at `{fault.json_path}`"
        allowed = _fragment(fault.schema if isinstance(fault.schema, dict) else {})
        raise ToolInputInvalid(f"Invalid input for tool {tool_name}: {what}. Allowed there: {allowed}")
