"""Time that moves only when nothing else can happen.

``VirtualLoop`` is an asyncio event loop whose clock stands still while anything is ready to run. When nothing is, it
jumps to the next timer. So ``asyncio.sleep(3600)`` takes no time, in user code too, and what happens depends on the
order of timers, never on how fast the machine is. The selector is the one place where an event loop waits, so that is
where the jump is made; no private part of asyncio is touched.

    ready callbacks    timers    outside work (threads)    the loop
    some               any       any                       runs them; the clock stands still
    none               any       some                      waits really: a thread's end is not a matter of time
    none               some      none                      first wakes who waits in ``settle``, else jumps
    none               none      none                      raises ``Hung``: nobody will ever wake anybody

Real sockets are served when they are readable, but the clock does not wait for them: fake what is remote.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple

from runtime.errors import UsageError

__all__ = ["Hung", "VirtualClock", "VirtualLoop", "run"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

# An arbitrary Monday, so that a calendar in a test is the same every day.
START_AT_MS = int(datetime(2030, 1, 7, 9, tzinfo=UTC).timestamp()) * 1000
# Some loops of the runtime sleep for ever, and a test that waits for what never happens would run along with them.
# After 2**23 seconds (97 days) asyncio would stop by itself: it adds a nanosecond to the time to see which timers are
# due, and a float of that size cannot hold one.
LIFE_SECONDS_MAX = 90 * 86_400.0
MICROSECONDS = 1_000_000


class Hung(BaseException):
    """The code under test waits for something that can never happen.

    A BaseException, so that no retry loop of the code under test takes it for an error of its own.
    """


class VirtualClock:
    """A ``Clock`` whose time is a number.

    Args:
        start_at: Epoch seconds at which time begins.
    """

    def __init__(self, *, start_at: float = START_AT_MS / 1000) -> None:
        self._start_ms = round(start_at * 1000)
        # An integer: a float of seconds loses microseconds after some years of sleeping.
        self._passed_us = 0

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return self._passed_us / MICROSECONDS

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self._start_ms + self._passed_us // 1000

    async def sleep(self, seconds: float) -> None:
        """Return when ``seconds`` of virtual time have passed."""
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Let time pass with nothing running meanwhile, as a blocked loop does."""
        self._passed_us += math.ceil(seconds * MICROSECONDS)

    async def settle(self) -> None:
        """Return when nothing more can happen without time passing."""
        await _virtual_loop().settled()

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due by then."""
        await self.settle()
        await asyncio.sleep(seconds)
        await self.settle()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; see the module."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self._threads = 0
        self._settling: list[asyncio.Future[None]] = []
        super().__init__(_JumpingSelector(self._waits))

    def time(self) -> float:
        """Seconds since the loop was made, in virtual time."""
        return self.clock.passed

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; virtual time waits for it."""
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *arguments: Any) -> None:
        """Wait really for the threads that are left."""
        self._threads += 1
        try:
            await super().shutdown_default_executor(*arguments)
        finally:
            self._threads -= 1

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def settled(self) -> Awaitable[None]:
        """Resolves when nothing is ready to run."""
        waiting: asyncio.Future[None] = self.create_future()
        self._settling.append(waiting)
        return waiting

    def _waits(self, timeout: float | None) -> float | None:
        """The loop has nothing to run for ``timeout`` seconds; returns how long the selector waits really."""
        if self._threads:
            return None
        waiting = [one for one in self._settling if not one.done()]
        self._settling.clear()
        if waiting:
            for one in waiting:
                one.set_result(None)
            return 0
        if timeout is None:
            raise Hung("nothing is ready, no timer is set: the code under test waits for what nobody will ever do")
        self.clock.jump(timeout)
        if self.clock.passed > LIFE_SECONDS_MAX:
            raise Hung(f"{LIFE_SECONDS_MAX / 86_400:g} virtual days have passed: what is waited for never happens")
        return 0


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that asks before it waits."""

    def __init__(self, waits: Callable[[float | None], float | None]) -> None:
        super().__init__()
        self._waits = waits

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See ``selectors``; files that are ready already come before any passing of time."""
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        return super().select(self._waits(timeout))


def run(main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0, clock: VirtualClock | None = None) -> T:
    """Run ``main()`` in virtual time and return its result, as ``asyncio.run`` does in real time.

    Args:
        main: A coroutine function without arguments.
        seed: Of Python's own random numbers meanwhile; a failure's note names it.
        clock: Where time stands at the beginning; a new one by default.

    Raises:
        Hung: ``main`` waits for something that can never happen.
    """
    before = random.getstate()
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
            return runner.run(main())
    except BaseException as error:
        error.add_note(f"runtime.testing.run(..., seed={seed})")
        raise
    finally:
        random.setstate(before)


def _virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise UsageError("this needs virtual time: run the test with runtime.testing.run, or on a VirtualLoop")
    return loop
