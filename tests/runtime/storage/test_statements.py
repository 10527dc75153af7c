"""What kind of statement a text is (runtime/storage/statements.py)."""

from __future__ import annotations

import pytest

from runtime.storage.statements import changes_schema, is_write, refusal, returns_rows


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("SELECT", "SELECT * FROM inserts", False),
        ("SELECT", "FROM t WHERE deleted_at IS NULL", False),
        ("SELECT", "SELECT nextval('s')", True),
        ("SELECT", "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) FROM x", True),
        ("SELECT", "WITH x AS (DELETE FROM t RETURNING a) FROM x", True),
        ("EXPLAIN", "EXPLAIN SELECT 1", False),
        ("EXPLAIN", "EXPLAIN ANALYZE DELETE FROM t", True),
        ("PRAGMA", "PRAGMA table_info('t')", False),
        ("INSERT", "INSERT INTO t VALUES (1)", True),
        ("UPDATE", "UPDATE t SET a = 1", True),
        ("DELETE", "DELETE FROM t", True),
        ("MERGE_INTO", "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", True),
        ("CREATE", "CREATE TABLE t (a INTEGER)", True),
        ("COPY", "COPY t FROM 'x.csv'", True),
        ("SOMETHING_NEW", "?", True),
    ],
)
def test_a_statement_is_a_write_unless_it_is_certainly_none(kind: str, text: str, expected: bool) -> None:
    assert is_write(kind, text) is expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("SELECT", "SELECT 1", True),
        ("INSERT", "INSERT INTO t VALUES (1)", False),
        ("INSERT", "INSERT INTO t VALUES (1) RETURNING a", True),
        ("UPDATE", "UPDATE t SET a = 'it''s returning'", False),
        ("CREATE", "CREATE TABLE t AS SELECT 1", False),
        ("COPY", "COPY t TO 'x.csv'", False),
        ("PRAGMA", "PRAGMA table_info('t')", True),
    ],
)
def test_rows_are_data_unless_they_are_a_count(kind: str, text: str, expected: bool) -> None:
    assert returns_rows(kind, text) is expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("CREATE", "CREATE TABLE t (a INTEGER)", True),
        ("CREATE", "create or replace temp table t (a INTEGER)", False),
        ("CREATE", "CREATE TEMPORARY VIEW v AS SELECT 1", False),
        ("DROP", "DROP TABLE t", True),
        ("ALTER", "ALTER TABLE t ADD COLUMN b INTEGER", True),
        ("INSERT", "INSERT INTO t VALUES (1)", False),
    ],
)
def test_a_change_of_the_schema_is_seen(kind: str, text: str, expected: bool) -> None:
    assert changes_schema(kind, text) is expected


@pytest.mark.parametrize(
    ("kind", "text", "is_refused"),
    [
        ("TRANSACTION", "BEGIN", True),
        ("PRAGMA", "PRAGMA table_info('t')", False),
        ("PRAGMA", "PRAGMA show_tables", False),
        ("PRAGMA", "PRAGMA disable_optimizer", True),
        ("SET", "SET threads = 8", True),
        ("SELECT", "SELECT 1", False),
    ],
)
def test_what_user_code_may_run(kind: str, text: str, is_refused: bool) -> None:
    assert (refusal(kind, text) is not None) is is_refused
