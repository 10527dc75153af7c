"""How a process announces what it is doing, so that the killer can aim and the count of kills is honest.

User code announces what it knows: that it was constructed, starts, streams, runs a tool, writes, handles an alarm.
Two phases no user code sees, a checkpoint and the closing at hibernation: there the two functions that do it are
wrapped, in the benchmark's own processes. The wrapper writes a line before and after and changes nothing else.

The last line of a process says in which phase it died.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from agents.models.model import ModelPart, ModelRequest
from agents.models.scripted import Scripted
from benchmarks.kill.history import Born, Entered, History
from runtime import Context
from runtime.host import Host
from runtime.storage.duckdb import DuckDBConnection

__all__ = [
    "FOLDER_VARIABLE",
    "AnnouncedModel",
    "announce_inner_phases",
    "born",
    "count_file",
    "enter",
    "history",
    "history_file",
]

FOLDER_VARIABLE = "BENCH_KILL_FOLDER"


class _Holder(msgspec.Struct):
    epoch: int


class _Here:
    """This process: whose it is, and the phase that it announced last."""

    who = ""
    phase = ""


def folder() -> Path:
    """Where the benchmark keeps what is written down outside of the processes."""
    return Path(os.environ[FOLDER_VARIABLE])


def history_file() -> Path:
    """The history."""
    return folder() / "history.jsonl"


def count_file() -> Path:
    """Where the models' requests are counted."""
    return folder() / "model_calls.jsonl"


@functools.cache
def history() -> History:
    """The history, as this process writes it."""
    return History(history_file())


def born(ctx: Context) -> int:
    """Announce a constructed instance; returns the epoch under which it lives."""
    epoch = msgspec.json.decode((ctx.folder / "lock").read_bytes(), type=_Holder).epoch
    _Here.who = str(ctx.id)
    history().note(Born(who=_Here.who, epoch=epoch))
    enter("start_up")
    return epoch


def enter(phase: str) -> str:
    """Announce a phase of this process; returns the one before."""
    before, _Here.phase = _Here.phase, phase
    history().note(Entered(who=_Here.who, phase=phase))
    return before


class AnnouncedModel(Scripted):
    """A scripted model that announces while it speaks."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """As ``Scripted.stream``."""
        async with contextlib.aclosing(super().stream(request)) as parts:
            enter("stream")
            async for part in parts:
                yield part
            enter("turn")


def announce_inner_phases() -> None:
    """Wrap what begins a checkpoint and a hibernation in this process."""
    checkpoint, hibernate = DuckDBConnection.checkpoint, Host.hibernate

    def announced_checkpoint(self: DuckDBConnection) -> bool:
        if not _Here.who or _Here.phase in ("hibernation", "start_up"):
            return checkpoint(self)
        before = enter("checkpoint")
        try:
            return checkpoint(self)
        finally:
            enter(before)

    def announced_hibernate(self: Host, reason: str) -> None:
        if _Here.who:
            enter("hibernation")
        hibernate(self, reason)

    patched: Any = DuckDBConnection
    patched.checkpoint = announced_checkpoint
    patched = Host
    patched.hibernate = announced_hibernate
