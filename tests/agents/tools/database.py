"""An agent's database as its workspace sees it: the real storage, with nobody behind the gate."""

from __future__ import annotations

from runtime.storage.duckdb import open_store
from runtime.storage.storage import Storage


class OpenGate:
    def check(self):
        pass

    def wrote(self, *, confirmed):
        pass

    async def durable(self):
        pass

    def alarm(self, at_ms):
        pass

    def lost(self, error):
        raise AssertionError(error)

    async def announce(self, session):
        pass


class Database:
    """Records statements, so that tests can hold how many an operation takes; commits when told to."""

    def __init__(self, folder):
        self._store = open_store(folder, inline=True)
        self._sql = Storage(self._store, OpenGate()).sql
        self.queries: list[str] = []

    def exec(self, query, *bindings):
        self.queries.append(query)
        return self._sql.exec(query, *bindings)

    def rows(self, query):
        return self._sql.exec(query).to_list()

    def commit(self):
        self._store.commit()

    def close(self):
        self._store.close(checkpoint=False)
