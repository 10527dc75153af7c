"""A token that says: stop."""

from __future__ import annotations

import asyncio

__all__ = ["CancelToken"]


class CancelToken:
    """Fires once. It does not cross to another object: there, cancel by id."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it has fired."""
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        """Why it fired; None before."""
        return self._reason

    def cancel(self, reason: str = "cancelled") -> None:
        """Fire; the first reason stays."""
        if not self.cancelled:
            self._reason = reason
            self._event.set()

    async def wait(self) -> str:
        """Return the reason when it has fired."""
        await self._event.wait()
        return self._reason or "cancelled"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a cancel token cannot be sent to another object: pass an id and cancel by it (cancel_chat)")
