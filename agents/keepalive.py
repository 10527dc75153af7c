"""Keep-alive of an agent: leases, and the alarm behind them.

While a lease is held, the next alarm is never further away than the interval. The keeper's watch brings a dead agent
back within a moment; this alarm is the fallback when the watch is lost too (runtime A43). It costs a message to the
keeper, so an alarm that is soon enough is left alone, and one that nobody needs any more is cleared some seconds after
the last lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from agents.options import AgentOptions
from runtime import Context, Lease

__all__ = ["KeepAlive"]

T = TypeVar("T")

# Turns come in bursts: between two of them the alarm stays.
CLEAR_SECONDS = 5.0
# Moving an alarm costs a message to the keeper; none of the needs is exact.
SLACK_SECONDS = 1.0


class KeepAlive:
    """The leases of one agent, and its one alarm slot, which they share with the next scan of fibers."""

    def __init__(self, ctx: Context, options: AgentOptions) -> None:
        self._ctx = ctx
        self._interval = options.keep_alive_interval
        self._scan_at: float | None = None
        self._wake_at: float | None = None
        self._leases = 0

    async def acquire(self) -> Lease:
        """Hold the agent awake and watched.

        The alarm first: it joins the caller's stretch, and the keeper has it before the commit. So what the caller
        has just written (a fiber's row) is never there without something that brings the agent back for it.
        """
        self._leases += 1
        try:
            due = self._now() + self._interval
            armed = await self._ctx.slot.get_alarm()
            if armed is None or armed > due:
                await self._ctx.slot.set_alarm(due)
            return _AgentLease(self, await self._ctx.keep_alive())
        except BaseException:
            self._leases -= 1  # the alarm stays: it fires once and finds nothing to do
            raise

    async def acquire_while(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run ``fn`` under a lease; its result."""
        lease = await self.acquire()
        try:
            return await fn()
        finally:
            lease.release()

    def released(self) -> None:
        """A lease was released."""
        self._leases -= 1
        if not self._leases:
            self._ctx.spawn(self._clear_later(), "end of keep-alive")

    async def _clear_later(self) -> None:
        await self._ctx.clock.sleep(CLEAR_SECONDS)
        if not self._leases:
            await self.rearm()

    async def scan_again(self, pause_ms: int | None) -> None:
        """After a scan: wake for the next one; an alarm that is no longer needed is left to fire once more."""
        self._scan_at = None if pause_ms is None else self._now() + pause_ms / 1000
        if self._scan_at is not None:
            await self.rearm()

    async def wake_at(self, at_ms: int | None) -> None:
        """Have an alarm at that time too, in place of the one that was asked for before.

        An alarm that comes earlier is left alone: when it fires, or the last lease is gone, this need is looked at.
        """
        self._wake_at = None if at_ms is None else at_ms / 1000
        if self._wake_at is not None:
            armed = await self._ctx.slot.get_alarm()
            if armed is None or armed > self._wake_at:
                await self._ctx.slot.set_alarm(self._wake_at)

    async def rearm(self) -> None:
        """Set the alarm to the earliest need; clear it if there is none."""
        lease_at = self._now() + self._interval if self._leases else None
        needs = [at for at in (self._scan_at, lease_at, self._wake_at) if at is not None]
        armed = await self._ctx.slot.get_alarm()
        if needs and (armed is None or abs(armed - min(needs)) > SLACK_SECONDS):
            await self._ctx.slot.set_alarm(min(needs))
        elif not needs and armed is not None:
            await self._ctx.slot.delete_alarm()

    def _now(self) -> float:
        return self._ctx.clock.now_ms() / 1000


class _AgentLease:
    """A lease of the host that also counts for the alarm."""

    def __init__(self, owner: KeepAlive, lease: Lease) -> None:
        self._owner: KeepAlive | None = owner
        self._lease = lease

    def release(self) -> None:
        """Let go; a second call does nothing."""
        owner, self._owner = self._owner, None
        self._lease.release()
        if owner is not None:
            owner.released()
