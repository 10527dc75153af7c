"""Whole turns with Claude on a real Ray: through the node's relay and the vendor's SDK to a server on a real socket.

The agents are ``clerks``, the model is a ``storyteller``; both are asked from here, where nothing gets killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.cluster import end, log_path
from runtime.ids import ObjectId
from tests.anthropic_server import (
    AnthropicServer,
    Cut,
    Json,
    Raw,
    Stall,
    html,
    message,
    refusal,
    text,
    tool_use,
)
from tests.chaos.storyteller import Story, numbered
from tests.house.source import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

SECONDS_MAX = 90.0
KEY = "sk-ant-secret-1234"
BEFORE, AFTER = numbered("b", 20), numbered("a", 20)
NOTE = {"text": "tea and coffee, one line"}
THOUGHT = "First I write a note, then I answer."


class Script:
    """A script that is connected to a Ray, and does as it is told."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path) -> None:
        self.data = data
        self._process = process

    async def tell(self, do: str, name: str, **rest: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "name": name, **rest}).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> Json:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS_MAX)
        assert line, "the script has ended"
        found: Json = json.loads(line)
        return found

    async def call(self, name: str, method: str, *arguments: Any) -> Any:
        await self.tell("call", name, method=method, arguments=arguments)
        return (await self.hear())["answer"]


