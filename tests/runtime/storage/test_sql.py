"""SQL for user code (runtime D20, D21, D23)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from runtime.errors import SqlError, UsageError
from runtime.storage.storage import Storage
from runtime.storage.store import Value


@pytest.fixture
def notes(storage: Storage) -> Storage:
    storage.sql.exec("CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR)")
    storage.sql.exec("INSERT INTO notes VALUES (1, 'one'), (2, 'two')")
    return storage


def test_a_cursor_iterates_over_rows_as_dicts(notes: Storage) -> None:
    # D20
    assert [row["text"] for row in notes.sql.exec("SELECT id, text FROM notes ORDER BY id")] == ["one", "two"]


def test_to_list_gives_all_rows(notes: Storage) -> None:
    # D20
    assert notes.sql.exec("SELECT * FROM notes ORDER BY id").to_list() == [
        {"id": 1, "text": "one"},
        {"id": 2, "text": "two"},
    ]


def test_one_gives_the_only_row(notes: Storage) -> None:
    # D20
    assert notes.sql.exec("SELECT text FROM notes WHERE id = ?", 2).one() == {"text": "two"}


@pytest.mark.parametrize(("where", "count"), [("id > 0", 2), ("id > 9", 0)])
def test_one_refuses_none_and_many(notes: Storage, where: str, count: int) -> None:
    # D20
    with pytest.raises(UsageError, match=f"gave {count}"):
        notes.sql.exec(f"SELECT * FROM notes WHERE {where}").one()


def test_raw_gives_tuples_and_column_names_their_names(notes: Storage) -> None:
    # D20
    cursor = notes.sql.exec("SELECT text, id FROM notes ORDER BY id")
    assert (cursor.column_names, list(cursor.raw())) == (["text", "id"], [("one", 1), ("two", 2)])


def test_all_ways_to_read_share_one_position(notes: Storage) -> None:
    # D20
    cursor = notes.sql.exec("SELECT id FROM notes ORDER BY id")
    assert (next(iter(cursor)), list(cursor.raw()), cursor.to_list()) == ({"id": 1}, [(2,)], [])


def test_a_write_gives_no_rows_and_counts(notes: Storage) -> None:
    # D20
    cursor = notes.sql.exec("UPDATE notes SET text = 'x'")
    assert (cursor.to_list(), cursor.column_names, cursor.rows_written) == ([], [], 2)


def test_bindings_go_to_the_last_of_several_statements(notes: Storage) -> None:
    # D20
    cursor = notes.sql.exec("DELETE FROM notes; INSERT INTO notes VALUES (3, 'x'); SELECT id + ? AS sum FROM notes", 4)
    assert cursor.one() == {"sum": 7}


def test_placeholders_before_the_last_statement_are_refused(notes: Storage) -> None:
    # D20
    with pytest.raises(SqlError, match="last statement only"):
        notes.sql.exec("DELETE FROM notes WHERE id = ?; SELECT 1")


@pytest.mark.parametrize("value", [None, True, 7, 2**100, 1.5, "é", b"\x00", datetime(2026, 1, 2, tzinfo=UTC)])
def test_a_binding_reads_back_as_it_was(storage: Storage, value: Value) -> None:
    # D20
    assert storage.sql.exec("SELECT ? AS value", value).one() == {"value": value}


@pytest.mark.parametrize(
    "query",
    [
        "BEGIN",
        "START TRANSACTION",
        "COMMIT",
        "END",
        "ROLLBACK",
        "ABORT",
        "SAVEPOINT here",
        "RELEASE SAVEPOINT here",
        "SELECT 1; COMMIT",
        "INSERT INTO notes VALUES (9, 'x'); ROLLBACK",
        "  -- quietly\n CoMmIt ",
    ],
)
def test_transactions_are_refused_and_the_way_is_named(notes: Storage, query: str) -> None:
    # D21
    with pytest.raises(SqlError, match="transaction_sync") as caught:
        notes.sql.exec(query)
    assert (caught.value.query, len(notes.sql.exec("SELECT * FROM notes").to_list())) == (query, 2)


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH 'other.db' AS other",
        "DETACH object",
        "USE memory",
        "SET memory_limit = '1GB'",
        "SET VARIABLE x = 1",
        "RESET threads",
        "PRAGMA disable_optimizer",
        "CHECKPOINT",
        "FORCE CHECKPOINT",
        "CALL pragma_version()",
        "LOAD fts",
        "INSTALL fts",
        "EXPORT DATABASE 'x'",
        "PREPARE p AS DELETE FROM notes",
        "EXECUTE p",
    ],
)
def test_what_belongs_to_the_runtime_is_refused(notes: Storage, query: str) -> None:
    # D21
    with pytest.raises(SqlError, match="refused"):
        notes.sql.exec(query)


@pytest.mark.parametrize("query", ["PRAGMA table_info('notes')", "DESCRIBE notes", "SHOW TABLES", "EXPLAIN SELECT 1"])
def test_looking_at_tables_is_allowed(notes: Storage, query: str) -> None:
    assert notes.sql.exec(query).to_list() != []


def test_a_statement_of_a_kind_that_duckdbs_module_cannot_name_is_an_sql_error(storage: Storage) -> None:
    # D23
    with pytest.raises(SqlError, match="of no kind that is known here") as caught:
        storage.sql.exec("UPDATE EXTENSIONS")
    assert caught.value.query == "UPDATE EXTENSIONS"


def test_a_failure_carries_the_query_and_its_cause(storage: Storage) -> None:
    # D23
    with pytest.raises(SqlError, match="Table with name nowhere does not exist") as caught:
        storage.sql.exec("SELECT * FROM nowhere WHERE a = ?", 1)
    assert caught.value.query == "SELECT * FROM nowhere WHERE a = ?"
    assert type(caught.value.__cause__).__name__ == "CatalogException"


@pytest.mark.parametrize("value", [object(), 2**200, "\ud800"])
def test_a_binding_that_has_no_form_in_sql_is_an_sql_error(storage: Storage, value: object) -> None:
    # D23
    with pytest.raises(SqlError):
        storage.sql.exec("SELECT ?", value)  # type: ignore[arg-type]


def test_a_name_of_a_python_variable_is_no_table(storage: Storage) -> None:
    names = [{"a": 1}]
    with pytest.raises(SqlError, match="names"):
        storage.sql.exec("SELECT * FROM names")
    assert names


def test_tables_are_made_in_the_objects_file(storage: Storage) -> None:
    storage.sql.exec("CREATE TABLE t (a INTEGER)")
    assert storage.sql.exec("SELECT database_name FROM duckdb_tables() WHERE table_name = 't'").one() == {
        "database_name": "object"
    }


def test_many_different_texts_are_all_run(storage: Storage) -> None:
    # The store remembers parsed statements by their text, up to a limit.
    assert [storage.sql.exec(f"SELECT {number} AS n").one()["n"] for number in range(600)] == list(range(600))
