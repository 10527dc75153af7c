"""The callers: they ask for turns, write rows and arm alarms, and note what they were told.

A caller does what a careful one would: what it may repeat, it repeats until it has an answer; what it may not, it
counts as unknown when the object dies under the call. Only what was answered counts as promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

from benchmarks.common import say
from benchmarks.kill.application import Dozer, Editor, Ledger, Ringer, Starter
from benchmarks.kill.history import Acked, Armed, Asked, Ended, History
from benchmarks.kill.observer import child_of
from benchmarks.kill.scripts import SHAPES, question
from runtime.cluster.connect import Cluster
from runtime.errors import PerdureError, Unavailable

__all__ = ["UNDISTURBED", "Workload"]

UNDISTURBED = "undisturbed"
EDITORS = ("keyed-0", "keyed-1", "attached-0")
TURN_SECONDS_MAX = 90.0
CALL_SECONDS_MAX = 60.0
# One key in so many is used a second time when its call has been answered.
REPEATED_ONE_IN = 3
WRITE_PAUSE_SECONDS = 0.08


class Workload:
    """Everything that calls.

    Args:
        cluster: Where the objects are.
        history: Where promises are noted.
        seed: Of pauses and shapes.
    """

    def __init__(self, cluster: Cluster, history: History, seed: int) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random.Random(f"workload {seed}")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stop = asyncio.Event()
        self._count = 0
        self.failures: list[str] = []
        self.starters: list[str] = []

    # What the killer starts

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside; ``finish`` waits for it. What it raises becomes one of the ``failures``."""
        task = asyncio.ensure_future(self._noted(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fresh(self, what: str) -> str:
        """A name that was not used yet."""
        self._count += 1
        return f"{what}{self._count}"

    async def write_many(self, name: str, count: int, characters: int = 0) -> None:
        """Have a ledger write; that it dies under it is the point."""
        ledger = self._cluster.get(Ledger, name)
        with contextlib.suppress(Unavailable):
            await ledger.write_many(self.fresh("w"), count, characters)

    async def doze(self) -> None:
        """Wake the one that hibernates soon."""
        await self.add(Dozer, "one", self.fresh("d"))

    async def start(self, name: str) -> None:
        """Call an object for the first time."""
        self.starters.append(name)
        await self.add(Starter, name, self.fresh("s"))

    async def arm(self, row: str) -> None:
        """Set an alarm."""
        await self._cluster.get(Ringer, "one").arm(row)
        self._history.note(Armed(who="Ringer/one", row=row))

    async def add(self, cls: type[Ledger], name: str, row: str, times: int = 1) -> None:
        """Write a row under a key, until it is answered; and again, as callers do who missed the answer."""
        stub: Any = self._cluster.get(cls, name)
        for _ in range(times):
            async with asyncio.timeout(CALL_SECONDS_MAX):
                await _repeated(lambda: stub.with_options(idempotency_key=row).add(row))
            self._history.note(Acked(who=f"{cls.__name__}/{name}", row=row, is_keyed=True))

    # What goes on by itself

    async def undisturbed(self) -> None:
        """One turn of each shape that nobody disturbs, for comparison; it warms everything up, too."""
        for shape in range(len(SHAPES)):
            await self._turn(UNDISTURBED, f"{UNDISTURBED}-{shape}", shape, is_keyed=True)

    def begin(self) -> None:
        """Start the callers."""
        for name in EDITORS:
            self.spawn(self._take_turns(name))
        self.spawn(self._write())

    async def finish(self) -> None:
        """Let everything come to its end; each of the callers has a deadline of its own."""
        self._stop.set()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _noted(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (PerdureError, TimeoutError) as error:
            text = f"{getattr(work, '__qualname__', 'a caller')}: {type(error).__name__}: {error}"
            say(f"  {text}")
            self.failures.append(text)

    async def _take_turns(self, name: str) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            shape = self._random.randrange(len(SHAPES))
            await self._turn(name, f"{name}-{number}", shape, is_keyed=name.startswith("keyed"))
            # Sometimes long enough to hibernate in between.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._random.choice((0.0, 0.05, 0.2, 0.9)))

    async def _turn(self, name: str, turn: str, shape: int, *, is_keyed: bool) -> None:
        who = f"Editor/{name}"
        self._history.note(Asked(who=who, turn=turn, shape=shape, child=child_of(who)))
        try:
            async with asyncio.timeout(TURN_SECONDS_MAX):
                outcome = await (self._relayed if is_keyed else self._attached)(name, turn, question(turn, shape))
        except TimeoutError:
            outcome = "stuck"
        except PerdureError as error:
            outcome = f"failed: {type(error).__name__}: {error}"
        if outcome != "done":
            say(f"  turn {turn}: {outcome}")
        self._history.note(Ended(who=who, turn=turn, outcome=outcome))

    async def _relayed(self, name: str, turn: str, text: str) -> str:
        editor: Any = self._cluster.get(Editor, name)
        outcome: str = await _repeated(lambda: editor.with_options(idempotency_key=turn).relay(turn, text))
        return outcome

    async def _attached(self, name: str, turn: str, text: str) -> str:
        editor = self._cluster.get(Editor, name)
        while True:
            with contextlib.suppress(Unavailable):
                return await editor.begin(turn, text)
            resumed: str = await _repeated(lambda: editor.resume(turn))
            if resumed:  # else the parent died before it began: there is nothing to attach to
                return resumed

    async def _write(self) -> None:
        while not self._stop.is_set():
            row = self.fresh("k")
            await self.add(Ledger, "main", row, times=1 + (self._random.randrange(REPEATED_ONE_IN) == 0))
            plain = self.fresh("u")
            with contextlib.suppress(Unavailable):
                await self._cluster.get(Ledger, "main").add(plain)
                self._history.note(Acked(who="Ledger/main", row=plain))
            await asyncio.sleep(WRITE_PAUSE_SECONDS)


async def _repeated(call: Any) -> Any:
    """The answer to a call that may be repeated."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.05)
