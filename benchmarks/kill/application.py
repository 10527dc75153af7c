"""The agents and objects that get killed.

An ``Editor`` streams the turns of its ``Writer`` in a real method and writes down every event that it sees. It does so
in two ways. ``relay`` belongs into a call with an idempotency key: repeated, it finds the same turn and reads it from
the first event on. ``resume`` is for callers without one: it attaches behind the event whose number is in storage.

The other objects have one trait each: a ``Ledger`` writes rows, a ``Dozer`` hibernates soon, a ``Ringer`` sets alarms,
a ``Starter`` takes a moment to start.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any, ClassVar

from agents import ChatResponse, Think, tool
from agents.errors import UnknownTurn
from agents.tools import ToolContext
from benchmarks.kill import breaks
from benchmarks.kill.history import Closed, Opened, Ran, Rang, Responded, Shown, Wrote
from benchmarks.kill.phases import AnnouncedModel, announce_inner_phases, born, count_file, enter, history
from benchmarks.kill.scripts import TOOL_SECONDS, steps_of
from runtime import AlarmInfo, Context, DurableObject, idempotent

__all__ = ["BREAK_VARIABLE", "Dozer", "Editor", "Ledger", "Ringer", "Starter", "Writer"]

BREAK_VARIABLE = "BENCH_KILL_BREAK"
CHUNK_DELAY_SECONDS = 0.008
START_SECONDS = 0.03
ALARM_DELAY_SECONDS = 0.15
HANDLER_SECONDS = 0.15

announce_inner_phases()
breaks.apply(os.environ.get(BREAK_VARIABLE, ""))


class Writer(Think):
    """The child: it answers, and calls a tool whose effect cannot be taken back."""

    # Between two turns some pause longer than this, others do not.
    options: ClassVar[dict[str, object]] = {"hibernate_after": 0.5}

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        born(ctx)

    async def on_start(self) -> None:
        await asyncio.sleep(0)
        enter("ready")

    def get_model(self) -> AnnouncedModel:
        return AnnouncedModel(steps_of, chunk_delay=CHUNK_DELAY_SECONDS, count_file=str(count_file()))

    async def on_chat_response(self, response: ChatResponse) -> None:
        history().note(Responded(who=str(self.ctx.id), request_id=response.request_id, status=response.status))

    @tool
    async def note(self, turn: str, place: str, context: ToolContext) -> str:
        """Write a note.

        Args:
            turn: Which turn.
            place: Where in it.
            context: The call.
        """
        who, call = str(self.ctx.id), context.tool_call_id
        enter("tool")
        history().note(Ran(who=who, turn=turn, place=place, call_id=call))
        await asyncio.sleep(TOOL_SECONDS)
        history().note(Ran(who=who, turn=turn, place=place, call_id=call, is_end=True))
        enter("turn")
        return f"noted {place}"


class Editor(Think):
    """The parent."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 0.5}

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        born(ctx)

    async def on_start(self) -> None:
        enter("ready")

    def get_model(self) -> AnnouncedModel:
        return AnnouncedModel("I only relay.")

    async def relay(self, turn: str, text: str) -> str:
        """Stream a turn of the child to its end; returns the outcome. Call it with an idempotency key."""
        child = await self.sub_agent(Writer, "writer")
        async with child.chat(text) as events:
            return await self._read(turn, events, after=0, keeps=False)

    async def begin(self, turn: str, text: str) -> str:
        """As ``relay``, but it notes in storage how far it has come, for ``resume``."""
        child = await self.sub_agent(Writer, "writer")
        async with child.chat(text) as events:
            # Nothing has left yet: the id is stored before the child can have heard of the turn.
            self.ctx.storage.kv.put(f"turn:{turn}", {"request_id": events.request_id, "seen": 0})
            return await self._read(turn, events, after=0, keeps=True)

    async def resume(self, turn: str) -> str:
        """Read the rest of a turn that ``begin`` began in an earlier life; empty if it did not come so far."""
        kept: Any = self.ctx.storage.kv.get(f"turn:{turn}")
        if kept is None:
            return ""
        child = await self.sub_agent(Writer, "writer")
        try:
            async with child.attach(kept["request_id"], after=kept["seen"]) as events:
                return await self._read(turn, events, after=kept["seen"], keeps=True)
        except UnknownTurn:
            return ""

    async def _read(self, turn: str, events: Any, *, after: int, keeps: bool) -> str:
        who, life = str(self.ctx.id), uuid.uuid4().hex[:8]
        history().note(Opened(who=who, turn=turn, life=life, request_id=events.request_id, after=after))
        outcome = "lost"
        try:
            async for event in events:
                history().note(Shown(who=who, turn=turn, life=life, number=event.number, chunk=event.json))
                if keeps:
                    self.ctx.storage.kv.put(f"turn:{turn}", {"request_id": events.request_id, "seen": event.number})
            outcome = str(events.outcome)
            return outcome
        finally:
            history().note(Closed(who=who, turn=turn, life=life, outcome=outcome))

    @idempotent
    async def written(self) -> list[dict[str, Any]]:
        """The child's conversation, as it is stored."""
        child = await self.sub_agent(Writer, "writer")
        return [{"role": m.role, "parts": m.parts} for m in await child.get_messages()]


