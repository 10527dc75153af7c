"""Agents that talk to Claude, and a script that does as it is told: ``python -m tests.chaos.clerks DATA``.

The script reads a command a line, and answers with lines of JSON: a test must not join a Ray itself, as that stays in
its process for all tests behind it.

    {"do": "chat", "name": ..., "text": ...}     events as {"event": number, "chunk": ...}, last {"end": outcome, ...}
    {"do": "kill", "name": ...}                  {"killed": pid}
    {"do": "call", "name": ..., "method": ..., "arguments": [...]}      {"answer": ...}
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import runtime
from agents import Think, tool
from agents.models import Claude
from runtime import ObjectId
from runtime.errors import PerdureError

__all__ = ["Clerk"]


class Clerk(Think):
    """Notes what it is told to; its model is the service that a test has named."""

    def get_model(self) -> Claude:
        """Claude as the test wants it."""
        options: Any = self.ctx.storage.kv.get("claude")
        return Claude(**options)

    async def employ(self, claude: dict[str, Any], notes: str) -> None:
        """Say with which options Claude is made, and where notes are written."""
        self.ctx.storage.kv.put("claude", claude)
        self.ctx.storage.kv.put("notes", notes)

    async def conversation(self) -> list[dict[str, Any]]:
        """What is stored."""
        return [{"role": message.role, "parts": message.parts} for message in await self.get_messages()]

    @tool
    def note(self, text: str) -> str:
        """Write a note outside of the agent, which nothing takes back.

        Args:
            text: The note.
        """
        path: Any = self.ctx.storage.kv.get("notes")
        with Path(path).open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def _chat(cluster: Any, name: str, text: str) -> None:
    events = cluster.get(Clerk, name).chat(text)
    error = ""
    try:
        async with events:
            async for event in events:
                _say(name=name, event=event.number, chunk=event.chunk)
    except PerdureError as raised:
        error = f"{type(raised).__name__}: {raised}"
    _say(name=name, end=events.outcome, error=error)


async def _main(data_dir: str) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    chats = set[asyncio.Task[None]]()
    async with runtime.connect(data_dir=data_dir) as cluster:
        while line := await lines.readline():
            command = json.loads(line)
            name = command["name"]
            if command["do"] == "chat":
                chats.add(asyncio.ensure_future(_chat(cluster, name, command["text"])))
            elif command["do"] == "kill":
                pong = await cluster.ping(ObjectId.root("Clerk", name))
                assert pong is not None, f"{name} has no process to kill"
                os.kill(pong.pid, signal.SIGKILL)
                _say(name=name, killed=pong.pid)
            else:
                answer = await getattr(cluster.get(Clerk, name), command["method"])(*command["arguments"])
                _say(name=name, answer=answer)


if __name__ == "__main__":
    # Not the class of this script, which the agents' processes could not import.
    from tests.chaos import clerks

    asyncio.run(clerks._main(sys.argv[1]))
