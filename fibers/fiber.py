"""A running fiber as its code sees it, and the context variable that says which fiber runs."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from runtime import CancelToken

__all__ = ["FiberContext", "current_fiber"]


class FiberContext:
    """What the function of a fiber is given.

    Attributes:
        id: The fiber's id, also that of its row.
        name: The name it was started under.
        owner: The runner whose fiber it is.
        signal: Fires when the fiber is cancelled.
        snapshot: Always None here: what was stashed comes back in ``on_fiber_recovered``.
    """

    def __init__(self, fiber_id: str, name: str, owner: object, stash: Callable[[str, Any], None]) -> None:
        self.id = fiber_id
        self.name = name
        self.owner = owner
        self.signal = CancelToken()
        self.snapshot: Any = None
        self._stash = stash

    def stash(self, data: Any) -> None:
        """Replace the fiber's snapshot; on return it is on disk. After the fiber's end, nothing happens.

        Args:
            data: JSON.

        Raises:
            UsageError: It is no JSON, or this is called inside ``transaction_sync``; the old snapshot stays.
        """
        self._stash(self.id, data)


current_fiber: contextvars.ContextVar[FiberContext | None] = contextvars.ContextVar("current_fiber", default=None)
