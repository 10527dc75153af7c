"""Runs one call of a tool and returns its outcome as data.

Nothing that a tool does fails the turn (turns T6): an exception, a time-out, an input that does not fit and an output
that is no JSON all become the ``error_text`` that the model reads. Two things do come out as exceptions: the caller's
cancellation, and a failure of the caller's own ``on_output``.

A synchronous tool runs on the agent's loop, as the storage API demands; a long one belongs into ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

import msgspec

from agents.core.chunks import JsonObject
from agents.errors import ToolInputInvalid
from agents.tools.schema import ToolContext
from agents.tools.tool import Tool
from agents.tools.validation import checked

__all__ = ["ToolOutcome", "run_tool", "wants_approval"]

# A message for the model; whole pages of HTML come back from failing services.
ERROR_CHARACTERS_MAX = 10_000
# Every later turn reads it again, and the model pays for it.
OUTPUT_BYTES_MAX = 1_000_000
# A tool that was cancelled may clean up this long, then it is left behind and the turn goes on.
CANCEL_GRACE_SECONDS = 5.0


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended: ``output``, any JSON, or ``error_text`` for the model."""

    output: Any = None  # whatever JSON the tool returned
    error_text: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return self.error_text is not None


# Gets each value of a generator tool as it comes, as JSON.
OnOutput = Callable[[Any], Awaitable[None] | None]
Sleep = Callable[[float], Awaitable[None]]


