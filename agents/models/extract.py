"""What ``Offline`` understands of words: keywords of a task, and the sentences of a file that speak of them.

All of it is plain counting, so that the same text gives the same answer on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

__all__ = [
    "Keyword",
    "Sentence",
    "best_sentences",
    "definitions_of",
    "file_targets",
    "is_text_file",
    "keywords_of",
    "sentences_of_file",
    "sentences_of_text",
    "stem",
]

KEYWORDS_MAX = 6
SENTENCE_WORDS_MIN, SENTENCE_CHARACTERS_MIN, SENTENCE_CHARACTERS_MAX = 5, 30, 320
LETTERS_SHARE_MIN = 0.65
STEM_CHARACTERS_MIN = 4

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_PATH = re.compile(r"(?<![\w/.])/[\w.\-/]*\w|(?<![\w/.])[\w\-]+(?:/[\w.\-]+)*\.[A-Za-z]{1,5}\b")
_QUOTED = re.compile(r"`([^`\n]{3,40})`|\"([^\"\n]{3,40})\"")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')`]*\s+(?=[A-Z0-9`\"'(])")
_DEFINITION = re.compile(r"^(?:class|def|async def)\s+([A-Za-z]\w*)")
_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_NOISE = re.compile(r">>>|\blicen[cs]ed?\b|\bcopyright\b|\bTODO\b|\bXXX\b", re.IGNORECASE)
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "ed", "es", "er", "s", "y")
_TEXT_ENDINGS = "c cfg css csv go h html ini java js json jsonl log md py rb rs rst sh sql tex toml ts txt xml yaml yml"
# Words that say what to do, not what about; and the small words of English.
_STOP_WORDS = """
    about above according after again all also among and answer any are ask asked because been before being below
    between both brief but called can chapter code contain contains could create created describe did does doing
    done down during each editor else especially every explain few file files find findings folder folders following
    for from further get give given gives good had handle handled handles handling has have having hello help her
    here hey him his how into its itself join joined just key kind know less let library like list look looking made
    main make many may mean means might more most much must name named near need needs not note notes now off one
    only other our out over package packages paragraph part parts path please point points put python question read
    reading report reports research researcher researchers same save saved say says search see sentence sentences
    several shall she should show shows some something source sources standard store studied study such summarise
    summarize summary take task tell text than thank thanks that the their them then there these they thing things
    this those three through too topic two under until use used uses using very via want was way ways well were what
    when where whether which while who whom whose why will with within without word words work works workspace would
    write writes you your
