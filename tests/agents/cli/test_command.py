"""The command as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.cli.targets import parse_target
from runtime.cluster import end
from runtime.errors import UsageError
from tests.agents.cli.commands import perdure, perdure_here

COMMANDS = ("run", "chat", "list", "inspect", "logs", "evict", "kill", "up", "down")
READING = ("list", "inspect Talker/t", "logs Talker/t", "evict Talker/t", "kill Talker/t")


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
@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "No such command"),
        (("inspect", "Talker"), "app.py:Class/name"),
        (("inspect", "Talker/nobody"), "does not exist"),
        (("run", "absent.py"), "no script"),
        (("evict", "Talker/nobody"), "does not exist"),
        (("kill", "Talker/nobody"), "does not exist"),
    ],
)
def test_wrong_input_is_explained_without_a_traceback(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = perdure(tmp_path, *arguments)
    end(tmp_path / "data")
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 2


@pytest.mark.parametrize("arguments", READING)
def test_a_data_folder_that_is_not_there_is_named_and_not_taken_for_an_empty_one(
    tmp_path: Path, arguments: str
) -> None:
    ran = perdure_here(tmp_path, "--data", "absent", *arguments.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"the data directory {tmp_path / 'absent'} does not exist" in ran.stderr
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("arguments", [*READING, "chat Talker/t", "up"])
def test_a_data_folder_that_is_a_file_is_called_one(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "notes").write_text("mine")
    ran = perdure_here(tmp_path, "--data", "notes", *arguments.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"perdure: the data directory {tmp_path / 'notes'} is a file; name a folder")


def test_a_chat_with_a_file_that_is_not_there_makes_no_folder_and_starts_no_ray(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path, "chat", "absent.py:Talker/t")
    assert (ran.returncode, ran.stderr) == (2, f"perdure: there is no file {tmp_path / 'absent.py'}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_chat_without_a_file_where_nothing_exists_makes_no_folder_and_starts_no_ray(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path, "chat", "Talker/t")
    assert ran.returncode == 2
    assert "Give the file too: app.py:Talker/name" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_each_command_has_an_example_of_it(tmp_path: Path) -> None:
    shown = {name: perdure_here(tmp_path, name, "--help").stdout for name in COMMANDS}
    missing = [name for name, text in shown.items() if f"Example: perdure {name}" not in text]
    assert missing == ["up"]
    assert "Example: perdure --data ./data up" in shown["up"]


def test_the_help_names_all_commands_and_what_a_target_is(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path, "--help")
    assert [name for name in COMMANDS if f"\n  {name} " not in ran.stdout] == []
    assert "app.py:Class/name" in ran.stdout


def test_the_command_alone_prints_its_help_and_nothing_else(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == perdure_here(tmp_path, "--help").stdout


def test_the_help_cuts_no_sentence_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, commands = perdure_here(tmp_path, "--help").stdout.partition("Commands:")
    assert commands
    assert "..." not in commands


def test_a_script_that_is_a_folder_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    ran = perdure_here(tmp_path, "run", "scripts/")
    assert (ran.returncode, ran.stderr) == (2, "perdure: 'scripts/' is a folder; name a script in it\n")


def test_the_version_is_told(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path, "--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("perdure ")


def test_a_negative_count_of_log_lines_is_refused(tmp_path: Path) -> None:
    ran = perdure_here(tmp_path, "logs", "Talker/t", "-n", "-3")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Invalid value for '--lines' / '-n'" in ran.stderr
