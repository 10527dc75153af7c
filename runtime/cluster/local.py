"""The own Ray of a data directory, seen from the outside: find it or start it, hold it, end it.

One data directory has at most one Ray of its own, run by a holder (``holder.py``). Who needs it calls
``ensure_local_ray``: it takes a shared lock that says "connected", then reads the state file; if a Ray lives there,
that is all. Else it starts a holder, under a second lock, so that of two scripts that start at once one starts Ray
and the other waits for it.

``hold`` and ``end`` are ``perdure up`` and ``perdure down``. ``end`` ends the processes of this Ray by their own pids;
``ray stop`` would end every Ray of the machine.

Connecting to what is found here is ``join.py``. This module imports no Ray.
"""

from __future__ import annotations

import os
import select
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from runtime.cluster.ray_files import FileLock, LocalRay, RayFiles
from runtime.cluster.ray_processes import end_processes, processes_of_session
from runtime.errors import ClusterUnreachable

__all__ = ["NAMESPACE", "Ended", "RayAddress", "RayStatus", "end", "ensure_local_ray", "hold", "status"]

NAMESPACE = "perdure"

IDLE_END_SECONDS = 60.0
# Ray gives its own processes 30 s each to answer; a loaded machine needs some of them.
START_SECONDS_MAX = 90.0
# A Ray that is ending needs about 1 s; workers that do not listen to SIGTERM make it 10.
END_SECONDS_MAX = 30.0
STATE_POLL_SECONDS = 0.05
HOLDER_LOCK_SECONDS = 1.0
# After so much silence people want to hear that it goes on.
PATIENCE_SECONDS = 5.0
LOG_BYTES_MAX = 1_000_000

Progress = Callable[[str], None]


class RayAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Ray is and what a process needs to join it.

    Attributes:
        address: ``host:port`` of its control service.
        namespace: Where the names of our actors live.
        env: Environment variables to set before ``import ray``; a wrong mode of authentication costs 20 s.
        session_dir: The folder with its logs.
    """

    address: str
    namespace: str = NAMESPACE
    env: dict[str, str] = {}
    session_dir: str = ""


class RayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the own Ray of a data directory."""

    is_running: bool
    is_held: bool
    ray: LocalRay | None
    log: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What ``end`` ended; ``processes`` are names and pids as a person reads them, empty if nothing ran."""

    processes: tuple[str, ...]
    seconds: float


def ensure_local_ray(
    data_dir: Path, *, on_progress: Progress | None = None, connected: FileLock | None = None
) -> RayAddress:
    """Find the own Ray of a data directory, or start it.

    Args:
        data_dir: The data directory; created if needed.
        on_progress: Gets a line of text at each step that may take longer than a moment.
        connected: The lock that keeps this Ray from ending, to be taken here and kept by the caller. Without it a Ray
            that nobody else uses ends after ``PERDURE_IDLE_END`` seconds (60).

    Raises:
        ClusterUnreachable: It could not be started; the message names the reason and the log.
    """
    files, say = RayFiles(data_dir), on_progress or _silent
    files.prepare()
    mine = connected or files.lock("connected")
    ending = "waiting for the previous local Ray to end"
    try:
        if not mine.take(shared=True, timeout=END_SECONDS_MAX, waiting=lambda: say(ending)):
            raise _unreachable(files, f"the previous one did not end within {END_SECONDS_MAX:g} s")
        ray = files.read()
        if ray is None or not ray.is_alive or not files.is_holder_alive:
            ray = _start_alone(files, say)
    except BaseException:
        mine.release()
        raise
    if connected is None:
        mine.release()
    return RayAddress(
        address=ray.address,
        env={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(files.token)},
        session_dir=ray.session_dir,
    )


def hold(data_dir: Path, *, on_progress: Progress | None = None) -> RayAddress:
    """Start the own Ray if needed and keep it until ``end``, whoever is connected (``perdure up``).

    Raises:
        ClusterUnreachable: It could not be started.
    """
    files = RayFiles(data_dir)
    files.prepare()
    files.held.touch()
    try:
        return ensure_local_ray(data_dir, on_progress=on_progress)
    except BaseException:
        files.held.unlink(missing_ok=True)
        raise


def end(data_dir: Path, *, on_progress: Progress | None = None) -> Ended:
    """End the own Ray of a data directory, even if it is in use; on return its processes are gone (``perdure down``).

    Live objects lose what they had not committed, as with any crash; their storage stays.

    Raises:
        ClusterUnreachable: Some of it is still there after 30 s; the message names the processes.
    """
    files, say, began = RayFiles(data_dir), on_progress or _silent, time.monotonic()
    if not files.folder.is_dir():
        return Ended(processes=(), seconds=0.0)
    start = files.lock("start")
    if not start.take(timeout=START_SECONDS_MAX, waiting=lambda: say("waiting for a start in progress")):
        raise _unreachable(files, "a start is in progress and does not come to an end")
    try:
        files.held.unlink(missing_ok=True)
        # A holder whose starter was killed may still be starting.
        ray = files.read() or _await_holder(files)
        if ray is None:
            return Ended(processes=(), seconds=time.monotonic() - began)
        say("ending the local Ray")
        session = processes_of_session(ray.session_dir)
        named = [ray.holder, *ray.processes]
        known = {process.pid for process in named}
        running = [p for p in [*named, *(p for p in session if p.pid not in known)] if p.is_alive]
        _end(files, ray)
        left = [process for process in running if process.is_alive]
        if left:
            raise _unreachable(files, f"still running: {', '.join(f'{p.name} ({p.pid})' for p in left)}")
        return Ended(
            processes=tuple(f"{process.name.strip()} ({process.pid})" for process in running),
            seconds=time.monotonic() - began,
        )
    finally:
        start.release()


def status(data_dir: Path) -> RayStatus:
    """What runs for a data directory; changes nothing, not even a missing folder."""
    files = RayFiles(data_dir)
    ray = files.read()
    return RayStatus(
        is_running=ray is not None and ray.is_alive and files.is_holder_alive,
        is_held=files.held.exists(),
        ray=ray,
        log=str(files.log),
    )


def _silent(_: str) -> None:
    """Nobody wants to know."""


def _unreachable(files: RayFiles, reason: str) -> ClusterUnreachable:
    return ClusterUnreachable(
        f"The local Ray of {files.data_dir} could not be reached: {reason}. Its log is {files.log}."
    )


def _start_alone(files: RayFiles, say: Progress) -> LocalRay:
    """Start Ray while nobody else does; find the one that another script started meanwhile."""
    start = files.lock("start")
    waiting = "another process is starting the local Ray"
    if not start.take(timeout=START_SECONDS_MAX, waiting=lambda: say(waiting)):
        raise _unreachable(files, f"another process has been starting it for {START_SECONDS_MAX:g} s")
    try:
        ray = _await_holder(files)
        if ray is not None:
            return ray
        stale = files.read()
        if stale is not None:
            _end(files, stale)
        began = time.monotonic()
        say("starting a local Ray (about 3 s; it stays for later scripts)")
        _start_holder(files, say)
        ray = files.read()
        if ray is None:
            raise _unreachable(files, "it ended as soon as it had started")
        say(f"the local Ray is ready ({time.monotonic() - began:.1f} s)")
        return ray
    finally:
        start.release()


def _await_holder(files: RayFiles) -> LocalRay | None:
    """The Ray of a holder that lives already, once it is ready; ``None`` if no holder lives.

    A holder without a ready Ray was started by a script that was killed in the middle, or it is about to end because
    a process of its Ray died.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while files.is_holder_alive:
        ray = files.read()
        if ray is not None and ray.is_alive:
            return ray
        if time.monotonic() > deadline:
            raise _unreachable(files, "its holder lives, but Ray does not answer; end it with `perdure down`")
        time.sleep(STATE_POLL_SECONDS)
    return None


