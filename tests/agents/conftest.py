"""Tests of the agent base that take ``cluster`` run in virtual time, on simulated objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.testing import LocalCluster, VirtualLoop

HERE = Path(__file__).parent


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    is_virtual = item.path.parent == HERE and "cluster" in getattr(item, "fixturenames", ())
    return {"virtual": VirtualLoop} if is_virtual else {"real": asyncio.new_event_loop}


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as made:
        yield made