class _OnOutputFailed(Exception):
    """Carries an exception of ``on_output`` past the tool's own error handling."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _NotJson(Exception):
    """The tool returned what no client or model can read."""


async def run_tool(
    tool: Tool,
    value: JsonObject,
    *,
    tool_call_id: str = "",
    on_output: OnOutput | None = None,
    sleep: Sleep = asyncio.sleep,
    is_checked: bool = False,
) -> ToolOutcome:
    """Run one call to its end.

    Args:
        tool: Bound to its agent; not a client tool.
        value: The input, an object.
        tool_call_id: The same in every run of this call.
        on_output: Gets every value of a generator tool, the last one too (turns T9); the outcome repeats the last.
        sleep: Waits for so many seconds; for the tool's time-out.
        is_checked: The input is a hook's and not judged again (turns H5): what does not fit is handed over as it is.
    """
    assert tool.execute is not None, f"tool {tool.name} is the client's to run"
    assert not tool.takes_self, f"tool {tool.name} is not bound to an agent"
    context = ToolContext(tool_name=tool.name, tool_call_id=tool_call_id)
    try:
        arguments, keywords = _arguments(tool, value, context, is_checked=is_checked)
        body = _body(tool, arguments, keywords, on_output)
        if tool.timeout is None:
            output = await body
        else:
            output = await _within(body, tool.timeout, sleep)
        return ToolOutcome(output=_json(tool, output))
    except _OnOutputFailed as failed:
        raise failed.error from None
    except Exception as error:  # turns T6
        return ToolOutcome(error_text=_text(error))


async def wants_approval(tool: Tool, value: JsonObject) -> bool:
    """Whether a person must agree to this call first (turns T8); what a predicate raises comes out."""
    if isinstance(tool.needs_approval, bool):
        return tool.needs_approval
    answer = tool.needs_approval(value)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _arguments(
    tool: Tool, value: JsonObject, context: ToolContext, *, is_checked: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    keywords = {} if tool.input.context_parameter is None else {tool.input.context_parameter: context}
    try:
        ready = checked(tool.input, value, tool_name=tool.name)
    except ToolInputInvalid:
        if not is_checked:
            raise
        return ((), {**value, **keywords}) if tool.input.is_spread else ((value,), keywords)
    if not tool.input.is_spread:
        return (ready,), keywords
    return (), {**{name: getattr(ready, name) for name in ready.__struct_fields__}, **keywords}


async def _body(tool: Tool, arguments: tuple[Any, ...], keywords: dict[str, Any], on_output: OnOutput | None) -> Any:
    assert tool.execute is not None
    result = tool.execute(*arguments, **keywords)
    if inspect.isawaitable(result):
        result = await result
    last = None
    if inspect.isgenerator(result) and tool.is_streaming:
        with contextlib.closing(result):
            for last in result:
                await _show(tool, last, on_output)
        return last
    if not hasattr(result, "__aiter__"):
        return result
    async with _closing(result) as values:
        async for last in values:
            if tool.is_streaming:
                await _show(tool, last, on_output)
    return last


@contextlib.asynccontextmanager
async def _closing(values: Any) -> AsyncGenerator[Any]:
    """Close an async generator on the way out; other async iterators have nothing to close."""
    try:
        yield values
    finally:
        if hasattr(values, "aclose"):
            await values.aclose()


async def _show(tool: Tool, value: object, on_output: OnOutput | None) -> None:
    output = _json(tool, value)
    if on_output is None:
        return
    try:
        shown = on_output(output)
        if inspect.isawaitable(shown):
            await shown
    except Exception as error:
        raise _OnOutputFailed(error) from error


async def _within(body: Coroutine[Any, Any, Any], seconds: float, sleep: Sleep) -> Any:
    """The result of ``body``, or ``TimeoutError`` after ``seconds``."""
    work = asyncio.ensure_future(body)
    timer = asyncio.ensure_future(sleep(seconds))
    try:
        await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
        if work.cancelled():  # by itself: this task was not, or it would not be here
            raise RuntimeError("the tool cancelled itself")
        if work.done():
            return work.result()
        raise TimeoutError(f"timed out after {seconds:g} s")
    finally:
        timer.cancel()
        await _stopped(work, sleep)


async def _stopped(work: asyncio.Future[Any], sleep: Sleep) -> None:
    if work.done():
        return
    work.cancel()
    grace = asyncio.ensure_future(sleep(CANCEL_GRACE_SECONDS))
    try:
        await asyncio.wait({work, grace}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        grace.cancel()
        work.add_done_callback(_looked_at)


def _looked_at(work: asyncio.Future[Any]) -> None:
    """Take what a cancelled tool still raises, or asyncio reports it as never retrieved."""
    if not work.cancelled():
        work.exception()


def _json(tool: Tool, value: object) -> Any:
    """The value as plain JSON, a copy: what the tool changes later is no longer its output."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise _NotJson(_not_json(tool, type(value).__name__, "bytes; write them to the workspace and return the path"))
    try:
        data = msgspec.json.encode(value)
        if len(data) <= OUTPUT_BYTES_MAX:
            return msgspec.json.decode(data)
    except Exception as error:  # also what properties of the value raise while it is read
        culprit = next(_culprits(value, 0), type(value).__name__)
        raise _NotJson(_not_json(tool, culprit, f"no JSON ({error})")) from error
    why = f"{len(data):,} bytes, over the {OUTPUT_BYTES_MAX:,} allowed; write it to the workspace and return the path"
    raise _NotJson(_not_json(tool, type(value).__name__, why))


def _not_json(tool: Tool, type_name: str, why: str) -> str:
    return f"tool {tool.name} returned a value of type {type_name}, which is {why}"


def _culprits(value: object, depth: int) -> Iterator[str]:
    """Type names of the values inside that are no JSON, outermost container first."""
    if depth > 20:
        yield f"{type(value).__name__} nested in itself"
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str | int | float):
                yield f"dict with {type(key).__name__} keys"
            yield from _culprits(inner, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _culprits(inner, depth + 1)
    else:
        try:
            msgspec.json.encode(value)
        except Exception:  # that is the question
            yield type(value).__name__


def _text(error: Exception) -> str:
    """What the model reads: the message; the type too if the message alone says nothing."""
    try:
        text = str(error)
    except Exception:  # a broken __str__ is no reason to fail the turn
        text = ""
    if not text or isinstance(error, KeyError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]}... (truncated)"
