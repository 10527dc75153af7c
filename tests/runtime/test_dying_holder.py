"""The lock of a process that is not quite dead (FR-12, runtime D3)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.clock import SystemClock
from runtime.errors import LockHeld
from runtime.lease import open_lease

HOLDER = """
import asyncio, sys, time
from pathlib import Path
from runtime.clock import SystemClock
from runtime.lease import open_lease
lease = asyncio.run(open_lease(Path(sys.argv[1]), SystemClock(), timeout=1))
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def holder(folder: Path, seconds: float) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_opening_waits_for_a_holder_that_is_about_to_end(tmp_path: Path) -> None:
    # FR-12: no error, and the epoch of the next instance is one higher
    with holder(tmp_path, 1.0):
        lease = asyncio.run(open_lease(tmp_path, SystemClock(), timeout=30))
    assert lease.epoch == 2
    lease.release()


@pytest.mark.slow
def test_a_holder_that_stays_is_named_in_a_retryable_error(tmp_path: Path) -> None:
    # FR-12, runtime D3
    process = holder(tmp_path, 60)
    try:
        with pytest.raises(LockHeld, match=rf"held by process {process.pid}\b") as caught:
            asyncio.run(open_lease(tmp_path, SystemClock(), timeout=0.2))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert caught.value.retryable is True


@pytest.mark.slow
def test_the_lock_is_free_at_once_when_its_holder_was_killed(tmp_path: Path) -> None:
    # FR-12
    process = holder(tmp_path, 60)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    asyncio.run(open_lease(tmp_path, SystemClock(), timeout=5)).release()
