"""A model without network, key or weights, for demonstrations and first steps.

``Offline`` follows fixed rules, so equal requests have equal answers, in every process. It reads from the request how
far its turn has come (``agents.models.position``) and does the next thing that is still to do:

1. A message that brings its own material (several findings under headings) becomes a report.
2. Tools that the message names are called, if the message also holds what they need.
3. Otherwise files are studied with whatever is offered: list the folder, find files below it, grep for the
   keywords, read up to three files, and answer with the sentences that speak of the keywords.
4. A file that the message asks to be written is written before the answer.

A call that an interruption cut off is made once more; any other failure is taken as an answer. All its calls read,
except that of rule 4, which leads to the same file however often it is made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

import msgspec

from agents.core.chunks import JsonObject
from agents.core.repair import INTERRUPTED_TEXT
from agents.models.evidence import Evidence, evidence_of
from agents.models.extract import Keyword, file_targets, is_text_file, keywords_of
from agents.models.model import ModelPart, ModelRequest, ToolSpec, ToolUseBlock
from agents.models.position import Exchange, Position
from agents.models.reports import SECTION_CHARACTERS_MIN, Section, findings, report, sections_of, small_talk
from agents.models.script import Call, Cut, Say, Step
from agents.models.scripted import Scripted, Sleeper

__all__ = ["Offline"]

FILES_READ_MAX = 3
LINES_READ_MAX = 300
# A call that was interrupted so often is given up; else a tool that kills its process would be called for ever.
TRIES_MAX = 3
CHUNK_SIZE = 16
FRAGMENT_SIZE = 48
# Material shorter than this is a question, whatever its form.
MATERIAL_CHARACTERS_MIN = 400

_WRITES = re.compile(r"\b(?:write|save|store|put|create)\b", re.IGNORECASE)
_FILE_TOOLS = frozenset(("list", "find", "grep", "read", "write", "edit", "delete", "bash"))
_PATH_WORDS = frozenset(("path", "file", "filename", "file_path"))
_TASK_WORDS = frozenset(("task", "question", "prompt", "message", "input", "text", "topic", "request"))
_QUERY_WORDS = frozenset(("query", "pattern", "keyword", "keywords", "search"))


class Offline:
    """A deterministic model that works on real files without any service.

    Args:
        chunk_delay: Seconds before each chunk, so that people can watch.
        model_id: The name in events and logs.
        count_file: Each request is appended to this file as a line of JSON (see ``Scripted``).
        clock: Where delays are slept (see ``Scripted``).
    """

    def __init__(
        self,
        *,
        chunk_delay: float = 0.0,
        model_id: str = "offline",
        count_file: str | None = None,
        clock: Sleeper | None = None,
    ) -> None:
        self.model_id = model_id
        self._voice = Scripted((), chunk_delay=chunk_delay, model_id=model_id, count_file=count_file, clock=clock)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield the next calls, or the answer, or what is missing of it.

        Raises:
            ModelRefused: The request is not one that a vendor would take.
        """
        return self._voice.perform(request, lambda position: next_step(request, position))


def next_step(request: ModelRequest, position: Position) -> Step:
    """What the rules say next; ``position`` is that of ``request``."""
    offered = {} if request.tool_choice == "none" else {tool.name: tool for tool in request.tools}
    return _Plan(position, offered).step()


