"""``ctx.storage``: keys and values, SQL, transactions and the alarm slot of one object.

Writes happen at the call, on the loop's thread, in the stretch of the caller; what a call returns is only there to
wait for durability. So ``storage.put("a", 1); storage.sql.exec(...)`` is one transaction, and ``await
storage.put("a", 1)`` ends it (runtime D10, D12). ``transaction_sync`` marks a part of the stretch that can be undone,
``transaction`` opens one of its own that may await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeVar, overload

from runtime.storage import alarm, transactions
from runtime.storage.kv import KV_TABLE, Stored, SyncKv
from runtime.storage.migrations import migrate
from runtime.storage.reset import delete_everything
from runtime.storage.scope import Confirmation, Gate, Scope
from runtime.storage.sql import Sql
from runtime.storage.store import Store
from runtime.storage.transactions import Transaction

__all__ = ["STEPS", "Gate", "Storage", "Transaction", "prepare"]

T = TypeVar("T")

# The migration of the component "storage".
STEPS = (f"{KV_TABLE}; {alarm.ALARM_TABLE}",)


def prepare(store: Store, known: dict[str, int] | None = None) -> None:
    """Make sure that the tables of the storage exist; ``known`` is what ``migrations.versions`` returned."""
    migrate(store, "storage", STEPS, known)


class Storage:
    """The durable data of one object.

    Attributes:
        kv: The key-value operations in synchronous form.
        sql: SQL on the same file.
    """

    def __init__(self, store: Store, gate: Gate) -> None:
        self._scope = Scope(store, gate)
        self.kv = SyncKv(self._scope)
        self.sql = Sql(self._scope)

    @overload
    def get(self, key: str) -> Awaitable[Stored]: ...
    @overload
    def get(self, key: list[str]) -> Awaitable[dict[str, Stored]]: ...
    def get(self, key: str | list[str]) -> Awaitable[Stored]:
        """The value of a key, or None; for a list of keys a dict in key order, without those that are absent."""
        return Confirmation(None, self.kv.get(key))

    def put(
        self, key: str | Mapping[str, Stored], value: Stored = None, *, allow_unconfirmed: bool = False
    ) -> Awaitable[None]:
        """Set a key, or all pairs of a mapping, as one unit; written at the call, durable when awaited.

        Args:
            key: Text, or a mapping of keys to values.
            value: JSON, bytes or aware datetime; with its key at most 2 MB.
            allow_unconfirmed: Neither replies nor this awaitable wait for durability.
        """
        self.kv.put(key, value, confirmed=not allow_unconfirmed)
        return self._scope.confirmation(None, confirmed=not allow_unconfirmed)

    @overload
    def delete(self, key: str, *, allow_unconfirmed: bool = False) -> Awaitable[bool]: ...
    @overload
    def delete(self, key: list[str], *, allow_unconfirmed: bool = False) -> Awaitable[int]: ...
    def delete(self, key: str | list[str], *, allow_unconfirmed: bool = False) -> Awaitable[bool | int]:
        """Remove a key and say whether it existed; for a list of keys, how many did."""
        result = self.kv.delete(key, confirmed=not allow_unconfirmed)
        return self._scope.confirmation(result, confirmed=not allow_unconfirmed)

    def list(
        self,
        *,
        start: str | None = None,
        start_after: str | None = None,
        end: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Awaitable[dict[str, Stored]]:
        """Pairs in the order of their keys' UTF-8 bytes; see ``kv.list`` for the options."""
        found = self.kv.list(start=start, start_after=start_after, end=end, prefix=prefix, reverse=reverse, limit=limit)
        return Confirmation(None, found)

    def transaction_sync(self, fn: Callable[[], T]) -> T:
        """Run ``fn``; if it raises, its writes are undone and those before it stay.

        A nested one joins the outermost; if it fails, the outermost rolls back even if the error is caught.

        Raises:
            UsageError: ``fn`` is async, or went on after a nested one had failed.

        Differs: there a nested transaction can be rolled back alone; DuckDB has no savepoints.
        """
        return transactions.transaction_sync(self._scope, fn)

    @property
    def is_in_transaction_sync(self) -> bool:
        """Whether the running code is inside ``transaction_sync``, so that what it has written may yet be undone."""
        return self._scope.nesting().depth > 0

    async def transaction(self, fn: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``fn``, which may await, in a transaction of its own; durable on return, undone if ``fn`` raises.

        All storage calls inside belong to it; others see nothing of it before. It sees the state of its first call.
        What conflicts is two writes of one row; a delete of a key that is not there writes nothing.

        Raises:
            WriteConflict: Another call wrote the same key or row meanwhile. Nothing was stored; run it again.
        """
        return await transactions.transaction(self._scope, fn)

    def delete_all(self, *, allow_unconfirmed: bool = False) -> Awaitable[None]:
        """Remove all keys, all tables of the user and the alarm, as one unit.

        Tables of the runtime stay, empty.
        """
        delete_everything(self._scope.session())
        self._scope.wrote(confirmed=not allow_unconfirmed)
        self._scope.alarm(None)
        return self._scope.confirmation(None, confirmed=not allow_unconfirmed)

    async def sync(self) -> None:
        """Return when all earlier writes are durable."""
        self._scope.gate.check()
        await self._scope.gate.durable()

    def set_alarm(self, when: float | datetime, *, allow_unconfirmed: bool = False) -> Awaitable[None]:
        """Wake the object at ``when``, in place of an earlier alarm.

        Args:
            when: Epoch seconds or an aware datetime; a past time fires at once.
            allow_unconfirmed: Neither replies nor this awaitable wait for durability.

        Raises:
            UsageError: ``when`` is a naive datetime, NaN or beyond the year 9999.
        """
        at_ms = alarm.alarm_at_ms(when)
        alarm.write_alarm(self._scope.session(), at_ms)
        return self._alarm_written(at_ms, allow_unconfirmed)

    def get_alarm(self) -> Awaitable[float | None]:
        """Epoch seconds of the alarm, or None."""
        at_ms = alarm.read_alarm(self._scope.session())
        return Confirmation(None, None if at_ms is None else at_ms / 1000)

    def delete_alarm(self, *, allow_unconfirmed: bool = False) -> Awaitable[None]:
        """Clear the alarm; a handler that is running already goes on."""
        alarm.clear_alarm(self._scope.session())
        return self._alarm_written(None, allow_unconfirmed)

    def _alarm_written(self, at_ms: int | None, allow_unconfirmed: bool) -> Awaitable[None]:
        self._scope.wrote(confirmed=not allow_unconfirmed)
        self._scope.alarm(at_ms)
        return self._scope.confirmation(None, confirmed=not allow_unconfirmed)
