"""An object's storage on a fresh file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.storage.duckdb import Database, open_store
from runtime.storage.storage import Storage, prepare
from tests.runtime.storage.open_gate import OpenGate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "object"


@pytest.fixture
def store(folder: Path) -> Iterator[Database]:
    opened = open_store(folder)
    prepare(opened)
    yield opened
    opened.close(checkpoint=False)


@pytest.fixture
def gate(store: Database) -> OpenGate:
    return OpenGate(store)


@pytest.fixture
def storage(store: Database, gate: OpenGate) -> Storage:
    return Storage(store, gate)


@pytest.fixture
def after_a_crash(folder: Path, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    """What the object would find if its process died now: a store on a copy of its files."""
    opened: list[Database] = []

    def reopen() -> Database:
        copy = tmp_path / f"copy-{len(opened)}"
        shutil.copytree(folder, copy)
        opened.append(open_store(copy))
        return opened[-1]

    yield reopen
    for one in opened:
        one.close(checkpoint=False)
