"""A second instance of a live object, started past everything that keeps there from being one.

Stubs and the keeper find an object by its actor's name, so they never start a second one. Here an actor of another
name is told to be the same object, while the first is paused and then goes on: what is left is the lock of the folder,
which must refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from typing import Any

import ray

from benchmarks.kill.application import Ledger
from runtime import ObjectId
from runtime.classes import class_ref
from runtime.cluster.actor import actor_class
from runtime.cluster.connect import Cluster
from runtime.cluster.local import NAMESPACE
from runtime.cluster.ray_files import Process
from runtime.wire import Activation, CallFrame, Failure, decode_reply, encode, encode_value

__all__ = ["send_rival"]

# Long enough for an unhindered rival to open and write; the first one's callers wait meanwhile.
PAUSE_SECONDS = 0.6
ANSWER_SECONDS_MAX = 20.0
ROWS = 20


async def send_rival(cluster: Cluster, first: Process) -> str:
    """Let a second instance of ``Ledger/main`` write while the first lives; returns what came of it."""
    name = f"rival-{uuid.uuid4().hex[:8]}"
    path = tuple((step.class_name, step.name) for step in ObjectId.root("Ledger", "main").path)
    activation = Activation(path=path, cls=class_ref(Ledger), data_dir=str(cluster.data_dir))
    options = {"name": name, "namespace": NAMESPACE, "max_concurrency": 100, "num_cpus": 0}
    second: Any = actor_class().options(**options).remote(encode(activation))
    frame = CallFrame(uuid.uuid4().hex, "write_many", encode_value(((name, ROWS), {}), what="a rival's rows"))
    first.signal(signal.SIGSTOP)
    try:
        answer = asyncio.ensure_future(_answer(second, encode(frame)))
        await asyncio.wait({answer}, timeout=PAUSE_SECONDS)
    finally:
        first.signal(signal.SIGCONT)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reply = decode_reply(await answer)
        if isinstance(reply, Failure):
            return f"refused, {reply.kind}"
        # It got in: there are two now, and only the newer has the files. Callers shall find one again.
        await asyncio.sleep(PAUSE_SECONDS)
        first.signal(signal.SIGKILL)
        return "it wrote"
    finally:
        with contextlib.suppress(Exception):  # it may have ended by itself
            ray.kill(second)


async def _answer(actor: Any, data: bytes) -> bytes:
    reply: bytes = await actor.call.remote(data)
    return reply
