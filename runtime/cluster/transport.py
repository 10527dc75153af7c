"""``Transport`` over Ray: one detached, named actor for each live object.

Every error of Ray is turned into one of three words here: absent (no such actor), died (with the call under way), or
unreachable (it may live). Handles are kept by name and dropped with the first death.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from runtime.cluster.local import NAMESPACE
from runtime.errors import ClusterUnreachable, PerdureError, StorageFailed, Unavailable
from runtime.ids import ObjectId
from runtime.keeper import KEEPER_CLASS
from runtime.transport import Absent, Died, Retiring, Unreachable
from runtime.wire import Activation, encode

__all__ = ["LIFE", "RayTransport", "ray_error"]

# Batches under way to a reader; a stalled reader stops the producer after this many.
BACKPRESSURE_BATCHES = 16
# Calls beyond this wait inside Ray; the mailbox turns away long before.
CONCURRENCY_MAX = 20_000
LIFE = b"life"
# ActorTableData.ActorState of Ray.
DEAD = 4
# The errors of Ray that mean one thing to a caller.
CLUSTER = (
    ConnectionError,
    ray.exceptions.AuthenticationError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.RaySystemError,
    ray.exceptions.RpcError,
)
LOST = (
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.PlasmaObjectNotAvailable,
    ray.exceptions.WorkerCrashedError,
)
UNSCHEDULABLE = (
    ray.exceptions.ActorPlacementGroupRemoved,
    ray.exceptions.ActorUnschedulableError,
    ray.exceptions.RuntimeEnvSetupError,
    ray.exceptions.TaskPlacementGroupRemoved,
    ray.exceptions.TaskUnschedulableError,
)


def ray_error(error: BaseException, target: str) -> Exception:
    """Any error that Ray raised at a caller, in our words."""
    exceptions = ray.exceptions
    if isinstance(error, exceptions.ActorDiedError):
        text = str(error)
        is_intended = "INTENDED_USER_EXIT" in text or "exit_actor()" in text
        return Died("its process ended", is_intended=is_intended)
    if isinstance(error, exceptions.RayActorError | exceptions.GetTimeoutError):
        return Unreachable("its process does not answer")
    if isinstance(error, exceptions.TaskCancelledError):
        return Unreachable("the call was cancelled on its way")
    if isinstance(error, exceptions.PendingCallsLimitExceeded):
        return Unavailable(f"{target} is overloaded: too many calls are on their way", retryable=False, overloaded=True)
    if isinstance(error, UNSCHEDULABLE):
        return ClusterUnreachable(f"no node of the cluster can run {target}: {error}")
    if isinstance(error, LOST):
        return Unreachable(f"what it returned was lost with its node or process: {type(error).__name__}")
    if isinstance(error, exceptions.OutOfMemoryError | exceptions.OutOfDiskError | exceptions.ObjectStoreFullError):
        return StorageFailed(f"the machine of {target} has no memory or disk left: {error}")
    if isinstance(error, exceptions.RayTaskError):
        return PerdureError(f"perdure itself failed at {target}: {error}", retryable=False)
    if isinstance(error, CLUSTER):
        return ClusterUnreachable(f"the Ray cluster cannot be reached for {target}: {error}. Is it still running?")
    return PerdureError(f"unexpected error from Ray at {target}: {type(error).__name__}: {error}", retryable=False)


class RayTransport:
    """See ``runtime.transport.Transport``.

    Args:
        actor_class: Gives the class of the actors to create, as Ray knows it.
        lost: Says why Ray cannot be reached any more, None while it can. Ray itself would block for a minute.
    """

    def __init__(self, actor_class: Callable[[], Any], lost: Callable[[], Exception | None] = lambda: None) -> None:
        self._actor_class = actor_class
        self._lost = lost
        self._handles: dict[str, Any] = {}
        # Actors that have said they end. Ray answers a call to one only after a second (it waits for the death to be
        # reported), while its name is free after 30 ms.
        self._retired: dict[str, Any] = {}
        self._end: Exception | None = None
        self._pending: set[asyncio.Task[Any]] = set()

    def end(self, reason: Exception) -> None:
        """Carry nothing more: calls under way and calls to come end with ``reason``."""
        if self._end is None:
            self._end = reason
            for task in self._pending:
                task.cancel()

    def look(self) -> bool:
        """Whether Ray is still there; if not, this transport ends."""
        reason = self._lost()
        if reason is not None:
            self.end(reason)
        return reason is None

    async def call(self, target: ObjectId, data: bytes) -> bytes:
        """One call frame to the object's loop."""
        return await self._send(target, "call", data)

    async def control(self, target: ObjectId, data: bytes) -> bytes:
        """One control frame, to the actor's second loop."""
        return await self._send(target, "control", data)

    async def _send(self, target: ObjectId, method: str, data: bytes) -> bytes:
        handle = self._handle(target)
        try:
            reply: bytes = await self._awaited(getattr(handle, method).remote(data))
        except Exception as error:
            self._check()
            raise self._failed(error, target) from None
        return reply

    async def _awaited(self, answer: Any) -> Any:
        """What Ray answers; nothing more will come of it once this transport has ended."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._pending.add(task)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._end is not None and task.uncancel() == 0:
                raise self._end from None
            raise
        finally:
            self._pending.discard(task)

    def _check(self) -> None:
        if self._end is not None:
            raise self._end

    async def stream(self, target: ObjectId, data: bytes) -> AsyncGenerator[bytes, None]:
        """One call frame of an async generator method."""
        handle = self._handle(target)
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": BACKPRESSURE_BATCHES}
        items = None
        is_over = False
        try:
            items = handle.stream.options(**options).remote(data)
            while (reference := await self._awaited(anext(items, None))) is not None:
                yield await self._awaited(reference)
            is_over = True
        except Exception as error:
            is_over = True
            self._check()
            raise self._failed(error, target) from None
        finally:
            if items is not None and not is_over and self._end is None:
                # Dropping a Ray generator does not stop its producer.
                ray.cancel(items)

    async def activate(self, activation: Activation) -> None:
        """Create the actor, or find the one that lives."""
        self.look()
        self._check()
        target = activation.object_id
        is_keeper = target.class_name == KEEPER_CLASS
        try:
            handle = (
                self._actor_class()
                .options(
                    name=target.actor_name,
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    max_restarts=-1 if is_keeper else 0,
                    max_concurrency=CONCURRENCY_MAX,
                    num_cpus=0,
                    # A sub-agent lives on its root's node, where the files are. Soft affinity does not hold (measured).
                    scheduling_strategy=_on(activation.node),
                )
                .remote(encode(activation))
            )
            # Never awaited: it ends with the actor, see ``ObjectActor.control``.
            handle.control.remote(LIFE)
            self._handles[target.actor_name] = handle
        except Exception as error:
            raise ray_error(error, str(target)) from error

    def retired(self, target: ObjectId) -> None:
        """Send the present actor nothing more."""
        handle = self._handles.pop(target.actor_name, None)
        if handle is not None:
            self._retired[target.actor_name] = handle

    def _handle(self, target: ObjectId) -> Any:
        self._check()
        handle = self._handles.get(target.actor_name)
        if handle is not None and handle._get_local_state() == DEAD:  # told by Ray since the last call
            del self._handles[target.actor_name]
            handle = None
        if handle is None:
            self.look()
            self._check()
            try:
                handle = ray.get_actor(target.actor_name, namespace=NAMESPACE)
            except ValueError:
                raise Absent(f"{target} has no actor") from None
            except Exception as error:
                raise ray_error(error, str(target)) from error
            retired = self._retired.get(target.actor_name)
            if retired is not None:
                if retired == handle:
                    raise Retiring(f"{target} is about to end")
                del self._retired[target.actor_name]
            self._handles[target.actor_name] = handle
        return handle

    def _failed(self, error: Exception, target: ObjectId) -> Exception:
        ours = ray_error(error, str(target))
        if isinstance(ours, Died):
            self._handles.pop(target.actor_name, None)
        return ours


def _on(node: str) -> Any:
    return NodeAffinitySchedulingStrategy(node, soft=False) if node else None