class _Plan:
    """The rules, applied to one request."""

    def __init__(self, position: Position, offered: dict[str, ToolSpec]) -> None:
        self._position = position
        self._offered = offered
        self._evidence = evidence_of(_settled(position.exchanges))
        self._task, self._sections = position.user_text, list[Section]()
        if len(position.user_text) >= MATERIAL_CHARACTERS_MIN:
            task, sections = sections_of(position.user_text)
            if sections:
                self._task, self._sections = task, sections
        self._keywords: list[Keyword] = keywords_of(self._task)
        self._targets = file_targets(self._task)
        self._folder = next((path for path in self._targets if path.startswith("/") and "." not in path), "/")

    def step(self) -> Step:
        """The first rule that has something left to do."""
        return (
            self._again()
            or self._named_tools()
            or self._list()
            or self._find()
            or self._grep()
            or self._read()
            or self._write()
            or _saying(self._answer())
        )

    def _again(self) -> Step | None:
        """The calls of the last round that were cut off."""
        tries: Counter[bytes] = Counter(_same(exchange.call) for exchange in self._position.exchanges)
        again = {
            _same(exchange.call): exchange.call
            for exchange in _settled(self._position.exchanges)
            if _is_interrupted(exchange) and exchange.call.tool_name in self._offered
        }
        calls = [(call.tool_name, call.input) for key, call in again.items() if tries[key] < TRIES_MAX]
        return _calling("That was interrupted; I do it once more.", calls) if calls else None

    def _named_tools(self) -> Step | None:
        """Tools beyond those for files whose names stand in the task, each once."""
        words = set(re.findall(r"\w+", self._task))
        for name, tool in self._offered.items():
            if name in _FILE_TOOLS or name not in words or name in self._evidence.asked:
                continue
            arguments = self._arguments_for(tool)
            if arguments is not None:
                return _calling(f"I use {name}.", [(name, arguments)])
        return None

    def _arguments_for(self, tool: ToolSpec) -> JsonObject | None:
        """Arguments found in the task; None if a required one is not there."""
        found: JsonObject = {}
        for name in tool.input_schema.get("required", ()):
            kind = tool.input_schema.get("properties", {}).get(name, {}).get("type")
            numbers = re.findall(r"(?<![\w.])-?\d+", self._task)
            if kind == "string" and name in _PATH_WORDS and self._targets:
                found[name] = self._targets[0]
            elif kind == "string" and name in _TASK_WORDS:
                found[name] = self._task
            elif kind == "string" and name in _QUERY_WORDS and self._keywords:
                found[name] = self._keywords[0].word
            elif kind in ("integer", "number") and numbers:
                found[name] = int(numbers[0])
            elif kind == "boolean":
                found[name] = True
            else:
                return None
        return found

    @property
    def _is_study(self) -> bool:
        """Whether the answer is to be looked for in files."""
        return not self._sections and bool(self._keywords or self._targets)

    @property
    def _is_empty(self) -> bool:
        """Whether the listing showed that there is nothing to study."""
        asked = {"list", "find"} & self._evidence.asked
        return bool(asked) and not self._evidence.files and not self._evidence.folders

    def _can(self, name: str, *parameters: str) -> bool:
        """Whether a tool is offered, takes these parameters, and was not used in this turn."""
        if not self._is_study or name not in self._offered or name in self._evidence.asked:
            return False
        properties = self._offered[name].input_schema.get("properties", {})
        return all(parameter in properties for parameter in parameters)

    def _list(self) -> Step | None:
        if not self._can("list", "path"):
            return None
        return _calling(f"I list {self._folder} first.", [("list", {"path": self._folder})])

    def _find(self) -> Step | None:
        is_needed = bool(self._evidence.folders) or "list" not in self._evidence.asked
        if self._is_empty or not is_needed or not self._can("find", "pattern"):
            return None
        return _calling("There is more below.", [("find", {"pattern": f"{self._folder.rstrip('/')}/**/*"})])

    def _grep(self) -> Step | None:
        if self._is_empty or not self._keywords or not self._can("grep", "query"):
            return None
        arguments: JsonObject = {"query": "|".join(re.escape(keyword.stem) for keyword in self._keywords)}
        if "include" in self._offered["grep"].input_schema.get("properties", {}):
            arguments["include"] = f"{self._folder.rstrip('/')}/**/*"
        words = ", ".join(keyword.word for keyword in self._keywords)
        return _calling(f"I look for {words}.", [("grep", arguments)])

    def _read(self) -> Step | None:
        if self._is_empty or not self._can("read", "path"):
            return None
        properties = self._offered["read"].input_schema.get("properties", {})
        calls: list[tuple[str, JsonObject]] = []
        for path, line in _worth_reading(self._evidence, self._keywords, self._targets):
            arguments: JsonObject = {"path": path}
            if "limit" in properties and "offset" in properties:
                # The head of a file says what it is; only what lies far below is read where the words stand.
                far = line > LINES_READ_MAX - 20
                arguments |= {"offset": line - 40 if far else 1, "limit": LINES_READ_MAX}
            calls.append(("read", arguments))
        names = ", ".join(str(arguments["path"]) for _, arguments in calls)
        return _calling(f"I read {names}.", calls) if calls else None

    def _write(self) -> Step | None:
        """The file that the task wants written, if it names one that nobody has read."""
        write = self._offered.get("write")
        wanted = [path for path in self._targets if is_text_file(path) and path not in self._evidence.contents]
        wanted = [path for path in wanted if path != self._folder]
        if write is None or "write" in self._evidence.asked or not wanted or not _WRITES.search(self._task):
            return None
        path = wanted[-1] if wanted[-1].startswith("/") else f"/{wanted[-1]}"
        return _calling(f"I write {path}.", [("write", {"path": path, "content": self._text()})])

    def _answer(self) -> str:
        text = self._text()
        written = [e.call.input for e in self._position.exchanges if e.call.tool_name == "write"]
        is_written = bool(written) and not any(name == "write" for name, _ in self._evidence.errors)
        return f"{text}\nThis text is in {written[-1]['path']}.\n" if is_written else text

    def _text(self) -> str:
        if self._sections:
            others = [Section(name, text) for name, text in self._evidence.texts if len(text) >= SECTION_CHARACTERS_MIN]
            return report(self._task, [*self._sections, *others])
        if self._evidence.asked or (self._is_study and {"list", "find", "grep", "read"} & self._offered.keys()):
            return findings(self._keywords, self._folder, self._evidence)
        return small_talk(self._task, list(self._offered))