def _start_holder(files: RayFiles, say: Progress) -> None:
    """Start a holder and return when its Ray is ready.

    Raises:
        ClusterUnreachable: The holder said why it failed, or died without a word.
    """
    lock = files.lock("holder")
    if not lock.take(timeout=HOLDER_LOCK_SECONDS):  # somebody may be looking whether it is free
        raise _unreachable(files, "another process has just begun to run it; try again")
    ours, theirs = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if files.log.exists() and files.log.stat().st_size > LOG_BYTES_MAX:
        flags |= os.O_TRUNC
    log = os.open(files.log, flags, 0o600)
    try:
        subprocess.run(
            # -P: a folder `runtime` in the caller's working directory must not be taken for ours.
            [
                sys.executable,
                "-P",
                "-m",
                "runtime.cluster.holder",
                *map(str, (files.data_dir, _idle_end(), theirs, lock.fd)),
            ],
            env=_holder_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs, lock.fd),
            start_new_session=True,
            check=False,
        )
        lock.release()  # the holder has it now
        os.close(theirs)
        theirs = -1
        _follow(files, ours, say)
    finally:
        lock.release()
        for fd in (ours, theirs, log):
            if fd >= 0:
                os.close(fd)


def _follow(files: RayFiles, fd: int, say: Progress) -> None:
    """Read what the holder reports until its Ray is ready; speak up when that takes longer than people expect."""
    began, text, doing = time.monotonic(), b"", "starting"
    while True:
        seconds = time.monotonic() - began
        if seconds > START_SECONDS_MAX:
            raise _unreachable(files, f"it is not ready after {START_SECONDS_MAX:g} s ({doing})")
        if not select.select([fd], [], [], PATIENCE_SECONDS)[0]:
            say(f"still {doing} ({seconds + PATIENCE_SECONDS:.0f} s)")
            continue
        got = os.read(fd, 65536)
        if not got:
            raise _unreachable(files, f"its holder ended without a word; last lines of the log: {_tail(files.log)}")
        text += got
        *lines, text = text.split(b"\n")
        for line in lines:
            kind, _, rest = line.decode(errors="replace").partition(" ")
            if kind == "ready":
                return
            if kind == "failed":
                raise _unreachable(files, rest)
            doing = rest


def _tail(path: Path) -> str:
    try:
        return " / ".join(path.read_text(errors="replace").strip().splitlines()[-3:])
    except OSError:
        return "(none)"


def _idle_end() -> float:
    text = os.environ.get("PERDURE_IDLE_END", "")
    try:
        return float(text) if text else IDLE_END_SECONDS
    except ValueError:
        return IDLE_END_SECONDS


def _holder_environment() -> dict[str, str]:
    """Our environment, in which every process of the new Ray finds our packages, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    env = dict(os.environ)
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH", "")])])
    return env


def _end(files: RayFiles, ray: LocalRay) -> None:
    """End a Ray: its holder, which ends the rest, then what the holder left or a dead one could not end."""
    ray.holder.signal(signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS_MAX
    while ray.holder.is_alive and time.monotonic() < deadline:
        time.sleep(STATE_POLL_SECONDS)
    end_processes([ray.holder, *ray.processes, *processes_of_session(ray.session_dir)])
    if files.read() == ray:
        files.state.unlink(missing_ok=True)
