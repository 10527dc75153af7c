"""What kind of statement a piece of SQL is, and which ones user code may not run.

The parser is DuckDB's (``runtime.storage.duckdb`` calls it); here its kinds are sorted. A statement counts as a write
unless it certainly is none: taking a read for a write costs one empty transaction, the reverse would store something
outside the stretch (runtime D10).
"""

from __future__ import annotations

import re

__all__ = ["changes_schema", "is_write", "refusal", "returns_rows", "unparsed_refusal"]

# A SELECT may hold one of these in a common table expression, and ``nextval`` moves a sequence.
WRITING_WORDS = re.compile(r"\b(insert|update|delete|merge|truncate|nextval|copy)\b", re.IGNORECASE)
ANALYZE = re.compile(r"\banalyze\b", re.IGNORECASE)
LITERAL = re.compile(r"'(?:[^']|'')*'")
RETURNING = re.compile(r"\breturning\b", re.IGNORECASE)
HARMLESS_PRAGMA = re.compile(r"^\s*pragma\s+(table_info|show_tables)\b", re.IGNORECASE)
TEMPORARY = re.compile(r"^\s*create\s+(or\s+replace\s+)?temp(orary)?\b", re.IGNORECASE)

COUNTING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO"})
SCHEMA = frozenset({"CREATE", "DROP", "ALTER"})

TRANSACTIONS = (
    "transactions are not controlled through SQL: the writes up to the next await are one transaction already; "
    "use storage.transaction_sync(fn) for a block that can be rolled back, storage.transaction(fn) for one that awaits"
)
OWN_SETTINGS = "the database's settings, files and checkpoints belong to the runtime; the statement was not run"
REFUSED = {
    "TRANSACTION": TRANSACTIONS,
    "SAVEPOINT": TRANSACTIONS,
    "ATTACH": OWN_SETTINGS,
    "DETACH": OWN_SETTINGS,
    "SET": OWN_SETTINGS,
    "VARIABLE_SET": OWN_SETTINGS,
    "LOAD": OWN_SETTINGS,
    "EXPORT": OWN_SETTINGS,
    "PRAGMA": OWN_SETTINGS,
    "CALL": OWN_SETTINGS,
    # They would hide from us whether a write is run.
    "PREPARE": "prepared statements are kept by the runtime; pass the query and its bindings instead",
    "EXECUTE": "prepared statements are kept by the runtime; pass the query and its bindings instead",
}
# DuckDB has no savepoints, so its parser knows no such word; the answer must be better than a syntax error.
SAVEPOINTS = re.compile(r"^\s*(savepoint|release)\b", re.IGNORECASE)


def is_write(kind: str, text: str) -> bool:
    """Whether the statement may change the database."""
    if kind == "SELECT":
        return WRITING_WORDS.search(text) is not None
    if kind == "EXPLAIN":
        return ANALYZE.search(text) is not None
    return kind not in {"PRAGMA", "CALL", "SET", "VARIABLE_SET", "ATTACH", "DETACH", "LOAD", "TRANSACTION"}


def changes_schema(kind: str, text: str) -> bool:
    """Whether tables, views or the like may differ afterwards."""
    return kind in SCHEMA and TEMPORARY.search(text) is None


def returns_rows(kind: str, text: str) -> bool:
    """Whether the statement's rows are data, not a count of what it changed."""
    if kind in COUNTING:
        return RETURNING.search(LITERAL.sub("''", text)) is not None
    return kind not in SCHEMA and kind != "COPY"


def refusal(kind: str, text: str) -> str | None:
    """Why user code may not run this statement (runtime D21); None if it may."""
    if kind == "PRAGMA" and HARMLESS_PRAGMA.search(text):
        return None
    return REFUSED.get(kind)


def unparsed_refusal(text: str) -> str | None:
    """Why a text that did not parse is refused, if a better reason than the parser's is known."""
    return TRANSACTIONS if SAVEPOINTS.search(text) else None
