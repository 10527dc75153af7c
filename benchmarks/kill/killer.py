"""Waits until somebody is where the plan wants a death, and sends SIGKILL there.

What is killed is told apart from a later process with the same pid. The phase of a kill is what its victim had
announced when it was dead, whatever was aimed at:

    recovery      it was killed again within moments, before a reader saw anything of it
    the phases of its own     start_up, tool, commit, checkpoint, hibernation, alarm: as it had announced
    stream        a child, whose stream was open and had shown something
    parent        the reader of such a stream
    keeper        the keeper
    other         nothing of these

Between two kills readers see something of the last victim again, and the warm pool gets time to refill. That is the
case that is measured: one death at a time, not a cluster without spare workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.common import say
from benchmarks.kill.application import Ledger
from benchmarks.kill.history import History, Killed
from benchmarks.kill.observer import Life, Observer, Reading, child_of
from benchmarks.kill.plan import Plan
from benchmarks.kill.rival import send_rival
from benchmarks.kill.scripts import TOOL_SECONDS
from benchmarks.kill.workload import Workload
from runtime.cluster.connect import Cluster
from runtime.cluster.pool import ThisRaylet
from runtime.cluster.ray_files import Process
from runtime.errors import Unavailable
from runtime.keeper import KEEPER_ID

__all__ = ["Killer"]

# For somebody to come into the wanted phase; then the plan draws again.
AIM_SECONDS_MAX = 20.0
DEATH_SECONDS_MAX = 10.0
# A recovery is hit if nothing was seen since the death before, which was no longer ago. What is aimed at is as soon as
# the next instance is born.
AGAIN_SECONDS_MAX = 1.0
REST_SECONDS = (0.1, 0.4)
IDLE_WORKERS_MIN = 2
# For the victim to be seen again, and as long for the pool to refill.
REST_SECONDS_MAX = 10.0
# Kills are aimed at a random moment of the phase, these many seconds long or looked at.
STREAM_SECONDS, COMMIT_SECONDS, CHECKPOINT_SECONDS, CLOSING_SECONDS = 0.25, 0.15, 0.006, 0.008
START_SECONDS, HANDLER_SECONDS, AGAIN_SECONDS = 0.025, 0.12, 0.03
# A checkpoint comes after 200 transactions.
CHECKPOINT_ROWS, CHECKPOINT_CHARACTERS, COMMIT_ROWS = 230, 2_000, 150


class Killer:
    """See the module.

    Args:
        cluster: Knows the keeper's process.
        observer: Says who is where.
        history: Where kills are noted.
        workload: Brings objects into phases that do not come by themselves.
        plan: What to aim at.
        seed: Of the moments inside a phase.
    """

    def __init__(
        self, cluster: Cluster, observer: Observer, history: History, workload: Workload, plan: Plan, seed: int
    ) -> None:
        self.hits: Counter[str] = Counter()
        self.keeper_seconds: list[float] = []
        self.again_seconds: list[float] = []
        self._cluster = cluster
        self._observer = observer
        self._history = history
        self._workload = workload
        self._plan = plan
        self._random = random.Random(f"killer {seed}")
        self._raylet = ThisRaylet()
        self._last: dict[str, float] = {}
        self._aims: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "stream": self._stream,
            "parent": self._parent,
            "tool": self._tool,
            "start_up": self._start_up,
            "commit": self._commit,
            "checkpoint": self._checkpoint,
            "hibernation": self._hibernation,
            "recovery": self._recovery,
            "alarm": self._alarm,
            "keeper": self._keeper,
            "rival": self._rival,
        }

    async def run(self) -> None:
        """Carry out the plan."""
        misses = 0
        while (wanted := self._plan.next(self.hits)) is not None and misses < self._plan.kills:
            before, began = self.hits.total(), time.monotonic()
            await self._workload.spawn(self._aims[wanted]())
            misses += wanted != "rival" and self.hits.total() == before
            took = time.monotonic()
            await self._rest()
            say(f"    {took - began:.2f} s, rest {time.monotonic() - took:.2f} s")

    async def _rest(self) -> None:
        await self._observer.until(self._has_recovered, REST_SECONDS_MAX)
        deadline = time.monotonic() + REST_SECONDS_MAX
        while time.monotonic() < deadline:
            idle, starting = await asyncio.to_thread(self._raylet.count)
            if idle >= IDLE_WORKERS_MIN and not starting:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(self._random.uniform(*REST_SECONDS))

    def _has_recovered(self) -> bool | None:
        """Whether every reader has seen something of its child again."""
        for reading in self._observer.readings.values():
            child = child_of(reading.parent)
            killed_at = max(self._last.get(child, 0.0), self._last.get(reading.parent, 0.0))
            if self._observer.shown_at.get(child, 0.0) < killed_at:
                return None
        return True

    # Aiming

    async def _at(self, found: Callable[[], Life | None], seconds: float, wanted: str) -> bool:
        """Kill whoever is found, at a random moment within ``seconds``."""
        if await self._observer.until(found, AIM_SECONDS_MAX) is None:
            return False
        await asyncio.sleep(self._random.uniform(0.0, seconds))
        self._observer.look()
        # It may have gone on meanwhile; then the kill hits another phase, which is as good.
        life = found() or await self._observer.until(found, AIM_SECONDS_MAX)
        return life is not None and await self._kill(life.who, life.process, wanted)

    def _open(self) -> list[Reading]:
        return [reading for reading in self._observer.readings.values() if reading.shown]

    def _any_child(self, *phases: str) -> Life | None:
        current = self._observer.current
        lives = [current[child_of(r.parent)] for r in self._open() if child_of(r.parent) in current]
        # Only who has moved since its last death: others belong to ``recovery``.
        moved = {who for who, at in self._observer.shown_at.items() if at > self._last.get(who, 0.0)}
        lives = [life for life in lives if life.phase in phases and life.who in moved and life.process.is_alive]
        return self._random.choice(lives) if lives else None

    async def _stream(self) -> None:
        await self._at(lambda: self._any_child("stream", "turn"), STREAM_SECONDS, "stream")

    async def _tool(self) -> None:
        life = await self._observer.until(lambda: self._any_child("tool"), AIM_SECONDS_MAX)
        if life is not None:
            await asyncio.sleep(self._random.uniform(0.0, TOOL_SECONDS * 0.8))
            await self._kill(life.who, life.process, "tool")

    async def _parent(self) -> None:
        def parent() -> Life | None:
            lives = [self._observer.lives[reading.pid] for reading in self._open()]
            lives = [life for life in lives if life.process.is_alive]
            return self._random.choice(lives) if lives else None

        await self._at(parent, STREAM_SECONDS, "parent")

    async def _recovery(self) -> None:
        first = await self._observer.until(lambda: self._any_child("stream", "turn"), AIM_SECONDS_MAX)
        if first is None or not await self._kill(first.who, first.process, "stream"):
            return

        def reborn() -> Life | None:
            life = self._observer.current[first.who]
            return life if life is not first else None

        again = await self._observer.until(reborn, AIM_SECONDS_MAX)
        if again is not None:
            await asyncio.sleep(self._random.uniform(0.0, AGAIN_SECONDS))
            await self._kill(again.who, again.process, "recovery")

    async def _triggered(self, who: str, phase: str, seconds: float) -> None:
        """Kill an object that was just brought into a phase, within ``seconds`` of its announcement."""
        life = await self._observer.until(lambda: self._observer.in_phase(who, phase), AIM_SECONDS_MAX)
        if life is not None:
            await asyncio.sleep(self._random.uniform(0.0, seconds))
            await self._kill(life.who, life.process, phase)

    async def _start_up(self) -> None:
        name = self._workload.fresh("starter-")
        self._workload.spawn(self._workload.start(name))
        await self._triggered(f"Starter/{name}", "start_up", START_SECONDS)

    async def _commit(self) -> None:
        self._workload.spawn(self._workload.write_many("main", COMMIT_ROWS))
        await self._triggered("Ledger/main", "commit", COMMIT_SECONDS)

    async def _checkpoint(self) -> None:
        self._workload.spawn(self._workload.write_many("big", CHECKPOINT_ROWS, CHECKPOINT_CHARACTERS))
        await self._triggered("Ledger/big", "checkpoint", CHECKPOINT_SECONDS)

    async def _hibernation(self) -> None:
        await self._workload.doze()
        await self._triggered("Dozer/one", "hibernation", CLOSING_SECONDS)

    async def _alarm(self) -> None:
        await self._workload.arm(self._workload.fresh("a"))
        await self._triggered("Ringer/one", "alarm", HANDLER_SECONDS)

    async def _keeper(self) -> None:
        pong = await self._cluster.ping(KEEPER_ID)
        if pong is None:
            return
        await asyncio.sleep(self._random.uniform(0.0, STREAM_SECONDS))
        if await self._kill(str(KEEPER_ID), Process.of("keeper", pong.pid), "keeper"):
            began = time.monotonic()
            # Another death while it is away would be two at a time.
            if await self._is_keeper_back(pong.pid):
                self.keeper_seconds.append(time.monotonic() - began)

    async def _is_keeper_back(self, dead: int) -> bool:
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while time.monotonic() < deadline:
            with contextlib.suppress(Unavailable):
                pong = await self._cluster.ping(KEEPER_ID)
                if pong is not None and pong.pid != dead:
                    return True
            await asyncio.sleep(0.01)
        self._workload.failures.append(f"the keeper did not come back within {AIM_SECONDS_MAX:g} s")
        return False

    async def _rival(self) -> None:
        await self._workload.add(Ledger, "main", self._workload.fresh("r"))
        self._workload.spawn(self._workload.write_many("main", COMMIT_ROWS))
        first = await self._observer.until(lambda: self._observer.in_phase("Ledger/main", "commit"), AIM_SECONDS_MAX)
        if first is not None:
            say(f"  a second instance beside Ledger/main: {await send_rival(self._cluster, first.process)}")

    # Killing

    async def _kill(self, who: str, process: Process, wanted: str) -> bool:
        """Kill a process and note in which phase it died; False if it was gone already."""
        if not process.is_alive:
            return False
        self._observer.look()
        was_open = {r.parent for r in self._open()} | {child_of(r.parent) for r in self._open()}
        at = time.monotonic()
        process.signal(signal.SIGKILL)
        while process.is_alive:
            assert time.monotonic() < at + DEATH_SECONDS_MAX, f"{who}, process {process.pid}, survives SIGKILL"
            await asyncio.sleep(0.001)
        self._observer.look()
        phase = self._phase(who, process.pid, at, is_open=who in was_open)
        self._history.note(Killed(who=who, pid=process.pid, at=at, wanted=wanted, phase=phase))
        self._observer.died(who)
        if phase == "recovery":
            self.again_seconds.append(at - self._last[who])
        self._last[who] = at
        self.hits[phase] += 1
        say(f"  kill {self.hits.total():3d}  {phase:<12} {who}" + (f" (aimed at {wanted})" if wanted != phase else ""))
        return True

    def _phase(self, who: str, pid: int, at: float, *, is_open: bool) -> str:
        if who == str(KEEPER_ID):
            return "keeper"
        last = self._last.get(who, 0.0)
        is_child = " > Writer/" in who
        if is_child and at - last < AGAIN_SECONDS_MAX and self._observer.shown_at.get(who, 0.0) <= last:
            return "recovery"
        announced = self._observer.lives[pid].phase
        if announced in ("start_up", "tool", "commit", "checkpoint", "hibernation", "alarm"):
            return announced
        if is_open:
            return "stream" if is_child else "parent"
        return "other"
