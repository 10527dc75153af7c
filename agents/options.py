"""Options of agents: those of every durable object, and times of the agent base (runtime 2.1)."""

from __future__ import annotations

import math

from fibers import FiberOptions
from runtime import ObjectOptions
from runtime.errors import UsageError

__all__ = ["AgentOptions"]


class AgentOptions(ObjectOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent has besides. Seconds; 0 and infinity are no limit.

    Attributes:
        keep_alive_interval: While the agent must stay awake, its alarm is never further away.
        fiber_recovery_hook_timeout: How long a scan waits for one of the framework's own handlers.
        fiber_recovery_scan_deadline: How long a scan goes on to the next fiber.
        fiber_recovery_max_age: How long a fiber whose recovery raises is tried again.
    """

    keep_alive_interval: float = 30.0
    fiber_recovery_hook_timeout: float = 10.0
    fiber_recovery_scan_deadline: float = 10.0
    fiber_recovery_max_age: float = 86_400.0

    def check(self, where: str) -> None:
        """Raise ``UsageError`` for values that have no meaning."""
        super().check(where)
        if not 0 < self.keep_alive_interval < math.inf:
            raise UsageError(f"{where}: keep_alive_interval must be > 0 and finite, not {self.keep_alive_interval}")
        for name in ("fiber_recovery_hook_timeout", "fiber_recovery_scan_deadline", "fiber_recovery_max_age"):
            if getattr(self, name) < 0:
                raise UsageError(f"{where}: {name} must be >= 0, not {getattr(self, name)}")

    @property
    def fibers(self) -> FiberOptions:
        """The part that fibers need."""
        return FiberOptions(
            keep_alive_interval=self.keep_alive_interval,
            recovery_hook_timeout=self.fiber_recovery_hook_timeout,
            recovery_scan_deadline=self.fiber_recovery_scan_deadline,
            recovery_max_age=self.fiber_recovery_max_age,
        )
