"""The command ``perdure`` in a folder with an application, as a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from agents.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 100
APP = """
from agents import Think
from agents.models import Scripted

class Talker(Think):
    def get_model(self): return Scripted([Scripted.text("one two three four five", chunk_size=4)])

class Speaker(Talker):
    async def on_start(self, props=None):
        for number in range(5): print("said", number)

class Slow(Think):
    def get_model(self): return Scripted(Scripted.text(" ".join(f"w{i}" for i in range(60)), chunk_size=3, delay=0.05))

class Broken(Think):
    def get_model(self): raise KeyError("no such model")

    async def fail(self):
        raise ValueError("broken inside")

class Unopened(Think):
    async def on_start(self, props=None):
        raise LookupError("cannot start")
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start it, with pipes to all its files."""
    names = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PERDURE_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "agents.cli.main", *arguments],
        cwd=folder,
        env=names | {"PERDURE_DATA": str(folder / "data"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def perdure(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, without input."""
    process = start(folder, *arguments)
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def perdure_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it in this process, which saves the start; only for what ends before it connects to a Ray."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, PERDURE_DATA=str(folder / "data")),
        mock.patch.object(sys, "argv", ["perdure", *arguments]),
    ):
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
