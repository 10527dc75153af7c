"""``connect()``: a script's way in."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from runtime.clock import SystemClock
from runtime.cluster.actor import actor_class
from runtime.cluster.join import connect_ray, disconnect_ray, own_ray
from runtime.cluster.logs import LogTail
from runtime.cluster.quiet import silence_raylet
from runtime.cluster.transport import RayTransport
from runtime.control import Evict, Evicted, Ping, Pong, decode_answer
from runtime.errors import ClusterUnreachable, ConnectionLost, UnknownObject, UsageError
from runtime.ids import ObjectId
from runtime.keeper import KeeperClient, Known
from runtime.stub import Caller, make_stub, use_caller
from runtime.transport import Absent, Died, Retiring, Unreachable
from runtime.wire import CallFrame, ClassRef, encode, encode_value

__all__ = ["Cluster", "connect", "data_directory"]

T = TypeVar("T")

# How soon a script learns that the local Ray is gone.
WATCH_SECONDS = 0.5
# The processes without which no call arrives.
NEEDED = frozenset(("gcs_server", "raylet"))


def data_directory(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where objects live: the argument, else PERDURE_DATA, else ``./.perdure``; absolute."""
    return Path(data_dir or os.environ.get("PERDURE_DATA") or ".perdure").expanduser().resolve()


class Cluster:
    """A connection to all objects of one data directory."""

    def __init__(self, caller: Caller, keeper: KeeperClient, data_dir: Path) -> None:
        self._caller = caller
        self._keeper = keeper
        self.data_dir = data_dir

    def get(self, cls: type[T], name: str) -> T:
        """A stub of a root object, typed as its class. Nothing starts until its first call.

        Raises:
            InvalidId: The name cannot be an address.
            UsageError: ``cls`` is no class of durable objects.
        """
        return make_stub(cls, ObjectId.root(getattr(cls, "__name__", str(cls)), name), self._caller)

    def stub(self, cls: type[T], object_id: ObjectId) -> T:
        """A stub of any object, sub-agents too."""
        return make_stub(cls, object_id, self._caller)

    async def list_objects(self) -> list[Known]:
        """All objects of the directory, oldest first."""
        found: list[Known] = await self._keeper.ask("list_objects")
        return found

    async def find_class(self, name: str) -> ClassRef:
        """Where a class comes from, by its name alone."""
        found: ClassRef = await self._keeper.ask("find_class", name)
        return found

    async def ping(self, object_id: ObjectId) -> Pong | None:
        """The state of the live instance; None if there is none."""
        answer = await self._ask(object_id, Ping())
        assert answer is None or isinstance(answer, Pong)
        return answer

    async def evict(self, object_id: ObjectId) -> Evicted | None:
        """Hibernate the instance now unless something keeps it awake; None if there is none."""
        answer = await self._ask(object_id, Evict())
        assert answer is None or isinstance(answer, Evicted)
        return answer

    async def ask(self, object_id: ObjectId, method: str) -> Any:
        """Call an idempotent method without arguments; for tools that do not load the object's class."""
        ref = await self.find_class(object_id.class_name)
        frame = CallFrame(uuid4().hex, method, encode_value(((), {}), what="nothing"))
        return await self._caller.invoke(object_id, ref, frame, is_repeatable=True)

    async def _ask(self, object_id: ObjectId, question: Any) -> Any:
        try:
            return decode_answer(await self._caller.transport.control(object_id, encode(question)))
        except (Absent, Died, Retiring):
            return None
        except Unreachable as error:
            raise ConnectionLost(f"{object_id} cannot be reached: {error}") from None


@asynccontextmanager
async def connect(
    address: str | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    show_logs: bool = True,
    on_progress: Callable[[str], None] | None = None,
) -> AsyncGenerator[Cluster, None]:
    """Connect a script to its objects.

    Args:
        address: A Ray to join; by default RAY_ADDRESS, else the local Ray of the data directory, which is started if
            it does not run and ends 60 s after nobody needs it any more.
        data_dir: Where objects live; by default PERDURE_DATA, else ``./.perdure``.
        show_logs: Write what the called agents print and log to standard error.
        on_progress: Gets lines that say what is being waited for; by default they go to standard error.

    Raises:
        ClusterUnreachable: No Ray answers, or none can be started; says what was tried.
    """
    folder = data_directory(data_dir)
    say = on_progress or (lambda text: print(f"perdure: {text}", file=sys.stderr, flush=True))
    silence_raylet()
    await asyncio.to_thread(connect_ray, folder, address, on_progress=say)
    tail: LogTail | None = None
    transport: RayTransport | None = None
    watch: asyncio.Future[None] | None = None
    keeper_start: asyncio.Future[Any] | None = None
    try:
        transport = RayTransport(actor_class, _lost(folder))
        watch = asyncio.ensure_future(_watch(transport))
        caller = Caller(transport, SystemClock(), str(folder))
        keeper = KeeperClient(caller)
        caller.register = keeper.register_class
        use_caller(caller)
        # Not awaited: the first call needs the keeper and its warm workers, connecting does not.
        keeper_start = asyncio.ensure_future(keeper.ask("perdure_started"))
        if show_logs:
            tail = LogTail(folder, caller.touched, sys.stderr)
            tail.start()
        yield Cluster(caller, keeper, folder)
    finally:
        use_caller(None)
        for task in (watch, keeper_start):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if transport is not None:
            transport.end(
                UsageError("the connection is closed: use stubs inside of their `async with connect()` block")
            )
        if tail is not None:
            await asyncio.to_thread(tail.stop)
        disconnect_ray()


async def _watch(transport: RayTransport) -> None:
    """Tell callers when Ray ends under them; Ray itself takes a minute to notice."""
    clock = SystemClock()
    while transport.look():
        await clock.sleep(WATCH_SECONDS)


def _lost(folder: Path) -> Callable[[], Exception | None]:
    """Says whether the own Ray of the data directory has ended; of another Ray nothing is known."""
    ray = own_ray()
    needed = [process for process in ray.processes if process.name in NEEDED] if ray is not None else []

    def lost() -> Exception | None:
        if all(process.is_alive for process in needed):
            return None
        return ClusterUnreachable(
            f"the local Ray of {folder} has ended (by `perdure down`, or its processes were killed). What was "
            "acknowledged is on disk: connect again, and work that was under way goes on."
        )

    return lost


def unknown(object_id: ObjectId) -> UnknownObject:
    """The error for an object that was never created."""
    return UnknownObject(f"{object_id} does not exist here; `perdure list` shows what does.")