"""

_ENDINGS_SET = frozenset(_TEXT_ENDINGS.split())
_STOP_SET = frozenset(_STOP_WORDS.split())


class Keyword(msgspec.Struct, frozen=True):
    """A word of a task, and the stem that its other forms share with it."""

    word: str
    stem: str


class Sentence(msgspec.Struct, frozen=True):
    """A sentence and the line on which its paragraph begins; 0 if it comes from no file."""

    text: str
    line: int = 0


def stem(word: str) -> str:
    """The part that a word shares with its other forms: ``retries`` and ``retry`` give ``retr``."""
    word = word.lower()
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= STEM_CHARACTERS_MIN:
            word = word[: -len(suffix)]
            return word[:-1] if word[-1] == word[-2] else word
    return word


def file_targets(text: str) -> list[str]:
    """The paths that a text names, in order, each once."""
    found = (match.group().rstrip(".,;:") for match in _PATH.finditer(text))
    return list(dict.fromkeys(path for path in found if not path.startswith("//")))


def keywords_of(text: str) -> list[Keyword]:
    """What a task is about: the words that it puts in quotes first, then the others in order."""
    quoted = [a or b for a, b in _QUOTED.findall(text)]
    bare = _PATH.sub(" ", text)
    words = _WORD.findall(" ".join([*quoted, bare]))
    found: dict[str, Keyword] = {}
    for word in words:
        if word.lower() not in _STOP_SET:
            found.setdefault(stem(word), Keyword(word.lower(), stem(word)))
    return list(found.values())[:KEYWORDS_MAX]


def is_text_file(path: str) -> bool:
    """Whether a name promises text."""
    name = path.rsplit("/", 1)[-1]
    return "." not in name or name.rsplit(".", 1)[-1].lower() in _ENDINGS_SET


def sentences_of_text(text: str, line: int = 0) -> list[Sentence]:
    """The whole sentences of running text, in order."""
    flat = " ".join(text.split())
    return [Sentence(piece, line) for piece in _SENTENCE_END.split(flat) if _is_sentence(piece)]


def sentences_of_file(path: str, content: str) -> list[Sentence]:
    """The sentences of a file as ``read`` shows it, each line behind its number.

    Of Python source only docstrings and comments speak; of other files every paragraph does.
    """
    lines = _numbered(content)
    paragraphs = _python_paragraphs(lines) if path.endswith((".py", ".pyi")) else _paragraphs(lines)
    found: list[Sentence] = []
    for line, text in paragraphs:
        found.extend(sentences_of_text(text, line))
    return found


def definitions_of(content: str) -> list[str]:
    """The public names that a Python file defines at its top level, in order."""
    found = (_DEFINITION.match(text) for _, text in _numbered(content))
    return [match.group(1) for match in found if match is not None]


def best_sentences(sentences: Sequence[Sentence], keywords: Iterable[Keyword], limit: int) -> list[Sentence]:
    """The sentences that say most about the keywords, in the order of the text.

    Each further keyword counts more than a repeated one, and what stands first in a text mostly says what it is about.
    """
    wanted = [keyword.stem for keyword in keywords]

    def worth(at: int) -> float:
        lowered = sentences[at].text.lower()
        hits = sum(1 for word in wanted if word in lowered)
        return 10.0 * hits + 5.0 / (at + 1) - len(lowered) / 200.0

    seen: set[str] = set()
    chosen: list[int] = []
    for at in sorted(range(len(sentences)), key=lambda at: (-worth(at), at)):
        if len(chosen) == limit:
            break
        if sentences[at].text not in seen:
            seen.add(sentences[at].text)
            chosen.append(at)
    return [sentences[at] for at in sorted(chosen)]


def _is_sentence(text: str) -> bool:
    if not SENTENCE_CHARACTERS_MIN <= len(text) <= SENTENCE_CHARACTERS_MAX or text[-1] not in ".!?":
        return False
    if not (text[0].isupper() or text[0] in "`\"'("):
        return False
    letters = sum(1 for character in text if character.isalpha() or character == " ")
    return (
        len(text.split()) >= SENTENCE_WORDS_MIN and letters >= LETTERS_SHARE_MIN * len(text) and not _NOISE.search(text)
    )


def _numbered(content: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for at, line in enumerate(content.splitlines(), 1):
        match = _NUMBERED.match(line)
        found.append((int(match.group(1)), match.group(2)) if match else (at, line))
    return found


def _paragraphs(lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Runs of lines between blank ones, headings and list items apart, each with its first line's number."""
    found: list[tuple[int, list[str]]] = []
    is_open = False
    for number, text in lines:
        bare = text.strip()
        if not bare or bare.startswith(("#", "|", "```", "---", "===", ">>>", ".. ")):
            is_open = False
            continue
        is_item = bare.startswith(("- ", "* ", "+ "))
        if is_open and not is_item:
            found[-1][1].append(bare)
        else:
            found.append((number, [bare[2:] if is_item else bare]))
            is_open = True
    return [(number, " ".join(parts)) for number, parts in found]


def _python_paragraphs(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Docstrings and comments of Python source. A line of the first triple quote opens, the next one closes."""
    spoken: list[tuple[int, str]] = []
    fence = ""
    for number, text in lines:
        bare = text.strip()
        if fence:
            inside, closed, _ = bare.partition(fence)
            spoken.append((number, inside))
            if closed:
                fence = ""
                spoken.append((number, ""))
        elif bare.startswith("#"):
            spoken.append((number, bare.lstrip("#!: ")))
        else:
            spoken.append((number, ""))
            opened = re.match(r"[rRuUbB]{0,2}(\"\"\"|''')", bare)
            if opened:
                inside, closed, _ = bare[opened.end() :].partition(opened.group(1))
                spoken.append((number, inside))
                fence = "" if closed else opened.group(1)
                if closed:
                    spoken.append((number, ""))
    return _paragraphs(spoken)
