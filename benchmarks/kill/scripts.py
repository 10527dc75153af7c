"""What the models say and which tools they call, from the text of the question alone.

A turn is asked for by ``question(turn, shape)``. Its model says numbered words, calls a tool, says more, and so on, as
its shape has it: each word occurs once, so that a lost or doubled one can be counted. The words do not name the turn,
its tool calls do: that is all in which two turns of one shape differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.models.scripted import Scripted, Step

__all__ = ["SHAPES", "TOOL_SECONDS", "question", "steps_of", "turn_of"]

# Words of each step; a tool call stands between two steps.
SHAPES: tuple[tuple[int, ...], ...] = ((70, 60), (50, 45, 55), (130,), (40, 30, 30, 40))
TOOL_SECONDS = 0.15

_QUESTION = re.compile(r"Turn (\S+), shape (\d+)\.")


def question(turn: str, shape: int) -> str:
    """What the user says."""
    return f"Turn {turn}, shape {shape}."


def turn_of(user_text: str) -> str:
    """The turn that a question asks for; empty if it is no question of ours."""
    found = _QUESTION.search(user_text)
    return found.group(1) if found else ""


def steps_of(user_text: str) -> Sequence[Step | str]:
    """The script of a turn."""
    found = _QUESTION.search(user_text)
    assert found is not None, f"not a question of this benchmark: {user_text!r:.100}"
    turn, shape = found.group(1), int(found.group(2))
    steps: list[Step | str] = []
    for number, words in enumerate(SHAPES[shape]):
        text = "".join(f"s{shape}p{number}w{word} " for word in range(words))
        step = Scripted.text(text, chunks=words)
        if number < len(SHAPES[shape]) - 1:
            step = step + Scripted.call("note", {"turn": turn, "place": f"s{shape}p{number}"})
        steps.append(step)
    return steps
