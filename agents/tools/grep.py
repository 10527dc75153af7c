"""Searches the text of many files, line by line, for the ``grep`` tool.

It is fed texts and gathers hits. A pattern comes from a model and may be one that never ends; the ``regex`` library
matches it with a time limit, and all files of one search share the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agents.core.chunks import JsonObject
from runtime.errors import UsageError

__all__ = ["LINE_CHARACTERS_MAX", "MATCHES_MAX", "PatternInvalid", "Search", "SearchTooLong", "cut_line"]

# The reference's: more hits than this are noise to a model.
MATCHES_MAX = 200
# The reference's for read; minified files have lines of a megabyte.
LINE_CHARACTERS_MAX = 2000
# Matching blocks the agent's loop; honest patterns need milliseconds.
SEARCH_SECONDS_MAX = 2.0


class PatternInvalid(UsageError):
    """The query is no regular expression."""


class SearchTooLong(UsageError):
    """The pattern used up its time."""


class Search:
    """One search: feed it files until it is full."""

    def __init__(self, query: str, *, is_fixed: bool, is_case_sensitive: bool, context_lines: int) -> None:
        """Get ready to search.

        Raises:
            PatternInvalid: The query is no regular expression.
        """
        self._matches = _literal(query, is_case_sensitive) if is_fixed else _pattern(query, is_case_sensitive)
        self._needle = (query if is_case_sensitive else query.casefold()) if is_fixed else None
        self._is_case_sensitive = is_case_sensitive
        self._context_lines = context_lines
        self.hits: list[str | JsonObject] = []
        self.files_searched = 0
        self.files_with_matches = 0
        self.is_truncated = False

    def feed(self, path: str, text: str) -> None:
        """Search one file; after ``MATCHES_MAX`` hits the next one only sets ``is_truncated``.

        Raises:
            SearchTooLong: The pattern's time is used up.
        """
        self.files_searched += 1
        if self._needle is not None and self._needle not in (text if self._is_case_sensitive else text.casefold()):
            return
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        found = False
        for index, line in enumerate(lines):
            if not self._matches(line):
                continue
            if len(self.hits) >= MATCHES_MAX:
                self.is_truncated = True
                break
            found = True
            self.hits.append(self._hit(path, lines, index))
        self.files_with_matches += found

    def _hit(self, path: str, lines: list[str], index: int) -> str | JsonObject:
        if not self._context_lines:
            return f"{path}:{index + 1}: {cut_line(lines[index])}"
        first = max(0, index - self._context_lines)
        shown = [
            f"{'>' if number == index else ' '} {number + 1}\t{cut_line(lines[number])}"
            for number in range(first, min(len(lines), index + self._context_lines + 1))
        ]
        return {"file": path, "line": index + 1, "context": "\n".join(shown)}


def cut_line(line: str) -> str:
    """The line, or its beginning if it is very long."""
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[:LINE_CHARACTERS_MAX]}... (truncated)"


def _literal(query: str, is_case_sensitive: bool) -> Callable[[str], bool]:
    if is_case_sensitive:
        return lambda line: query in line
    folded = query.casefold()
    return lambda line: folded in line.casefold()


def _pattern(query: str, is_case_sensitive: bool) -> Callable[[str], Any]:
    import regex  # late: 18 ms and 2 MB that most agents never need

    try:
        compiled = regex.compile(query, 0 if is_case_sensitive else regex.IGNORECASE)
    except (regex.error, OverflowError, RecursionError) as error:
        raise PatternInvalid(f"Invalid regex: {query[:200]} ({error})") from error
    search = compiled.search
    left = SEARCH_SECONDS_MAX

    def matches(line: str) -> bool:
        nonlocal left
        started = time.perf_counter()
        try:
            # concurrent: other threads of the process, which answer pings, run meanwhile.
            found = search(line, timeout=left, concurrent=True) is not None
        except TimeoutError:
            found = False
            left = 0.0
        left -= time.perf_counter() - started
        if left <= 0:
            raise SearchTooLong(
                f"The pattern takes longer than {SEARCH_SECONDS_MAX:g} s; use a simpler one, or fixed_string"
            )
        return found

    return matches
