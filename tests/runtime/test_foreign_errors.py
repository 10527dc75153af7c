"""Every error of Ray and DuckDB becomes one of ours (style 6); a class that a later version adds turns this red."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest
import ray.exceptions

from runtime.cluster.transport import ray_error
from runtime.errors import (
    ClusterUnreachable,
    LockHeld,
    PerdureError,
    SqlError,
    StorageCorrupt,
    StorageFailed,
    Unavailable,
)
from runtime.storage.duckdb import _open_error, _statement_error
from runtime.transport import Died, Unreachable

# What a call learns when Ray raises this at its caller. PerdureError itself: a fault of ours or of Ray.
OF_RAY: dict[str, type[Exception]] = {
    "ActorAlreadyExistsError": PerdureError,
    "ActorDiedError": Died,
    "ActorHandleNotFoundError": PerdureError,
    "ActorPlacementGroupRemoved": ClusterUnreachable,
    "ActorUnavailableError": Unreachable,
    "ActorUnschedulableError": ClusterUnreachable,
    "AsyncioActorExit": PerdureError,
    "AuthenticationError": ClusterUnreachable,
    "CrossLanguageError": PerdureError,
    "GetTimeoutError": Unreachable,
    "LocalRayletDiedError": ClusterUnreachable,
    "NodeDiedError": Unreachable,
    "ObjectFetchTimedOutError": Unreachable,
    "ObjectFreedError": Unreachable,
    "ObjectLostError": Unreachable,
    "ObjectReconstructionFailedError": Unreachable,
    "ObjectRefStreamEndOfStreamError": PerdureError,
    "ObjectStoreFullError": StorageFailed,
    "OufOfBandObjectRefSerializationException": PerdureError,
    "OutOfDiskError": StorageFailed,
    "OutOfMemoryError": StorageFailed,
    "OwnerDiedError": Unreachable,
    "PendingCallsLimitExceeded": Unavailable,
    "PlasmaObjectNotAvailable": Unreachable,
    "RayActorError": Unreachable,
    "RayCgraphCapacityExceeded": ClusterUnreachable,
    "RayChannelError": ClusterUnreachable,
    "RayChannelTimeoutError": ClusterUnreachable,
    "RayDirectTransportError": ClusterUnreachable,
    "RayError": PerdureError,
    "RaySystemError": ClusterUnreachable,
    "RayTaskError": PerdureError,
    "ReferenceCountingAssertionError": Unreachable,
    "RpcError": ClusterUnreachable,
    "RuntimeEnvSetupError": ClusterUnreachable,
    "StreamingGeneratorReplayInconsistentError": ClusterUnreachable,
    "TaskCancelledError": Unreachable,
    "TaskPlacementGroupRemoved": ClusterUnreachable,
    "TaskUnschedulableError": ClusterUnreachable,
    "UnserializableException": PerdureError,
    "UserCodeException": PerdureError,
    "WorkerCrashedError": Unreachable,
}
# What a statement, and what opening a file, raises for this.
OF_DUCKDB: dict[str, tuple[type[Exception], type[Exception]]] = {
    "FatalException": (StorageFailed, StorageCorrupt),
    "InternalException": (StorageFailed, StorageCorrupt),
    "ResourceInUseException": (SqlError, LockHeld),
    "SerializationException": (StorageCorrupt, StorageCorrupt),
}
OF_A_STATEMENT = (SqlError, StorageCorrupt)
STATEMENT_ERRORS = [
    *("BinderException", "CatalogException", "ConnectionException", "ConstraintException", "ConversionException"),
    *("DataError", "DatabaseError", "DependencyException", "Error", "HTTPException", "IOException", "IntegrityError"),
    *("InternalError", "InterruptException", "InvalidInputException", "InvalidTypeException"),
    *("NotImplementedException", "NotSupportedError", "OperationalError", "OutOfMemoryException"),
    *("OutOfRangeException", "ParserException", "PermissionException", "ProgrammingError", "SequenceException"),
    *("SyntaxException", "TransactionException", "TypeMismatchException", "Warning"),
]
MADE_WITH = {
    "ActorUnavailableError": ("boom", None),
    "ObjectFetchTimedOutError": ("0f", None, "here"),
    "ObjectFreedError": ("0f", None, "here"),
    "ObjectLostError": ("0f", None, "here"),
    "ObjectReconstructionFailedError": ("0f",),
    "OwnerDiedError": ("0f", None, "here"),
    "RayTaskError": ("call", "boom", ValueError("boom")),
    "ReferenceCountingAssertionError": ("0f", None, "here"),
}


def exceptions_of(module: ModuleType) -> dict[str, type[Exception]]:
    return {
        name: found
        for name, found in vars(module).items()
        if inspect.isclass(found) and issubclass(found, Exception) and found.__module__.split(".")[0] != "builtins"
    }


def died(text: str) -> Exception:
    """As Ray tells of a death."""
    told: Any = vars(ray.exceptions)["ActorDiedErrorContext"]
    return ray.exceptions.ActorDiedError(told(error_message=text, actor_id=bytes(16)))


def test_every_error_of_ray_has_been_thought_of() -> None:
    assert sorted(exceptions_of(ray.exceptions)) == sorted(OF_RAY)


@pytest.mark.parametrize("name", sorted(OF_RAY))
def test_an_error_of_ray_becomes_one_of_ours(name: str) -> None:
    # runtime D37
    cls = exceptions_of(ray.exceptions)[name]
    if name == "CrossLanguageError":  # made from a message of another language
        error = cls.__new__(cls)
        Exception.__init__(error, "boom")
    else:
        error = died("boom") if name == "ActorDiedError" else cls(*MADE_WITH.get(name, ("boom",)))
    ours = ray_error(error, "Editor/drafts")
    assert type(ours) is OF_RAY[name]
    assert isinstance(ours, Died | Unreachable) or "Editor/drafts" in str(ours)


def test_a_connection_that_the_system_refuses_is_an_unreachable_cluster() -> None:
    assert type(ray_error(ConnectionRefusedError("port 6379"), "Editor/drafts")) is ClusterUnreachable


@pytest.mark.parametrize(
    ("text", "is_intended"),
    [("The actor exited: INTENDED_USER_EXIT", True), ("exit_actor() was called", True), ("SIGKILL", False)],
)
def test_an_actor_that_went_to_sleep_is_told_from_one_that_died(text: str, is_intended: bool) -> None:
    ours = ray_error(died(text), "Editor/drafts")
    assert isinstance(ours, Died)
    assert ours.is_intended is is_intended


def test_a_call_that_ray_will_not_queue_is_overloaded_and_not_to_be_repeated() -> None:
    # runtime D35
    ours = ray_error(ray.exceptions.PendingCallsLimitExceeded("boom"), "Editor/drafts")
    assert isinstance(ours, Unavailable)
    assert (ours.overloaded, ours.retryable) == (True, False)


def test_every_error_of_duckdb_has_been_thought_of() -> None:
    assert sorted(exceptions_of(duckdb)) == sorted([*OF_DUCKDB, *STATEMENT_ERRORS])


@pytest.mark.parametrize("name", sorted([*OF_DUCKDB, *STATEMENT_ERRORS]))
def test_an_error_of_duckdb_becomes_one_of_ours(name: str) -> None:
    # runtime D23
    error = exceptions_of(duckdb)[name]("boom")
    ours = (_statement_error(error, "SELECT 1"), _open_error(error, Path("agent.duckdb")))
    assert tuple(type(one) for one in ours) == OF_DUCKDB.get(name, OF_A_STATEMENT)
    assert "boom" in str(ours[0])
    assert "agent.duckdb" in str(ours[1])


@pytest.mark.parametrize(
    "text",
    ["IO Error: No space left on device", "Could not write to file: Disk quota exceeded", "Read-only file system"],
)
def test_a_disk_that_refuses_is_a_failed_storage_whatever_the_class(text: str) -> None:
    # runtime D9
    ours = (_statement_error(duckdb.IOException(text), "x"), _open_error(duckdb.IOException(text), Path("x")))
    assert [type(one) for one in ours] == [StorageFailed, StorageFailed]
