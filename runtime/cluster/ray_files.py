"""What the own Ray of a data directory keeps on disk: who runs it, who uses it, where its logs are.

The holder (``holder.py``) is the process that runs Ray for one data directory. Everybody else learns about it from
``<data_dir>/ray``:

    ray.json        written by the holder once Ray answers, removed when Ray has ended
    holder.log      what the holder and Ray's start said; the first file to read when a start fails
    token           the secret that joins this Ray, mode 0600
    held            exists while ``perdure up`` holds Ray
    holder.lock     exclusive: the holder, for as long as it lives; it inherits the lock from its starter, so that
                    there is no moment in which a holder is on its way and the lock is free
    start.lock      exclusive: a script that looks for Ray or starts it
    connected.lock  shared: every connected process
    fibers.lock     shared: every instance with live fibers

The locks are flocks: the kernel releases them when their process dies, however it dies, so none is ever stale. A
script takes ``connected.lock`` *before* it reads ``ray.json``, and a holder that ends takes it exclusively first and
keeps it until Ray is gone: nobody joins a Ray that is about to end.

Ray's sockets and logs lie elsewhere, since the path of a unix socket has at most 107 bytes and a data directory may
be deep: in a folder of this user below the machine's temporary directory, named by a hash of the data directory.

This module imports no Ray.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from runtime.errors import ClusterUnreachable

__all__ = ["FileLock", "LocalRay", "Process", "RayFiles"]

# The folder's path plus "/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store" must stay below 108 bytes.
TEMP_PATH_BYTES_MAX = 40

LOCK_POLL_SECONDS = 0.02
PROBE_SECONDS = 0.002


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told apart from a later one with the same pid by the moment it started."""

    name: str
    pid: int
    started: str

    @classmethod
    def of(cls, name: str, pid: int) -> Process:
        """The process that has this pid now."""
        return cls(name=name, pid=pid, started=_started(pid))

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return bool(self.started) and _started(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class LocalRay(msgspec.Struct, frozen=True, kw_only=True):
    """A running own Ray, as its holder wrote it down."""

    address: str
    session_dir: str
    started_at_ms: int
    holder: Process
    processes: tuple[Process, ...]
    ray_version: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the holder and all processes of Ray's own still run."""
        return self.holder.is_alive and all(process.is_alive for process in self.processes)


class FileLock:
    """A flock on a file of its own. It lasts until ``release`` or the end of the process, whichever comes first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    @property
    def fd(self) -> int:
        """The descriptor that carries the lock, -1 if it is not held. A child that inherits it holds the lock too."""
        return self._fd

    def try_take(self, *, shared: bool = False) -> bool:
        """Take the lock if nobody holds it against us; waits for milliseconds at most."""
        if self._fd >= 0:
            return True
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # The holder takes a lock for an instant to see whether it is in use; that must not count as "held".
        for wait_seconds in (PROBE_SECONDS, PROBE_SECONDS, 0.0) if shared else (0.0,):
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(wait_seconds)
            else:
                self._fd = fd
                return True
        os.close(fd)
        return False

    def take(self, *, shared: bool = False, timeout: float, waiting: Callable[[], None] | None = None) -> bool:
        """Take the lock, for at most ``timeout`` seconds; ``waiting`` is called once if it is not free."""
        deadline = time.monotonic() + timeout
        while not self.try_take(shared=shared):
            if time.monotonic() > deadline:
                return False
            if waiting is not None:
                waiting()
                waiting = None
            time.sleep(LOCK_POLL_SECONDS)
        return True

    def release(self) -> None:
        """Give the lock back; without effect if it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RayFiles:
    """The files of one data directory's own Ray."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(os.path.abspath(data_dir))
        self.folder = self.data_dir / "ray"
        self.state = self.folder / "ray.json"
        self.log = self.folder / "holder.log"
        self.token = self.folder / "token"
        self.held = self.folder / "held"

    def lock(self, name: str) -> FileLock:
        """One of the locks above, not yet taken: ``holder``, ``start``, ``connected`` or ``fibers``."""
        return FileLock(self.folder / f"{name}.lock")

    def prepare(self) -> None:
        """Create the folder and the token.

        Raises:
            ClusterUnreachable: The data directory cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                # Complete from the start and never half-written: two first scripts may come at once.
                draft = self.folder / f"token.{os.getpid()}.{secrets.token_hex(4)}"
                fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(fd, secrets.token_hex(32).encode())
                os.close(fd)
                try:
                    os.link(draft, self.token)
                finally:
                    draft.unlink()
        except OSError as error:
            raise ClusterUnreachable(
                f"The data directory {self.data_dir} cannot be written: {error.strerror or error}. "
                "Choose another with data_dir= or PERDURE_DATA.",
                retryable=False,
            ) from error

    @property
    def is_holder_alive(self) -> bool:
        """Whether a holder lives; its lock says so, no pid is trusted."""
        if not self.folder.is_dir():
            return False
        probe = self.lock("holder")
        is_free = probe.try_take(shared=True)
        probe.release()
        return not is_free

    def read(self) -> LocalRay | None:
        """The state file; ``None`` if it is missing or unreadable (then it names nothing that could be ended)."""
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=LocalRay)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, ray: LocalRay) -> None:
        """Write the state file; readers see the old one or the new one."""
        draft = self.state.with_suffix(".draft")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(ray), indent=2))
        draft.replace(self.state)

    def temp_dir(self) -> Path:
        """The folder for Ray's sockets and logs, created if needed; only this user can read it.

        Raises:
            ClusterUnreachable: It exists and belongs to somebody else.
        """
        base = Path(tempfile.gettempdir())
        if len(os.fsencode(base)) > TEMP_PATH_BYTES_MAX - len(f"/perdure-{os.getuid()}/0123456789ab"):
            base = Path("/tmp")
        digest = hashlib.sha256(os.fsencode(self.data_dir.resolve())).hexdigest()[:12]
        home = base / f"perdure-{os.getuid()}"
        for folder in (home, home / digest):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            # Anybody may create names below /tmp: what is there must be a folder, not a link, and ours.
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise ClusterUnreachable(
                    f"{folder} belongs to somebody else; remove it or set TMPDIR.", retryable=False
                )
            folder.chmod(0o700)
        return home / digest


def _started(pid: int) -> str:
    """When the process started, as the system tells it; empty if there is none, or only a zombie."""
    if sys.platform == "linux":
        try:
            # The name, in brackets, may hold anything; the state is the first field after it, the start the 20th.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            return ""
        return "" if fields[0] in "ZX" else fields[19]
    found = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return "" if found.stdout.startswith("Z") else found.stdout.partition(" ")[2].strip()
