"""Targets and errors as a person meets them: what was wrong, what there is instead, and where to read on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.cli.commands import perdure, perdure_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMANDS = ("inspect", "logs", "evict", "kill")


@pytest.fixture(scope="module")
def chatted(folder: Path) -> Path:
    """The folder, in which Talker/t exists and its Ray is down."""
    chatted = perdure(folder, "chat", "app.py:Talker/t", "-m", "count")
    assert chatted.returncode == 0, chatted.stderr
    return folder


def told(folder: Path, *arguments: str) -> str:
    """What it says of its wrong use."""
    ran = perdure_here(folder, *arguments)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


@pytest.mark.parametrize("command", [*COMMANDS, "chat"])
def test_a_file_that_is_not_there_is_named(chatted: Path, command: str) -> None:
    assert f"there is no file {chatted / 'absent.py'}" in told(chatted, command, "absent.py:Talker/t")


@pytest.mark.parametrize("command", [*COMMANDS, "chat"])
def test_a_class_that_its_file_does_not_have_is_named_beside_those_it_has(chatted: Path, command: str) -> None:
    text = told(chatted, command, "app.py:Walker/t")
    assert "app.py has no class 'Walker'; it has Broken, Slow, Speaker, Talker, Unopened" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_an_object_that_does_not_exist_is_named_beside_those_that_do(chatted: Path, command: str) -> None:
    text = told(chatted, command, "Walker/t")
    assert f"Walker/t does not exist in {chatted / 'data'}; there is Talker/t." in text


def test_a_class_that_nobody_called_yet_is_named_beside_those_that_were(chatted: Path) -> None:
    ran = perdure(chatted, "chat", "Walker/t")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "knows no class 'Walker'; it knows Talker" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_sub_agent_that_does_not_exist_is_not_taken_for_its_parent(chatted: Path) -> None:
    assert "Talker/t > Talker/u does not exist" in told(chatted, "logs", "Talker/t > Talker/u")


def test_a_chat_says_of_an_object_that_it_is_new_before_its_first_turn_and_only_then(chatted: Path) -> None:
    first = perdure(chatted, "chat", "Talker/typo", "-m", "count")
    assert (first.returncode, first.stderr.count("perdure: Talker/typo is new\n")) == (0, 1)
    assert "is new" not in perdure(chatted, "chat", "Talker/typo", "-m", "count").stderr


def test_a_turn_that_fails_inside_the_agent_is_told_in_one_sentence_and_its_traceback_is_in_the_log(
    chatted: Path,
) -> None:
    ran = perdure(chatted, "chat", "app.py:Broken/b", "-m", "go")
    said = "perdure: Broken/b: the turn failed: KeyError: 'no such model'. The traceback: perdure logs Broken/b\n"
    assert (ran.returncode, ran.stdout, ran.stderr[-len(said) :]) == (1, "", said)
    assert "Traceback" not in ran.stderr
    log = perdure(chatted, "logs", "Broken/b")
    assert 'raise KeyError("no such model")' in log.stdout


def test_an_agent_that_cannot_start_is_told_in_one_sentence_and_its_traceback_is_in_the_log(chatted: Path) -> None:
    ran = perdure(chatted, "--data", "data", "chat", "app.py:Unopened/u", "-m", "go")
    said = "perdure: Unopened/u failed: LookupError: cannot start. The traceback: perdure logs Unopened/u\n"
    assert (ran.returncode, ran.stderr[-len(said) :]) == (1, said)
    assert 'raise LookupError("cannot start")' in perdure(chatted, "logs", "Unopened/u").stdout
