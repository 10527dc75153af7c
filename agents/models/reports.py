"""The texts that ``Offline`` writes: findings about files, a report made of findings, an answer to small talk.

Each is a pure function of what was asked and what was found. Nothing in it is invented: it counts, and it quotes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from agents.models.evidence import Evidence
from agents.models.extract import (
    Keyword,
    Sentence,
    best_sentences,
    definitions_of,
    file_targets,
    is_text_file,
    keywords_of,
    sentences_of_file,
    sentences_of_text,
)

__all__ = ["SECTION_CHARACTERS_MIN", "Section", "findings", "report", "sections_of", "small_talk"]

SENTENCES_PER_FILE = 4
SENTENCES_PER_SECTION = 4
NAMES_SHOWN_MAX = 6
SOURCES_SHOWN_MAX = 12
# A section with less text than this is an instruction, not a finding.
SECTION_CHARACTERS_MIN = 100

_HEADING = re.compile(
    r"^(?:#{1,6}\s+(?P<marked>.+?)|(?P<labelled>[A-Z][\w ./-]{1,60}|[\w./-]{1,40}):)\s*$|^(?P<rule>-{3,}|={3,})\s*$"
)
# How ``findings`` frames what it quotes; a line number behind a quote is of use only where it stands.
_FRAME = re.compile(r"(?:I|It defines|It has|Only a part|All files|\d+ files? of)\b|`[^`]+` was ")
_LOOKED_FOR = re.compile(r"I looked for `[^.]*\.|^- `[^`]+` was not seen\.$", re.MULTILINE)
_QUOTE_MARKS = re.compile(r"^[-*]\s+|\s*\((?:[^()\s]*, )?line \d+\)", re.MULTILINE)


class Section(msgspec.Struct, frozen=True):
    """A titled stretch of a longer text."""

    title: str
    text: str


def _listed(words: Sequence[str], shown: int = NAMES_SHOWN_MAX) -> str:
    """Words as English lists them; more than ``shown`` are counted."""
    named = [f"`{word}`" for word in words[:shown]]
    if len(words) > shown:
        named.append(f"{len(words) - shown} more")
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else "".join(named)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _topic(keywords: Sequence[Keyword], otherwise: str) -> str:
    words = [keyword.word for keyword in keywords[:3]]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words) or otherwise


def findings(keywords: Sequence[Keyword], folder: str, evidence: Evidence) -> str:
    """What the files say about the keywords: for each file that was read the sentences that speak of them."""
    if not evidence.contents and not evidence.matches and not evidence.texts:
        return _nothing_found(keywords, folder, evidence)
    blocks = [f"# Findings on {_topic(keywords, folder)}", _overview(keywords, folder, evidence)]
    quoted: set[str] = set()
    for path, content in evidence.contents.items():
        blocks.append(_on_file(path, content, keywords, quoted))
    for name, text in evidence.texts:
        sentences = best_sentences(sentences_of_text(text), keywords, SENTENCES_PER_SECTION)
        if sentences:
            blocks.append(f"## From {name}\n\n" + "\n".join(f"- {sentence.text}" for sentence in sentences))
    if evidence.matches:
        blocks.append("## Where the words stand\n\n" + _occurrences(keywords, evidence))
    blocks.append("## What this leaves open\n\n" + _leftovers(evidence))
    return "\n\n".join(blocks) + "\n"


def _nothing_found(keywords: Sequence[Keyword], folder: str, evidence: Evidence) -> str:
    looked = f"I looked in {folder} for {_listed([k.word for k in keywords])}" if keywords else f"I looked in {folder}"
    count = len(evidence.files)
    if not count and not evidence.folders and not evidence.errors:
        return (
            f"There are no files in {folder} that could speak of {_topic(keywords, 'it')}. I am the offline model, "
            "which works without a network and without a key: I quote files, and know nothing by myself. Put files "
            "into the workspace and ask again, or set ANTHROPIC_API_KEY to have Claude answer."
        )
    text = f"{looked}. There {'is' if count == 1 else 'are'} {_number(count, 'file')}, and none says anything about it."
    if evidence.errors:
        name, error = evidence.errors[0]
        text += f" The tool {name} failed: {error}"
    return text


def _overview(keywords: Sequence[Keyword], folder: str, evidence: Evidence) -> str:
    text = f"I studied {folder}, which holds {_number(len(evidence.files), 'file')}"
    if evidence.contents:
        text += f", and read {_listed([path.rsplit('/', 1)[-1] for path in evidence.contents])}"
    text += "."
    if keywords:
        text += f" I looked for {_listed([keyword.word for keyword in keywords])}"
        found_in = evidence.files_with_matches or len({match.path for match in evidence.matches})
        text += f", which stand in {_number(found_in, 'file')}." if found_in else ", which no file has."
    return text


def _on_file(path: str, content: str, keywords: Sequence[Keyword], quoted: set[str]) -> str:
    fresh = [sentence for sentence in sentences_of_file(path, content) if sentence.text not in quoted]
    chosen = best_sentences(fresh, keywords, SENTENCES_PER_FILE)
    quoted.update(sentence.text for sentence in chosen)
    names = definitions_of(content) if path.endswith(".py") else []
    told = [f"It defines {_listed(names)}."] if names else []
    told.extend(_quote(sentence) for sentence in chosen)
    if not told:
        told.append("It has no sentence to quote.")
    return f"## {path}\n\n" + "\n".join(f"- {line}" for line in told)


def _quote(sentence: Sentence) -> str:
    return f"{sentence.text} (line {sentence.line})" if sentence.line else sentence.text


def _occurrences(keywords: Sequence[Keyword], evidence: Evidence) -> str:
    lines: list[str] = []
    for keyword in keywords:
        hits = [match for match in evidence.matches if keyword.stem in match.text.lower()]
        if not hits:
            lines.append(f"- `{keyword.word}` was not seen.")
            continue
        path, most = Counter(match.path for match in hits).most_common(1)[0]
        name = path.rsplit("/", 1)[-1]
        lines.append(f"- `{keyword.word}` was seen on {_number(len(hits), 'line')}, {most} of them in {name}.")
    return "\n".join(lines)


def _leftovers(evidence: Evidence) -> str:
    unread = [path for path in evidence.files if path not in evidence.contents]
    text = f"{_number(len(unread), 'file')} of the folder {'was' if len(unread) == 1 else 'were'} not read."
    if not unread:
        text = "All files of the folder were read."
    cut = [path for path, total in evidence.lines.items() if total > len(evidence.contents[path].splitlines())]
    if cut:
        text += f" Only a part was read of {_listed([path.rsplit('/', 1)[-1] for path in cut])}."
    if evidence.errors:
        text += f" {_number(len(evidence.errors), 'tool call')} failed."
    return text


def sections_of(text: str) -> tuple[str, list[Section]]:
    """A long text as an instruction and the sections of material behind it.

    A heading, a line that ends with a colon, or a rule begins a section; sections too short to be material belong to
    the instruction. First-level headings win: what stands below one is one section.
    """
    lines = text.splitlines()
    if sum(line.startswith("# ") for line in lines) > 1:
        lines = [
            f"{'-' * 3}\n{line}" if line.startswith("# ") else re.sub(r"^##+ (.*)", r"(\1)", line) for line in lines
        ]
        lines = "\n".join(lines).splitlines()
    title, held = "", [""]
    found: list[Section] = []
    for line in lines:
        match = _HEADING.match(line)
        if match is None:
            held.append(line)
            continue
        found.append(Section(title, "\n".join(held).strip()))
        title, held = match.group("marked") or match.group("labelled") or "", []
    found.append(Section(title, "\n".join(held).strip()))
    # The first stretch has no heading: it says what to do. A heading right behind a rule names what follows.
    instruction = [
        section.text for section in found if len(section.text) < SECTION_CHARACTERS_MIN or section == found[0]
    ]
    material = [section for section in found[1:] if len(section.text) >= SECTION_CHARACTERS_MIN]
    return "\n".join(part for part in instruction if part), material


def report(task: str, sections: Sequence[Section]) -> str:
    """One report made of several findings: the gist of each, each in its own words, and what they share."""
    keywords = keywords_of(task)
    told = [(section, _material(section.text)) for section in sections]
    blocks = [f"# Report on {_topic(keywords, 'the findings')}"]
    gists = [best_sentences(sentences, keywords, 1) for _, sentences in told]
    summary = [f"This report is made of {_number(len(sections), 'finding')}."]
    titles = [_title(section, at) for at, section in enumerate(sections, 1)]
    summary.extend(f"- {title}: {gist[0].text}" for title, gist in zip(titles, gists, strict=True) if gist)
    blocks.append("## Summary\n\n" + "\n".join(summary))
    for at, (title, (_, sentences)) in enumerate(zip(titles, told, strict=True), 1):
        chosen = best_sentences(sentences, keywords, SENTENCES_PER_SECTION)
        body = " ".join(sentence.text for sentence in chosen) or "These findings quote no sentence."
        blocks.append(f"## {at}. {title}\n\n{body}")
    if len(sections) > 1 and keywords:
        blocks.append("## What they share\n\n" + _comparison(keywords, sections))
    sources = _sources(sections)
    if sources:
        blocks.append(f"## Sources\n\n{_listed(sources, SOURCES_SHOWN_MAX)}")
    return "\n\n".join(blocks) + "\n"


def _title(section: Section, at: int) -> str:
    title = section.title.removeprefix("Findings on ").strip() or f"finding {at}"
    return f"{title[0].upper()}{title[1:]}"


def _sources(sections: Sequence[Section]) -> list[str]:
    """The files that the findings name: where one is named in full, not by its short name too; no folders."""
    named = dict.fromkeys(path for section in sections for path in file_targets(section.text))
    files = [path for path in named if "." in path.rsplit("/", 1)[-1] and is_text_file(path)]
    whole = {path.rsplit("/", 1)[-1] for path in files if path.startswith("/")}
    return [path for path in files if path.startswith("/") or path not in whole]


def _material(text: str) -> list[Sentence]:
    """What a finding says, without what its writer says about himself and his counting."""
    found: list[Sentence] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*#] )", text):
        found.extend(sentences_of_text(_QUOTE_MARKS.sub("", paragraph)))
    return [sentence for sentence in found if not _FRAME.match(sentence.text)]


def _comparison(keywords: Sequence[Keyword], sections: Sequence[Section]) -> str:
    """Which findings speak of which keyword."""
    lines: list[str] = []
    # What was looked for is not yet what was found.
    said = [_LOOKED_FOR.sub("", section.text).lower() for section in sections]
    for keyword in keywords:
        count = sum(keyword.stem in text for text in said)
        if count == len(sections):
            lines.append(f"- All findings speak of `{keyword.word}`.")
        elif count:
            lines.append(
                f"- {count} of {len(sections)} findings {'speaks' if count == 1 else 'speak'} of `{keyword.word}`."
            )
    return "\n".join(lines) or "No word of the task stands in any of them."


def small_talk(text: str, tools: Sequence[str]) -> str:
    """An answer where there is nothing to look at, which says what could be done."""
    said = " ".join(text.split())
    shown = said if len(said) <= 200 else said[:200] + "..."
    able = f" I can use {_listed(tools)}." if tools else " No tools are offered to me here."
    return (
        f"You said: {shown}\n\nI am the offline model: I work without a network and without a key, by simple rules. "
        f"Give me files to study or findings to join into a report, and I quote what they say.{able}"
    )
