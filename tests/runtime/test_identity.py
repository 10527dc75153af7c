"""One object for each address, and one instance at most (runtime D1-D3)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from runtime import DurableObject, ObjectId
from runtime.errors import ConnectionLost, InvalidId, LockHeld
from runtime.storage.duckdb import DATABASE_NAME
from runtime.testing import LocalCluster


class Box(DurableObject):
    """Keeps one thing."""

    async def put(self, thing: object) -> None:
        await self.ctx.storage.put("thing", thing)

    async def get(self) -> object:
        return await self.ctx.storage.get("thing")

    async def called(self) -> str:
        return self.name

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def put_after(self, seconds: float, thing: object) -> None:
        await asyncio.sleep(seconds)
        await self.ctx.storage.put("thing", thing)


class Crate(Box):
    """Another class, for the same names."""


class Patient(Box):
    """Waits long for its files."""

    options: ClassVar[dict[str, object]] = {"open_timeout": 60.0}


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# D1


async def test_the_same_pair_is_the_same_object(cluster: LocalCluster) -> None:
    # D1
    await cluster.get(Box, "a").put(1)
    assert await cluster.get(Box, "a").get() == 1


async def test_another_name_is_another_object(cluster: LocalCluster) -> None:
    # D1
    await cluster.get(Box, "a").put(1)
    assert await cluster.get(Box, "b").get() is None


async def test_classes_may_share_a_name(cluster: LocalCluster) -> None:
    # D1
    await cluster.get(Box, "a").put(1)
    assert await cluster.get(Crate, "a").get() is None


async def test_names_are_case_sensitive(cluster: LocalCluster) -> None:
    # D1
    await cluster.get(Box, "a").put(1)
    assert await cluster.get(Box, "A").get() is None


async def test_a_child_is_another_object_than_a_root_of_its_name(cluster: LocalCluster) -> None:
    # D1
    child = ObjectId.root("Box", "parent").child("Box", "a")
    await cluster.get(Box, "a").put(1)
    assert await cluster.stub(Box, child).get() is None


@pytest.mark.parametrize(
    "name",
    [
        "x" * 1024,
        "é" * 512,
        "a/b",
        "/",
        "..",
        ".",
        "🜁",
        " ",
        "a\nb",
        "~",
        "a > b",
        "\\",
        "'; DROP TABLE cf_kv; --",
    ],
)
async def test_any_name_of_1_to_1024_bytes_works(cluster: LocalCluster, name: str) -> None:
    # D1
    box = cluster.get(Box, name)
    await box.put(1)
    cluster.kill(box)
    assert (await box.get(), await box.called()) == (1, name)


@pytest.mark.parametrize("name", ["..", "a/../../b", "/etc", "x" * 1024])
async def test_no_name_leads_out_of_the_data_directory(cluster: LocalCluster, tmp_path: Path, name: str) -> None:
    # D1
    await cluster.get(Box, name).put(1)
    files = {path.relative_to(tmp_path).parts[:2] for path in files_of(tmp_path)}
    assert files == {("objects", "Box"), ("objects", "PerdureKeeper")}


@pytest.mark.parametrize("name", ["", "x" * 1025, "é" * 513, "a\x00b", "\ud800", 7, None, b"bytes"])
async def test_what_cannot_be_a_name_is_refused_before_anything_starts(cluster: LocalCluster, name: object) -> None:
    # D1
    with pytest.raises(InvalidId):
        cluster.get(Box, name)  # type: ignore[arg-type]
    assert cluster.effects == []


async def test_the_files_say_in_clear_whose_they_are(cluster: LocalCluster, tmp_path: Path) -> None:
    # D1: a hash in a path is for machines
    await cluster.get(Box, "a/ü").put(1)
    (found,) = (path for path in files_of(tmp_path / "objects" / "Box") if path.name == "id.json")
    assert json.loads(found.read_text()) == {"path": [["Box", "a/ü"]], "class": "Box"}


# D2


async def test_obtaining_a_stub_starts_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    # D2
    cluster.get(Box, "a")
    await cluster.advance(1)
    assert (cluster.effects, files_of(tmp_path)) == ([], [])


# D3


async def test_many_first_calls_at_once_start_one_instance(cluster: LocalCluster) -> None:
    # D3
    box = cluster.get(Box, "a")
    await asyncio.gather(*(box.called() for _ in range(50)))
    pong = await cluster.ping(box)
    assert pong is not None
    assert pong.epoch == 1


async def test_each_life_has_an_epoch_of_its_own(cluster: LocalCluster) -> None:
    # D3
    box = cluster.get(Box, "a")
    epochs: list[int] = []
    for _ in range(3):
        await box.called()
        pong = await cluster.ping(box)
        assert pong is not None
        epochs.append(pong.epoch)
        cluster.kill(box)
    assert epochs == [1, 2, 3]


async def test_an_instance_that_ended_writes_nothing_more(cluster: LocalCluster) -> None:
    # D3
    box = cluster.get(Box, "a")
    late = asyncio.create_task(box.put_after(10, "late"))
    await cluster.advance(1)
    cluster.kill(box)
    await box.put("new")
    await cluster.advance(20)
    with pytest.raises(ConnectionLost):
        await late
    assert await box.get() == "new"


HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_EX)
os.pwrite(descriptor, b'{"pid": %d, "epoch": 7}'.ljust(128) % os.getpid(), 0)
print("held", flush=True)
sys.stdin.read()
"""
DATABASE_HOLDER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds an object's lock."""

    def __init__(self, folder: Path, code: str = HOLDER, held: str = "lock") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder / held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.pid = self._process.pid

    def release(self) -> None:
        self._process.communicate()


