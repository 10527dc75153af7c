"""What the command says of a data folder whose Ray does not run: it looks, starts none, and knows all addresses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agents.cli.targets import find_target
from runtime import DurableObject, ObjectId
from runtime.errors import UsageError
from runtime.testing import LocalCluster
from tests.agents.cli.commands import perdure_here

pytestmark = pytest.mark.slow


class Clock(DurableObject):
    async def ring(self) -> None:
        await self.ctx.storage.set_alarm(9_999_999_999)

    async def exist(self) -> None: ...

    async def work(self) -> None:
        await self.ctx.keep_alive()


@pytest.fixture
async def left(tmp_path: Path) -> Path:
    """A folder whose processes died: one object has an alarm, one has work that the next keeper goes on with."""
    async with LocalCluster(tmp_path / "data") as cluster:
        await cluster.get(Clock, "first").ring()
        await asyncio.sleep(0.01)  # their ages are told apart by milliseconds
        await cluster.get(Clock, "second").work()
    return tmp_path


@pytest.fixture
async def parted(tmp_path: Path) -> Path:
    """A folder with a sub-agent, and with root objects whose names hold what parts a sub-agent from its parent."""
    async with LocalCluster(tmp_path / "data") as cluster:
        for name in ("b", "a > z", "a > Clock/c"):
            await cluster.get(Clock, name).exist()
        await cluster.stub(Clock, ObjectId.root("Clock", "b").child("Clock", "c")).exist()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "source", "path"),
    [
        ("Clock/a > z", "", [("Clock", "a > z")]),
        ("Clock/a > Clock/c", "", [("Clock", "a > Clock/c")]),
        ("Clock/b > Clock/c", "", [("Clock", "b"), ("Clock", "c")]),
        ("app.py:Clock/a > z", "app.py", [("Clock", "a > z")]),
        ("Clock/b > Clock/d", "", [("Clock", "b"), ("Clock", "d")]),
    ],
)
def test_an_address_as_the_list_shows_it_is_that_object(
    parted: Path, text: str, source: str, path: list[tuple[str, str]]
) -> None:
    target = find_target(parted / "data", text)
    assert (target.source, list(target.object_id.path)) == (source, path)
    assert source or path[-1][1] == "d" or text in [row["object"] for row in listed(parted)]


def test_a_name_that_is_neither_a_target_nor_an_address_is_refused_with_the_forms(parted: Path) -> None:
    with pytest.raises(UsageError, match=r"names no object; write app\.py:Class/name"):
        find_target(parted / "data", "Clock/a > y")


def test_a_sub_agent_written_without_spaces_is_told_how_it_is_written_if_its_parent_exists(parted: Path) -> None:
    told = perdure_here(parted, "evict", "Clock/b>Clock/c").stderr
    assert told.endswith('. A sub-agent of Clock/b is written "Clock/b > Clock/c"\n')
    assert "Clock/b>Clock/c does not exist" in told
    assert "is written" not in perdure_here(parted, "evict", "Clock/x>Clock/c").stderr
    assert "is written" not in perdure_here(parted, "evict", "Clock/b > Clock/d").stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def listed(folder: Path) -> list[dict[str, object]]:
    ran = perdure_here(folder, "list", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    rows: list[dict[str, object]] = json.loads(ran.stdout)
    return rows


def test_a_list_names_all_objects_oldest_first_and_all_asleep(left: Path) -> None:
    rows = [(row["object"], row["state"], row["pid"], row["alarm_at_ms"]) for row in listed(left)]
    assert rows == [("Clock/first", "asleep", None, 9_999_999_999_000), ("Clock/second", "asleep", None, None)]


def test_a_list_leaves_every_file_as_it_was_and_starts_no_ray(left: Path) -> None:
    before = contents(left)
    assert len(listed(left)) == 2
    assert contents(left) == before


def test_a_folder_without_a_directory_has_no_objects(tmp_path: Path) -> None:
    (tmp_path / "data" / "objects").mkdir(parents=True)
    assert listed(tmp_path) == []
    (tmp_path / "data/objects/PerdureKeeper/0123").mkdir(parents=True)
    assert listed(tmp_path) == []


def test_evict_says_that_the_object_is_asleep_already_and_starts_no_ray(left: Path) -> None:
    before = contents(left)
    ran = perdure_here(left, "evict", "Clock/first")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"Clock/first is asleep already: no Ray of {left / 'data'} is running\n"
    assert contents(left) == before


def test_kill_says_that_there_is_no_process_and_starts_no_ray(left: Path) -> None:
    before = contents(left)
    ran = perdure_here(left, "kill", "Clock/first")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"Clock/first is asleep: no Ray of {left / 'data'} is running, so it has no process to kill" in ran.stderr
    assert contents(left) == before
