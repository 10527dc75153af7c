"""From the conversation to what the model reads (turns A5, A6, A9; recovery X3).

An assistant message holds the parts of several model calls, one after another. For the model each of these rounds is
an assistant message and, if it made calls, a user message with their results behind it; ``step-start`` parts tell the
rounds apart. Vendors refuse a whole request for one fault in it, and a fault in storage would come back with each
turn, so whatever the parts are, the prompt keeps these rules:

* every tool use has its result in the very next message, and every id is used once;
* every input is an object;
* no text block is blank, and no message is without blocks;
* no assistant message ends with reasoning, and reasoning without a vendor's data (its signature) is left out;
* rounds without calls between them are one assistant message, and texts that meet in it are one text: an answer that
  was interrupted and continued reads like one that was not.

Calls without an outcome are left out, also approved ones: the turn runs those before it asks for a prompt. So are data
parts, sources and files that the model made. Messages with role system are no part of the prompt's messages; they
join the system prompt (``system_text``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.core.chunks import JsonObject
from agents.core.transcript import is_settled, rounds
from agents.models.model import FileBlock, ModelMessage, ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from agents.sessions.messages import UIMessage, is_tool_part, normalise_input, part_text

__all__ = ["DENIED_TEXT", "EMPTY_TEXT", "NUDGE_TEXT", "system_text", "to_model_messages", "with_nudge"]

DENIED_TEXT = "Tool call execution denied."
# Stands for a user message without any content: vendors refuse blank text, and leaving the message out would lose the
# place at which somebody spoke.
EMPTY_TEXT = "(empty message)"
NUDGE_TEXT = "Your answer was cut off. Continue exactly from where it stopped, without repeating any of it."

_Block = TextBlock | ReasoningBlock | ToolUseBlock | ToolResultBlock | FileBlock


def system_text(messages: Sequence[UIMessage]) -> str:
    """The text of the conversation's system messages, to append to the system prompt; mostly empty."""
    return "\n\n".join(message.text for message in messages if message.role == "system" and message.text.strip())


def to_model_messages(messages: Sequence[UIMessage]) -> tuple[ModelMessage, ...]:
    """The prompt for a conversation that was repaired (``core.repair``); without a nudge (see ``with_nudge``)."""
    prompt: list[ModelMessage] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "user":
            prompt.append(_user(message))
        elif message.role == "assistant":
            for round_parts in rounds(message.parts):
                _add_round(prompt, round_parts, seen)
    return tuple(prompt)


def with_nudge(prompt: tuple[ModelMessage, ...]) -> tuple[ModelMessage, ...]:
    """The prompt, and a request to continue if it ends with an assistant message.

    Current models refuse a prompt that ends so. One that ends with tool results ends with a user message and needs
    nothing. The nudge is for one request only and is stored nowhere.
    """
    if not prompt or prompt[-1].role != "assistant":
        return prompt
    return (*prompt, ModelMessage(role="user", blocks=(TextBlock(text=NUDGE_TEXT),), is_nudge=True))


def _user(message: UIMessage) -> ModelMessage:
    blocks: list[_Block] = []
    for part in message.parts:
        if part.get("type") == "text" and part_text(part).strip():
            blocks.append(TextBlock(text=part["text"]))
        elif part.get("type") == "file" and isinstance(part.get("url"), str):
            blocks.append(
                FileBlock(
                    media_type=str(part.get("mediaType") or "application/octet-stream"),
                    url=part["url"],
                    filename=part.get("filename"),
                )
            )
    return ModelMessage(role="user", blocks=tuple(blocks) or (TextBlock(text=EMPTY_TEXT),))


def _add_round(prompt: list[ModelMessage], parts: list[JsonObject], seen: set[str]) -> None:
    blocks: list[_Block] = []
    results: list[ToolResultBlock] = []
    for part in parts:
        metadata = part.get("providerMetadata")
        if part.get("type") == "text" and part_text(part):
            # Blank text counts until it has been joined with its neighbours: a crash may have cut just behind it.
            blocks.append(TextBlock(text=part["text"]))
        elif part.get("type") == "reasoning" and metadata:
            blocks.append(ReasoningBlock(text=part_text(part), provider_metadata=metadata))
        elif is_tool_part(part):
            result = _result(part)
            if result is not None and result.tool_call_id not in seen:
                seen.add(result.tool_call_id)
                blocks.append(
                    ToolUseBlock(
                        tool_call_id=result.tool_call_id,
                        tool_name=result.tool_name,
                        input=normalise_input(part.get("input")),
                    )
                )
                results.append(result)
    while blocks and isinstance(blocks[-1], ReasoningBlock):
        blocks.pop()
    if prompt and prompt[-1].role == "assistant":
        blocks[:0] = prompt.pop().blocks
    whole = _joined(blocks)
    if not whole:
        return
    prompt.append(ModelMessage(role="assistant", blocks=whole))
    if results:
        prompt.append(ModelMessage(role="user", blocks=tuple(results)))


def _joined(blocks: list[_Block]) -> tuple[_Block, ...]:
    joined: list[_Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if isinstance(block, TextBlock) and isinstance(last, TextBlock):
            joined[-1] = TextBlock(text=last.text + block.text)
        else:
            joined.append(block)
    # Vendors refuse a request with a blank text in it.
    return tuple(block for block in joined if not isinstance(block, TextBlock) or block.text.strip())


def _result(part: JsonObject) -> ToolResultBlock | None:
    """The result to send for a tool part; None if the call has no outcome yet."""
    call_id = part.get("toolCallId")
    name = part.get("toolName") or part["type"].removeprefix("tool-")
    approval = part.get("approval") or {}
    if not isinstance(call_id, str) or not call_id:
        return None
    state = part.get("state")
    if state == "output-error":
        text, is_error = str(part.get("errorText") or "The tool failed."), True
    elif state == "output-denied" or (state == "approval-responded" and approval.get("approved") is False):
        text, is_error = str(approval.get("reason") or DENIED_TEXT), True
    elif is_settled(part):
        output = part.get("output", part.get("result"))
        text, is_error = output if isinstance(output, str) else msgspec.json.encode(output).decode(), False
    else:
        return None
    return ToolResultBlock(tool_call_id=call_id, tool_name=name, text=text, is_error=is_error)
