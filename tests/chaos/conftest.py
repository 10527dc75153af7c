"""One local Ray for all chaos tests of objects; each module joins it and leaves it again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import runtime
from runtime.cluster import local
from runtime.cluster.connect import Cluster
from runtime.cluster.ray_files import RayFiles
from runtime.errors import ConnectionLost
from runtime.ids import ObjectId

SECONDS_MAX = 60.0


@pytest.fixture(scope="session")
def ray_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a running Ray."""
    data_dir = tmp_path_factory.mktemp("chaos") / "data"
    try:
        local.hold(data_dir)
        yield data_dir
    finally:
        local.end(data_dir)
        shutil.rmtree(RayFiles(data_dir).temp_dir())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def joined(ray_data: Path) -> AsyncIterator[Cluster]:
    before = dict(os.environ)
    os.environ.pop("RAY_ADDRESS", None)
    try:
        async with runtime.connect(data_dir=ray_data, show_logs=False) as cluster:
            yield cluster
    finally:
        # What joining has set is not for the tests that come after.
        for name in [name for name in os.environ if name.startswith("RAY_") and name not in before]:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if name.startswith("RAY_")})


class Lab:
    """The cluster, and what can be done to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def get(self, cls: type, name: str) -> Any:
        return self.cluster.get(cls, name)

    def folder(self, stub: Any) -> Path:
        return self.cluster.data_dir / stub.object_id.folder

    async def pid(self, object_id: ObjectId) -> int | None:
        """The process of the live instance; None if there is none. Wakes nobody."""
        try:
            pong = await self.cluster.ping(object_id)
        except ConnectionLost:
            return None  # Ray is about to start it again
        return pong.pid if pong is not None else None

    async def kill(self, object_id: ObjectId) -> int:
        """Kill -9 the object's process; on return the kernel has let go of it."""
        pid = await self.pid(object_id)
        assert pid is not None, f"{object_id} has no process to kill"
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: is_gone(pid), f"process {pid} of {object_id} is gone")
        return pid

    async def put_to_sleep(self, stub: Any) -> None:
        """Hibernate the object; its log is folded into its database."""
        pid = await self.pid(stub.object_id)
        assert pid is not None
        evicted = await self.cluster.evict(stub.object_id)
        assert evicted is not None
        assert evicted.is_ending
        await eventually(lambda: is_gone(pid), f"process {pid} of {stub.object_id} is gone")


@pytest.fixture
def lab(joined: Cluster) -> Lab:
    return Lab(joined)


async def is_gone(pid: int) -> bool:
    """Whether the process has ended, waited for or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]  # noqa: ASYNC240  # no disk
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


async def eventually(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for other processes; they tell nobody."""
    deadline = time.monotonic() + SECONDS_MAX
    while not await is_so():
        assert time.monotonic() < deadline, f"not so after {SECONDS_MAX:g} s: {what}"
        await asyncio.sleep(0.02)
