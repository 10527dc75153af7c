"""An object that resets itself (runtime D6): its callers learn why, and nothing that had begun is begun again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtime.errors import ConnectionLost, ObjectReset
from tests.chaos.conftest import Lab, eventually
from tests.chaos.fragile import Fragile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

CALLERS = 20


def runs(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


async def has_run(log: Path, count: int) -> bool:
    return runs(log) == count


async def test_every_pending_caller_gets_the_reason_and_no_call_runs_twice(lab: Lab, tmp_path: Path) -> None:
    fragile, log = lab.get(Fragile, "pending"), tmp_path / "log"
    waiting = [asyncio.ensure_future(fragile.wait(str(log))) for _ in range(CALLERS)]
    await eventually(lambda: has_run(log, CALLERS), "all calls run")
    with pytest.raises(ObjectReset, match=r"Fragile/pending was reset: of its own will"):
        await fragile.reset(str(log))
    errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert [str(error) for error in errors if "of its own will" not in str(error)] == []
    assert await fragile.whole()
    assert runs(log) == CALLERS + 1


async def test_a_call_that_outlives_its_object_is_not_taken_for_one_that_never_began(lab: Lab, tmp_path: Path) -> None:
    fragile, log = lab.get(Fragile, "staying"), tmp_path / "log"
    with pytest.raises((ObjectReset, ConnectionLost)):
        await asyncio.wait_for(fragile.reset_and_stay(str(log)), 60)
    assert await fragile.whole()
    assert runs(log) == 1
