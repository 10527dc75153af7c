"""Finding and ending the processes of one own Ray, and of no other.

Ray has no list of its processes that outlives it. They are known by what they carry: the session's folder,
unique to one start, stands in the command line of Ray's own processes, and workers, whose command line Ray overwrites
with ``ray::...``, have log files open in that folder. Processes that agents started themselves are not Ray's and
are left alone.

This module imports no Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from runtime.cluster.ray_files import Process

__all__ = ["end_processes", "processes_of_session"]

# A raylet needs 0.3 s to end its workers; a worker without a raylet does not listen, and has nothing to lose.
TERM_SECONDS = 1.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.02


def processes_of_session(session_dir: str) -> list[Process]:
    """All live processes of the Ray with this session folder, this process excepted."""
    found: list[Process] = []
    for pid, command in _commands():
        # As the value of an option: a `tail` of one of its logs is not a process of Ray.
        is_ours = f"={session_dir}" in command or (command.startswith("ray::") and _has_open_in(pid, session_dir))
        if is_ours and pid != os.getpid():
            process = Process.of(_name(command), pid)
            if process.is_alive:
                found.append(process)
    return found


def end_processes(processes: Iterable[Process]) -> list[Process]:
    """End them, first by SIGTERM, then by SIGKILL; return those that were alive.

    On return they are gone, unless the kernel holds one in an uninterruptible wait.
    """
    alive = [process for process in processes if process.is_alive]
    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        for process in alive:
            process.signal(number)
        deadline = time.monotonic() + seconds
        while any(process.is_alive for process in alive) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    return alive


def _name(command: str) -> str:
    """What a person calls a process with this command line: its title, or the program or script it runs."""
    if command.startswith("ray::"):
        return command.split()[0]
    words = [word for word in command.split() if not word.startswith("-")]
    scripts = [word for word in words if word.endswith(".py")]
    return Path((scripts or words or ["process"])[-1 if scripts else 0]).name.removesuffix(".py")


def _commands() -> Iterable[tuple[int, str]]:
    if sys.platform != "linux":
        listed = subprocess.run(
            ["ps", "-U", str(os.getuid()), "-o", "pid=,command=", "-ww"], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command.strip()
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # ended meanwhile
                continue


def _has_open_in(pid: int, session_dir: str) -> bool:
    if sys.platform != "linux":
        listed = subprocess.run(["lsof", "-p", str(pid)], capture_output=True, text=True, check=False)
        return session_dir in listed.stdout
    try:
        # Closed also when the process ends in the middle of it.
        with os.scandir(f"/proc/{pid}/fd") as entries:
            links = [os.readlink(entry.path) for entry in entries]
    except OSError:  # ended meanwhile, or somebody else's
        return False
    return any(link.startswith(session_dir) for link in links)
