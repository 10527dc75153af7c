"""What the tests of models share."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator

import pytest

from agents.models.relay import close_relay, use_relay


@pytest.fixture(scope="session")
def sdk() -> None:
    """The vendor's SDK, loaded before the first test that needs it, so that no test is slow for that reason."""
    importlib.import_module("anthropic")


@pytest.fixture
async def in_process(sdk: None) -> AsyncIterator[None]:
    """The relay of this process, whose connections are closed behind the test."""
    yield
    await close_relay()


@pytest.fixture
def relay_reset() -> Iterator[None]:
    yield
    use_relay(None)
