"""What the documents show works: each ``python`` block runs, each ``$ perdure`` line names what the command has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.documents import (
    Block,
    Command,
    blocks_in,
    commands_in,
    documents,
    run_block,
    run_command,
    write_block,
)
from tests.house.source import ROOT

PAGES = {path.relative_to(ROOT).as_posix(): blocks_in(path.read_text(), path.name) for path in documents()}
PYTHON = [
    pytest.param(page, index, id=f"{page}-{index}")
    for page, blocks in PAGES.items()
    for index, block in enumerate(block for block in blocks if block.language == "python")
]
SHELL = {"sh", "bash", "shell", "console", ""}
COMMANDS = [
    command
    for blocks in PAGES.values()
    for block in blocks
    if block.language in SHELL
    for command in commands_in(block)
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """One folder a document; a local Ray that its blocks started is ended afterwards."""
    made = {page: tmp_path_factory.mktemp("page") for page in PAGES}
    yield made
    for folder in made.values():
        if (folder / ".perdure").exists():
            run_command(["down"], folder)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "index"), PYTHON)
def test_a_python_block_of_the_documents_runs(page: str, index: int, folders: dict[str, Path]) -> None:
    blocks = [block for block in PAGES[page] if block.language == "python"]
    # The files that earlier blocks are, so that this test passes alone too.
    for block in blocks[:index]:
        if block.file_name:
            write_block(block, folders[page])
    result = run_block(blocks[index], folders[page])
    assert result.returncode == 0, (
        f"{blocks[index].where} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join([*command.words, *command.options]) or "perdure"
)
def test_a_perdure_line_of_the_documents_names_what_the_command_has(command: Command, tmp_path: Path) -> None:
    result = run_command([*command.words, "--help"], tmp_path)
    assert result.returncode == 0, f"{command.where}: perdure {' '.join(command.words)}:\n{result.stderr}"
    assert [option for option in command.options if option not in result.stdout] == [], command.where


# --- the reader itself ---


def test_blocks_are_read_with_their_language_line_and_file() -> None:
    text = "# Title\n\n```python\n# app.py\nx = 1\n```\n\n1. A step:\n\n   ```sh\n   $ perdure up\n   ```\n"
    python, shell = blocks_in(text, "a.md")
    assert (python.where, python.language, python.file_name, python.text) == (
        "a.md:3",
        "python",
        "app.py",
        "# app.py\nx = 1\n",
    )
    assert (shell.where, shell.language, shell.file_name, shell.text) == ("a.md:10", "sh", "", "$ perdure up\n")


def test_a_perdure_line_is_read_with_its_subcommand_and_options_only() -> None:
    text = (
        "$ PERDURE_DATA=x perdure chat app.py:Editor/a --timeout=3 -v | cat\n$ perdure --version\nperdure says\n$ ls\n"
    )
    assert commands_in(Block("a.md:1", "sh", text)) == [
        Command("a.md:1", ("chat",), ("--timeout", "-v")),
        Command("a.md:1", (), ("--version",)),
    ]


@pytest.mark.slow
def test_a_block_imports_the_file_of_an_earlier_one_and_may_await(tmp_path: Path) -> None:
    run_block(Block("a.md:1", "python", "# app.py\nx = 41\n"), tmp_path)
    result = run_block(
        Block("a.md:9", "python", "import asyncio\nfrom app import x\nawait asyncio.sleep(0)\nprint(x + 1)\n"), tmp_path
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "42\n", "")


@pytest.mark.slow
def test_a_block_that_raises_fails(tmp_path: Path) -> None:
    assert run_block(Block("a.md:1", "python", "raise SystemExit(3)\n"), tmp_path).returncode == 3