class Ledger(DurableObject):
    """Writes rows; each says under which epoch it was written."""

    options: ClassVar[dict[str, object]] = {"open_timeout": 1.0}

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.epoch = born(ctx)

    async def on_start(self) -> None:
        self.ctx.storage.sql.exec(
            "CREATE TABLE IF NOT EXISTS ledger (id VARCHAR, epoch BIGINT, pid INTEGER, body VARCHAR)"
        )
        enter("ready")

    def _insert(self, row: str, body: str = "") -> None:
        self.ctx.storage.sql.exec("INSERT INTO ledger VALUES (?, ?, ?, ?)", row, self.epoch, os.getpid(), body)

    async def add(self, row: str) -> str:
        """Write one row; under an idempotency key, once."""
        self._insert(row)
        return row

    async def write_many(self, prefix: str, count: int, characters: int = 0) -> int:
        """Write rows in a tight loop, each durable before the next."""
        enter("commit")
        for number in range(count):
            row = f"{prefix}.{number}"
            self._insert(row, "x" * characters)
            await self.ctx.storage.sync()
            history().note(Wrote(who=str(self.ctx.id), row=row, epoch=self.epoch))
        enter("ready")
        return count

    @idempotent
    async def rows(self) -> list[tuple[str, int, int]]:
        """All rows as they were inserted: row, epoch, pid."""
        found: Any = self.ctx.storage.sql.exec("SELECT id, epoch, pid FROM ledger ORDER BY rowid").raw()
        return [(row, epoch, pid) for row, epoch, pid in found]


class Starter(Ledger):
    """Takes a moment to start."""

    async def on_start(self) -> None:
        await super().on_start()
        enter("start_up")
        await asyncio.sleep(START_SECONDS)
        enter("ready")


class Dozer(Ledger):
    """Hibernates soon after its last call."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 0.2}


class Ringer(DurableObject):
    """Sets alarms. What was armed must ring, at least once."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        born(ctx)

    async def on_start(self) -> None:
        enter("ready")

    @idempotent
    async def arm(self, row: str) -> None:
        """Have a row rung; on return that is certain."""
        self.ctx.storage.kv.put(f"armed:{row}", True)
        await self.ctx.storage.set_alarm(self.ctx.clock.now_ms() / 1000 + ALARM_DELAY_SECONDS)

    async def alarm(self, info: AlarmInfo) -> None:
        enter("alarm")
        armed = list(self.ctx.storage.kv.list(prefix="armed:"))
        await asyncio.sleep(HANDLER_SECONDS)
        for key in armed:
            # In this order: a death in between rings twice, which an alarm may, instead of never.
            history().note(Rang(who=str(self.ctx.id), row=key.removeprefix("armed:")))
            self.ctx.storage.kv.delete(key)
            await self.ctx.storage.sync()
        enter("ready")
