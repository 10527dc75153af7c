"""How fast a child's turn reaches its parent: events a second, the first event, and the delay of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ray

import runtime
from agents import Think
from agents.models import Scripted
from benchmarks.common import fresh_data, options, p50, p95, report, say

DESCRIPTION = """How fast a child's turn reaches its parent.

events_per_s   a real turn of a sub-agent with a model without delay: every chunk journaled on disk before it is shown,
               iterated by its parent, another actor, as `async for event in child.chat(...)`
ray_events_per_s  the yardstick: a bare Ray streaming generator of lists of the same chunks as dicts, 64 a list, without
               a journal, iterated by another bare actor; alternating with the above after a warm-up
first_event_p50_ms    from the call of chat() to the first event, at the parent
event_latency_p50_ms  from the model's yield to the parent, for chunks paced 5 ms apart

Targets: stream_ratio >= 0.7, events_per_s >= 30,000.
"""

WORDS = "some words of an answer that is longer than most "
BATCH = 64


class Child(Think):
    """Streams as many chunks as its user asks for: ``COUNT`` without delay, or ``paced COUNT``."""

    def get_model(self) -> Any:
        """A script made from the question; paced chunks carry the time of their yield."""
        return Asked()


class Asked:
    """A model whose answer is as long as the question says."""

    model_id = "asked"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """Yield the chunks."""
        question = request.messages[-1].blocks[0].text
        count = int(question.split()[-1])
        if question.startswith("paced"):
            async for part in paced(count):
                yield part
            return
        script = Scripted([Scripted.text(WORDS * count, chunk_size=len(WORDS))])
        async for part in script.stream(request):
            yield part


async def paced(count: int) -> AsyncIterator[Any]:
    """Chunks 5 ms apart, each with the time at which it was yielded."""
    from agents.core.chunks import TextDelta, TextEnd, TextStart
    from agents.models.model import ModelFinish

    yield TextStart("0")
    for _ in range(count):
        await asyncio.sleep(0.005)
        yield TextDelta("0", f"{time.time():.6f} ")
    yield TextEnd("0")
    yield ModelFinish(finish_reason="stop")


class Parent(Think):
    """Iterates its child's turns and reports what it saw."""

    async def drain(self, count: int) -> tuple[float, float, int]:
        """Seconds to the first event, seconds in all, events."""
        child = await self.sub_agent(Child, "child")
        seen, first = 0, 0.0
        began = time.perf_counter()
        async with child.chat(str(count)) as events:
            async for event in events:
                seen += 1
                if seen == 1:
                    first = time.perf_counter() - began
                assert event.number == seen, f"event {event.number} came as number {seen}"
        return first, time.perf_counter() - began, seen

    async def delays(self, count: int) -> list[float]:
        """Seconds from the yield of each chunk to here."""
        child = await self.sub_agent(Child, "child")
        found = []
        async with child.chat(f"paced {count}") as events:
            async for event in events:
                if event.chunk["type"] == "text-delta":
                    found.append(time.time() - float(event.chunk["delta"]))
        return found


class BareChild:
    """The yardstick's producer."""

    async def stream(self, count: int) -> AsyncIterator[list[dict[str, str]]]:
        """Lists of chunks as dicts."""
        batch = []
        for _ in range(count):
            batch.append({"type": "text-delta", "id": "0", "delta": WORDS})
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch


class BareParent:
    """The yardstick's consumer."""

    def __init__(self, child: Any) -> None:
        self.child = child

    async def drain(self, count: int) -> tuple[float, int]:
        """Seconds, events."""
        seen = 0
        began = time.perf_counter()
        method = self.child.stream.options(num_returns="streaming", _generator_backpressure_num_objects=16)
        async for reference in method.remote(count):
            for _ in await reference:
                seen += 1
        return time.perf_counter() - began, seen


async def measure(folder: Path, count: int, rounds: int) -> dict[str, object]:
    """All figures."""
    async with runtime.connect(data_dir=folder, show_logs=False, on_progress=say) as cluster:
        parent = cluster.get(Parent, "parent")
        bare_child = ray.remote(BareChild).options(num_cpus=0).remote()
        consumer: Any = ray.remote(BareParent)
        bare = consumer.options(num_cpus=0).remote(bare_child)
        await parent.drain(2000)
        await bare.drain.remote(2000)
        rates, bare_rates, firsts = [], [], []
        for _ in range(rounds):
            _, seconds, seen = await parent.drain(count)
            rates.append(seen / seconds)
            seconds, seen = await bare.drain.remote(count)
            bare_rates.append(seen / seconds)
        for _ in range(rounds * 3):
            first, _, _ = await parent.drain(10)
            firsts.append(first)
        delays = await parent.delays(100 if count < 20_000 else 600)
    return {
        "events_per_s": p50(rates),
        "ray_events_per_s": p50(bare_rates),
        "stream_ratio": p50(rates) / p50(bare_rates),
        "first_event_p50_ms": p50(firsts) * 1e3,
        "event_latency_p50_ms": p50(delays) * 1e3,
        "event_latency_p95_ms": p95(delays) * 1e3,
        "events_a_round": count,
        "rounds": rounds,
    }


def main() -> None:
    """Run it."""
    chosen = options(DESCRIPTION).parse_args()
    count, rounds = (5_000, 2) if chosen.quick else (60_000, 7)
    with fresh_data("stream") as folder:
        figures = asyncio.run(measure(folder, count, rounds))
    report(figures, seed=chosen.seed)


if __name__ == "__main__":
    main()
