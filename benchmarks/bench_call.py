"""What a call to a live object costs, against Ray alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import duckdb
import ray

import runtime
from benchmarks.common import fresh_data, options, p50, report, say
from runtime import DurableObject

DESCRIPTION = """What a call to a live object costs.

call_ratio     a method that returns its arguments, through a stub, against the same method of a bare Ray async actor
               called with the same arguments; alternating pairs after a warm-up
durable_ratio  a method that updates one row and answers when it is on disk, against a bare Ray call plus a bare DuckDB
               commit of the same row, paced like the calls (a commit after idling costs more than in a tight loop)

Targets: call_ratio <= 1.1, durable_ratio <= 1.2. One caller, a script on the same machine.
"""

PAYLOAD = {"id": 7, "name": "a line of text that is not too short", "tags": ["a", "b", "c"]}


class Echo(DurableObject):
    """The object that is called."""

    async def on_start(self) -> None:
        """Make the table."""
        self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, body VARCHAR)")
        if not self.ctx.storage.sql.exec("SELECT 1 FROM row").to_list():
            self.ctx.storage.sql.exec("INSERT INTO row VALUES (1, '')")

    async def echo(self, text: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return what came."""
        return payload

    async def write(self, text: str) -> int:
        """One durable write."""
        self.ctx.storage.sql.exec("UPDATE row SET body = ? WHERE id = 1", text)
        return len(text)


class Bare:
    """The yardstick: what one would write with Ray alone."""

    async def echo(self, text: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return what came."""
        return payload


def paced_commits(folder: Path, count: int, pause: float) -> list[float]:
    """Seconds of a bare commit of the same row, each after a pause as long as a call takes."""
    connection = duckdb.connect(str(folder / "bare.duckdb"))
    connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, body VARCHAR)")
    connection.execute("INSERT INTO row VALUES (1, '')")
    taken = []
    for number in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        connection.execute("UPDATE row SET body = ? WHERE id = 1", [f"text {number}"])
        taken.append(time.perf_counter() - began)
    connection.close()
    return taken


async def measure(folder: Path, count: int) -> dict[str, object]:
    """All figures."""
    async with runtime.connect(data_dir=folder, show_logs=False, on_progress=say) as cluster:
        stub = cluster.get(Echo, "one")
        actor: Any = ray.remote(Bare)
        bare = actor.options(num_cpus=0).remote()
        calls: list[float] = []
        rays: list[float] = []
        durables: list[float] = []
        for number in range(count + count // 5):
            text = f"text {number}"
            began = time.perf_counter()
            await stub.echo(text, PAYLOAD)
            middle = time.perf_counter()
            await bare.echo.remote(text, PAYLOAD)
            ended = time.perf_counter()
            await stub.write(text)
            durable = time.perf_counter() - ended
            if number >= count // 5:  # the rest is the warm-up
                calls.append(middle - began)
                rays.append(ended - middle)
                durables.append(durable)
    commits = paced_commits(folder, count, p50(rays))
    yardstick = p50(rays) + p50(commits)
    return {
        "call_p50_us": p50(calls) * 1e6,
        "ray_call_p50_us": p50(rays) * 1e6,
        "call_ratio": p50(calls) / p50(rays),
        "durable_call_p50_us": p50(durables) * 1e6,
        "duckdb_commit_p50_us": p50(commits) * 1e6,
        "durable_ratio": p50(durables) / yardstick,
        "samples": count,
    }


def main() -> None:
    """Run it."""
    chosen = options(DESCRIPTION).parse_args()
    with fresh_data("call") as folder:
        figures = asyncio.run(measure(folder, 100 if chosen.quick else 1500))
    report(figures, seed=chosen.seed)


if __name__ == "__main__":
    main()
