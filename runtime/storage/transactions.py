"""Blocks that are stored whole or not at all.

``transaction_sync`` marks a place in the current transaction and returns to it if its function raises; what the
stretch wrote before stays. DuckDB has no savepoints: a nested block joins the outermost one, and once a nested one has
failed, the outermost rolls back whatever is caught in between (runtime D21). ``transaction`` has a session of its own,
may await, sees none of the writes of others that come later, and raises ``WriteConflict`` if one of them got in the
way (runtime D17).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, overload

from runtime.errors import StorageFailed, UsageError
from runtime.storage.alarm import read_alarm
from runtime.storage.kv import Stored, SyncKv
from runtime.storage.scope import Block, Confirmation, Nesting, Scope

__all__ = ["Transaction", "transaction", "transaction_sync"]

T = TypeVar("T")


class Transaction:
    """What the function of ``storage.transaction`` receives; unusable once the block is over or rolled back."""

    def __init__(self, scope: Scope, block: Block) -> None:
        self._scope = scope
        self._block = block
        self._kv = SyncKv(scope)

    @overload
    def get(self, key: str) -> Awaitable[Stored]: ...
    @overload
    def get(self, key: list[str]) -> Awaitable[dict[str, Stored]]: ...
    def get(self, key: str | list[str]) -> Awaitable[Stored]:
        """As ``storage.get``."""
        with self._scope.within(self._block):
            return Confirmation(None, self._kv.get(key))

    def put(self, key: str | Mapping[str, Stored], value: Stored = None) -> Awaitable[None]:
        """As ``storage.put``, durable with the block."""
        with self._scope.within(self._block):
            self._kv.put(key, value)
        return Confirmation(None, None)

    @overload
    def delete(self, key: str) -> Awaitable[bool]: ...
    @overload
    def delete(self, key: list[str]) -> Awaitable[int]: ...
    def delete(self, key: str | list[str]) -> Awaitable[bool | int]:
        """As ``storage.delete``, durable with the block."""
        with self._scope.within(self._block):
            return Confirmation(None, self._kv.delete(key))

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
        """As ``storage.list``."""
        with self._scope.within(self._block):
            found = self._kv.list(
                start=start, start_after=start_after, end=end, prefix=prefix, reverse=reverse, limit=limit
            )
        return Confirmation(None, found)

    def rollback(self) -> None:
        """Undo the block now; every later storage call inside it raises."""
        if self._block.ended is not None:
            raise self._block.ended
        self._block.is_rolled_back = True
        self._block.ended = UsageError("the transaction was rolled back by rollback(); nothing more can be done in it")
        self._block.session.close()


def transaction_sync(scope: Scope, fn: Callable[[], T]) -> T:
    """Run ``fn``; if it raises, undo its writes and nothing else.

    Raises:
        UsageError: ``fn`` is async, or a nested block failed and ``fn`` went on.
    """
    session = scope.session()
    nesting = scope.nesting()
    if nesting.depth:
        return _nested(nesting, fn)
    mark = session.mark()
    nesting.depth = 1
    try:
        result = fn()
        _refuse_awaitable(result)
        _refuse_after_failure(nesting.failure)
    except BaseException:
        session.rollback(mark)
        if nesting.is_alarm_touched:
            scope.alarm(read_alarm(session))
        raise
    finally:
        nesting.reset()
    return result


def _nested(nesting: Nesting, fn: Callable[[], T]) -> T:
    nesting.depth += 1
    try:
        result = fn()
        _refuse_awaitable(result)
    except BaseException as error:
        nesting.failure = nesting.failure or error
        raise
    finally:
        nesting.depth -= 1
    return result


async def transaction(scope: Scope, fn: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run ``fn`` in a transaction of its own and commit it; on return it is durable."""
    scope.gate.check()
    outer = scope.block()
    if outer is not None:
        return await _joined(scope, outer, fn)
    if scope.store.is_open_transaction:
        # What the caller wrote just before belongs to what fn reads.
        await scope.gate.durable()
    with scope.entered() as block:
        result = await _started(fn, Transaction(scope, block))
        if block.is_rolled_back:
            return result
        _refuse_after_failure(block.failure)
        await _commit(scope, block)
    return result


async def _joined(scope: Scope, outer: Block, fn: Callable[[Transaction], Awaitable[T]]) -> T:
    try:
        return await _started(fn, Transaction(scope, outer))
    except BaseException as error:
        outer.failure = outer.failure or error
        raise


def _started(fn: Callable[[Transaction], Awaitable[T]], txn: Transaction) -> Awaitable[T]:
    awaitable = fn(txn)
    if not inspect.isawaitable(awaitable):
        raise UsageError("transaction takes an async function; use storage.transaction_sync(fn) for a plain one")
    return awaitable


async def _commit(scope: Scope, block: Block) -> None:
    if block.ended is not None:
        raise block.ended
    if block.is_alarm_touched:
        # A commit that then fails costs one spurious wake (runtime D30).
        await scope.gate.announce(block.session)
    scope.gate.check()
    try:
        block.session.commit()
    except StorageFailed as error:
        scope.gate.lost(error)
        raise
    scope.gate.wrote(confirmed=True)
    await scope.gate.durable()


def _refuse_awaitable(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError(
            "transaction_sync takes a plain function, and this one is async or returned an awaitable; "
            "use await storage.transaction(fn)"
        )


def _refuse_after_failure(failure: BaseException | None) -> None:
    if failure is not None:
        raise UsageError(
            f"the transaction was rolled back: a nested one in it failed ({type(failure).__name__}: {failure}). "
            "There are no savepoints, so a nested failure cannot be caught inside."
        ) from failure
