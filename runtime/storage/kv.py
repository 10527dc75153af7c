"""Keys and values of one object, in their synchronous form: ``storage.kv``.

A value is msgpack in a BLOB, so that it reads back as it was written; what msgpack would change on the way (a tuple
into a list, a naive datetime into text) is refused instead. Keys are compared by their UTF-8 bytes, which is also how
DuckDB orders text. The table is internal and shares the file with the user's SQL (runtime D19).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from runtime.errors import StorageLimit, UsageError
from runtime.storage.scope import Scope
from runtime.storage.store import Session, Value

__all__ = ["KV_TABLE", "Stored", "SyncKv"]

KV_TABLE = "CREATE TABLE cf_kv (key VARCHAR PRIMARY KEY, value BLOB NOT NULL)"

# D14: the platform's limit of key and value together.
PAIR_BYTES_MAX = 2 * 1024 * 1024
# Statements are cached by their text, so keys are taken in groups of few sizes.
GROUPS = (64, 8, 1)

T = TypeVar("T")

# JSON plus bytes and datetime (N3); mypy has no recursive form that also accepts the user's own nested types.
Stored: TypeAlias = Any

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class SyncKv:
    """``storage.kv``: get, put, delete and list, each complete when it returns and durable with its stretch."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @overload
    def get(self, key: str) -> Stored: ...
    @overload
    def get(self, key: list[str]) -> dict[str, Stored]: ...
    def get(self, key: str | list[str]) -> Stored:
        """The value of a key, or None; for a list of keys a dict in key order, without those that are absent."""
        session = self._scope.session()
        if isinstance(key, str):
            found = session.execute("SELECT value FROM cf_kv WHERE key = ?", (_checked(key),)).rows
            return _decoded(found[0][0]) if found else None
        pairs: list[tuple[Value, ...]] = []
        for group in _groups(_keys(key)):
            pairs += session.execute(f"SELECT key, value FROM cf_kv WHERE key IN ({_marks(group)})", group).rows
        return {str(one): _decoded(value) for one, value in sorted(pairs, key=lambda pair: str(pair[0]))}

    def put(self, key: str | Mapping[str, Stored], value: Stored = None, *, confirmed: bool = True) -> None:
        """Set a key, or all pairs of a mapping, as one unit.

        Raises:
            StorageLimit: A key and its value have over 2 MB; nothing is written.
            UsageError: A value is not JSON, bytes or an aware datetime; nothing is written.
        """
        pairs = key if isinstance(key, Mapping) else {key: value}
        encoded = [(_checked(one), _encoded(one, pairs[one])) for one in pairs]
        if not encoded:
            return
        session = self._scope.session()
        mark = session.mark()
        try:
            if len(encoded) == 1:
                _put_one(session, *encoded[0])
            else:
                _put_many(session, encoded)
        except BaseException:
            session.rollback(mark)
            raise
        self._scope.wrote(confirmed=confirmed)

    @overload
    def delete(self, key: str, *, confirmed: bool = True) -> bool: ...
    @overload
    def delete(self, key: list[str], *, confirmed: bool = True) -> int: ...
    def delete(self, key: str | list[str], *, confirmed: bool = True) -> bool | int:
        """Remove a key and say whether it existed; for a list of keys, how many did."""
        keys = _keys(key)
        session = self._scope.session()
        mark = session.mark()
        count = 0
        try:
            for group in _groups(keys):
                marks = _marks(group)
                if self._scope.blocks_open:
                    # DuckDB lets an update of a row pass while another transaction deletes it, and loses the update;
                    # two updates conflict. It leaves out one that changes nothing, but no value is ever empty.
                    session.execute(f"UPDATE cf_kv SET value = ''::BLOB WHERE key IN ({marks})", group)
                count += session.execute(f"DELETE FROM cf_kv WHERE key IN ({marks})", group).changed
        except BaseException:
            session.rollback(mark)
            raise
        self._scope.wrote(confirmed=confirmed)
        return count > 0 if isinstance(key, str) else count

    def list(
        self,
        *,
        start: str | None = None,
        start_after: str | None = None,
        end: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> dict[str, Stored]:
        """Pairs in the order of their keys' UTF-8 bytes.

        Args:
            start: First key, inclusive.
            start_after: Keys after this one; not together with ``start``.
            end: Where to stop, exclusive.
            prefix: Only keys that begin so.
            reverse: Descending; ``start`` stays the lower and ``end`` the upper bound.
            limit: At most so many, counted in the order of the result.
        """
        query, bindings = _list_query(start, start_after, end, prefix, reverse, limit)
        found = self._scope.session().execute(query, bindings).rows
        return {str(key): _decoded(value) for key, value in found}


def _put_one(session: Session, key: str, data: bytes) -> None:
    # INSERT ... ON CONFLICT takes five times as long.
    if session.execute("UPDATE cf_kv SET value = ? WHERE key = ?", (data, key)).changed == 0:
        session.execute("INSERT INTO cf_kv VALUES (?, ?)", (key, data))


def _put_many(session: Session, pairs: list[tuple[str, bytes]]) -> None:
    known: set[Value] = set()
    for group in _groups([key for key, _ in pairs]):
        known |= {
            key for (key,) in session.execute(f"SELECT key FROM cf_kv WHERE key IN ({_marks(group)})", group).rows
        }
    for stored in _groups([pair for pair in pairs if pair[0] in known]):
        rows = ", ".join(["(?::VARCHAR, ?::BLOB)"] * len(stored))
        session.execute(
            f"UPDATE cf_kv SET value = new.value FROM (VALUES {rows}) AS new(key, value) WHERE cf_kv.key = new.key",
            _flat(stored),
        )
    for fresh in _groups([pair for pair in pairs if pair[0] not in known]):
        session.execute(f"INSERT INTO cf_kv VALUES {', '.join(['(?, ?)'] * len(fresh))}", _flat(fresh))


def _flat(pairs: list[tuple[str, bytes]]) -> list[Value]:
    return [value for pair in pairs for value in pair]


def _list_query(
    start: str | None, start_after: str | None, end: str | None, prefix: str | None, reverse: bool, limit: int | None
) -> tuple[str, list[Value]]:
    if start is not None and start_after is not None:
        raise UsageError("list() takes start or start_after, not both")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise UsageError(f"limit must be a whole number of at least 1, not {limit!r}")
    clauses: list[str] = []
    bindings: list[Value] = []
    for clause, bound in (
        ("key >= ?", start),
        ("key > ?", start_after),
        ("key < ?", end),
        ("starts_with(key, ?)", prefix),
    ):
        if bound is not None:
            clauses.append(clause)
            bindings.append(_checked(bound))
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    order = " ORDER BY key DESC" if reverse else " ORDER BY key"
    if limit is not None:
        bindings.append(limit)
    return f"SELECT key, value FROM cf_kv{where}{order}{' LIMIT ?' if limit is not None else ''}", bindings


def _groups(items: list[T]) -> Iterable[list[T]]:
    at = 0
    while at < len(items):
        size = next(size for size in GROUPS if size <= len(items) - at)
        yield items[at : at + size]
        at += size


def _marks(items: list[str]) -> str:
    return ", ".join("?" * len(items))


def _keys(given: str | list[str]) -> list[str]:
    """Each key once, in order."""
    if isinstance(given, list | tuple | set | frozenset):
        return sorted({_checked(one) for one in given})
    return [_checked(given)]


def _checked(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"a storage key must be text, not {type(key).__name__}: {key!r:.80}")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the storage key {key!r:.80} holds an unpaired surrogate") from error
    return key


def _encoded(key: str, value: Stored) -> bytes:
    try:
        data = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"the value of {key!r:.80} cannot be stored: {error}. Store JSON, bytes or datetime."
        ) from error
    size = len(key.encode()) + len(data)
    if size > PAIR_BYTES_MAX:
        raise StorageLimit(f"the key {key!r:.80} and its value have {size:,} bytes; at most {PAIR_BYTES_MAX:,} fit")
    if _decode(data) != value:
        _refuse_changed(key, value, "")
    return data


def _refuse_changed(key: str, value: object, path: str) -> None:
    """Find what would read back as something else; NaN, which equals nothing, is the one thing that would not."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_changed(key, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_changed(key, item, f"{path}[{name!r}]")
    elif isinstance(value, float) and math.isnan(value):
        return
    elif isinstance(value, datetime) and value.tzinfo is None:
        raise UsageError(f"the value of {key!r:.80}{path} is a datetime without a time zone; give it one")
    elif _decode(_encode(value)) != value:
        raise UsageError(
            f"the value of {key!r:.80}{path} is a {type(value).__name__}, which would not read back as written; "
            "store JSON (text, numbers, lists, dicts), bytes or datetime"
        )


def _decoded(data: Value) -> Stored:
    assert isinstance(data, bytes), "cf_kv holds values as BLOB"
    return _decode(data)
