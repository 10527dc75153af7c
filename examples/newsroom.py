"""A newsroom: an editor and three researchers, one of which is killed in mid-sentence.

The editor spawns three researchers, each an actor with its own database file. Each copies one folder of text files into
its workspace, studies it with file tools and streams its findings to the editor, which writes the report. The whole is
done twice: once undisturbed, once with a SIGKILL of one researcher's process while its answer streams. The transcripts
of both must be equal: texts, tool calls and results, in order.

    python examples/newsroom.py                        three packages of Python's standard library
    python examples/newsroom.py docs src tests         any three folders of text files
    python examples/newsroom.py --no-recovery          what it looks like without recovery: it fails

Without a key the model is `Offline`, which works by fixed rules. With ANTHROPIC_API_KEY set it is Claude, whose answers
differ from run to run: then it is checked that no tool ran twice and that no shown text was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import sysconfig
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import runtime
from agents import Think
from agents.models import Offline, default_model
from runtime import ObjectId
from runtime.errors import PerdureError

PACKAGES = ("json", "email", "asyncio")
TASK = (
    "Study the files in the folder /{name} of your workspace, read those that say most about errors, parsing and "
    "encoding, and report your findings."
)
REPORT = "Write one report on errors, parsing and encoding from these findings."
PACE = 0.02
WIDTH = 110
COLOURS = {"researcher-1": 36, "researcher-2": 35, "researcher-3": 33, "editor": 32}


def model() -> Any:
    """Claude with a key, else the offline model, paced so that people can watch."""
    chosen = default_model()
    return Offline(chunk_delay=PACE) if isinstance(chosen, Offline) else chosen


class Researcher(Think):
    """Studies one folder."""

    def get_model(self) -> Any:
        """The model of each turn."""
        return model()

    def get_system_prompt(self) -> str:
        """What the researcher is."""
        return "You are a researcher. Study the files with your tools, then report what you found, with file names."

    async def load(self, folder: str, name: str) -> str:
        """Copy a folder of text files into the workspace; what was copied and what was not."""
        report = await self.workspace.load_folder(folder, f"/{name}", max_files=200)
        return report.summary


class Editor(Think):
    """Sends researchers out and writes the report."""

    def get_model(self) -> Any:
        """The model of each turn."""
        return model()

    def get_system_prompt(self) -> str:
        """What the editor is."""
        return "You are an editor. Turn the findings of your researchers into one report with a section for each."

    async def publish(self, folders: list[str]) -> AsyncIterator[dict[str, Any]]:
        """Yield what happens: the events of every agent, numbered, and last the report."""
        news: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        work = [
            asyncio.create_task(self.research(f"researcher-{number}", folder, news))
            for number, folder in enumerate(folders, 1)
        ]
        gathered = asyncio.gather(*work)
        gathered.add_done_callback(lambda _: news.put_nowait(None))
        while (item := await news.get()) is not None:
            yield item
        found = zip(folders, await gathered, strict=True)
        sections = "\n\n".join(f"# {Path(folder).name}\n\n{text}" for folder, text in found)
        async with self.chat(f"{REPORT}\n\n{sections}") as events:
            async for event in events:
                yield {"agent": "editor", "number": event.number, "chunk": event.chunk}

    async def research(self, name: str, folder: str, news: asyncio.Queue[dict[str, Any] | None]) -> str:
        """One researcher's turn; its findings."""
        researcher = await self.sub_agent(Researcher, name)
        loaded = await researcher.load(folder, Path(folder).name)
        news.put_nowait({"agent": name, "note": f"{folder}: {loaded}"})
        async with researcher.chat(TASK.format(name=Path(folder).name)) as events:
            async for event in events:
                news.put_nowait({"agent": name, "number": event.number, "chunk": event.chunk})
        return findings((await researcher.get_messages())[-1].parts)


def findings(parts: list[dict[str, Any]]) -> str:
    """What a researcher says behind its last tool call, without its title; a recovered text has several parts."""
    calls = [at for at, part in enumerate(parts) if part["type"].startswith("tool-")]
    answer = parts[calls[-1] + 1 :] if calls else parts
    text = "".join(part["text"] for part in answer if part["type"] == "text")
    return "\n".join(line for line in text.splitlines() if not line.startswith("# ")).strip()


