"""Where a request stands in its turn, read from the request alone.

A model without a vendor (``Scripted``, ``Offline``) keeps no state: a new process that gets the same request must give
the same remainder. All it needs is in the messages:

- The turn begins at its *anchor*, the last user message that is neither a nudge nor carries tool results.
- Each run of tool results behind the anchor is a *round*: one step of the turn that has been answered.
- Text and reasoning of the assistant behind the last round belong to the present step and have *already been
  emitted*: an interrupted answer goes on exactly behind them.

``refusal_of`` holds what every vendor demands of a request, so that a turn tested without a vendor does not fail
with one.
"""

from __future__ import annotations

import hashlib
import itertools

import msgspec

from agents.models.model import (
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

__all__ = ["Exchange", "Position", "position_of", "refusal_of", "tokens_of"]

# The usual rule of thumb for English text; only proportions matter.
CHARACTERS_PER_TOKEN = 4


class Exchange(msgspec.Struct, frozen=True):
    """One call of the present turn and its result."""

    call: ToolUseBlock
    result: ToolResultBlock


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request stands in its turn.

    Attributes:
        user_text: Text of the anchor; empty if there is none.
        round: Number of answered steps, so also the index of the present one.
        emitted: Text of the present step that the client already has.
        reasoned: Reasoning of the present step that is already there.
        exchanges: The calls of the turn so far with their results, in order.
        key: Names turn and history; equal requests have equal keys, other turns of the session other ones.
    """

    user_text: str
    round: int
    emitted: str
    reasoned: str
    exchanges: tuple[Exchange, ...]
    key: str

    def call_id(self, index: int) -> str:
        """A fresh id for the ``index``-th call of the present step, the same in every process."""
        return f"call_{self.key}_{self.round}_{index}"


def _role_of(message: ModelMessage) -> str:
    return message.role


def _is_anchor(message: ModelMessage) -> bool:
    if message.role != "user" or message.is_nudge:
        return False
    return not any(type(block) is ToolResultBlock for block in message.blocks)


def _anchor_of(messages: tuple[ModelMessage, ...]) -> int:
    return next((at for at in range(len(messages) - 1, -1, -1) if _is_anchor(messages[at])), -1)


def _key_of(messages: tuple[ModelMessage, ...], anchor: int, user_text: str) -> str:
    """Tell this turn from all others of its session.

    The same words may be said twice, and compaction may shorten the history: so the earlier calls are counted and the
    last of them is named too.
    """
    turns, calls, last_call = 0, 0, ""
    for message in messages[: anchor + 1]:
        turns += _is_anchor(message)
        for block in message.blocks:
            if type(block) is ToolUseBlock:
                calls, last_call = calls + 1, block.tool_call_id
    told = f"{turns}\0{calls}\0{last_call}\0{user_text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(told, digest_size=5).hexdigest()


def position_of(request: ModelRequest) -> Position:
    """Read where a request stands."""
    messages = request.messages
    anchor = _anchor_of(messages)
    user_text = ""
    if anchor >= 0:
        user_text = "\n".join(block.text for block in messages[anchor].blocks if type(block) is TextBlock)
    rounds, in_results = 0, False
    text: list[str] = []
    reasoning: list[str] = []
    calls: dict[str, ToolUseBlock] = {}
    exchanges: list[Exchange] = []
    for message in messages[anchor + 1 :]:
        if message.is_nudge:
            continue
        for block in message.blocks:
            if type(block) is ToolResultBlock:
                rounds += not in_results
                in_results = True
                text.clear()
                reasoning.clear()
                call = calls.get(block.tool_call_id)
                if call is not None:
                    exchanges.append(Exchange(call, block))
                continue
            if message.role != "assistant":
                continue  # files that a tool's result brought along stand in the user message
            in_results = False
            if type(block) is TextBlock:
                text.append(block.text)
            elif type(block) is ReasoningBlock:
                reasoning.append(block.text)
            elif type(block) is ToolUseBlock:
                calls[block.tool_call_id] = block
    return Position(
        user_text=user_text,
        round=rounds,
        emitted="".join(text),
        reasoned="".join(reasoning),
        exchanges=tuple(exchanges),
        key=_key_of(messages, anchor, user_text),
    )


def _pairing_fault(messages: tuple[ModelMessage, ...]) -> str:
    """The first call without its result in the next message, or result without its call in the one before.

    Neighbours of one role count as one message, as the vendors read them.
    """
    waiting: set[str] = set()
    for role, group in itertools.groupby(messages, key=_role_of):
        blocks = [block for message in group for block in message.blocks]
        if role == "assistant":
            waiting = {block.tool_call_id for block in blocks if type(block) is ToolUseBlock}
            continue
        answered = {block.tool_call_id for block in blocks if type(block) is ToolResultBlock}
        if answered - waiting:
            return f"messages: tool result {min(answered - waiting)} has no tool call in the message before it"
        if waiting - answered:
            return f"messages: tool call {min(waiting - answered)} has no result in the message behind it"
        waiting = set()
    return ""


def refusal_of(request: ModelRequest) -> str:
    """What the vendors refuse in a request; empty if nothing.

    They want a first message of the user, no last message of the assistant (FR-03), objects as tool input (FR-01), no
    empty text or message, and a result for each call in the very next message (FR-11).
    """
    messages = request.messages
    if not messages:
        return "messages: at least one message is required"
    if messages[0].role != "user":
        return "messages.0: the first message must be the user's"
    if messages[-1].role == "assistant":
        return "messages: the conversation must end with a user message (no assistant message prefill)"
    for at, message in enumerate(messages):
        if not message.blocks:
            return f"messages.{at}: content must not be empty"
        for block in message.blocks:
            if type(block) is TextBlock and not block.text:
                return f"messages.{at}: text content must not be empty"
            if type(block) is ToolUseBlock and type(block.input) is not dict:
                return f"messages.{at}: tool_use.input must be an object"
    return _pairing_fault(messages)


def tokens_of(request: ModelRequest) -> int:
    """A rough count of a request's tokens."""
    size = len(request.system)
    for message in request.messages:
        for block in message.blocks:
            if isinstance(block, TextBlock | ReasoningBlock | ToolResultBlock):
                size += len(block.text)
    return size // CHARACTERS_PER_TOKEN
