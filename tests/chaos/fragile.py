"""An object that resets itself; a module of its own, since its actor imports it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runtime import DurableObject
from runtime.errors import ObjectReset


class Fragile(DurableObject):
    """Notes each run of its methods in a file outside of itself."""

    async def wait(self, log: str) -> None:
        _note(log)
        await asyncio.sleep(3600)

    async def reset(self, log: str) -> None:
        _note(log)
        self.ctx.abort("of its own will")

    async def reset_and_stay(self, log: str) -> None:
        """Swallow the error, and never return."""
        _note(log)
        try:
            self.ctx.abort("of its own will")
        except ObjectReset:
            await asyncio.sleep(3600)

    async def whole(self) -> bool:
        return True


def _note(log: str) -> None:
    with Path(log).open("a") as file:
        file.write("run\n")