class Terminal:
    """Shows each agent's progress: tool calls as they are made, text line by line."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._is_coloured = sys.stdout.isatty()

    def say(self, text: str) -> None:
        """A line of the script's own."""
        print(text, flush=True)

    def show(self, item: dict[str, Any]) -> None:
        """One item of the editor's news."""
        agent, chunk = item["agent"], item.get("chunk", {})
        if "note" in item:
            self._line(agent, item["note"])
        elif chunk.get("type") == "tool-input-available":
            arguments = ", ".join(f"{key}={value!r:.40}" for key, value in chunk["input"].items())
            self._line(agent, f"> {chunk['toolName']}({arguments})")
        elif chunk.get("type") == "tool-output-error":
            self._line(agent, f"> failed: {chunk['errorText']:.80}")
        elif chunk.get("type") == "text-delta":
            *lines, rest = (self._lines.get(agent, "") + chunk["delta"]).split("\n")
            self._lines[agent] = rest
            for line in filter(str.strip, lines):
                self._line(agent, line)
        elif chunk.get("type") == "text-end" and self._lines.get(agent, "").strip():
            self._line(agent, self._lines.pop(agent))

    def _line(self, agent: str, text: str) -> None:
        name = f"{agent:>12}"
        if self._is_coloured:
            name = f"\x1b[{COLOURS.get(agent, 37)}m{name}\x1b[0m"
        # Researchers work at the same time, so each gets one line; the editor's report is there to be read.
        shown = textwrap.wrap(text, WIDTH) if agent == "editor" else [textwrap.shorten(text, WIDTH, placeholder=" ...")]
        for line in shown:
            print(f"{name}  {line}", flush=True)


class Run:
    """One run of the newsroom: the events of each agent, and the kill if there is one."""

    def __init__(self, cluster: Any, name: str, terminal: Terminal) -> None:
        self.cluster = cluster
        self.name = name
        self.terminal = terminal
        self.root = ObjectId.root("Editor", name)
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.killed_pid = 0
        self.new_pid = 0
        self.killed_at = 0.0
        self.events_before = 0
        self.events_after = 0
        self.seconds_to_event = 0.0
        self.watch: asyncio.Task[None] | None = None

    def agent(self, name: str) -> ObjectId:
        """The address of an agent of this run."""
        return self.root if name == "editor" else self.root.child("Researcher", name)

    async def play(self, folders: list[str], victim: str, kill_after: int) -> None:
        """Run it; kill the victim after so many pieces of its answer, if at all."""
        editor = self.cluster.get(Editor, self.name)
        pieces = 0
        async for item in editor.publish(folders):
            self.terminal.show(item)
            if "chunk" not in item:
                continue
            self.seen.setdefault(item["agent"], []).append(item)
            if item["agent"] != victim:
                continue
            if self.killed_pid:
                if not self.new_pid:
                    continue  # it was under way before the kill
                self.events_after += 1
                if self.events_after == 1:
                    self._recovered()
                continue
            pieces += item["chunk"]["type"] == "text-delta"
            if kill_after and pieces == kill_after:
                await self._kill(victim)
        if self.watch is not None:
            self.watch.cancel()

    async def _kill(self, victim: str) -> None:
        pong = await self.cluster.ping(self.agent(victim))
        assert pong is not None, f"{victim} streams, but has no process"
        self.events_before = len(self.seen[victim])
        self.killed_pid, self.killed_at = pong.pid, time.perf_counter()
        os.kill(pong.pid, signal.SIGKILL)
        self.terminal.say(
            f"\n*** kill -9 {pong.pid}: the process of {victim}, whose answer was streaming "
            f"({self.events_before} events so far)\n"
        )

        self.watch = asyncio.create_task(self._await_new_process(self.agent(victim)))

    async def _await_new_process(self, agent: ObjectId) -> None:
        """Learn the pid of the next life, so that no event of the last one counts as recovered."""
        while not self.new_pid:
            with contextlib.suppress(PerdureError):  # nobody is there to answer yet
                pong = await self.cluster.ping(agent)
                if pong is not None and pong.pid != self.killed_pid:
                    self.new_pid = pong.pid
            await asyncio.sleep(0.01)

    def _recovered(self) -> None:
        self.seconds_to_event = time.perf_counter() - self.killed_at
        self.terminal.say(
            f"\n*** recovered: the next event came {self.seconds_to_event:.2f} s after the kill, from "
            f"process {self.new_pid}; finished tools were not run again\n"
        )

    async def transcripts(self) -> dict[str, Any]:
        """Every agent's conversation, without ids, times and part boundaries."""
        found = {}
        for name in (*(f"researcher-{number}" for number in (1, 2, 3)), "editor"):
            cls = Editor if name == "editor" else Researcher
            messages = await self.cluster.stub(cls, self.agent(name)).get_messages()
            found[name] = [normal(message) for message in messages]
        return found


def normal(message: Any) -> dict[str, Any]:
    """A message as it is compared: its text, and its tool calls with results, in order."""
    content: list[Any] = []
    for part in message.parts:
        if part["type"] == "text":
            if content and isinstance(content[-1], str):
                content[-1] += part["text"]
            else:
                content.append(part["text"])
        elif part["type"].startswith("tool-"):
            outcome = part.get("output", part.get("errorText"))
            content.append({"tool": part["type"][5:], "input": part.get("input"), "outcome": outcome})
    return {"role": message.role, "content": content}


