"""What stands for the model in tests of whole turns: it has one story to tell, over Anthropic's real protocol.

Like a live model it reads from each request how far the story has come, so a turn that was interrupted goes on where it
stopped, whoever asks. What it was asked is counted at its side, outside of all processes that get killed.

A ``Story`` is text, perhaps a thought before and a tool call within. Its first request for a place can be held there
(``hold``): nothing more comes until ``released`` is set, so a test kills in the middle of a stream, not at a guess.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tests.anthropic_server import Answer, Block, Hold, Json, message, text, thinking, tool_use

__all__ = ["Story", "numbered"]

# Deltas of a held block that come before the hold.
HELD_AFTER = 3


def numbered(prefix: str, count: int) -> str:
    """Words that occur once each, so that a lost or doubled one is seen."""
    return "".join(f"{prefix}{number:02} " for number in range(count))


class Story:
    """See the module; give it to ``AnthropicServer`` as its answer.

    Args:
        before: Told first.
        call: The name and input of a tool, called behind ``before``.
        after: Told when the tool has succeeded.
        thought: Thought before the first word.
        hold: In which block the first answer that has it is held: thinking, before, call or after.
    """

    def __init__(
        self,
        before: str,
        call: tuple[str, Json] | None = None,
        after: str = "",
        *,
        thought: str = "",
        hold: str = "",
    ) -> None:
        self.text = before + after
        self.bodies: list[Json] = []
        self.released = asyncio.Event()
        self._before = before
        self._call = call
        self._thought = thought
        self._hold = hold

    def __call__(self, body: Json) -> Answer:
        self.bodies.append(body)
        said, results = _told(body)
        assert self.text.startswith(said), f"what was told is no beginning of the story: {said!r}"
        blocks: list[tuple[str, Block]] = []
        if results or self._call is None or len(said) > len(self._before):
            blocks.append(("after" if self._call else "before", _words(self.text[len(said) :])))
            return self._answer(blocks, "end_turn")
        if self._thought and not said:
            blocks.append(("thinking", _in_pieces(self._thought)))
        if len(said) < len(self._before):
            blocks.append(("before", _words(self._before[len(said) :])))
        name, value = self._call
        whole = json.dumps(value)
        fragments = [whole[at : at + 4] for at in range(0, len(whole), 4)]
        blocks.append(("call", tool_use(name, *fragments, call_id=f"toolu_{len(self.bodies)}")))
        return self._answer(blocks, "tool_use")

    def _answer(self, blocks: Sequence[tuple[str, Block]], stop_reason: str) -> Answer:
        whole = message(*(block for _, block in blocks), stop_reason=stop_reason)
        names = [name for name, _ in blocks]
        if self._hold not in names:
            return whole
        held, self._hold = names.index(self._hold), ""
        starts = [at for at, part in enumerate(whole.parts) if _type(part) == "content_block_start"]
        at = starts[held] + 1 + HELD_AFTER
        return Answer((*whole.parts[:at], Hold(self.released), *whole.parts[at:]))


def _words(whole: str) -> Block:
    # The vendor's model never says nothing; a turn that was cut behind its last word gets an empty delta here.
    return text(whole, max(1, len(whole.split()))) if whole else ({"type": "text", "text": ""}, ())


def _in_pieces(whole: str) -> Block:
    start, (_, signature) = thinking(whole)
    pieces = [{"type": "thinking_delta", "thinking": f"{word} "} for word in whole.split()]
    return start, (*pieces, signature)


def _type(part: Any) -> str:
    return part.get("type", "") if isinstance(part, dict) else ""


def _told(body: Json) -> tuple[str, int]:
    """What the assistant has said since the last question, and how many calls have succeeded."""
    blocks: list[tuple[str, Json]] = []
    for each in body["messages"]:
        content = each["content"] if isinstance(each["content"], list) else [{"type": "text", "text": each["content"]}]
        if each["role"] == "user" and not _goes_on(content):
            blocks.clear()
        blocks.extend((each["role"], block) for block in content)
    said = "".join(block["text"] for role, block in blocks if role == "assistant" and block["type"] == "text")
    results = sum(block["type"] == "tool_result" and not block.get("is_error") for _, block in blocks)
    return said, results


def _goes_on(content: Sequence[Json]) -> bool:
    """Whether a user message is no question: results, or the nudge to continue."""
    return all(block["type"] == "tool_result" or "was cut off" in block.get("text", "") for block in content)
