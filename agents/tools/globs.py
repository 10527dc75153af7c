"""Glob patterns over workspace paths (tools W9): ``*``, ``?`` within a step, ``**`` over steps, ``[...]``, ``{a,b}``.

A pattern comes from a model and meets names that a model chose, so matching must not be made to take for ever. Braces
become alternatives first. Then every ``*`` but the last of a step, and every ``**`` but the last of a pattern, matches
the shortest text that lets the fixed piece after it match, and never tries again (an atomic group): for wildcards,
unlike for regular expressions, the first place is as good as any later one. A backslash takes the meaning from a
character.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from agents.errors import WorkspaceError
from agents.tools.paths import normalise

__all__ = ["Glob", "compile_glob"]

# {a,b}{c,d}... doubles with each pair of braces.
ALTERNATIVES_MAX = 256

_WILD = re.compile(r"\\.|[*?\[]", re.DOTALL)
_CLASS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


class Glob(msgspec.Struct, frozen=True):
    """A pattern, ready to use.

    Attributes:
        base: The lowest directory that holds everything the pattern can match.
        expression: Matches whole normalised paths.
    """

    base: str
    expression: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Whether a normalised path fits; the root, which has no name, never does."""
        return path != "/" and self.expression.fullmatch(path) is not None


def compile_glob(pattern: str) -> Glob:
    """A glob pattern, ready to use; one without a leading ``/`` starts at the root.

    Raises:
        WorkspaceError: ENAMETOOLONG, or EINVAL for one that has too many alternatives.
    """
    normalise(pattern)  # for its limits
    alternatives = [normalise(each)[1:].split("/") for each in _expanded(pattern)]
    expression = "|".join(f"(?:/{_steps(steps)})" for steps in alternatives)
    return Glob(base="/" + "/".join(_common(alternatives)), expression=re.compile(expression, re.DOTALL))


def _expanded(pattern: str) -> list[str]:
    """The pattern without braces, once for each choice."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        braces = _first_braces(current)
        if braces is None:
            done.append(current)
        else:
            start, end, choices = braces
            todo.extend(current[:start] + choice + current[end:] for choice in choices)
        if len(done) + len(todo) > ALTERNATIVES_MAX:
            raise WorkspaceError("EINVAL", f"{pattern[:80]} stands for more than {ALTERNATIVES_MAX} patterns")
    return done


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """Where the first closed pair of braces with a comma begins and ends, and its choices."""
    opened: list[tuple[int, list[int]]] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 1
        elif character == "{":
            opened.append((position, []))
        elif character == "," and opened:
            opened[-1][1].append(position)
        elif character == "}" and opened:
            start, commas = opened.pop()
            # Inner braces close first and are taken first; a pair without a comma is text.
            if commas:
                cuts = [start, *commas, position]
                choices = [pattern[a + 1 : b] for a, b in itertools.pairwise(cuts)]
                return start, position + 1, choices
        position += 1
    return None


def _steps(steps: Sequence[str]) -> str:
    """Regular expression of the steps of a path, after its leading slash."""
    runs: list[list[str]] = [[]]
    for step in steps:
        if step != "**":
            runs[-1].append(_step(step))
        elif len(runs) == 1 or runs[-1]:  # "**/**" is "**"
            runs.append([])
    head, *rest = runs
    expression = "".join(f"{step}/" for step in head)
    for run in rest[:-1]:
        expression += f"(?>(?:[^/]+/)*?{''.join(f'{step}/' for step in run)})"
    if not rest:
        return expression.removesuffix("/")
    return expression + (f"(?:[^/]+/)*{'/'.join(rest[-1])}" if rest[-1] else ".+")


def _step(step: str) -> str:
    """Regular expression of one step."""
    pieces: list[str] = [""]  # what stands between the stars
    position = 0
    while position < len(step):
        character = step[position]
        chosen = _CLASS.match(step, position)
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif chosen:
            pieces[-1] += _class(*chosen.groups())
            position = chosen.end()
            continue
        elif character == "\\" and position + 1 < len(step):
            position += 1
            pieces[-1] += re.escape(step[position])
        else:
            pieces[-1] += re.escape(character)
        position += 1
    first, *middle = pieces
    if not middle:
        return first
    *middle, last = middle
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def _class(negation: str, members: str) -> str:
    escaped = re.sub(r"([\[\]\\^&~|])", r"\\\1", members)
    try:
        re.compile(f"[{escaped}]")
    except re.error:  # a range like [z-a]
        return re.escape(f"[{negation}{members}]")
    return f"(?!/)[{'^' if negation else ''}{escaped}]"


def _common(alternatives: Sequence[Sequence[str]]) -> list[str]:
    """The steps without wildcards that all alternatives begin with; the last step never counts."""
    common: list[str] = []
    for level in zip(*(steps[:-1] for steps in alternatives), strict=False):
        if len(set(level)) > 1 or _WILD.search(level[0]):
            break
        common.append(level[0])
    return common
