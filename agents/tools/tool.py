"""What a tool is, and the two ways to define one.

    @tool                                              a method of an agent, or a function: name, description and
    async def word_count(self, path: str) -> int: ...  parameters come from the signature and the docstring

    tool(description=..., input_schema=..., execute=...)   the parts one by one; without ``execute`` the client runs it

``@tool`` leaves the function as it is, callable and inspectable, and only hangs a ``Tool`` on it; ``as_tool`` finds it
again and binds it to the agent. Whatever cannot be offered to a model is refused at the definition. Running a tool is
the business of ``execution``, collecting those of a turn that of ``toolset``.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import msgspec

from agents.core.chunks import JsonObject
from agents.errors import ToolInputInvalid
from agents.models.model import ToolSpec
from agents.sessions.messages import input_from_text
from agents.tools.schema import ToolInput, describe, input_of_function, input_of_schema
from agents.tools.validation import checked
from runtime.errors import UsageError

__all__ = ["Tool", "ToolLike", "as_tool", "parse_input", "tool"]

# What the vendors accept: the narrower of Anthropic's 128 and OpenAI's 64 characters.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ATTRIBUTE = "__perdure_tool__"

# The function's own type comes out of ``@tool``, so that callers of the method keep its signature.
F = TypeVar("F", bound=Callable[..., Any])
Approval = bool | Callable[[JsonObject], bool | Awaitable[bool]]


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tool, ready to be offered.

    Attributes:
        name: What the model calls it; "" until ``get_tools()`` gives it a key.
        description: For the model.
        input: What it takes.
        execute: What runs; None for a client tool.
        needs_approval: Whether a person must agree: always, or if the function says so for that input.
        timeout: Seconds until it is given up; None waits.
        takes_self: ``execute`` still lacks the agent (a method looked at through its class).
        is_streaming: A generator function: each value it yields is shown at once.
    """

    name: str
    description: str
    input: ToolInput
    execute: Callable[..., Any] | None = None
    needs_approval: Approval = False
    timeout: float | None = None
    takes_self: bool = False
    is_streaming: bool = False

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the input, type object at the top."""
        return self.input.schema

    @property
    def is_client_tool(self) -> bool:
        """Whether the client runs it (turns T4)."""
        return self.execute is None

    def named(self, name: str) -> Tool:
        """The same tool under another name.

        Raises:
            UsageError: No vendor takes that name.
        """
        return self if name and name == self.name else msgspec.structs.replace(self, name=_checked_name(name))

    def bound(self, agent: object) -> Tool:
        """The tool with its ``self`` filled in; the same tool if it needs none or there is no agent."""
        if not self.takes_self or self.execute is None or agent is None:
            return self
        return msgspec.structs.replace(self, execute=types.MethodType(self.execute, agent), takes_self=False)

    def spec(self) -> ToolSpec:
        """The tool as it is offered to the model."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self.input.schema)


# What may stand in ``get_tools()``: a Tool, or a function or method under ``@tool``.
ToolLike = Tool | Callable[..., Any]


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *, name: str | None = None, needs_approval: Approval = False, timeout: float | None = None
) -> Callable[[F], F]: ...


@overload
def tool(
    *,
    description: str,
    input_schema: object | None = None,
    execute: Callable[..., Any] | None = None,
    needs_approval: Approval = False,
    timeout: float | None = None,
    name: str | None = None,
) -> Tool: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: object | None = None,
    execute: Callable[..., Any] | None = None,
    needs_approval: Approval = False,
    timeout: float | None = None,
) -> Any:  # see the overloads
    """Define a tool: as a decorator, or part by part if ``description`` is given.

    Args:
        function: The decorated function or method.
        name: What the model calls it; the function's name, or the key in ``get_tools()``, by default.
        description: What the model reads; makes this the second form.
        input_schema: JSON Schema or a type (Struct, dataclass, TypedDict); ``execute`` then takes one value of it.
            Left out, ``execute``'s own parameters are the schema; a client tool then takes any object.
        execute: What runs, sync or async; left out, the client runs the tool.
        needs_approval: True, or a function of the input that says whether a person must agree first.
        timeout: Seconds. A synchronous function cannot be interrupted: it holds the agent's loop until it returns.

    Raises:
        UsageError: It cannot be offered to a model; the message names function and parameter.
    """
    where = str(name or getattr(function or execute, "__qualname__", "?"))
    _check_options(where, needs_approval, timeout)
    if description is not None:
        return _tool_of_parts(name, description, input_schema, execute, needs_approval, timeout)
    if input_schema is not None or execute is not None:
        raise UsageError("tool(input_schema=, execute=) needs description= too: it is what the model chooses by")
    if function is None:
        return functools.partial(_decorated, name=name, needs_approval=needs_approval, timeout=timeout)
    return _decorated(function, name=name, needs_approval=needs_approval, timeout=timeout)


