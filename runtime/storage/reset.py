"""Emptying an object's database: ``storage.delete_all`` (runtime D18).

What the user made is dropped. The runtime's own tables, all named ``cf_*``, are emptied and stay, since the live
instance goes on using them.
"""

from __future__ import annotations

from runtime.storage.alarm import clear_alarm
from runtime.storage.store import Session

__all__ = ["delete_everything"]

HERE = "WHERE database_name = current_database()"
MAIN = f"{HERE} AND schema_name = 'main'"

OWN_TABLES = f"SELECT table_name FROM duckdb_tables() {MAIN} AND starts_with(table_name, 'cf_')"
USER_TABLES = f"SELECT table_name FROM duckdb_tables() {MAIN} AND NOT starts_with(table_name, 'cf_')"
REFERENCES = f"SELECT table_name, referenced_table FROM duckdb_constraints() {MAIN} AND constraint_type = 'FOREIGN KEY'"
SCHEMAS = f"SELECT schema_name FROM duckdb_schemas() {HERE} AND schema_name <> 'main' AND NOT internal"

# The versions of the tables, and the alarm slot: it is emptied, but its own version must go on growing.
KEPT = frozenset({"cf_schema", "cf_alarm"})

# In the order of dropping: what may depend on others first. Tables stand between the two.
BEFORE_TABLES = (("VIEW", f"SELECT view_name FROM duckdb_views() {MAIN} AND NOT internal"),)
AFTER_TABLES = (
    ("SEQUENCE", f"SELECT sequence_name FROM duckdb_sequences() {MAIN}"),
    (
        "MACRO",
        f"SELECT DISTINCT function_name FROM duckdb_functions() {MAIN} AND NOT internal AND function_type = 'macro'",
    ),
    (
        "MACRO TABLE",
        f"SELECT DISTINCT function_name FROM duckdb_functions() {MAIN} AND NOT internal "
        "AND function_type = 'table_macro'",
    ),
    ("TYPE", f"SELECT type_name FROM duckdb_types() {MAIN} AND NOT internal"),
)


def delete_everything(session: Session) -> None:
    """Drop or empty all that is stored, in the session's transaction; undone as a whole if a part fails."""
    mark = session.mark()
    try:
        for name in _names(session, SCHEMAS):
            session.execute(f"DROP SCHEMA {_quoted(name)} CASCADE")
        for kind, query in BEFORE_TABLES:
            _drop(session, kind, _names(session, query))
        _drop(session, "TABLE", _referencing_first(session))
        for kind, query in AFTER_TABLES:
            _drop(session, kind, _names(session, query))
        for name in _names(session, OWN_TABLES):
            if name not in KEPT:
                session.execute(f"DELETE FROM {_quoted(name)}")
        clear_alarm(session)
    except BaseException:
        session.rollback(mark)
        raise


def _drop(session: Session, kind: str, names: list[str]) -> None:
    for name in names:
        session.execute(f"DROP {kind} {_quoted(name)}")


def _referencing_first(session: Session) -> list[str]:
    """The user's tables, each before those that its foreign keys point to."""
    left = _names(session, USER_TABLES)
    references = [(str(table), str(target)) for table, target in session.execute(REFERENCES).rows if table != target]
    ordered: list[str] = []
    while left:
        pointed_to = {target for table, target in references if table in left}
        # Foreign keys cannot form a circle: a table is created after those it points to.
        free = [table for table in left if table not in pointed_to]
        assert free, "foreign keys form a circle"
        ordered += free
        left = [table for table in left if table in pointed_to]
    return ordered


def _names(session: Session, query: str) -> list[str]:
    return sorted(str(name) for (name,) in session.execute(query).rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