def faults(before: dict[str, Any], after: dict[str, Any], run: Run) -> list[str]:
    """What differs between the undisturbed run and the one with the kill; empty if nothing does."""
    found = []
    if run.killed_pid and not (run.events_before and run.events_after):
        found.append(f"{run.events_before} events before the kill, {run.events_after} after: both must be more than 0")
    for agent, events in run.seen.items():
        numbers = [event["number"] for event in events]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(f"{agent}: the event numbers have a gap or a repeat")
        shown = "".join(e["chunk"]["delta"] for e in events if e["chunk"]["type"] == "text-delta")
        kept = "".join(c for m in after[agent] if m["role"] == "assistant" for c in m["content"] if isinstance(c, str))
        if shown != kept:
            found.append(f"{agent}: the text that was shown is not the text that is stored")
        calls = [e["chunk"]["toolCallId"] for e in events if e["chunk"]["type"] == "tool-output-available"]
        if len(calls) != len(set(calls)):
            found.append(f"{agent}: a tool ran twice")
    if isinstance(default_model(), Offline):
        found += [f"{agent}: the transcripts differ" for agent in before if before[agent] != after[agent]]
    return found


def told(error: PerdureError) -> str:
    """An error as a sentence, and where its traceback is if an agent raised it."""
    name = getattr(error, "object_name", "")
    text = f"{name + ': ' if name else ''}{type(error).__name__}: {error}"
    data = arguments().out.resolve() / "data"
    return f"{text}. The traceback: {logs_command(data, name)}" if name else text


def logs_command(data: Path, name: str) -> str:
    """What shows an agent's log when it is pasted into a shell."""
    # Of a virtual environment that is not active, as that of `make demo`, the command is not on the PATH.
    beside = Path(sys.executable).with_name("perdure")
    usual = ["perdure"] if shutil.which("perdure") else [str(beside)]
    command = usual if usual == ["perdure"] or beside.is_file() else [sys.executable, "-m", "agents.cli.main"]
    return shlex.join([*command, "--data", str(data), "logs", name])


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="three folders of text files")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="where the transcripts go, as JSON")
    parser.add_argument("--kill-after", type=int, default=20, help="pieces of the answer before the kill")
    parser.add_argument("--pace", type=float, default=PACE, help="seconds between two pieces of the offline model")
    parser.add_argument("--no-recovery", action="store_true", help="switch recovery off; the run then fails")
    chosen = parser.parse_args()
    library = Path(sysconfig.get_paths()["stdlib"])
    chosen.folders = [str(Path(f).resolve()) for f in chosen.folders] or [str(library / name) for name in PACKAGES]
    missing = [folder for folder in chosen.folders if not Path(folder).is_dir()]
    if len(chosen.folders) != 3 or missing:
        parser.error(f"three folders are needed, {', '.join(missing) or len(chosen.folders)} given are none")
    return chosen


async def main() -> int:
    """Run it twice and compare; the exit code."""
    chosen = arguments()
    terminal = Terminal()
    # The classes of a script travel to the agents' processes as they are when the first object is called.
    Researcher.chat_recovery = not chosen.no_recovery
    globals()["PACE"] = chosen.pace
    data = chosen.out.resolve() / "data"
    # What the agents log stays in their logs: here their events are shown, in order.
    async with runtime.connect(data_dir=data, show_logs=False) as cluster:
        stamp = f"{time.time():.0f}"
        terminal.say(f"the model is {default_model().model_id}")
        terminal.say(f"\n--- the newsroom, undisturbed (Editor/calm-{stamp})\n")
        calm = Run(cluster, f"calm-{stamp}", terminal)
        await calm.play(chosen.folders, "", 0)
        before = await calm.transcripts()
        terminal.say(f"\n--- the newsroom again, with a kill -9 (Editor/killed-{stamp})\n")
        killed = Run(cluster, f"killed-{stamp}", terminal)
        await killed.play(chosen.folders, "researcher-2", chosen.kill_after)
        after = await killed.transcripts()
    for name, transcript in (("undisturbed", before), ("killed", after)):
        (chosen.out / f"{name}.json").write_text(json.dumps(transcript, indent=2, ensure_ascii=False))
    wrong = faults(before, after, killed)
    counts = f"events of its agent before the kill: {killed.events_before}, after: {killed.events_after}"
    terminal.say(f"\nkilled pid {killed.killed_pid}; {counts}")
    terminal.say(f"transcripts: {chosen.out / 'undisturbed.json'} and {chosen.out / 'killed.json'}")
    terminal.say(f"what the killed agent logged: {logs_command(data, str(killed.agent('researcher-2')))}")
    for text in wrong:
        terminal.say(f"FAILED  {text}")
    if not wrong:
        what = "equals" if isinstance(default_model(), Offline) else "is consistent with"
        terminal.say(
            f"OK  the run with the kill {what} the undisturbed run: nothing lost or doubled, no tool run again"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except PerdureError as error:
        print(f"FAILED  {told(error)}", file=sys.stderr)
        sys.exit(1)
