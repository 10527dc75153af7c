"""The thin shell that makes a Ray actor the instance of one object. All behaviour is in ``Host``.

The actor has two loops: the object's own, and one for control frames that answers while user code blocks the first.
It is created with nothing but an ``Activation``; what can fail (loading the class, opening files) fails in the first
call, as an answer, not in the constructor, where Ray would only report a dead actor.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import ray

from runtime.classes import load_class
from runtime.clock import SystemClock
from runtime.cluster.logs import capture_output
from runtime.cluster.pool import WarmPool
from runtime.cluster.ray_files import FileLock, RayFiles
from runtime.cluster.serve import node_service
from runtime.cluster.transport import LIFE, RayTransport
from runtime.control import Broken
from runtime.host import FIRST_CALL_SECONDS_MAX, Host
from runtime.instance import Platform
from runtime.keeper import KEEPER_CLASS, KeeperClient
from runtime.storage.duckdb import open_store
from runtime.stub import Caller, use_caller
from runtime.wire import Activation, CallFrame, encode, encode_value, failure_from

__all__ = ["ObjectActor", "actor_class"]

log = logging.getLogger("perdure")
# Control frames under way: one watch, one life for each creator that raced, and what people ask.
CONTROL_CONCURRENCY = 128
EXIT = b"exit"
# After a reset: how long its calls may take to end with an error, and Ray to send the last answer.
ANSWERING_SECONDS_MAX = 1.0
SENDING_SECONDS = 0.05
# 55 to 61 MB each; a wake or a recovery takes one, and the next is ready half a second to some seconds later.
WARM_WORKERS = 4


class ObjectActor:
    """One object's process. Three ways in: calls, streams, and control frames on a loop of their own."""

    def __init__(self, activation: bytes) -> None:
        self._activation = msgspec.msgpack.decode(activation, type=Activation)
        capture_output(self._activation)
        self._host: Host | None = None
        self._making = threading.Lock()
        self._fibers: FileLock | None = None
        self._life: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._lives = 0
        self._pool: asyncio.Future[None] | None = None
        # An asynchronous actor is made on the loop that its methods run on. A call to itself from here is lost now and
        # then, so it starts by other means. The keeper at once: Ray restarts it, but calls nothing.
        is_keeper = self._activation.cls.name == KEEPER_CLASS
        self._start = asyncio.ensure_future(self._started(0.0 if is_keeper else FIRST_CALL_SECONDS_MAX))

    async def call(self, data: bytes) -> bytes:
        """One call frame in, one reply frame out."""
        try:
            host = self._host or self._made()
        except Exception as error:
            return encode(failure_from(error))
        self._keep_pool()
        return await host.mailbox.call(data)

    async def stream(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """One call frame in, reply frames out."""
        try:
            host = self._host or self._made()
        except Exception as error:
            yield encode(failure_from(error))
            return
        items = host.mailbox.stream(data)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    @ray.method(concurrency_group="ctl")
    async def control(self, data: bytes) -> bytes:
        """One control frame, or one of two words.

        Ray ends an actor by intent, so that queued calls are known not to have run, only from inside a call. ``life``
        is the call that waits for that moment; whoever creates the actor sends it.
        """
        if data == EXIT:
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        if data == LIFE:
            self._lives += 1
            try:
                await asyncio.shield(asyncio.wrap_future(self._life))
            finally:
                self._lives -= 1
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        try:
            host = self._host or self._made()
        except Exception as error:
            return encode(Broken(failure_from(error)))
        return await host.control(data)

    async def _started(self, seconds: float) -> None:
        """Start also if the call for which this process was made never comes: it starts, it ends, it does its work."""
        await asyncio.sleep(seconds)
        if self._host is None or self._host.loop is None:
            frame = CallFrame(uuid4().hex, "perdure_started", encode_value(((), {}), what="nothing"))
            await self.call(encode(frame))

    def _made(self) -> Host:
        # A call and a control frame come on two threads; they must not make two hosts.
        with self._making:
            return self._host or self._make()

    def _make(self) -> Host:
        activation = self._activation
        cls = load_class(activation.cls)
        clock = SystemClock()
        caller = Caller(RayTransport(actor_class), clock, activation.data_dir)
        keeper = None if activation.cls.name == KEEPER_CLASS else KeeperClient(caller)
        caller.register = keeper.register_class if keeper is not None else None
        caller.home = (activation.object_id.root_id, ray.get_runtime_context().get_node_id())
        use_caller(caller)
        platform = Platform(
            clock=clock,
            caller=caller,
            keeping=keeper,
            open_store=open_store,
            on_end=self._on_end,
            hold_fibers=self._hold_fibers,
            service=node_service,
        )
        self._host = Host(activation, cls, platform)
        return self._host

    def _keep_pool(self) -> None:
        # The one process that lives as long as the cluster is used also keeps its workers warm.
        if self._pool is None and self._activation.cls.name == KEEPER_CLASS:
            self._pool = asyncio.ensure_future(WarmPool(_warm_workers()).run(SystemClock()))

    def _on_end(self, reason: str, was_idle: bool) -> None:
        self._hold_fibers(False)
        if not was_idle:
            # Callers must not take this for a hibernation: their calls may have run.
            threading.Thread(target=self._exit_when_answered, daemon=True).start()
            return
        if self._lives:
            self._life.set_result(None)
            return
        # Its creator died before it could send ``life``. A call of one's own works too, but Ray then waits more than a
        # second for the answer of that very call before it lets the name go.
        myself = ray.get_runtime_context().current_actor
        myself.control.remote(EXIT)

    def _exit_when_answered(self) -> None:
        """End the process as an accident does, as soon as everybody who waits has been told why."""
        until = time.monotonic() + ANSWERING_SECONDS_MAX
        host = self._host
        while host is not None and (host.mailbox.calls or host.mailbox.streams) and time.monotonic() < until:
            time.sleep(SENDING_SECONDS / 10)
        time.sleep(SENDING_SECONDS)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _hold_fibers(self, is_live: bool) -> None:
        if not is_live and self._fibers is None:
            return
        try:
            if self._fibers is None:
                self._fibers = RayFiles(Path(self._activation.data_dir)).lock("fibers")
            if is_live:
                self._fibers.try_take(shared=True)
            else:
                self._fibers.release()
        except OSError as error:
            log.warning("the local Ray cannot be told that work lives here: %s", error)


def _warm_workers() -> int:
    text = os.environ.get("PERDURE_WARM_WORKERS", "")
    return int(text) if text.isdigit() else WARM_WORKERS


@functools.cache
def actor_class() -> Any:  # Ray's decorated classes have no useful type
    """``ObjectActor`` as Ray knows it."""
    remote: Any = ray.remote  # its overloads do not know concurrency groups
    return remote(concurrency_groups={"ctl": CONTROL_CONCURRENCY})(ObjectActor)
