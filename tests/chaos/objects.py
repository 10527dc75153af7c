"""Objects of the chaos tests. They live in a module of their own, since the actors import it too."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import ClassVar

from runtime import DurableObject
from runtime.calls import idempotent
from runtime.context import Context

STEPS = ("CREATE TABLE notes (id INTEGER PRIMARY KEY, body VARCHAR NOT NULL)",)


class Notes(DurableObject):
    """Acknowledges lines of text; sleeps only when it is told to."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 600.0, "open_timeout": 30.0}

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        ctx.migrate("notes", STEPS)

    async def add(self, body: str) -> int:
        number = len(await self.lines()) + 1
        self.ctx.storage.sql.exec("INSERT INTO notes VALUES (?, ?)", number, body)
        return number

    @idempotent
    async def lines(self) -> list[str]:
        return [str(row["body"]) for row in self.ctx.storage.sql.exec("SELECT body FROM notes ORDER BY id").to_list()]

    @idempotent
    async def called(self) -> str:
        return self.name


class Hasty(Notes):
    """The same, without patience for whoever holds its files."""

    options: ClassVar[dict[str, object]] = {"open_timeout": 0.2}


class Sleeper(DurableObject):
    """Has an alarm, or work that must not stop."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 600.0}

    async def arm(self, seconds: float) -> None:
        await self.ctx.storage.set_alarm(self.ctx.clock.now_ms() / 1000 + seconds)

    async def alarm(self, info: object) -> None:
        self.ctx.storage.kv.put("rang", (self.ctx.storage.kv.get("rang") or 0) + 1)

    @idempotent
    async def rang(self) -> int:
        return self.ctx.storage.kv.get("rang") or 0

    async def work(self) -> None:
        await self.ctx.keep_alive()


class Unprintable(Exception):
    """As bad as an exception can be: neither text nor pickle can be made of it."""

    def __init__(self) -> None:
        super().__init__("hidden")
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no text either")


class Unpicklable(Exception):
    """Carries what no other process can have."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class Tripper(Notes):
    """Everything that user code can do wrong."""

    async def returns_a_lock(self) -> object:
        self.ctx.storage.kv.put("before", "the result was refused")
        return threading.Lock()

    async def raises_unpicklable(self) -> None:
        raise Unpicklable("the lock is inside")

    async def raises_unprintable(self) -> None:
        raise Unprintable

    async def put(self, key: str, value: object) -> None:
        self.ctx.storage.kv.put(key, value)

    async def get(self, key: str) -> object:
        return self.ctx.storage.kv.get(key)

    async def run_sql(self, query: str) -> None:
        self.ctx.storage.sql.exec(query)

    async def survives_bad_sql(self) -> int:
        await self.add("before the bad statement")
        with contextlib.suppress(Exception):
            self.ctx.storage.sql.exec("INSERT INTO notes VALUES (1, 'the number is taken')")
        return await self.add("after it")

    async def exits(self) -> None:
        os._exit(3)

    async def _hidden(self) -> None: ...

    attribute = "no method"


class Speaker(DurableObject):
    """Prints and logs."""

    async def speak(self) -> None:
        print("said by print")
        logging.getLogger("speaker").warning("said by a log")
