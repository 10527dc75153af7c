"""The README's example as it stands there, run as a script on a Ray of its own, and what gets killed meanwhile.

The example asks for ``default_model()``, which is Claude as soon as there is a key. So its model is told by the
environment to be a server of ours: the text stays as it is, turns last as long as a test wants, and what they cost is
counted at the model's side.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.cluster import end, log_path
from runtime.ids import ObjectId
from tests.anthropic_server import AnthropicServer
from tests.chaos.storyteller import Story, numbered
from tests.house.documents import blocks_in, write_block
from tests.house.source import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

SECONDS_MAX = 90.0
NAME = "report-42"
CHILD = "Researcher/r-1"
# For a second script to connect and join; if it is slower it finds the answer stored, and the same must hold.
JOIN_SECONDS = 2.5
ANSWER = numbered("w", 40)
# start, start-step, text-start, the words, text-end, finish-step, finish
LAST = 46


def write_example(folder: Path) -> None:
    """The files of the README's example."""
    for block in blocks_in((ROOT / "README.md").read_text(), "README.md"):
        if block.language == "python" and block.file_name in ("app.py", "script.py"):
            write_block(block, folder)
    assert NAME in (folder / "script.py").read_text()
    assert "Researcher" in (folder / "app.py").read_text()


class Example:
    """The example in a folder, as somebody runs it who knows nothing else."""

    def __init__(self, folder: Path, name: str = NAME, **variables: str) -> None:
        self.folder = folder
        self.data = folder / ".perdure"
        self.name = name
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PERDURE_"))}
        self._environment = kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"} | variables

    async def start(self) -> asyncio.subprocess.Process:
        """``python script.py``, for the agent of this name."""
        source = (self.folder / "script.py").read_text()
        (self.folder / f"{self.name}.py").write_text(source.replace(NAME, self.name))
        return await self._process(f"{self.name}.py")

    async def perdure(self, *arguments: str) -> str:
        """What the command prints."""
        process = await self._process("-m", "agents.cli.main", *arguments)
        return await printed_by(process)

    async def _process(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def kill(self, target: str) -> None:
        """kill -9, as the README says it."""
        assert re.search(r"kill -9 \d+", await self.perdure("kill", target))

    def numbers(self) -> list[int]:
        """The numbers of the events that the editor has printed, in its log."""
        log = log_path(self.data, ObjectId.root("Editor", self.name))
        text = log.read_text() if log.exists() else ""
        return [int(number) for number in re.findall(r" \| (\d+) [a-z-]+$", text, re.MULTILINE)]

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for the agents; they tell nobody but their log."""
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"{self.name}: not so after {SECONDS_MAX:g} s: {what}"
            await asyncio.sleep(0.02)


async def printed_by(process: asyncio.subprocess.Process) -> str:
    """What a process prints until it ends, which it does without complaint."""
    out, err = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    return out.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the example, whose Ray has a key of the model."""
    made = tmp_path_factory.mktemp("example")
    write_example(made)
    yield made
    end(made / ".perdure")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """The same, whose Ray has no key."""
    write_example(tmp_path)
    yield tmp_path
    end(tmp_path / ".perdure")


@pytest.fixture(scope="module")
def port() -> int:
    """The processes of a Ray keep the address of the first script's model, so all servers take the same."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def telling(story: Story, folder: Path, port: int, name: str) -> AsyncGenerator[Example, None]:
    """The example with a model that tells a story."""
    async with AnthropicServer(story, keys=["key-1"], port=port) as server:
        yield Example(folder, name, ANTHROPIC_API_KEY="key-1", ANTHROPIC_BASE_URL=server.url)


async def test_the_example_as_written_prints_the_answer(fresh: Path) -> None:
    example = Example(fresh, ANTHROPIC_API_KEY="")
    out = await printed_by(await example.start())
    child = json.loads(await example.perdure("inspect", f"Editor/{NAME} > {CHILD}", "--json"))
    question, answer = [text_of(each) for each in child["messages"]]
    assert question == "Compare tea and coffee in three sentences."
    # Its own words may change; that the offline model speaks of the question must not.
    assert "tea and coffee" in answer
    # What stands before and behind a tool call are paragraphs of the message.
    assert out == answer.replace("first.There", "first.\n\nThere") + "\n"
    assert example.numbers() == list(range(1, len(example.numbers()) + 1))


async def test_the_undisturbed_example_costs_one_model_request(folder: Path, port: int) -> None:
    story = Story(ANSWER)
    async with telling(story, folder, port, "calm") as example:
        assert await printed_by(await example.start()) == ANSWER + "\n"
        assert len(story.bodies) == 1
        assert example.numbers() == list(range(1, LAST + 1))


async def test_a_killed_child_goes_on_behind_its_last_word_and_the_parent_sees_no_gap(folder: Path, port: int) -> None:
    # recovery T4, T5, P1, X3; FR-05
    story = Story(ANSWER, hold="before")
    async with telling(story, folder, port, "child") as example:
        script = await example.start()
        await example.until(lambda: len(example.numbers()) >= 6, "the editor sees the first words")
        await example.kill(f"Editor/child > {CHILD}")
        assert await printed_by(script) == ANSWER + "\n"
        numbers = example.numbers()
        assert numbers == list(range(1, len(numbers) + 1))
        # The second request asks only for what nobody had seen.
        assert len(story.bodies) == 2
        assert story.bodies[1]["messages"][1] == assistant("w00 w01 w02 ")


async def test_a_killed_parent_finds_the_turn_that_it_had_begun(folder: Path, port: int) -> None:
    # turns P10; FR-05: repeat killing the parent
    story = Story(ANSWER, hold="before")
    async with telling(story, folder, port, "parent") as example:
        script = await example.start()
        await example.until(lambda: len(example.numbers()) >= 6, "the editor sees the first words")
        await example.kill("Editor/parent")
        await example.until(lambda: len(example.numbers()) >= 12, "the editor sees them again")
        story.released.set()
        assert await printed_by(script) == ANSWER + "\n"
        assert example.numbers() == [*range(1, 7), *range(1, LAST + 1)]
        assert len(story.bodies) == 1


async def test_parent_and_child_killed_together_end_the_turn_once(folder: Path, port: int) -> None:
    # FR-05: and both
    story = Story(ANSWER, hold="before")
    async with telling(story, folder, port, "both") as example:
        script = await example.start()
        await example.until(lambda: len(example.numbers()) >= 6, "the editor sees the first words")
        await asyncio.gather(example.kill(f"Editor/both > {CHILD}"), example.kill("Editor/both"))
        assert await printed_by(script) == ANSWER + "\n"
        assert len(story.bodies) == 2
        seen = Counter(example.numbers())
        assert set(seen) == set(range(1, max(seen) + 1))
        assert max(seen.values()) <= 3


@pytest.mark.parametrize("is_over", [False, True], ids=["while the turn runs", "when the turn has ended"])
async def test_a_killed_script_run_again_gets_the_answer_and_nothing_is_paid_twice(
    folder: Path, port: int, is_over: bool
) -> None:
    story = Story(ANSWER, hold="before")
    async with telling(story, folder, port, f"script-{is_over}") as example:
        first = await example.start()
        await example.until(lambda: len(example.numbers()) >= 6, "the editor sees the first words")
        first.send_signal(signal.SIGKILL)
        await first.communicate()
        if is_over:
            story.released.set()
            await example.until(lambda: LAST in example.numbers(), "the turn ends without the script")
        again = await example.start()
        if not is_over:
            await asyncio.sleep(JOIN_SECONDS)
            story.released.set()
        assert await printed_by(again) == ANSWER + "\n"
        assert example.numbers() == list(range(1, LAST + 1))
        assert len(story.bodies) == 1


def text_of(message: dict[str, Any]) -> str:
    # What stands before a tool call and what stands behind it are paragraphs.
    return "\n\n".join(part["text"] for part in message["parts"] if part["type"] == "text")


def assistant(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}
