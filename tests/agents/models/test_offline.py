"""The offline model: real work by fixed rules, the same in every process."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import pytest

from agents.core.repair import INTERRUPTED_TEXT
from agents.errors import ModelRefused
from agents.models import Offline
from agents.models.model import ModelMessage, ModelRequest, TextBlock, ToolResultBlock, ToolSpec, ToolUseBlock
from agents.models.reports import report, sections_of

from .requests import called, calls_of, collect, nudge, request, result, said, text_of, user

RETRY = '''"""Retries of a parcel that came back from its address.

A retry waits one day longer each time.
"""

class Retry:
    pass  # nothing to keep
'''
FILES = {
    "/src/README.md": "# Parcels\n\nParcels are sent by the courier of the town.\nNothing is sent on Sundays.\n",
    "/src/retry.py": RETRY,
    "/src/deep/courier.py": "# The courier never retries a parcel on the same day.\ndef deliver():\n    return None\n",
    "/src/logo.png": "\x89PNG",
}
STUDY = "Study /src: how are retries of a parcel handled?"
FINDINGS = """Join these findings on retries into one report and save it as /out/report.md.

# Findings on the sender

I studied /a. The sender makes three retries before it gives a parcel up. After that the parcel is kept for a week
and the sender is told by letter. (line 12)

# Findings on the courier

I studied /b. The courier makes no retries of his own, for he has other parcels to carry. He brings what is left
back to the town and says so in his book, every evening.
"""


def spec(name: str, **parameters: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return ToolSpec(name=name, description="", input_schema=schema)


FILE_TOOLS = (
    spec("list", path="string"),
    spec("find", pattern="string"),
    spec("grep", query="string", include="string"),
    spec("read", path="string", offset="integer", limit="integer"),
    spec("write", path="string", content="string"),
)


def run(name: str, arguments: dict[str, Any]) -> Any:
    """The file tools over ``FILES``, with results of the form of the workspace's."""
    if name == "list":
        below = [path.removeprefix(arguments["path"].rstrip("/") + "/") for path in FILES]
        entries = sorted({f"{path.split('/')[0]}/" if "/" in path else f"{path} (9 B)" for path in below})
        return {"path": arguments["path"], "count": len(entries), "entries": entries}
    if name == "find":
        found = [path for path in FILES if fnmatch.fnmatch(path, arguments["pattern"].replace("**/", ""))]
        return {"pattern": arguments["pattern"], "count": len(found), "files": found}
    if name == "grep":
        words = arguments["query"].split("|")
        lines = [(path, at, line) for path, text in FILES.items() for at, line in enumerate(text.splitlines(), 1)]
        hits = [f"{path}:{at}: {line}" for path, at, line in lines if any(word in line.lower() for word in words)]
        return {"query": arguments["query"], "total_matches": len(hits), "matches": hits}
    if name == "read":
        text = FILES[arguments["path"]].splitlines()
        return {"path": arguments["path"], "content": "\n".join(f"{n}\t{line}" for n, line in enumerate(text, 1))}
    if name == "write":
        return {"path": arguments["path"], "bytes_written": len(arguments["content"]), "lines": 1}
    return "The ledger counts seven parcels that were lost in the last year."


class Turn:
    """A turn of the offline model: runs its calls until it answers."""

    def __init__(self, text: str, tools: tuple[ToolSpec, ...] = FILE_TOOLS) -> None:
        self.tools = tools
        self.messages: list[ModelMessage] = [user(text)]
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer = ""

    @property
    def request(self) -> ModelRequest:
        return request(*self.messages, tools=self.tools)

    async def step(self, *, is_interrupted: bool = False) -> bool:
        """One model call and its tools; False once there is an answer."""
        parts = await collect(Offline().stream(self.request))
        calls = calls_of(parts)
        if not calls:
            self.answer = text_of(parts)
            return False
        blocks: list[Any] = [TextBlock(text=text_of(parts))]
        results: list[Any] = []
        for call in calls:
            name, arguments = call.tool_name, json.loads(call.input_text)
            self.calls.append((name, arguments))
            blocks.append(ToolUseBlock(tool_call_id=call.tool_call_id, tool_name=name, input=arguments))
            text = INTERRUPTED_TEXT if is_interrupted else json.dumps(run(name, arguments))
            results.append(
                ToolResultBlock(tool_call_id=call.tool_call_id, tool_name=name, text=text, is_error=is_interrupted)
            )
        self.messages.append(ModelMessage(role="assistant", blocks=tuple(blocks)))
        self.messages.append(ModelMessage(role="user", blocks=tuple(results)))
        return True

    async def finish(self) -> str:
        while await self.step():
            assert len(self.messages) < 40, f"no answer after {self.calls}"
        return self.answer


async def test_a_study_lists_finds_greps_reads_and_answers() -> None:
    turn = Turn(STUDY)
    await turn.finish()

    assert turn.calls == [
        ("list", {"path": "/src"}),
        ("find", {"pattern": "/src/**/*"}),
        ("grep", {"query": "retr|parcel", "include": "/src/**/*"}),
        ("read", {"path": "/src/retry.py", "offset": 1, "limit": 300}),
        ("read", {"path": "/src/README.md", "offset": 1, "limit": 300}),
        ("read", {"path": "/src/deep/courier.py", "offset": 1, "limit": 300}),
    ]


