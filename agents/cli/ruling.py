"""``perdure run``, ``up``, ``down``, ``evict`` and ``kill``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import runtime
from agents.cli.targets import Target, check_exists, lives_here
from runtime.cluster import end, hold
from runtime.errors import UnknownObject, UsageError

__all__ = ["down", "evict", "kill", "run_script", "up"]


def _progress(text: str) -> None:
    print(f"perdure: {text}", file=sys.stderr, flush=True)


def run_script(data_dir: Path, script: str, arguments: list[str]) -> int:
    """Run a Python script with the data directory set; its exit code."""
    if Path(script).is_dir():
        raise UsageError(f"{script!r} is a folder; name a script in it")
    if not Path(script).is_file():
        raise UsageError(f"there is no script {script!r}")
    environment = {**os.environ, "PERDURE_DATA": str(data_dir)}
    return subprocess.run([sys.executable, script, *arguments], env=environment, check=False).returncode


def up(data_dir: Path) -> int:
    """Start the local Ray and hold it."""
    address = hold(data_dir, on_progress=_progress)
    print(f"Ray of {data_dir} is up at {address.address}; `perdure down` ends it")
    return 0


def down(data_dir: Path) -> int:
    """End the local Ray."""
    ended = end(data_dir, on_progress=_progress)
    if ended.processes:
        count = len(ended.processes)
        print(
            f"ended {count} process{'es' * (count != 1)} in {ended.seconds:.1f} s; the agents' data stays in {data_dir}"
        )
    else:
        print(f"no Ray of {data_dir} was running")
    return 0


async def evict(data_dir: Path, target: Target) -> int:
    """Hibernate an object now."""
    check_exists(data_dir, target)
    if not lives_here(data_dir):
        print(f"{target.object_id} is asleep already: no Ray of {data_dir} is running")
        return 0
    async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
        answer = await cluster.evict(target.object_id)
    if answer is None:
        print(f"{target.object_id} is asleep already")
    elif answer.is_ending:
        print(f"{target.object_id} hibernates; the next call wakes it")
    else:
        print(f"{target.object_id} stays: {answer.busy}", file=sys.stderr)
        return 1
    return 0


async def kill(data_dir: Path, target: Target) -> int:
    """SIGKILL the process of an object."""
    check_exists(data_dir, target)
    if not lives_here(data_dir):
        raise UnknownObject(
            f"{target.object_id} is asleep: no Ray of {data_dir} is running, so it has no process to kill"
        )
    async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
        pong = await cluster.ping(target.object_id)
        if pong is None:
            raise UnknownObject(f"{target.object_id} is asleep: it has no process to kill")
        os.kill(pong.pid, signal.SIGKILL)
        print(f"kill -9 {pong.pid} ({target.object_id}; it was doing: {pong.busy or 'nothing'})")
    return 0
