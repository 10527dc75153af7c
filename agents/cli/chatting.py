"""``perdure chat``: one agent in the terminal."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import runtime
from agents.cli.targets import (
    Target,
    check_directory,
    check_source,
    class_of,
    exists,
    logs_command,
    sub_agent_hint,
)
from agents.errors import TurnAborted, TurnFailed
from runtime.errors import UsageError

__all__ = ["chat"]

# How long the prompt outlives a ctrl-c.
POLL_SECONDS = 0.1


async def chat(data_dir: Path, target: Target, message: str | None) -> int:
    """Chat until the end of input, or send one message; the exit code."""
    check_source(target)
    if not target.source:
        check_directory(data_dir, target)
    async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
        cls = await class_of(target, cluster)
        if not hasattr(cls, "chat"):
            raise UsageError(f"{cls.__name__} cannot chat: it is no Think")
        agent: Any = cluster.stub(cls, target.object_id)
        await _say_if_new(cluster, data_dir, target)
        hint = f"The traceback: {logs_command(data_dir, str(target.object_id))}"
        for request_id in await agent.open_turns():
            print("(the rest of an unfinished turn)", flush=True)
            await _show(agent.attach(request_id), agent, target, hint)
        if message is not None:
            return 0 if await _show(agent.chat(message), agent, target, hint) else 1
        print(f"{target.object_id}: write a message; ctrl-c cancels a turn, ctrl-d leaves", flush=True)
        typed = _Typed()
        while (line := await typed.line()) is not None:
            if line.strip():
                await _show(agent.chat(line), agent, target, hint)
    return 0


async def _say_if_new(cluster: Any, data_dir: Path, target: Target) -> None:
    """Tell who mistyped a name that this makes an object for ever."""
    if exists(data_dir, target.object_id):
        return
    if all(known.object_id != target.object_id for known in await cluster.list_objects()):
        hint = sub_agent_hint(data_dir, target)
        _progress(f"{target.object_id} is new{f'. {hint}' if hint else ''}")


def _progress(text: str) -> None:
    print(f"perdure: {text}", file=sys.stderr, flush=True)


class _Typed:
    """Lines of standard input. ``input()`` in a thread would keep the process until the next line, ctrl-c or not."""

    def __init__(self) -> None:
        self._pending = b""
        self._is_over = threading.Event()

    async def line(self) -> str | None:
        """The next line; None at the end of input."""
        line: str | None = None
        try:
            print("> ", end="", flush=True)
            line = await asyncio.to_thread(self._read)
        finally:
            if line is None:  # nobody pressed enter: the shell's prompt must not stand behind ours
                self._is_over.set()
                print(flush=True)
        return line

    def _read(self) -> str | None:
        descriptor = sys.stdin.fileno()
        while b"\n" not in self._pending:
            if self._is_over.is_set():
                return None
            if select.select([descriptor], [], [], POLL_SECONDS)[0]:
                got = os.read(descriptor, 65536)
                if not got:
                    last, self._pending = self._pending, b""
                    return last.decode(errors="replace") if last else None
                self._pending += got
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")


async def _show(stream: Any, agent: Any, target: Target, hint: str) -> bool:
    """Print a turn's events; ctrl-c cancels the turn, a second one leaves."""
    loop = asyncio.get_running_loop()
    cancelling: list[asyncio.Task[Any]] = []
    is_in_line = False

    def interrupted() -> None:
        if cancelling:
            raise KeyboardInterrupt
        cancelling.append(loop.create_task(agent.cancel_chat(stream.request_id, "cancelled in the terminal")))

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        async with stream as events:
            async for event in events:
                _print(event.chunk)
                is_in_line = event.chunk["type"] == "text-delta"
        print(flush=True)
        if events.outcome != "done":
            print(f"({events.outcome})", flush=True)
        return bool(events.outcome == "done")
    except TurnAborted as error:
        print("\n" * is_in_line, end="", flush=True)
        print(f"({error.message})", file=sys.stderr, flush=True)
        return False
    except TurnFailed as error:
        print("\n" * is_in_line, end="", flush=True)
        text = error.message.rstrip(".")
        print(f"perdure: {target.object_id}: the turn failed: {text}. {hint}", file=sys.stderr, flush=True)
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _print(chunk: dict[str, Any]) -> None:
    kind = chunk["type"]
    if kind == "text-delta":
        print(chunk["delta"], end="", flush=True)
    elif kind == "text-end":
        print(flush=True)
    elif kind == "tool-input-available":
        values = ", ".join(f"{key}={value!r:.60}" for key, value in chunk["input"].items())
        print(_dim(f"[{chunk['toolName']}({values})]"), flush=True)
    elif kind == "tool-output-error":
        print(_dim(f"[failed: {chunk['errorText']:.100}]"), flush=True)


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text
