"""Every error that perdure raises, grouped by what the catcher should do.

    PerdureError
      UsageError        fix the code; never retried
        InvalidId         a class or object name that cannot be an address
        UnknownMethod     the class has no such public method
        UnknownObject     a name or class that the directory does not know
        SqlError          a statement failed; carries ``query``; the platform's error is its cause
        StorageLimit      a value over the size limit; names the key and the size
      Unavailable       a retry may work (see ``retryable`` and ``overloaded``)
        LockHeld          another process still holds the object's files; names the holder
        LeaseLost         this instance is no longer the live one
        ConnectionLost    the other side died or cannot be reached
        StorageFailed     the disk refused a write (full, failing); nothing half-written
        WriteConflict     two transactions wrote the same row; the later one failed
        ObjectReset       the object was reset (abort, memory limit, failed start-up)
        ClusterUnreachable  Ray cannot be reached or started
      Corrupt           stop and ask a person
        StorageCorrupt    a database or write-ahead log that does not open
        JournalCorrupt    a journal entry that does not decode
      Sealed            recovery gave up; has ``incident``
      RemoteError       user code raised on the other side; has ``type_name``, ``remote_traceback``

``fibers.errors`` and ``agents.errors`` add leaves, never branches. Errors cross between processes as data
(``runtime.wire.Failure``), never as pickled exceptions.
"""

from __future__ import annotations

__all__ = [
    "ClusterUnreachable",
    "ConnectionLost",
    "Corrupt",
    "InvalidId",
    "JournalCorrupt",
    "LeaseLost",
    "LockHeld",
    "ObjectReset",
    "PerdureError",
    "RemoteError",
    "Sealed",
    "SqlError",
    "StorageCorrupt",
    "StorageFailed",
    "StorageLimit",
    "Unavailable",
    "UnknownMethod",
    "UnknownObject",
    "UsageError",
    "WriteConflict",
    "is_connection_lost",
    "is_memory_limit",
    "is_platform_transient",
    "is_superseded",
]

# D37: the reference looks through at most this many causes.
CAUSE_DEPTH_MAX = 8


class PerdureError(Exception):
    """Root of all errors of perdure.

    Attributes:
        remote: Raised by user code on the other side of a call.
        retryable: Safe to try again, with a new stub, if the work is idempotent.
        overloaded: The object has too much to do; never retry at once.
    """

    remote: bool = False
    retryable: bool = False
    overloaded: bool = False

    def __init__(self, message: str, *, retryable: bool | None = None, overloaded: bool | None = None) -> None:
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable
        if overloaded is not None:
            self.overloaded = overloaded

    @property
    def message(self) -> str:
        """The text alone, without the type's name."""
        return str(self.args[0]) if self.args else ""


class UsageError(PerdureError):
    """The calling code is wrong; trying again gives the same error."""


class InvalidId(UsageError):
    """A name that cannot be an address: empty, over 1,024 bytes, with NUL, or not text."""


class UnknownMethod(UsageError):
    """The class has no public method of that name."""


class UnknownObject(UsageError):
    """The directory knows no such class or object."""


class SqlError(UsageError):
    """An SQL statement failed; its effects are undone, those of earlier statements are not."""

    def __init__(self, message: str, *, query: str = "") -> None:
        super().__init__(message)
        self.query = query


class StorageLimit(UsageError):
    """A key and value over 2 MB."""


class Unavailable(PerdureError):
    """Not possible now; a retry may work if ``retryable``."""

    retryable = True


class LockHeld(Unavailable):
    """Another process holds the object's files; the message names it."""


class LeaseLost(Unavailable):
    """This instance is not the live one any more; its output is dropped."""


class ConnectionLost(Unavailable):
    """The other side died or cannot be reached; the work may or may not have been done."""


class StorageFailed(Unavailable):
    """The disk refused a write; everything acknowledged is still there."""


class WriteConflict(Unavailable):
    """Two open transactions wrote the same row; this one was rolled back."""


class ObjectReset(Unavailable):
    """The object lost its memory and its uncommitted writes; the next call starts it again."""


class ClusterUnreachable(Unavailable):
    """Ray cannot be reached or started; the message says what was tried."""


class Corrupt(PerdureError):
    """Stored data contradicts itself; nothing is changed until a person has looked."""


class StorageCorrupt(Corrupt):
    """A database file or write-ahead log that does not open."""


class JournalCorrupt(Corrupt):
    """A journal entry that does not decode."""


class Sealed(PerdureError):
    """Recovery gave the work up.

    Attributes:
        incident: What was interrupted and why it was given up, as stored.
    """

    def __init__(self, message: str, *, incident: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.incident = incident or {}


class RemoteError(PerdureError):
    """User code raised on the other side of a call.

    Attributes:
        type_name: Qualified name of the exception's class there.
        remote_traceback: The traceback there, as text.
    """

    remote = True

    def __init__(self, message: str, *, type_name: str, remote_traceback: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}"


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(found) < CAUSE_DEPTH_MAX:
        found.append(current)
        is_hidden = current.__cause__ is None and current.__suppress_context__  # raised `from None`
        current = None if is_hidden else current.__cause__ or current.__context__
    return found


def _says(error: BaseException, *phrases: str) -> bool:
    return any(phrase in str(cause).lower() for cause in _causes(error) for phrase in phrases)


def is_superseded(error: BaseException) -> bool:
    """Whether the instance was replaced by newer code.

    Source: https://developers.cloudflare.com/durable-objects/best-practices/error-handling/
    """
    return _says(error, "reset because its code was updated", "this script has been upgraded")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the other side of a call died or became unreachable."""
    return any(isinstance(cause, ConnectionLost) for cause in _causes(error)) or _says(error, "network connection lost")


def is_memory_limit(error: BaseException) -> bool:
    """Whether an object was reset because it exceeded its memory limit."""
    return any(isinstance(cause, MemoryError) for cause in _causes(error)) or _says(error, "exceeded its memory limit")


def is_platform_transient(error: BaseException) -> bool:
    """Whether the platform, not the application, failed in a way that passes."""
    if is_superseded(error) or is_connection_lost(error):
        return True
    if _says(error, "storage caused object to be reset"):
        return True
    return any(getattr(cause, "retryable", False) is True for cause in _causes(error))