def _is_interrupted(exchange: Exchange) -> bool:
    return exchange.result.is_error and exchange.result.text == INTERRUPTED_TEXT


def _settled(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The exchanges without those that were interrupted and made again: they leave no trace in the answer."""
    done = {_same(exchange.call) for exchange in exchanges if not _is_interrupted(exchange)}
    return [exchange for exchange in exchanges if not _is_interrupted(exchange) or _same(exchange.call) not in done]


def _same(call: ToolUseBlock) -> bytes:
    return msgspec.json.encode([call.tool_name, call.input])


def _worth_reading(evidence: Evidence, keywords: Sequence[Keyword], targets: Sequence[str]) -> list[tuple[str, int]]:
    """Up to three files, each with the line of its first hit.

    Those that the task names come first, then those with a keyword in their name, then those with most hits. A search
    shows only its first hits, so a file's name may be all that speaks for it.
    """
    first: dict[str, int] = {}
    for match in evidence.matches:
        first.setdefault(match.path, match.line)
    counts = Counter(match.path for match in evidence.matches)

    def rank(path: str) -> tuple[bool, int, str]:
        name = path.rsplit("/", 1)[-1].lower()
        return (not any(keyword.stem in name for keyword in keywords), -counts[path], path)

    known = list(dict.fromkeys([*evidence.text_files, *(path for path in counts if is_text_file(path))]))
    named = [path for path in known if path in targets]
    ranked = sorted((path for path in known if counts[path] or not rank(path)[0]), key=rank)
    # Without hits a file that introduces the others says most.
    introductions = sorted(known, key=lambda path: (not _introduces(path), path))
    chosen = list(dict.fromkeys([*named, *(ranked or introductions)]))[:FILES_READ_MAX]
    return [(path, first.get(path, 1)) for path in chosen]


def _introduces(path: str) -> bool:
    return path.rsplit("/", 1)[-1].lower().startswith(("readme", "__init__", "index"))


def _calling(preamble: str, calls: Sequence[tuple[str, JsonObject]]) -> Step:
    items: list[Say | Call] = [Say(preamble, Cut(size=CHUNK_SIZE))]
    for name, arguments in calls:
        text = msgspec.json.encode(arguments).decode()
        items.append(Call(name, text, 1 + len(text) // FRAGMENT_SIZE))
    return Step(tuple(items))


def _saying(text: str) -> Step:
    return Step((Say(text, Cut(size=CHUNK_SIZE)),))
