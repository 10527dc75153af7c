"""The calls of late, so that a frame that comes twice is answered twice and run once.

A call that runs is never forgotten. One that has ended is kept for a caller whose retry comes late; a retry comes
within seconds, so the newest thousand are enough, and fewer where their answers are large.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

__all__ = ["ENDED_BYTES_MAX", "ENDED_MAX", "RecentCalls"]

ENDED_MAX = 1_024
ENDED_BYTES_MAX = 8 * 1024 * 1024


class RecentCalls:
    """Answers by call id, those to come included."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[bytes]] = {}
        self._ended: OrderedDict[str, asyncio.Future[bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, call_id: str) -> asyncio.Future[bytes] | None:
        """The answer of a call that was seen before; None if this is the first time."""
        return self._running.get(call_id) or self._ended.get(call_id)

    def began(self, call_id: str) -> None:
        """A call was admitted."""
        self._running[call_id] = asyncio.get_running_loop().create_future()

    def broke(self, call_id: str) -> None:
        """A call ended without an answer; whoever waits with it is cancelled too, and it may come again."""
        self._running.pop(call_id).cancel()

    def ended(self, call_id: str, reply: bytes) -> None:
        """A call has its answer."""
        answered = self._running.pop(call_id)
        answered.set_result(reply)
        self._ended[call_id] = answered
        self._bytes += len(reply)
        while len(self._ended) > ENDED_MAX or self._bytes > ENDED_BYTES_MAX:
            _, oldest = self._ended.popitem(last=False)
            self._bytes -= len(oldest.result())
