"""What the tools have told ``Offline`` in the present turn.

Results are read by what they look like (``entries``, ``files``, ``matches``, ``content``), not by the tool's name, so
that an application's own tools of the same shape serve as well. What looks like none of these is kept as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from agents.core.chunks import JsonObject
from agents.models.extract import is_text_file
from agents.models.position import Exchange

__all__ = ["Evidence", "Match", "evidence_of"]

_ENTRY_SIZE = re.compile(r" \([\d.]+ ?[KMG]?B\)$")
_MATCH = re.compile(r"^(.+?):(\d+): ?(.*)$")


class Match(msgspec.Struct, frozen=True):
    """A line that a search found."""

    path: str
    line: int
    text: str


class Evidence(msgspec.Struct):
    """Everything that was found, in the order in which it was found.

    Attributes:
        files: Paths of files that were listed or found.
        folders: Paths of folders that were listed.
        matches: Lines that searches found.
        files_with_matches: How many files a search found something in; it may show fewer.
        contents: What was read, by path.
        lines: Lines of a file in all, by path.
        texts: Results of other tools, each behind the tool's name.
        asked: Names of the tools that answered.
        errors: What failed, each behind the tool's name.
    """

    files: list[str] = []
    folders: list[str] = []
    matches: list[Match] = []
    files_with_matches: int = 0
    contents: dict[str, str] = {}
    lines: dict[str, int] = {}
    texts: list[tuple[str, str]] = []
    asked: set[str] = set()
    errors: list[tuple[str, str]] = []

    @property
    def text_files(self) -> list[str]:
        """The files whose names promise text."""
        return [path for path in self.files if is_text_file(path)]


def evidence_of(exchanges: Iterable[Exchange]) -> Evidence:
    """Read the results of the present turn."""
    evidence = Evidence()
    for exchange in exchanges:
        name, text = exchange.call.tool_name, exchange.result.text
        evidence.asked.add(name)
        if exchange.result.is_error:
            evidence.errors.append((name, text))
            continue
        _add(evidence, name, text)
    evidence.files = list(dict.fromkeys(evidence.files))
    return evidence


def _add(evidence: Evidence, name: str, text: str) -> None:
    try:
        shown = msgspec.json.decode(text)
    except msgspec.DecodeError:
        shown = text
    if not isinstance(shown, dict):
        evidence.texts.append((name, shown if isinstance(shown, str) else text))
    elif isinstance(shown.get("error"), str):
        evidence.errors.append((name, shown["error"]))
    elif isinstance(shown.get("entries"), list):
        _add_entries(evidence, shown)
    elif isinstance(shown.get("matches"), list):
        evidence.matches.extend(match for match in map(_match, shown["matches"]) if match is not None)
        evidence.files_with_matches += _number(shown.get("files_with_matches"))
    elif isinstance(shown.get("files"), list):
        found = [path for path in shown["files"] if isinstance(path, str)]
        evidence.files.extend(path for path in found if not path.endswith("/"))
    elif isinstance(shown.get("content"), str) and isinstance(shown.get("path"), str):
        evidence.contents[shown["path"]] = shown["content"]
        evidence.lines[shown["path"]] = _number(shown.get("total_lines"))
    else:
        evidence.texts.append((name, text))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _add_entries(evidence: Evidence, shown: JsonObject) -> None:
    folder = str(shown.get("path") or "/").rstrip("/")
    for entry in shown["entries"]:
        if not isinstance(entry, str):
            continue
        path = f"{folder}/{_ENTRY_SIZE.sub('', entry)}"
        (evidence.folders if path.endswith("/") else evidence.files).append(path)


def _match(found: object) -> Match | None:
    if isinstance(found, str):
        match = _MATCH.match(found)
        return Match(match.group(1), int(match.group(2)), match.group(3).strip()) if match else None
    if isinstance(found, dict) and isinstance(found.get("file"), str):
        return Match(found["file"], _number(found.get("line")), str(found.get("context") or "").strip())
    return None
