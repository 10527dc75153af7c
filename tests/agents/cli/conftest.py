"""One folder with an application and one Ray for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cluster import end
from tests.agents.cli.commands import APP


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("command")
    (made / "app.py").write_text(APP)
    yield made
    end(made / "data")