class Turn:
    """What a caller saw of one turn."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.chunks: list[Json] = []
        self.kills = 0
        self.outcome = ""
        self.error = ""

    @property
    def text(self) -> str:
        return "".join(chunk["delta"] for chunk in self.chunks if chunk["type"] == "text-delta")

    def of(self, kind: str) -> list[Json]:
        return [chunk for chunk in self.chunks if chunk["type"] == kind]


class Clerk:
    """An agent with a name, and the files that tell what it did."""

    def __init__(self, script: Script, name: str, folder: Path) -> None:
        self._script = script
        self._name = name
        self._notes = folder / "notes"

    @property
    def notes(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    @property
    def log(self) -> str:
        path = log_path(self._script.data, ObjectId.root("Clerk", self._name))
        return path.read_text() if path.exists() else ""

    async def employ(self, **claude: Any) -> None:
        await self._script.call(self._name, "employ", claude, str(self._notes))

    async def stored(self) -> list[Json]:
        found: list[Json] = await self._script.call(self._name, "conversation")
        return found

    async def turn(self, text: str = "Go.", *, kill_behind: tuple[str, int] = ("", 0)) -> Turn:
        """One turn to its end; with a kill -9 when so many chunks of a kind have been seen."""
        seen = Turn()
        await self._script.tell("chat", self._name, text=text)
        while True:
            line = await self._script.hear()
            if "end" in line:
                seen.outcome, seen.error = line["end"], line["error"]
                return seen
            if "killed" in line:
                seen.kills += 1
                continue
            seen.numbers.append(line["event"])
            seen.chunks.append(line["chunk"])
            kind, count = kill_behind
            if line["chunk"]["type"] == kind and len(seen.of(kind)) == count:
                await self._script.tell("kill", self._name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def script(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Script, None]:
    data = tmp_path_factory.mktemp("clerks") / "data"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PERDURE_", "ANTHROPIC_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.chaos.clerks",
        str(data),
        cwd=ROOT,
        env=kept | {"PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Script(process, data)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), SECONDS_MAX)
        end(data)


@pytest.fixture
def clerk(script: Script, request: pytest.FixtureRequest, tmp_path: Path) -> Clerk:
    return Clerk(script, re.sub(r"\W+", "-", request.node.name), tmp_path)


# --- a turn, and its deaths ---


async def test_a_turn_shows_thoughts_text_and_the_fragments_of_a_call(clerk: Clerk) -> None:
    story = Story(BEFORE, ("note", NOTE), AFTER, thought=THOUGHT)
    async with AnthropicServer(story) as server:
        await clerk.employ(base_url=server.url)
        turn = await clerk.turn()
    assert (turn.outcome, turn.text) == ("done", BEFORE + AFTER)
    assert turn.numbers == list(range(1, len(turn.numbers) + 1))
    assert "".join(chunk["delta"] for chunk in turn.of("reasoning-delta")).split() == THOUGHT.split()
    fragments = [chunk["inputTextDelta"] for chunk in turn.of("tool-input-delta")]
    assert len(fragments) > 5
    assert json.loads("".join(fragments)) == NOTE
    assert [chunk["input"] for chunk in turn.of("tool-input-available")] == [NOTE]
    assert [chunk["output"] for chunk in turn.of("tool-output-available")] == ["noted tea and coffee, one line"]
    assert clerk.notes == ["tea and coffee, one line"]
    assert len(story.bodies) == 2


@pytest.mark.parametrize(
    ("hold", "kind", "count"),
    [
        ("thinking", "reasoning-delta", 3),
        ("before", "text-delta", 3),
        ("call", "tool-input-delta", 3),
        ("after", "text-delta", 23),
    ],
)
async def test_a_turn_killed_in_mid_stream_ends_once_with_each_word_once_and_one_run_of_its_tool(
    clerk: Clerk, hold: str, kind: str, count: int
) -> None:
    # FR-03: the server refuses what ends with the assistant; recovery T4, T5, T6, T7, P1, X1, X2, X3
    story = Story(BEFORE, ("note", NOTE), AFTER, thought=THOUGHT, hold=hold)
    async with AnthropicServer(story) as server:
        await clerk.employ(base_url=server.url)
        turn = await clerk.turn(kill_behind=(kind, count))
        stored = await clerk.stored()
    assert turn.kills == 1
    assert (turn.outcome, turn.error, turn.text) == ("done", "", BEFORE + AFTER)
    assert turn.numbers == list(range(1, len(turn.numbers) + 1))
    assert [len(turn.of(once)) for once in ("start", "finish")] == [1, 1]
    assert clerk.notes == ["tea and coffee, one line"]
    # One more than without the kill, and what was said before is not asked for again.
    assert len(story.bodies) == 3
    assert [each["role"] for each in stored] == ["user", "assistant"]
    assert "".join(part["text"] for part in stored[1]["parts"] if part["type"] == "text") == BEFORE + AFTER
    settled = [part["state"] for part in stored[1]["parts"] if part["type"] == "tool-note"]
    assert settled == (["output-error", "output-available"] if hold == "call" else ["output-available"])
    assert "cut off" not in json.dumps(stored) + json.dumps(turn.chunks)


async def test_a_continuation_that_the_service_refuses_ends_the_turn_with_its_words(clerk: Clerk) -> None:
    # FR-03: if the provider refuses anyway, a terminal error reaches the client
    story = Story(BEFORE, hold="before")
    refused = refusal(400, "invalid_request_error", "the conversation must not go on")
    async with AnthropicServer(lambda body: refused if story.bodies else story(body)) as server:
        await clerk.employ(base_url=server.url)
        turn = await clerk.turn(kill_behind=("text-delta", 3))
        stored = await clerk.stored()
    assert (turn.kills, turn.outcome) == (1, "error")
    assert "400 invalid_request_error" in turn.error
    assert "the conversation must not go on" in turn.error
    assert stored[1]["parts"][-1]["text"] == "b00 b01 b02 "


async def test_calls_whose_input_is_no_object_leave_the_agent_able_to_speak(clerk: Clerk) -> None:
    # FR-01: the server refuses an input that is no object, as the vendor does
    inputs: tuple[list[str], ...] = ([], ["null"], ["[]"], ['"{\\"te', 'xt\\": \\"a\\"}"'], ['{"text": "cut'])
    broken = message(
        *(tool_use("note", *pieces, call_id=f"toolu_{number}") for number, pieces in enumerate(inputs)),
        stop_reason="tool_use",
    )
    async with AnthropicServer(broken, message(text("Well.")), message(text("Fine."))) as server:
        await clerk.employ(base_url=server.url)
        first, second = await clerk.turn(), await clerk.turn("And now?")
        stored = await clerk.stored()
    assert (first.outcome, first.text, second.outcome, second.text) == ("done", "Well.", "done", "Fine.")
    stored_inputs = [part["input"] for part in stored[1]["parts"] if part["type"] == "tool-note"]
    assert stored_inputs == [{}, {}, {}, {"text": "a"}, {}]
    assert len(server.requests) == 3


# --- a service that fails ---

HELLO = message(text("Hello there.", 4))
FAILURES = {
    "400": (refusal(400, "invalid_request_error", "max_tokens: too many"), ("400", "max_tokens: too many", "at fault")),
    "429": (refusal(429, "rate_limit_error", "slow down"), ("429 rate_limit_error", "slow down", "Ask again later")),
    "529": (refusal(529, "overloaded_error", "Overloaded"), ("529 overloaded_error", "Overloaded", "Ask again later")),
    "stall": (HELLO.first(4, Stall()), ("sent nothing for 0.5 s", "raise timeout=")),
    "garbage": (HELLO.first(4, Raw(b"\x00\xff\xfe\n\n\x80garbage")), ("no text", "Ask again")),
    "web page": (html(), ("text/html instead of an event stream", "Check base_url")),
    "cut": (HELLO.first(4, Cut()), ("was cut", "Ask again")),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_ends_the_turn_with_an_error_that_shows_a_way_out_and_the_next_turn_works(
    clerk: Clerk, failure: str
) -> None:
    answer, words = FAILURES[failure]
    answers = [answer]
    async with AnthropicServer(lambda body: answers[-1]) as server:
        await clerk.employ(base_url=server.url, api_key=KEY, timeout=0.5, retries=0)
        turn = await clerk.turn()
        answers.append(HELLO)
        after = await clerk.turn("Again.")
    assert_failed(turn, clerk, *words, server.url.removeprefix("http://"))
    assert (after.outcome, after.text) == ("done", "Hello there.")


async def test_a_key_that_is_refused_is_named_by_its_variable_and_never_shown(clerk: Clerk) -> None:
    # The service repeats the key in its answer, as some do.
    async with AnthropicServer(HELLO, keys=["another"]) as server:
        await clerk.employ(base_url=server.url, api_key=KEY)
        turn = await clerk.turn()
        await clerk.employ(base_url=server.url, api_key="another")
        after = await clerk.turn("Again.")
    assert_failed(turn, clerk, "401 authentication_error", "Check the key in ANTHROPIC_API_KEY")
    assert len(server.requests) == 2
    assert (after.outcome, after.text) == ("done", "Hello there.")


async def test_a_missing_key_is_an_error_that_names_the_variable(clerk: Clerk) -> None:
    await clerk.employ()
    turn = await clerk.turn()
    assert_failed(turn, clerk, "api.anthropic.com needs a key", "set the variable ANTHROPIC_API_KEY")
    async with AnthropicServer(HELLO) as server:
        await clerk.employ(base_url=server.url)
        assert (await clerk.turn("Again.")).text == "Hello there."


async def test_a_service_that_nobody_runs_is_named_with_its_address(clerk: Clerk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
        await clerk.employ(base_url=f"http://127.0.0.1:{port}", api_key=KEY, retries=0)
        turn = await clerk.turn()
    assert_failed(turn, clerk, f"127.0.0.1:{port} cannot be reached", "Check the network and base_url")
    async with AnthropicServer(HELLO, port=port):
        assert (await clerk.turn("Again.")).text == "Hello there."


def assert_failed(turn: Turn, clerk: Clerk, *words: str) -> None:
    assert turn.outcome == "error"
    assert [word for word in words if word not in turn.error] == [], turn.error
    assert "Traceback" not in turn.error
    assert KEY not in turn.error + json.dumps(turn.chunks) + clerk.log