def as_tool(value: object, *, agent: object = None, where: str = "get_tools()") -> Tool:
    """The tool in a value of ``get_tools()``, bound to its agent.

    Raises:
        UsageError: The value is no tool.
    """
    if isinstance(value, Tool):
        return value.bound(agent)
    found = tool_on(value)
    if found is None:
        raise UsageError(f"{where} holds {value!r:.80}, which is no tool; decorate it with @tool or use tool(...)")
    return found.bound(getattr(value, "__self__", agent))


def tool_on(value: object) -> Tool | None:
    """The tool that ``@tool`` hung on a function or method, if any."""
    found = getattr(value, _ATTRIBUTE, None)
    return found if isinstance(found, Tool) else None


def parse_input(tool: Tool, text: str) -> JsonObject:
    """The input of a call as an object, from the argument text that the model streamed.

    No text, ``null`` and ``[]`` are what models send for "no arguments". The object is what is stored and what hooks
    see; for a text that this refuses, store ``input_from_text(text)`` (FR-01: a stored input is always an object).

    Raises:
        ToolInputInvalid: No object, or one that does not fit the schema; the message is for the model.
    """
    value = input_from_text(text)
    if not value and not _says_nothing(text):
        raise ToolInputInvalid(
            f"Invalid input for tool {tool.name}: not a complete JSON object: {text[:200]!r}. Send one JSON object"
        )
    if tool.input.target is not None or tool.execute is not None:
        checked(tool.input, value, tool_name=tool.name)
    return value


def _says_nothing(text: str) -> bool:
    """Whether the text is what a model sends for no arguments, possibly inside of a JSON string."""
    value: object = text
    for _level in range(2):
        if isinstance(value, str) and value.strip():
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError):
                return False
    return not value.strip() if isinstance(value, str) else value in (None, {}, [])


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"tool name {name!r:.80} cannot be offered: 1 to 64 of the characters A-Z a-z 0-9 _ -")
    return name


def _check_options(where: str, needs_approval: object, timeout: object) -> None:
    if not isinstance(needs_approval, bool) and not callable(needs_approval):
        raise UsageError(f"tool {where}: needs_approval must be a bool or a function, not {needs_approval!r:.80}")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):  # type: ignore[operator]  # is_number says so
        raise UsageError(f"tool {where}: timeout must be a positive number of seconds, not {timeout!r:.80}")


def _decorated(function: F, *, name: str | None, needs_approval: Approval, timeout: float | None) -> F:
    given: object = function
    if not inspect.isfunction(given):  # a second name, or checkers forget what the function's own type was
        kind = type(function).__name__
        raise UsageError(f"@tool goes on a plain function or method, not on {function!r:.80} ({kind})")
    where = function.__qualname__.rpartition("<locals>.")[2]
    takes_self = next(iter(inspect.signature(function).parameters), None) == "self"
    description, docs = describe(function.__doc__)
    made = Tool(
        name=_checked_name(function.__name__ if name is None else name),
        description=description,
        input=input_of_function(function, where=where, skips_self=takes_self, docs=docs),
        execute=function,
        needs_approval=needs_approval,
        timeout=timeout,
        takes_self=takes_self,
        is_streaming=_is_generator(function),
    )
    setattr(function, _ATTRIBUTE, made)
    return function


def _tool_of_parts(
    name: str | None,
    description: str,
    input_schema: object | None,
    execute: Callable[..., Any] | None,
    needs_approval: Approval,
    timeout: float | None,
) -> Tool:
    where = str(name or getattr(execute, "__qualname__", "tool(...)"))
    if execute is not None and not callable(execute):
        raise UsageError(f"tool {where}: execute must be a function, not {execute!r:.80}")
    if input_schema is not None:
        takes = input_of_schema(input_schema, where=where)
    elif execute is not None:
        docs = describe(execute.__doc__)[1]
        takes = input_of_function(execute, where=where, skips_self=False, docs=docs)
    else:
        takes = ToolInput(schema={"type": "object"})
    return Tool(
        name="" if name is None else _checked_name(name),
        description=description,
        input=takes,
        execute=execute,
        needs_approval=needs_approval,
        timeout=timeout,
        is_streaming=execute is not None and _is_generator(execute),
    )


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
