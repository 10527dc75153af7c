"""Whole sessions with the command: scripts, a Ray that is held, kills in mid-stream, and ctrl-c."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from runtime.cluster import end, status
from tests.agents.cli.commands import SECONDS_MAX, perdure, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORDS = [f"w{i}" for i in range(60)]
SCRIPT = """
import asyncio, sys
import runtime
from app import Talker

async def main():
    async with runtime.connect() as cluster:
        print((await cluster.get(Talker, "of-a-script").chat(sys.argv[1])).text)
        print(sys.argv[1:], cluster.data_dir.name)
    sys.exit(int(sys.argv[2]))

asyncio.run(main())
"""
RAISES = """
import asyncio
import runtime
from app import Broken

async def main():
    async with runtime.connect() as cluster:
        await cluster.get(Broken, "of-a-script").fail()

asyncio.run(main())
"""


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it prints up to and with ``text``."""
    assert process.stdout is not None
    seen = ""
    while not seen.endswith(text):
        got = process.stdout.read(1)
        assert got, f"ended before {text!r}: {seen!r}"
        seen += got
    return seen


def test_a_script_gets_its_arguments_and_the_data_folder_and_gives_its_exit_code(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    ran = perdure(folder, "run", "script.py", "--hello", "3")
    assert ran.stdout == "one two three four five\n['--hello', '3'] data\n", ran.stderr
    assert ran.returncode == 3
    # Nothing but our own lines: no Ray, no warnings.
    assert [line for line in ran.stderr.splitlines() if not line.startswith("perdure: ")] == []


def test_a_script_that_raises_an_agents_error_ends_with_whose_it_was_and_where_its_traceback_is(folder: Path) -> None:
    (folder / "raises.py").write_text(RAISES)
    ran = perdure(folder, "run", "raises.py")
    assert (ran.returncode, ran.stdout) == (1, "")
    told = [line for line in ran.stderr.splitlines() if not line.startswith("perdure: ")]
    # One traceback, the script's own: that of the agent is in its log.
    assert told.count("Traceback (most recent call last):") == 1
    assert told[-2:] == [
        "runtime.errors.RemoteError: ValueError: broken inside",
        "raised in Broken/of-a-script; the traceback is in its log: perdure logs Broken/of-a-script",
    ]
    assert 'raise ValueError("broken inside")' in perdure(folder, "logs", "Broken/of-a-script").stdout


def test_a_chat_goes_on_by_itself_when_its_agent_is_killed_in_mid_stream(folder: Path) -> None:
    chat = start(folder, "chat", "app.py:Slow/k", "-m", "go")
    seen = read_until(chat, "w9 ")
    killed = perdure(folder, "kill", "Slow/k")
    assert re.match(r"kill -9 \d+ \(Slow/k; it was doing: ", killed.stdout), killed.stderr
    rest, err = chat.communicate(timeout=SECONDS_MAX)
    assert (chat.returncode, (seen + rest).split()) == (0, WORDS), err
    assert "Traceback" not in err


def test_a_chat_that_is_killed_itself_shows_the_rest_of_its_turn_when_it_is_started_again(folder: Path) -> None:
    chat = start(folder, "chat", "app.py:Slow/again", "-m", "go")
    read_until(chat, "w9 ")
    chat.kill()
    chat.communicate(timeout=SECONDS_MAX)
    perdure(folder, "kill", "Slow/again")
    again = perdure(folder, "chat", "Slow/again")
    first, *shown = again.stdout.splitlines()
    assert first == "(the rest of an unfinished turn)", again.stdout
    assert again.stdout.endswith("> \n")  # the end of its input at the prompt
    assert shown[0].split() == WORDS


def test_ctrl_c_in_a_turn_cancels_it_without_a_traceback(folder: Path) -> None:
    chat = start(folder, "chat", "app.py:Slow/cancelled", "-m", "go")
    read_until(chat, "w9 ")
    chat.send_signal(signal.SIGINT)
    rest, err = chat.communicate(timeout=SECONDS_MAX)
    assert "Traceback" not in err
    assert chat.returncode == 1
    assert rest.endswith("\n(aborted)\n")
    assert "w59" not in rest
    user, answer = perdure(folder, "inspect", "Slow/cancelled").stdout.splitlines()[-2:]
    assert user.split() == ["user", "go"]
    assert answer.endswith(" (aborted)")


def test_ctrl_c_at_the_prompt_leaves_at_once_and_without_a_traceback(folder: Path) -> None:
    chat = start(folder, "chat", "app.py:Talker/prompt")
    read_until(chat, "> ")
    assert chat.stdin is not None
    chat.stdin.write("count\nagain\n")
    chat.stdin.flush()
    answers = read_until(chat, "> ") + read_until(chat, "> ")
    assert answers.split() == ["one", "two", "three", "four", "five", ">"] * 2
    chat.send_signal(signal.SIGINT)
    # Its input stays open: nobody presses a key.
    assert chat.wait(timeout=SECONDS_MAX) == 130
    assert chat.stderr is not None
    assert "Traceback" not in chat.stderr.read()
    assert chat.communicate()[0] == "\n"


def test_logs_show_what_an_object_printed_and_only_so_many_of_the_last_lines(folder: Path) -> None:
    assert perdure(folder, "chat", "app.py:Speaker/s", "-m", "go").returncode == 0
    lines = perdure(folder, "logs", "Speaker/s", "-n", "2").stdout.splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["Speaker/s | said 3", "Speaker/s | said 4"]


def test_a_ray_that_is_up_is_held_until_it_is_put_down(tmp_path: Path) -> None:
    try:
        up = perdure(tmp_path, "up")
        assert (up.returncode, status(tmp_path / "data").is_held) == (0, True), up.stderr
        assert f"Ray of {tmp_path / 'data'} is up" in up.stdout
        assert status(tmp_path / "data").is_running
        down = perdure(tmp_path, "down")
        assert re.fullmatch(r"ended \d+ processes in [\d.]+ s; the agents' data stays in .*\n", down.stdout)
        assert not status(tmp_path / "data").is_running
        assert perdure(tmp_path, "down").stdout == f"no Ray of {tmp_path / 'data'} was running\n"
    finally:
        end(tmp_path / "data")
