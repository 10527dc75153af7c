"""The single-writer lock of an object's folder.

One instance at a time may open an object's files. The guard on one machine is a flock on ``lock`` beside the
database: the kernel frees it with the process, however that ends. The file's text names the holder, for the error
that a second opener gets, and carries the epoch, which grows by one with each opening.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import msgspec

from runtime.clock import Clock
from runtime.errors import LockHeld, StorageFailed

__all__ = ["RETRY_SECONDS", "Lease", "open_lease"]

# How often a waiting opener looks again: a dying holder is gone within tens of milliseconds.
RETRY_SECONDS = 0.01


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the lock."""

    pid: int = 0
    epoch: int = 0
    opened_at_ms: int = 0


class Lease:
    """A held lock. ``epoch`` grows with each opening of the folder."""

    def __init__(self, descriptor: int, epoch: int, folder: Path) -> None:
        self._descriptor: int | None = descriptor
        self.epoch = epoch
        self.folder = folder
        self._is_synced = False

    def durable_epoch(self) -> int:
        """The epoch, once it is on disk: for those who compare it with what others remember of earlier ones.

        Not done at the opening, which need not cost a sync: a death of the process alone loses nothing of the file.
        """
        if not self._is_synced and self._descriptor is not None:
            os.fsync(self._descriptor)
            self._is_synced = True
        return self.epoch

    def release(self) -> None:
        """Free the folder for the next instance; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return Holder()


async def open_lease(folder: Path, clock: Clock, *, timeout: float) -> Lease:
    """Take the lock, waiting up to ``timeout`` seconds for a holder that is about to end.

    Raises:
        LockHeld: Still held after ``timeout``; names the holder. Retryable.
        StorageFailed: The folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # local and once a life: a thread costs more
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageFailed(f"the folder {folder} cannot be used: {error}. Check its permissions and space.") from error
    deadline = clock.now_ms() + int(timeout * 1000)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.now_ms() >= deadline:
                    pid = _holder(descriptor).pid
                    raise LockHeld(
                        f"{folder} is held by process {pid or 'unknown'} since before this call; waited {timeout:g} s. "
                        "Two instances never write one object: wait until that process has ended, or end it."
                    ) from None
                await clock.sleep(RETRY_SECONDS)
        epoch = _holder(descriptor).epoch + 1
        text = json.dumps({"pid": os.getpid(), "epoch": epoch, "opened_at_ms": clock.now_ms()}).encode()
        # One write of one block: a death in between leaves the old text or the new, both decode.
        os.pwrite(descriptor, text.ljust(128), 0)
    except OSError as error:
        os.close(descriptor)
        raise StorageFailed(f"the lock of {folder} cannot be written: {error}. Is the disk full?") from error
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(descriptor, epoch, folder)
