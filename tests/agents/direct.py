"""An agent without a host: its database is real, its journal is late, and time is the loop's."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from runtime import Context, ObjectId
from runtime.storage.duckdb import open_store
from runtime.storage.migrations import migrate, versions
from runtime.storage.storage import Storage, prepare
from tests.runtime.storage.open_gate import OpenGate


class LateJournal:
    """A store whose appends reach the disk some milliseconds after they were asked for; with 0, at once.

    Attributes:
        log: What happened, in order: ``commit``, ``append``.
    """

    def __init__(self, inner, seconds=0.005):
        self._inner = inner
        self._seconds = seconds
        self.log = []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def commit(self):
        if self._inner.is_open_transaction:
            self.log.append("commit")
        self._inner.commit()

    def append(self, table, rows):
        done = Future()
        if not self._seconds:
            self._write(table, rows, done)
            return done
        asyncio.get_running_loop().call_later(self._seconds, self._write, table, rows, done)
        return done

    def _write(self, table, rows, done):
        self._inner.append(table, rows).result()
        self.log.append("append")
        done.set_result(None)


class Held:
    def release(self):
        pass


class LoopClock:
    def now_ms(self):
        return round(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


class DirectContext(Context):
    """A context that commits when it is told to and not by itself."""

    def __init__(self, folder, seconds=0.005):
        self.store = LateJournal(open_store(folder, inline=True), seconds)
        self._versions = versions(self.store)
        prepare(self.store, self._versions)
        self.storage = self.slot = Storage(self.store, OpenGate(self.store))
        self.clock = LoopClock()
        self.id = ObjectId.root("Direct", "a")
        self.folder = folder
        self.tasks = []

    def migrate(self, component, steps):
        migrate(self.store, component, steps, self._versions)

    async def keep_alive(self):
        return Held()

    def writing(self):
        pass

    def progressed(self):
        pass

    async def flush(self):
        self.store.commit()

    def spawn(self, work, name):
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    def abort(self, reason):
        raise AssertionError(reason)

    def service(self, cls, name):
        return None

    def close(self):
        """The end of the instance."""
        for task in self.tasks:
            task.cancel()
        self.store.close(checkpoint=False)
