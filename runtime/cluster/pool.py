"""Keeps warm workers ready on one node: processes that Ray has started and that belong to nobody yet.

An actor that finds such a worker lives after tens of milliseconds, one that has to wait for a new process after half a
second and more. Ray keeps idle workers of its own accord only for a job, and ends them with it. A worker that was
asked for without a job serves whoever comes, and stays when scripts end.

The raylet starts them on a request of its internal interface (PrestartWorkers). It starts at most so many at once and
drops the rest of a request in silence, so we do not trust the answer but look: the raylet's child processes are its
workers. One that starts still runs ``default_worker.py``; one that is free has the title ``ray::IDLE``; the others
have the title of what they are. RAY_JOB_ID in their environment tells those without a job. Looking costs a
few reads in /proc, four times a second.

One pool serves the node it runs on, so a cluster runs one on each. If Ray refuses or has changed, the pool says so
once in the log and leaves the node as Ray keeps it: calls work, wakes are slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from runtime.clock import Clock
from runtime.cluster.ray_rpc import Channel, RpcFailed

__all__ = ["Raylet", "ThisRaylet", "WarmPool", "prestart", "top_up", "workers_to_ask_for"]

log = logging.getLogger(__name__)

# A used worker is missed after this long. Sooner would have the new one compete for the processor with the call that
# took the old one.
LOOK_SECONDS = 0.25
# Processes that are not idle are looked at again every so many times: an actor never becomes idle, a task does.
BUSY_LOOKS = 8
# How many may start at the same time; holder.py tells the raylet the same number, another Ray may start fewer.
STARTING_MAX = 4
# Between two requests after one that failed.
RETRY_SECONDS = 10.0
REQUEST_SECONDS_MAX = 3.0
# Ray ends idle workers after a second unless told to keep them; a pool is kept as long as the node lives.
KEEP_ALIVE_SECONDS = 10 * 365 * 86_400

NO_JOB = b"RAY_JOB_ID=ffffffff"
SERVICE, MESSAGES = "NodeManagerService", "node_manager_pb2"


class Raylet(Protocol):
    """The node's raylet, as far as the pool needs it. Both methods may block for milliseconds and may fail."""

    def count(self) -> tuple[int, int]:
        """How many workers without a job are idle, and how many are starting.

        Raises:
            OSError: It cannot be found out.
        """
        ...

    def prestart(self, count: int) -> None:
        """Ask for so many more; whether they come is seen by counting.

        Raises:
            RpcFailed: The raylet refused, or does not know the request.
        """
        ...


def workers_to_ask_for(wanted: int, idle: int, starting: int) -> int:
    """How many workers to ask for now: what is missing, as far as it may start at once."""
    return max(0, min(wanted - idle - starting, STARTING_MAX - starting))


class WarmPool:
    """Keeps ``count`` warm workers on this node for as long as ``run`` runs."""

    def __init__(self, count: int, raylet: Raylet | None = None) -> None:
        self.count = count
        self._raylet: Raylet = raylet or ThisRaylet()
        self._has_complained = False
        self._is_refused = False

    async def run(self, clock: Clock) -> None:
        """Refill until cancelled; never raises for Ray's sake."""
        while True:
            await self.top_up()
            await clock.sleep(RETRY_SECONDS if self._is_refused else LOOK_SECONDS)

    async def top_up(self) -> int:
        """Look once and ask for what is missing; returns how many are idle, 0 if that cannot be seen."""
        try:
            idle, starting = await asyncio.to_thread(self._raylet.count)
            missing = workers_to_ask_for(self.count, idle, starting)
            if missing:
                await asyncio.to_thread(self._raylet.prestart, missing)
            self._is_refused = False
            return idle
        except Exception as error:  # internals of Ray: whatever they raise, the pool is a comfort, not a need
            self._is_refused = True
            if not self._has_complained:
                self._has_complained = True
                log.warning("No warm workers, so the first call to an object takes longer: %s", error)
            return 0


class ThisRaylet:
    """The raylet of the node that this process runs on; the process must be connected to Ray."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._pid = 0
        self._looks = 0
        self._busy: set[int] = set()
        # What never changes in the life of a process.
        self._jobless: dict[int, bool] = {}

    def count(self) -> tuple[int, int]:
        """Idle and starting workers among the raylet's children."""
        if not self._pid:
            self._pid = _raylet_pid()
        if sys.platform != "linux":
            return _count_by_ps(self._pid)
        children = _children(self._pid)
        self._looks += 1
        self._busy = set() if self._looks % BUSY_LOOKS == 0 else self._busy & children
        self._jobless = {pid: known for pid, known in self._jobless.items() if pid in children}
        idle = starting = 0
        for pid in children - self._busy:
            with contextlib.suppress(OSError):  # ended meanwhile
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"--raylet_socket_name" in command:  # forked a moment ago, and for another one still the raylet
                    starting += 1
                    continue
                is_idle, is_starting = command.startswith(b"ray::IDLE"), b"default_worker.py" in command
                if not (is_idle or is_starting) or not self._is_jobless(pid):
                    self._busy.add(pid)
                idle += is_idle and pid not in self._busy
                starting += is_starting and pid not in self._busy
        return idle, starting

    def prestart(self, count: int) -> None:
        """Ask the raylet."""
        if self._channel is None:
            worker: Any = importlib.import_module("ray._private.worker")
            node = worker.global_worker.node
            self._channel = Channel(f"{node.node_ip_address}:{node.node_manager_port}", MESSAGES)
        _prestart(self._channel, count)

    def _is_jobless(self, pid: int) -> bool:
        if pid not in self._jobless:
            self._jobless[pid] = NO_JOB in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return self._jobless[pid]


def prestart(address: str, count: int) -> bool:
    """Ask the raylet at an address for warm workers, once; whether it took the request."""
    channel = Channel(address, MESSAGES)
    try:
        _prestart(channel, count)
    except RpcFailed:
        return False
    finally:
        channel.close()
    return True


async def top_up(count: int) -> int:
    """Look once at this node's warm workers and ask for what is missing; returns how many are idle."""
    return await WarmPool(count).top_up()


def _prestart(channel: Channel, count: int) -> None:
    channel.call(
        SERVICE,
        "PrestartWorkers",
        timeout=REQUEST_SECONDS_MAX,
        language=0,  # Python
        num_workers=count,
        keep_alive_duration_secs=KEEP_ALIVE_SECONDS,
    )


def _raylet_pid() -> int:
    # Ray puts it into the environment of every worker. A driver has no raylet above it and has to look.
    known = os.environ.get("RAY_RAYLET_PID", "")
    if known.isdigit():
        return int(known)
    worker: Any = importlib.import_module("ray._private.worker")
    socket = os.fsencode(worker.global_worker.node.raylet_socket_name)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"--raylet_socket_name=" + socket in (entry / "cmdline").read_bytes().split(
                b"\0"
            ):
                return int(entry.name)
    raise OSError("the raylet of this node is not among its processes")


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:  # the kernel keeps them by the thread that started them
        with contextlib.suppress(FileNotFoundError):
            found.update(int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def _count_by_ps(raylet_pid: int) -> tuple[int, int]:
    """Where there is no /proc: dearer, and workers of a job are counted as well."""
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,command="], capture_output=True, text=True, check=True)
    commands = [
        line.split(None, 1)[1] for line in listed.stdout.splitlines() if line.split(None, 1)[0] == str(raylet_pid)
    ]
    return (
        sum(command.startswith("ray::IDLE") for command in commands),
        sum("default_worker.py" in command for command in commands),
    )
