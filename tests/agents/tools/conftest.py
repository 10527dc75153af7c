from __future__ import annotations

import pytest

from agents.tools.workspace import Workspace
from tests.agents.tools.database import Database


@pytest.fixture
def database(tmp_path_factory):
    database = Database(tmp_path_factory.mktemp("object"))
    yield database
    database.close()


@pytest.fixture
def workspace(database):
    return Workspace(database)
