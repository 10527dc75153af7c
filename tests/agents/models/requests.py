"""Requests as a turn makes them, in few words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents.core.chunks import ReasoningDelta, TextDelta, ToolInputDelta
from agents.models.model import (
    ModelMessage,
    ModelRequest,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)


def user(text: str) -> ModelMessage:
    return ModelMessage(role="user", blocks=(TextBlock(text=text),))


def nudge() -> ModelMessage:
    return ModelMessage(role="user", blocks=(TextBlock(text="Continue."),), is_nudge=True)


def said(text: str) -> ModelMessage:
    return ModelMessage(role="assistant", blocks=(TextBlock(text=text),))


def called(call_id: str, name: str = "read", text: str = "", **arguments: Any) -> ModelMessage:
    call = ToolUseBlock(tool_call_id=call_id, tool_name=name, input=arguments)
    return ModelMessage(role="assistant", blocks=(TextBlock(text=text), call) if text else (call,))


def result(call_id: str, text: str = "ok", name: str = "read", *, is_error: bool = False) -> ModelMessage:
    block = ToolResultBlock(tool_call_id=call_id, tool_name=name, text=text, is_error=is_error)
    return ModelMessage(role="user", blocks=(block,))


def request(*messages: ModelMessage, tools: tuple[ToolSpec, ...] = (), system: str = "", **more: Any) -> ModelRequest:
    return ModelRequest(system=system, messages=messages, tools=tools, **more)


async def collect(parts: AsyncIterator[Any]) -> list[Any]:
    return [part async for part in parts]


def text_of(parts: list[Any]) -> str:
    return "".join(part.delta for part in parts if isinstance(part, TextDelta))


def deltas_of(parts: list[Any]) -> list[str]:
    return [part.delta for part in parts if isinstance(part, TextDelta)]


def reasoning_of(parts: list[Any]) -> str:
    return "".join(part.delta for part in parts if isinstance(part, ReasoningDelta))


def fragments_of(parts: list[Any]) -> list[str]:
    return [part.input_text_delta for part in parts if isinstance(part, ToolInputDelta)]


def calls_of(parts: list[Any]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]
