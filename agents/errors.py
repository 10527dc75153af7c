"""Errors of the agents package: leaves on the branches of ``runtime.errors``.

UsageError
ModelRefused        the model's service refuses the request itself (400, 401, 403, 404, 413); never retried
ToolInputInvalid    a tool's definition or its input does not fit its schema
TurnNotAllowed      a turn was asked for from inside a running turn of the same agent
UnknownTurn         no stream is kept for that request id
WorkspaceError      a workspace operation is impossible; has ``code`` (ENOENT, EISDIR, ...) and ``path``
Unavailable
ModelOverloaded     429, 503, 529 or an ``overloaded_error``; ``retry_after`` in seconds if the service gave one
ModelConnectionLost refused, reset, timed out, cut in mid-stream, or an answer that is not the protocol
PerdureError
TurnFailed          a turn ended in an error; the text is what the client sees
TurnAborted         a turn was cancelled; has ``reason``
"""

from __future__ import annotations

from runtime.errors import PerdureError, Unavailable, UsageError

__all__ = [
    "ModelConnectionLost",
    "ModelOverloaded",
    "ModelRefused",
    "ToolInputInvalid",
    "TurnAborted",
    "TurnFailed",
    "TurnNotAllowed",
    "UnknownTurn",
    "WorkspaceError",
]


class ModelRefused(UsageError):
    """The model's service refuses this request; the same request is refused again."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ModelOverloaded(Unavailable):
    """The model's service has too much to do."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelConnectionLost(Unavailable):
    """The connection to the model's service failed, or what came was not its protocol."""


class ToolInputInvalid(UsageError):
    """A tool's definition or input does not fit its schema; the message names the place and what is allowed."""


class TurnNotAllowed(UsageError):
    """A turn was asked for from inside a running turn of the same agent."""


class UnknownTurn(UsageError):
    """No stream is kept for that request id."""


class WorkspaceError(UsageError):
    """A workspace operation is impossible; the message begins with the code, as a file system's does.

    Attributes:
        code: ENOENT, EEXIST, EISDIR, ENOTDIR, ENOTEMPTY, EPERM, EINVAL, ENAMETOOLONG, ELOOP or EFBIG.
        path: The path as it was given.
    """

    def __init__(self, code: str, what: str, *, path: str = "") -> None:
        super().__init__(f"{code}: {what}")
        self.code = code
        self.path = path


class TurnFailed(PerdureError):
    """A turn ended in an error; the message is what the client sees."""


class TurnAborted(PerdureError):
    """A turn was cancelled."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason
