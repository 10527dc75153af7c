"""The keeper as other objects talk to it: a Protocol, so that hosts need not know what the keeper is made of."""

from __future__ import annotations

from typing import Protocol

from runtime.wire import Activation, ClassRef

__all__ = ["Keeping"]


class Keeping(Protocol):
    """What the keeper does for an object. All calls are durable on return and may be repeated."""

    async def register_class(self, ref: ClassRef) -> None:
        """Remember where a class comes from.

        Raises:
            UsageError: A class of that name is known from elsewhere; names both.
        """
        ...

    async def register(self, activation: Activation) -> None:
        """List a new object in the directory."""
        ...

    async def watch(self, activation: Activation) -> None:
        """From now on, create the object again whenever its process dies, until it says that it needs no watching."""
        ...

    async def set_alarm(self, activation: Activation, at_ms: int | None, version: int, *, timeout: float) -> None:
        """Wake the object at that time; of two messages the one with the higher version counts."""
        ...
