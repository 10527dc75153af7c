"""The command as a person types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.cli.targets import parse_target
from runtime.cluster import end
from runtime.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
APP = """
from agents import Think
from agents.models import Scripted
class Talker(Think):
    def get_model(self): return Scripted([Scripted.text("one two three four five", chunk_size=4)])
"""


@pytest.mark.parametrize(
    ("text", "source", "path"),
    [
        ("Editor/report-42", "", "Editor/report-42"),
        ("app.py:Editor/a/b", "app.py", "Editor/a/b"),
        ("some/app.py:Editor/a", "some/app.py", "Editor/a"),
        ("pkg.app:Editor/a", "pkg.app", "Editor/a"),
        ("Editor/a > Researcher/r-1", "", "Editor/a > Researcher/r-1"),
    ],
)
def test_a_target_is_read(text: str, source: str, path: str) -> None:
    target = parse_target(text)
    assert (target.source, str(target.object_id)) == (source, path)


@pytest.mark.parametrize("text", ["", "Editor", "/a", "Editor/"])
def test_a_target_without_class_or_name_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"app\.py:Class/name"):
        parse_target(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("command")
    (made / "app.py").write_text(APP)
    yield made
    end(made / "data")


def perdure(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PERDURE_DATA": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "agents.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_is_chatted_with_inspected_alive_and_asleep_and_listed(folder: Path) -> None:
    # FR-12: inspecting never opens a live file, and wakes nobody
    chatted = perdure(folder, "chat", "app.py:Talker/t", "-m", "count")
    assert (chatted.returncode, chatted.stdout.split()) == (0, ["one", "two", "three", "four", "five"]), chatted.stderr
    alive = json.loads(perdure(folder, "inspect", "Talker/t", "--json").stdout)
    assert (alive["status"], alive["message_count"]) == ("active", 2)
    assert perdure(folder, "evict", "Talker/t").returncode == 0
    asleep = json.loads(perdure(folder, "inspect", "Talker/t", "--json").stdout)
    assert (asleep["status"], asleep["messages"]) == ("asleep", alive["messages"])
    assert "Talker/t" in perdure(folder, "list").stdout
    ended = perdure(folder, "down")
    assert ended.stdout.startswith("ended ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nonsense",), 2, "No such command"),
        (("inspect", "Talker"), 2, "app.py:Class/name"),
        (("inspect", "Talker/nobody"), 2, "does not exist"),
        (("run", "absent.py"), 2, "no script"),
        (("evict", "Talker/nobody"), 2, "does not exist"),
        (("kill", "Talker/nobody"), 2, "does not exist"),
    ],
)
def test_wrong_input_is_explained_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ran = perdure(tmp_path, *arguments)
    end(tmp_path / "data")
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.returncode == code
