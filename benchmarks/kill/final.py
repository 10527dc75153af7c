"""What the agents and objects say when everything is quiet: asked through their stubs, like by any caller."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from benchmarks.kill.application import Dozer, Editor, Ledger, Starter
from benchmarks.kill.history import Armed, Rang, read
from benchmarks.kill.phases import history_file
from runtime.cluster.connect import Cluster
from runtime.errors import PerdureError

__all__ = ["Final", "Message", "Row", "ask"]

QUIET_SECONDS_MAX = 60.0


class Row(msgspec.Struct, frozen=True):
    """A row of a ledger."""

    row: str
    epoch: int
    pid: int


class Message(msgspec.Struct, frozen=True):
    """A message of a child."""

    role: str
    parts: list[dict[str, Any]]  # any JSON


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """The state at the end: conversations by parent, rows by ledger, in the order of their insertion.

    Who did not answer is in ``silent``, with the reason.
    """

    conversations: dict[str, list[Message]]
    rows: dict[str, list[Row]]
    silent: dict[str, str] = {}


async def ask(cluster: Cluster, parents: Iterable[str], starters: Iterable[str]) -> Final:
    """Wait for the last alarms, then ask everybody."""
    await _alarms_rung()
    final = Final(conversations={}, rows={})
    for name in parents:
        with _noting(final, f"Editor/{name}"):
            written = await cluster.get(Editor, name).written()
            final.conversations[f"Editor/{name}"] = msgspec.convert(written, list[Message])
    ledgers = [(Ledger, "main"), (Ledger, "big"), (Dozer, "one"), *((Starter, name) for name in starters)]
    for cls, name in ledgers:
        with _noting(final, f"{cls.__name__}/{name}"):
            found = await cluster.get(cls, name).rows()
            final.rows[f"{cls.__name__}/{name}"] = [Row(*one) for one in found]
    return final


@contextlib.contextmanager
def _noting(final: Final, who: str) -> Iterator[None]:
    try:
        yield
    except PerdureError as error:
        final.silent[who] = f"{type(error).__name__}: {error}"


async def _alarms_rung() -> None:
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while time.monotonic() < deadline:
        lines = list(read(history_file()))
        armed = {line.row for line in lines if isinstance(line, Armed)}
        if armed <= {line.row for line in lines if isinstance(line, Rang)}:
            return
        await asyncio.sleep(0.5)
