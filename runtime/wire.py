"""Structs that cross between processes, and the one codec for arguments, results and errors.

A call travels as ``CallFrame``, its answer as ``Returned``, ``Failure`` or ``Refused``, all msgpack. Arguments and
results inside are pickled values: both sides are the application's own processes, and pickle keeps what msgpack
loses (tuples, sets, dataclasses, keys that are not text). Errors are never pickled: they cross as ``Failure``.
"""

from __future__ import annotations

import logging
import pickle
import shlex
import traceback
from typing import Any

import cloudpickle
import msgspec

from runtime import errors
from runtime.ids import ObjectId, Step

__all__ = [
    "Activation",
    "CallFrame",
    "ClassRef",
    "Failure",
    "Refused",
    "Returned",
    "decode_call",
    "decode_reply",
    "decode_value",
    "encode",
    "encode_value",
    "error_from",
    "failure_from",
    "speak_for",
]

log = logging.getLogger("perdure.failures")

# A remote traceback is for reading; more than this is noise, and errors must stay small.
TRACEBACK_CHARACTERS_MAX = 20_000
MESSAGE_CHARACTERS_MAX = 100_000


class ClassRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where the code of a class comes from, so that any process can load it.

    ``module`` and ``import_root`` name an importable module; for a class of a ``__main__`` script ``pickled`` holds
    the class itself and ``origin`` the script.
    """

    name: str
    qualname: str
    module: str
    import_root: str = ""
    origin: str = ""
    pickled: bytes = b""
    pickled_hash: str = ""


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """All that a fresh process needs to become the instance of one object."""

    path: tuple[tuple[str, str], ...]
    cls: ClassRef
    data_dir: str
    node: str = ""

    @property
    def object_id(self) -> ObjectId:
        """The address of the object."""
        return ObjectId(tuple(Step(c, n) for c, n in self.path))


class CallFrame(msgspec.Struct, frozen=True, array_like=True):
    """One call. ``call_id`` is fresh for each call and the same in its retries; ``key`` is the idempotency key."""

    call_id: str
    method: str
    arguments: bytes
    key: str = ""
    caller: str = ""


class Returned(msgspec.Struct, frozen=True, tag="ok", array_like=True):
    """The method returned; ``value`` is what ``encode_value`` made of it."""

    value: bytes


class Failure(msgspec.Struct, frozen=True, tag="error", array_like=True):
    """An error as data. ``kind`` is the name of one of our classes; user errors have kind ``RemoteError``."""

    kind: str
    message: str
    type_name: str = ""
    traceback: str = ""
    retryable: bool = False
    overloaded: bool = False
    fields: dict[str, Any] = {}


class Refused(msgspec.Struct, frozen=True, tag="refused", array_like=True):
    """Nothing was run: the instance is going away. The caller activates the object again and repeats the call."""

    reason: str


_encoder = msgspec.msgpack.Encoder()
_call_decoder = msgspec.msgpack.Decoder(CallFrame)
_reply_decoder = msgspec.msgpack.Decoder(Returned | Failure | Refused)


def encode(value: object) -> bytes:
    """Any of the Structs above as bytes."""
    return _encoder.encode(value)


def decode_call(data: bytes) -> CallFrame:
    """A call frame from its bytes."""
    return _call_decoder.decode(data)


def decode_reply(data: bytes) -> Returned | Failure | Refused:
    """An answer from its bytes."""
    reply: Returned | Failure | Refused = _reply_decoder.decode(data)
    return reply


def encode_value(value: object, *, what: str) -> bytes:
    """Copy a value into bytes.

    Args:
        value: Arguments or a result.
        what: Names the value in the error, for example ``the arguments of Editor.delegate``.

    Raises:
        UsageError: The value cannot be pickled (an open file, a lock, a socket).
    """
    try:
        # Plain pickle is in C and 20 us faster; what it would only name by a script's __main__, or cannot pickle at
        # all (lambdas), cloudpickle copies whole.
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception:  # the second try says what is wrong
            data = b"__main__"
        if b"__main__" in data:
            data = cloudpickle.dumps(value, protocol=5)
        return data
    except Exception as error:
        raise errors.UsageError(
            f"{what} cannot be copied to another process: {error}. Pass plain data (text, numbers, lists, dicts, "
            "dataclasses) instead of open files, locks, sockets or running tasks."
        ) from error


def decode_value(data: bytes, *, what: str) -> Any:  # the codec: the value's type is the user's
    """The value that ``encode_value`` copied.

    Raises:
        UsageError: A class in it cannot be imported or rebuilt here.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise errors.UsageError(
            f"{what} cannot be read in this process: {type(error).__name__}: {error}. "
            "The classes in it must be importable on both sides."
        ) from error


def _known() -> dict[str, type[errors.PerdureError]]:
    found: dict[str, type[errors.PerdureError]] = {}
    todo: list[type[errors.PerdureError]] = [errors.PerdureError]
    while todo:
        cls = todo.pop()
        found.setdefault(cls.__name__, cls)
        todo.extend(cls.__subclasses__())
    return found


# Whose process this is; empty in scripts, and where many objects share a process.
_speakers: list[str] = []


def speak_for(object_name: str) -> None:
    """Errors that leave this process from now on name this object, so that people know whose log to read."""
    _speakers[:] = [object_name]


def failure_from(error: BaseException) -> Failure:
    """An exception as data; never raises, whatever the exception's own methods do.

    An error of user code, or of ours that should not be, is logged with its traceback: its caller sees one line.
    """
    spoken: dict[str, Any] = {"object_name": _speakers[0]} if _speakers else {}
    try:
        message = str(error.args[0]) if isinstance(error, errors.PerdureError) and error.args else str(error)
    except Exception:  # a broken __str__ must not hide the error itself
        message = "(its message cannot be shown)"
    message = message[:MESSAGE_CHARACTERS_MAX]
    if isinstance(error, errors.RemoteError):
        passed = {k: v for k, v in vars(error).items() if k == "object_name"}  # it keeps where it was raised
        return Failure("RemoteError", message, error.type_name, error.remote_traceback, fields=spoken | passed)
    if isinstance(error, errors.PerdureError):
        fields = spoken | {k: v for k, v in vars(error).items() if isinstance(v, str | int | float | bool | dict)}
        kind = type(error)
        while kind.__module__.split(".")[0] not in {"runtime", "fibers", "agents"}:
            kind = kind.__mro__[1]
        return Failure(kind.__name__, message, "", "", error.retryable, error.overloaded, fields)
    try:
        text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS_MAX:]
    except Exception:  # same as above
        text = ""
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    log.error("%s", text.rstrip() or f"{name}: {message}")
    return Failure("RemoteError", message, name, text, fields=spoken)


def error_from(failure: Failure) -> errors.PerdureError:
    """The exception to raise for a failure that came from another process."""
    if failure.kind == "RemoteError":
        remote = errors.RemoteError(failure.message, type_name=failure.type_name, remote_traceback=failure.traceback)
        for key, value in failure.fields.items():
            setattr(remote, key, value)
            remote.add_note(f"raised in {value}; the traceback is in its log: perdure logs {shlex.quote(str(value))}")
        return remote
    cls = _known().get(failure.kind, errors.PerdureError)
    error = cls.__new__(cls)
    Exception.__init__(error, failure.message)
    for key, value in failure.fields.items():
        setattr(error, key, value)
    error.retryable, error.overloaded = failure.retryable, failure.overloaded
    return error
