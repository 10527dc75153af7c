"""A target's file that does not load: where it failed, and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.cli.commands import perdure_here

GUARD = 'What a script does when it is run belongs below `if __name__ == "__main__":`'
LINES = {
    "raises_here": ("import os\n\nraise ValueError('wrong')\n", 3, "ValueError: wrong"),
    "imports_nothing": ("\nimport surely_absent\n", 2, "ModuleNotFoundError: No module named 'surely_absent'"),
    "in_a_library": ("import json\njson.loads('')\n", 2, "JSONDecodeError: Expecting value"),
    "misspelt": ("x = 1\n\n\ndef f(:\n", 4, "SyntaxError: "),
}
MAIN = "import asyncio\n\nasync def main(): print('ran')\n\nasyncio.run(main())\n"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def told(folder: Path, name: str, text: str, command: str = "chat") -> str:
    (folder / f"{name}.py").write_text(text)
    (folder / "data").mkdir(exist_ok=True)
    ran = perdure_here(folder, command, f"{name}.py:Talker/t")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"perdure: {name}.py cannot be loaded: ")
    return ran.stderr


@pytest.mark.parametrize("name", LINES)
def test_a_file_that_does_not_load_is_told_with_the_line_that_failed(tmp_path: Path, name: str) -> None:
    text, line, error = LINES[name]
    assert f"cannot be loaded: {tmp_path / name}.py:{line}: {error}" in told(tmp_path, name, text)


@pytest.mark.parametrize("command", ["chat", "logs"])
def test_a_script_without_a_main_guard_is_not_run_and_told_to_get_one(tmp_path: Path, command: str) -> None:
    text = told(tmp_path, f"unguarded_{command}", MAIN, command)
    assert f"unguarded_{command}.py:5: RuntimeError: " in text
    assert text.endswith(f"{GUARD}\n")


def test_a_script_that_ends_the_process_when_it_is_imported_is_told_the_same(tmp_path: Path) -> None:
    text = told(tmp_path, "ends_itself", "import sys\nsys.exit(3)\n")
    assert "ends_itself.py:2: SystemExit: 3. " in text
    assert text.endswith(f"{GUARD}\n")
