"""The seam between callers and instances: how bytes reach an object, whatever carries them.

``runtime.cluster`` carries them through Ray, ``runtime.testing`` through plain function calls with faults.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from runtime.ids import ObjectId
from runtime.wire import Activation

__all__ = ["Absent", "Died", "Retiring", "Transport", "Unreachable"]


class Absent(Exception):
    """No instance of the object lives; nothing was run."""


class Retiring(Exception):
    """An instance that is about to end still holds the name; nothing was run. Ask again in a few milliseconds."""


class Died(Exception):
    """The instance ended with the call under way. ``is_intended``: it went to sleep, and then nothing was run."""

    def __init__(self, reason: str, *, is_intended: bool = False) -> None:
        super().__init__(reason)
        self.is_intended = is_intended


class Unreachable(Exception):
    """The instance may live, but cannot be reached now; the call may have run."""


class Transport(Protocol):
    """Carries frames to instances. Delivery is at most once for each call of these methods.

    All may raise ``Absent``, ``Retiring``, ``Died`` or ``Unreachable``, and ``ClusterUnreachable`` if nothing can be
    reached.
    """

    async def call(self, target: ObjectId, data: bytes) -> bytes:
        """One call frame to the object's loop; returns the reply frame."""
        ...

    def stream(self, target: ObjectId, data: bytes) -> AsyncGenerator[bytes, None]:
        """One call frame of an async generator method; closing the iterator closes the generator there."""
        ...

    async def control(self, target: ObjectId, data: bytes) -> bytes:
        """One control frame; answered also while user code blocks the object's loop."""
        ...

    async def activate(self, activation: Activation) -> None:
        """Make sure that an instance lives or is about to; idempotent, and never two at once."""
        ...

    def retired(self, target: ObjectId) -> None:
        """The instance refused a call because it ends: send it nothing more, look for its successor."""
        ...
