"""Damaged, held and full: what an object's files can do to it on a real Ray, and the way out of each."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.errors import LockHeld, StorageCorrupt, StorageFailed
from tests.chaos.conftest import Lab
from tests.chaos.objects import Hasty, Notes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

ROOT = Path(__file__).resolve().parents[2]
FILE, LOG = "object.duckdb", "object.duckdb.wal"


def garble(path: Path) -> None:
    path.write_bytes(b"\x07garbage" * (path.stat().st_size // 8))


def flip_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- damaged ---


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(FILE, garble, id="garbage"),
        pytest.param(FILE, lambda path: os.truncate(path, 5_000), id="truncated"),
        pytest.param(FILE, lambda path: os.truncate(path, 0), id="empty"),
        pytest.param(LOG, garble, id="garbage log"),
        pytest.param(LOG, flip_in_the_middle, id="flipped bit in the log"),
    ],
)
async def test_a_damaged_file_is_named_with_the_way_out_and_works_again_once_put_back(
    lab: Lab, name: str, damage: Callable[[Path], None], request: pytest.FixtureRequest
) -> None:
    # runtime D9: what was acknowledged is never silently gone; style 6: Corrupt asks a person and changes nothing
    notes = lab.get(Notes, f"damaged {request.node.callspec.id}")
    bystander = lab.get(Notes, "bystander")
    for number in (1, 2, 3):
        assert await notes.add(f"line {number}") == number
    if name == FILE:
        await lab.put_to_sleep(notes)
    else:
        await lab.kill(notes.object_id)
    path = lab.folder(notes) / name
    good = path.read_bytes()
    damage(path)
    damaged = path.read_bytes()

    with pytest.raises(StorageCorrupt) as caught:
        await notes.lines()
    assert str(lab.folder(notes) / FILE) in caught.value.message
    assert name in caught.value.message
    assert "from a replica or a backup" in caught.value.message
    assert caught.value.retryable is False
    assert path.read_bytes() == damaged
    assert await bystander.called() == "bystander"
    assert await bystander.add("still here") >= 1

    path.write_bytes(good)
    assert await notes.lines() == ["line 1", "line 2", "line 3"]
    assert await notes.add("line 4") == 4


@pytest.mark.parametrize(("cut", "count"), [(1, 7), (40, 7), (10_000, 0)])
async def test_a_log_cut_short_gives_whole_commits_in_order_and_takes_new_ones(lab: Lab, cut: int, count: int) -> None:
    # runtime D10, D12: a cut log is how a power failure looks; no commit is there in part, none behind a missing one
    notes = lab.get(Notes, f"cut {cut}")
    written = [f"line {number}" for number in range(1, 9)]
    for line in written:
        await notes.add(line)
    await lab.kill(notes.object_id)
    log = lab.folder(notes) / LOG
    os.truncate(log, max(log.stat().st_size - cut, 0))

    assert await notes.lines() == written[:count]
    assert await notes.add("after the cut") == count + 1
    await lab.kill(notes.object_id)
    assert await notes.lines() == [*written[:count], "after the cut"]


# --- held ---

HOLDER = """
import asyncio, sys
from pathlib import Path
from runtime.clock import SystemClock
from runtime.lease import open_lease
from runtime.storage.duckdb import open_store
folder = Path(sys.argv[1])
lease = asyncio.run(open_lease(folder, SystemClock(), timeout=5))
store = open_store(folder)
print("held", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that has an object's files open, as the object's last instance would."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def end(self) -> None:
        self.process.communicate(timeout=60)


async def test_a_call_waits_for_the_process_that_is_not_quite_dead_and_succeeds(lab: Lab) -> None:
    # FR-12, runtime D3
    notes = lab.get(Notes, "held for a while")
    await notes.add("before")
    await lab.put_to_sleep(notes)
    holder = await asyncio.to_thread(Holder, lab.folder(notes))
    call = asyncio.ensure_future(notes.add("meanwhile"))
    try:
        await asyncio.wait({call}, timeout=1)
        assert not call.done()
    finally:
        await asyncio.to_thread(holder.end)
    assert await call == 2
    assert await notes.lines() == ["before", "meanwhile"]


async def test_a_holder_that_stays_is_named_and_the_object_works_when_it_has_gone(lab: Lab) -> None:
    # FR-12, runtime D3
    notes = lab.get(Hasty, "held for long")
    await notes.add("before")
    await lab.put_to_sleep(notes)
    holder = await asyncio.to_thread(Holder, lab.folder(notes))
    try:
        with pytest.raises(LockHeld, match=rf"held by process {holder.process.pid}\b") as caught:
            await notes.add("in vain")
        assert caught.value.retryable is True
        assert str(lab.folder(notes)) in caught.value.message
    finally:
        await asyncio.to_thread(holder.end)
    assert await notes.lines() == ["before"]
    assert await notes.add("after") == 2


# --- full ---


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[Path]:
    """A disk of 2 MB, where the files of ``Notes/small disk`` will be."""
    folder = lab.folder(lab.get(Notes, "small disk"))
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use up the rest of the disk."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast
    return ballast


async def test_a_full_disk_fails_the_write_by_name_loses_nothing_and_is_over_with_new_space(
    lab: Lab, small_disk: Path
) -> None:
    # runtime D9: if the write fails, callers get an error and the object is reset
    notes = lab.get(Notes, "small disk")
    assert await notes.add("before") == 1
    ballast = fill(small_disk)
    with pytest.raises(StorageFailed, match=r"No space left on device.*free or repair the disk") as caught:
        await notes.add("x" * 100_000)
    assert str(small_disk / FILE) in caught.value.message
    assert caught.value.retryable is True
    assert await lab.get(Notes, "bystander").called() == "bystander"

    ballast.unlink()
    assert await notes.lines() == ["before"]
    assert await notes.add("after") == 2
    await lab.kill(notes.object_id)
    assert await notes.lines() == ["before", "after"]