async def test_files_that_another_process_holds_are_an_error_that_names_it_after_open_timeout(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    # D3
    holder = Holder(tmp_path / ObjectId.root("Box", "a").folder)
    before = cluster.clock.now_ms()
    with pytest.raises(LockHeld, match=f"held by process {holder.pid}") as caught:
        await cluster.get(Box, "a").called()
    waited = cluster.clock.now_ms() - before
    holder.release()
    assert (waited, caught.value.retryable) == (5_000, True)


async def test_files_that_become_free_within_open_timeout_are_opened(cluster: LocalCluster, tmp_path: Path) -> None:
    # D3
    holder = Holder(tmp_path / ObjectId.root("Patient", "a").folder)
    call = asyncio.create_task(cluster.get(Patient, "a").called())
    await cluster.advance(50)
    holder.release()
    pong = (await call, await cluster.ping(cluster.get(Patient, "a")))
    assert (pong[0], pong[1].epoch if pong[1] else 0) == ("a", 8)


async def test_after_such_an_error_the_next_call_tries_again(cluster: LocalCluster, tmp_path: Path) -> None:
    # D3: waiting is no failed attempt
    holder = Holder(tmp_path / ObjectId.root("Box", "a").folder)
    await asyncio.gather(cluster.get(Box, "a").called(), return_exceptions=True)
    holder.release()
    assert await cluster.get(Box, "a").called() == "a"


async def test_a_database_that_somebody_reads_beside_us_is_waited_for_too(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    # D3: the lock file is free, DuckDB's own lock is not
    await cluster.get(Patient, "a").put(1)
    await cluster.evict(cluster.get(Patient, "a"))
    holder = Holder(tmp_path / ObjectId.root("Patient", "a").folder, DATABASE_HOLDER, DATABASE_NAME)
    call = asyncio.create_task(cluster.get(Patient, "a").get())
    await cluster.advance(50)
    assert not call.done()
    holder.release()
    assert await call == 1


async def test_a_database_that_stays_held_is_an_error_after_open_timeout(cluster: LocalCluster, tmp_path: Path) -> None:
    # D3
    await cluster.get(Box, "a").put(1)
    await cluster.evict(cluster.get(Box, "a"))
    holder = Holder(tmp_path / ObjectId.root("Box", "a").folder, DATABASE_HOLDER, DATABASE_NAME)
    before = cluster.clock.now_ms()
    with pytest.raises(LockHeld, match=f"PID {holder.pid}"):
        await cluster.get(Box, "a").get()
    waited = cluster.clock.now_ms() - before
    holder.release()
    assert 5_000 <= waited < 5_300
    assert await cluster.get(Box, "a").get() == 1
