"""The blocks of code in README.md and docs/, and how they are run.

A ``python`` block whose first line is a comment with a file name (``# app.py``) is that file: it is written into the
folder of its document, where later blocks import it. Every ``python`` block is run as a script, with ``await`` allowed
at the top. All blocks of a document share a folder and a data folder, so they find the agents of the blocks before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import ROOT

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE
)
FILE_NAME = re.compile(r"#\s*(?P<name>[\w./-]+\.py)\s*$")
# A first local Ray takes five to ten seconds to start, and two blocks of a document may each wake agents.
BLOCK_SECONDS_MAX = 90

# Python itself allows no `await` at the top of a script; a document may, as notebooks do.
RUNNER = """
import ast, asyncio, inspect, sys
__file__ = sys.argv[1]
code = compile(open(__file__).read(), __file__, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(eval(code, globals()))
else:
    exec(code, globals())
"""


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language, its text."""

    where: str
    language: str
    text: str

    @property
    def file_name(self) -> str:
        """The file that the block says it is; empty for none."""
        match = FILE_NAME.match(self.text.split("\n", 1)[0])
        return match["name"] if match else ""


@dataclass(frozen=True)
class Command:
    """One ``$ perdure ...`` line: the words up to the first option or argument, and the options."""

    where: str
    words: tuple[str, ...]
    options: tuple[str, ...]


def blocks_in(text: str, where: str) -> list[Block]:
    """The fenced blocks of a Markdown text, without their indentation."""
    found: list[Block] = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body = re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        found.append(Block(f"{where}:{line}", match["language"], body))
    return found


def documents() -> list[Path]:
    """README.md and the pages of docs/, those that are there."""
    return [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]


def commands_in(block: Block) -> list[Command]:
    """The ``$ perdure`` lines of a block."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        match = re.match(r"\s*\$\s+(?:\w+=\S*\s+)*(?:\S*/)?perdure\b(?P<rest>[^|;&#<>]*)", line)
        if match:
            tokens = match["rest"].split()
            options = tuple(token.split("=")[0] for token in tokens if token.startswith("-"))
            first = tokens[0] if tokens and not tokens[0].startswith("-") else ""
            found.append(Command(block.where, (first,) if first else (), options))
    return found


def environment(folder: Path) -> dict[str, str]:
    """What a user's shell has, with a data folder of its own and no key of a model's vendor."""
    kept = {name: value for name, value in os.environ.items() if name not in {"ANTHROPIC_API_KEY", "RAY_ADDRESS"}}
    return kept | {"PERDURE_DATA": str(folder / ".perdure"), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"}


def write_block(block: Block, folder: Path) -> str:
    """Write a block into the document's folder and return its path there."""
    name = block.file_name or "block.py"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(block.text)
    return name


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a ``python`` block as a script in a process of its own, in the document's folder."""
    name = write_block(block, folder)
    try:
        compile(block.text, name, "exec")
        arguments = [name]
    except SyntaxError:
        arguments = ["-c", RUNNER, name]
    return _run(arguments, folder)


def run_command(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``perdure`` with arguments."""
    code = "import sys; from agents.cli.main import main; sys.argv[0] = 'perdure'; sys.exit(main())"
    return _run(["-c", code, *arguments], folder)


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS_MAX,
        check=False,
    )
