"""Structs of fibers: the options, and a fiber as its recovery hook sees it."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["FiberOptions", "RecoveredFiber"]


class FiberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. 0 and infinity: no limit, and rows are kept for ever; the interval has a length."""

    keep_alive_interval: float = 30.0
    recovery_hook_timeout: float = 10.0
    recovery_scan_deadline: float = 10.0
    recovery_max_age: float = 86_400.0


class RecoveredFiber(msgspec.Struct, frozen=True, kw_only=True):
    """A fiber that a death interrupted.

    Attributes:
        id: Its id.
        name: The name it was started under.
        snapshot: What it stashed last; None if nothing, or if the stored text is damaged.
        frame: What the framework stored with it; None for fibers of user code.
        created_at: When it was started, in epoch seconds.
        recovery_reason: Always ``interrupted``.
    """

    id: str
    name: str
    snapshot: Any = None  # JSON, the user's
    frame: Any = None  # JSON, the framework's
    created_at: float = 0.0
    recovery_reason: str = "interrupted"
