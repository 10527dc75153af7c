"""JSON text as it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fibers import to_json
from runtime.errors import UsageError


@pytest.mark.parametrize("data", [None, 0, False, "", [], {}, {"a": [1, 2.5, "ü", None]}, "\U0001f600"])
def test_what_is_json_reads_back_as_it_was(data: Any) -> None:
    assert json.loads(to_json(data, "it")) == data


def test_half_of_a_surrogate_pair_is_text_that_utf_8_can_store() -> None:
    text = to_json({"split": "\ud83d"}, "it")
    assert text.encode()
    assert json.loads(text) == {"split": "\ud83d"}


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("data", [object(), b"bytes", {1, 2}, float("nan"), float("inf"), {(1, 2): 3}, _endless()])
def test_what_is_no_json_is_refused_by_name(data: Any) -> None:
    # recovery F4
    with pytest.raises(UsageError, match="the snapshot must be JSON"):
        to_json(data, "the snapshot")
