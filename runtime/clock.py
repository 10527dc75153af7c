"""Time as the packages see it.

Everything that waits or stamps goes through a ``Clock``, so that the tests can own time. ``SystemClock`` is the
real one; ``runtime.testing.VirtualClock`` moves only when nothing else can happen.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; cancellable."""
        ...


class SystemClock:
    """The machine's time."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of real time."""
        await asyncio.sleep(seconds)
