"""How fast an object is there: after hibernation, after kill -9; and what it weighs while it lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import runtime
from agents import Think
from agents.models import Claude
from benchmarks.common import fresh_data, options, p50, p95, report, say
from runtime import ObjectId, idempotent
from runtime.errors import PerdureError

DESCRIPTION = """How fast an object is there, and what it weighs.

wake_ratio     the first call to a hibernated agent (warm pool) against creating a bare Ray actor, cold, and calling it
restart_ratio  kill -9 of an agent to its next answered call (warm pool) against a bare Ray actor with max_restarts=-1
live_extra_mb  RssAnon of a live agent that has answered a call, above a bare Ray actor that has
after_turn_extra_mb  the same after one turn with Claude (a local server that speaks its protocol)

The yardsticks run first, in a plain Ray of their own without preloading, in the same run. Between two samples the warm
pool gets time to refill: that is the case that is measured. Targets: 0.05 and p50 <= 50 ms; 0.125; 18 MB; 25 MB.
"""

YARDSTICK = """
import json, os, signal, sys, time
import ray
count = int(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
def rss():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
class Bare:
    async def hello(self): return os.getpid()
    async def weight(self): return rss()
Actor = ray.remote(Bare)
# Cold: no idle worker is there. Ray starts some ahead at first; those are taken before the clock runs.
kept = [Actor.options(num_cpus=0).remote() for _ in range(6)]
ray.get([a.hello.remote() for a in kept])
colds = []
for _ in range(count):
    t = time.perf_counter()
    a = Actor.options(num_cpus=0).remote(); ray.get(a.hello.remote())
    colds.append(time.perf_counter() - t); kept.append(a)
weight = ray.get(kept[0].weight.remote())
restarts = []
a = Actor.options(num_cpus=0, max_restarts=-1).remote()
for _ in range(count):
    pid = ray.get(a.hello.remote()); time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    t = time.perf_counter()
    while True:
        try:
            if ray.get(a.hello.remote()) != pid: break
        except ray.exceptions.RayError: pass
        time.sleep(0.002)
    restarts.append(time.perf_counter() - t)
print(json.dumps({"colds": colds, "restarts": restarts, "weight": weight}))
"""


class Sleeper(Think):
    """The agent that is woken and weighed."""

    def get_model(self) -> Claude:
        """Claude, as the local server plays it."""
        return Claude(api_key="local", base_url=os.environ["BENCH_BASE_URL"])

    @idempotent
    async def pid(self) -> int:
        """Where it lives."""
        return os.getpid()

    @idempotent
    async def weight(self) -> float:
        """RssAnon in MB."""
        return rss_anon_mb(os.getpid())


def rss_anon_mb(pid: int) -> float:
    """The memory of a process that nobody shares."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no RssAnon")


def yardstick(count: int) -> dict[str, Any]:
    """Bare Ray, in a process and a Ray of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PERDURE_"))}
    ran = subprocess.run(
        [sys.executable, "-c", YARDSTICK, str(count)], capture_output=True, text=True, env=environment, check=False
    )
    if ran.returncode:
        raise SystemExit(f"the yardstick failed:\n{ran.stderr}")
    # Ray prints lines of its own about killed workers.
    line = next(line for line in ran.stdout.splitlines() if line.startswith("{"))
    figures: dict[str, Any] = json.loads(line)
    return figures


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """A process that speaks the Messages API on loopback; its address."""
    command = [sys.executable, "-m", "tests.anthropic_server", "--chunks", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


async def samples(cluster: Any, count: int, rest: float) -> tuple[list[float], list[float]]:
    """Seconds of a wake, and from a kill to the next answer."""
    sleeper, object_id = cluster.get(Sleeper, "one"), ObjectId.root("Sleeper", "one")
    await sleeper.pid()
    wakes, answers = [], []
    for _ in range(count):
        evicted = await cluster.evict(object_id)
        while evicted is None or not evicted.is_ending:
            await asyncio.sleep(0.1)
            evicted = await cluster.evict(object_id)
        while await cluster.ping(object_id) is not None:  # noqa: ASYNC110  # another process ends; nobody tells us
            await asyncio.sleep(0.02)
        await asyncio.sleep(rest)
        began = time.perf_counter()
        pid = await sleeper.pid()
        wakes.append(time.perf_counter() - began)
        await asyncio.sleep(rest)
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        while True:
            with contextlib.suppress(PerdureError):
                if await sleeper.pid() != pid:
                    break
        answers.append(time.perf_counter() - began)
        await asyncio.sleep(rest)
    return wakes, answers


async def measure(folder: Path, count: int, rest: float) -> dict[str, object]:
    """All figures of perdure."""
    async with runtime.connect(data_dir=folder, show_logs=False, on_progress=say) as cluster:
        await samples(cluster, 2, rest)  # the warm-up: the pool fills, files are cached
        wakes, answers = await samples(cluster, count, rest)
        idle = cluster.get(Sleeper, "idle")
        await idle.pid()
        await asyncio.sleep(1)
        live = await idle.weight()
        reply = await idle.chat("Say something.")
        assert reply.text, "the turn gave no answer"
        await asyncio.sleep(1)
        after = await idle.weight()
    return {
        "wake_p50_ms": p50(wakes) * 1e3,
        "wake_p95_ms": p95(wakes) * 1e3,
        "kill_to_answer_p50_ms": p50(answers) * 1e3,
        "kill_to_answer_p95_ms": p95(answers) * 1e3,
        "live_mb": live,
        "after_turn_mb": after,
    }


def main() -> None:
    """Run it."""
    chosen = options(DESCRIPTION).parse_args()
    count = 3 if chosen.quick else 15
    say("the yardstick: bare Ray")
    bare = yardstick(count)
    with model_server() as url:
        os.environ["BENCH_BASE_URL"] = url
        say("perdure")
        with fresh_data("wake") as folder:
            figures = asyncio.run(measure(folder, count, 1.0 if chosen.quick else 2.5))
    figures["ray_cold_create_p50_ms"] = p50(bare["colds"]) * 1e3
    figures["ray_restart_p50_ms"] = p50(bare["restarts"]) * 1e3
    figures["bare_mb"] = bare["weight"]
    figures["wake_ratio"] = figures["wake_p50_ms"] / figures["ray_cold_create_p50_ms"]  # type: ignore[operator]
    figures["restart_ratio"] = figures["kill_to_answer_p50_ms"] / figures["ray_restart_p50_ms"]  # type: ignore[operator]
    figures["live_extra_mb"] = figures["live_mb"] - figures["bare_mb"]  # type: ignore[operator]
    figures["after_turn_extra_mb"] = figures["after_turn_mb"] - figures["bare_mb"]  # type: ignore[operator]
    report(figures, seed=chosen.seed)


if __name__ == "__main__":
    main()
