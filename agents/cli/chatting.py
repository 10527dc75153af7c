"""``perdure chat``: one agent in the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import runtime
from agents.cli.targets import Target, class_of
from agents.errors import TurnAborted, TurnFailed
from runtime.errors import UsageError

__all__ = ["chat"]


async def chat(data_dir: Path, target: Target, message: str | None) -> int:
    """Chat until the end of input, or send one message; the exit code."""
    async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
        cls = await class_of(target, cluster)
        if not hasattr(cls, "chat"):
            raise UsageError(f"{cls.__name__} cannot chat: it is no Think")
        agent: Any = cluster.stub(cls, target.object_id)
        for request_id in await agent.open_turns():
            print("(the rest of an unfinished turn)", flush=True)
            await _show(agent.attach(request_id), agent)
        if message is not None:
            return 0 if await _show(agent.chat(message), agent) else 1
        print(f"{target.object_id}: write a message; ctrl-c cancels a turn, ctrl-d leaves", flush=True)
        while (line := await asyncio.to_thread(_ask)) is not None:
            if line.strip():
                await _show(agent.chat(line), agent)
    return 0


def _progress(text: str) -> None:
    print(f"perdure: {text}", file=sys.stderr, flush=True)


def _ask() -> str | None:
    try:
        return input("> ")
    except EOFError:
        return None


async def _show(stream: Any, agent: Any) -> bool:
    """Print a turn's events; ctrl-c cancels the turn, a second one leaves."""
    loop = asyncio.get_running_loop()
    cancelling: list[asyncio.Task[Any]] = []

    def interrupted() -> None:
        if cancelling:
            raise KeyboardInterrupt
        cancelling.append(loop.create_task(agent.cancel_chat(stream.request_id, "cancelled in the terminal")))

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        async with stream as events:
            async for event in events:
                _print(event.chunk)
        print(flush=True)
        if events.outcome != "done":
            print(f"({events.outcome})", flush=True)
        return bool(events.outcome == "done")
    except (TurnFailed, TurnAborted) as error:
        print(f"\n({error.message})", file=sys.stderr, flush=True)
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