async def test_findings_quote_the_sentences_that_speak_of_the_keywords() -> None:
    answer = await Turn(STUDY).finish()

    for sentence in [
        "Retries of a parcel that came back from its address. (line 1)",
        "A retry waits one day longer each time. (line 3)",
        "The courier never retries a parcel on the same day. (line 1)",
        "It defines `Retry`.",
    ]:
        assert f"- {sentence}\n" in answer


async def test_equal_turns_have_equal_answers() -> None:
    assert await Turn(STUDY).finish() == await Turn(STUDY).finish()


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
async def test_an_interrupted_answer_goes_on_exactly_where_it_stops(share: float) -> None:
    turn = Turn(STUDY)
    whole = await turn.finish()
    already = whole[: int(len(whole) * share)]

    rest = await collect(Offline().stream(request(*turn.messages, said(already), nudge(), tools=FILE_TOOLS)))

    assert already + text_of(rest) == whole


async def test_a_call_that_was_interrupted_is_made_once_more_and_nothing_else() -> None:
    turn = Turn(STUDY)
    await turn.step()
    await turn.step(is_interrupted=True)
    await turn.finish()

    assert [name for name, _ in turn.calls] == ["list", "find", "find", "grep", "read", "read", "read"]


async def test_an_interruption_changes_nothing_in_the_answer() -> None:
    turn = Turn(STUDY)
    await turn.step(is_interrupted=True)

    assert await turn.finish() == await Turn(STUDY).finish()


async def test_a_tool_that_is_always_interrupted_is_given_up() -> None:
    turn = Turn(STUDY, (spec("list", path="string"),))
    for _ in range(3):
        await turn.step(is_interrupted=True)
    await turn.finish()

    assert [name for name, _ in turn.calls] == ["list", "list", "list"]


async def test_several_findings_become_one_report_without_any_study() -> None:
    turn = Turn(FINDINGS)
    answer = await turn.finish()

    assert [name for name, _ in turn.calls] == ["write"]
    assert "The sender makes three retries before it gives a parcel up." in answer
    assert "The courier makes no retries of his own, for he has other parcels to carry." in answer
    assert "All findings speak of `retries`." in answer


async def test_a_report_leaves_out_what_a_finding_says_about_its_writer() -> None:
    assert "I studied" not in await Turn(FINDINGS).finish()


async def test_the_file_that_is_asked_for_holds_the_answer() -> None:
    turn = Turn(FINDINGS)
    answer = await turn.finish()

    ((_, arguments),) = turn.calls
    assert arguments["path"] == "/out/report.md"
    assert answer == arguments["content"] + "\nThis text is in /out/report.md.\n"


async def test_a_tool_that_the_task_names_is_called_with_what_the_task_holds() -> None:
    turn = Turn("Use ledger on /src/retry.py", (spec("ledger", path="string"), spec("other", path="string")))
    answer = await turn.finish()

    assert turn.calls == [("ledger", {"path": "/src/retry.py"})]
    assert "The ledger counts seven parcels that were lost in the last year." in answer


async def test_a_named_tool_whose_arguments_are_not_in_the_task_is_not_called() -> None:
    turn = Turn("Use ledger now", (spec("ledger", colour="string"),))
    await turn.finish()

    assert turn.calls == []


async def test_no_tool_is_called_if_the_request_forbids_it() -> None:
    parts = await collect(Offline().stream(request(user(STUDY), tools=FILE_TOOLS, tool_choice="none")))

    assert calls_of(parts) == []


async def test_a_greeting_is_answered_without_tools() -> None:
    turn = Turn("Hello!")
    answer = await turn.finish()

    assert (turn.calls, answer.startswith("You said: Hello!")) == ([], True)


async def test_a_question_in_an_empty_workspace_is_answered_with_what_the_model_can_and_cannot() -> None:
    listed = result("c1", '{"path": "/", "entries": []}', name="list")
    asked = user("Compare tea and coffee in three sentences.")
    listing = called("c1", "list", path="/")
    parts = await collect(Offline().stream(request(asked, listing, listed, tools=FILE_TOOLS)))
    answer = text_of(parts)

    assert answer.startswith("There are no files in / that could speak of compare, tea and coffee.")
    assert "ANTHROPIC_API_KEY" in answer


def test_a_report_names_each_file_once_and_in_full_and_no_folder() -> None:
    first = (
        "I studied /a, which holds 2 files, and read `one.py`. I looked for `tea` and `milk`, which stand in 1 file."
    )
    finding = f"{first}\n\n## /a/one.py\n\n- Tea is what this module brews, for those who ask it to."
    text = f"Write one report on tea and milk.\n\n# a\n\n{finding}\n\n# b\n\n{finding.replace('/a', '/b')}"
    told = report(*sections_of(text))

    assert told.endswith("## Sources\n\n`/a/one.py` and `/b/one.py`\n")
    assert "- A: Tea is what this module brews, for those who ask it to." in told
    assert "`milk`" not in told


async def test_words_that_no_file_has_are_named_as_such() -> None:
    answer = await Turn("Study /src and look for zeppelins").finish()

    assert "I looked for `zeppelins`, which no file has." in answer


async def test_a_request_that_ends_with_the_assistant_is_refused() -> None:
    """FR-03."""
    with pytest.raises(ModelRefused):
        await collect(Offline().stream(request(user("hi"), said("You"))))
