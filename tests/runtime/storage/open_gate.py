"""A gate that holds nothing back: what the storage's tests put in the host's place."""

from __future__ import annotations

from runtime.errors import PerdureError
from runtime.storage.alarm import read_alarm
from runtime.storage.store import Session, Store


class OpenGate:
    """Commits when asked and remembers what it was told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wrotes: list[bool] = []
        self.alarms: list[int | None] = []
        self.announced: list[int | None] = []
        self.losses: list[BaseException] = []
        self.commits = 0
        self.ended: PerdureError | None = None

    def check(self) -> None:
        if self.ended is not None:
            raise self.ended

    def wrote(self, *, confirmed: bool) -> None:
        self.wrotes.append(confirmed)

    async def durable(self) -> None:
        self.commits += 1
        self.store.commit()

    def alarm(self, at_ms: int | None) -> None:
        self.alarms.append(at_ms)

    def lost(self, error: BaseException) -> None:
        self.losses.append(error)

    async def announce(self, session: Session) -> None:
        self.announced.append(read_alarm(session))
