"""The tools of a turn: collected from an agent, merged by source, filtered, looked up.

A ``Toolset`` is a value. ``merge`` knows the order of the sources (tools G1): of two tools with one name the one from
the later source stays. Filters (a channel's, ``active_tools``) make smaller sets; what is not in the set is an unknown
tool.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from agents.core.chunks import JsonObject
from agents.errors import ToolInputInvalid
from agents.models.model import ToolSpec
from agents.tools.schema import ToolInput
from agents.tools.tool import Tool, as_tool, tool_on
from runtime.errors import UsageError

__all__ = ["SOURCES", "Toolset", "check_tools", "class_tools", "client_tools", "merge", "method_tools"]

# tools G1 and G5: later ones win. ``methods`` are the agent's own, under @tool.
SOURCES = (
    "workspace",
    "fetch",
    "methods",
    "get_tools",
    "actions",
    "extensions",
    "session",
    "skills",
    "mcp",
    "client",
)


class Toolset(msgspec.Struct, frozen=True, eq=False):
    """Tools by name, in the order in which they are offered."""

    tools: dict[str, Tool] = {}

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tools)

    def __contains__(self, name: object) -> bool:
        return name in self.tools

    def get(self, name: str) -> Tool | None:
        """The tool of that name, if it is offered."""
        return self.tools.get(name)

    def find(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            ToolInputInvalid: There is none; the message, for the model, lists those there are (turns T7).
        """
        found = self.tools.get(name)
        if found is None:
            raise ToolInputInvalid(f"There is no tool {name!r:.80}. Available: {', '.join(self.tools) or 'none'}")
        return found

    def only(self, names: Collection[str]) -> Toolset:
        """The tools with these names; names without a tool are nothing (turns T3)."""
        return Toolset({name: tool for name, tool in self.tools.items() if name in names})

    def without(self, names: Collection[str]) -> Toolset:
        """The tools with other names."""
        return Toolset({name: tool for name, tool in self.tools.items() if name not in names})

    def laid_under(self, tools: Mapping[str, object], *, agent: object = None) -> Toolset:
        """These tools with others on top, which win (turns T1: ``TurnConfig.tools``).

        Raises:
            UsageError: A value is no tool.
        """
        return Toolset({**self.tools, **_named(tools, agent, "tools")})

    def specs(self) -> tuple[ToolSpec, ...]:
        """All of them as they are offered to the model."""
        return tuple(tool.spec() for tool in self.tools.values())


def merge(sources: Mapping[str, Mapping[str, object]], *, agent: object = None) -> Toolset:
    """One set from the tools of every source, merged in the order of ``SOURCES``.

    Args:
        sources: {source: {name: tool}}; a source may be missing.
        agent: What tools that are methods get as ``self``.

    Raises:
        UsageError: An unknown source, or a value that is no tool.
    """
    unknown = sorted(set(sources) - set(SOURCES))
    if unknown:
        raise UsageError(f"unknown source of tools: {', '.join(unknown)}; known are {', '.join(SOURCES)}")
    merged: dict[str, Tool] = {}
    for source in SOURCES:
        merged.update(_named(sources.get(source, {}), agent, source))
    return Toolset(merged)


def check_tools(cls: type) -> None:
    """Refuse a class whose tools cannot be offered together; for ``__init_subclass__``.

    Raises:
        UsageError: Two methods share a tool name.
    """
    class_tools(cls)


def class_tools(cls: type) -> dict[str, Tool]:
    """The ``@tool`` methods of a class, not yet bound to an agent.

    The most derived definition of a method counts: one that overrides a tool without ``@tool``, or with None, takes it
    away.

    Raises:
        UsageError: Two methods share a tool name.
    """
    attributes: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        attributes.update(vars(base))
    found: dict[str, Tool] = {}
    owners: dict[str, str] = {}
    for attribute, value in attributes.items():
        tool = tool_on(value)
        if tool is None:
            continue
        if tool.name in found:
            raise UsageError(
                f"class {cls.__qualname__} has two tools named {tool.name!r}: {owners[tool.name]} and {attribute}; "
                "rename one with @tool(name=...)"
            )
        found[tool.name], owners[tool.name] = tool, attribute
    return found


def method_tools(agent: object) -> dict[str, Tool]:
    """The ``@tool`` methods of an agent, bound to it: the source ``methods``."""
    return {name: tool.bound(agent) for name, tool in class_tools(type(agent)).items()}


def client_tools(definitions: Sequence[JsonObject]) -> dict[str, Tool]:
    """Tools that the client runs, from their wire form {name, description?, parameters?} (turns T4).

    Raises:
        UsageError: One without a usable name, or with parameters that are no JSON Schema.
    """
    found: dict[str, Tool] = {}
    for definition in definitions:
        parameters = definition.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise UsageError(f"client tool {definition.get('name')!r:.80}: parameters must be a JSON Schema object")
        schema: JsonObject = {"type": "object", **(parameters or {})}
        description = str(definition.get("description") or "")
        tool = Tool(name="", description=description, input=ToolInput(schema=schema)).named(
            definition.get("name") or ""
        )
        found[tool.name] = tool
    return found


def _named(tools: Mapping[str, object], agent: object, source: str) -> dict[str, Tool]:
    return {name: as_tool(value, agent=agent, where=f"{source}[{name!r}]").named(name) for name, value in tools.items()}
