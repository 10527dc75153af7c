"""Versions of the tables in an object's database.

Each component (the storage itself, the host, the fibers, the agents) owns some tables and a list of steps that lead
to them. A database remembers in ``cf_schema`` how many steps of each component it has seen; ``migrate`` runs the rest
in one transaction. Steps are never changed once released, only added (see tests/golden).
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import SqlError, StorageCorrupt
from runtime.storage.store import Store

__all__ = ["migrate", "versions"]

SCHEMA_TABLE = "CREATE TABLE IF NOT EXISTS cf_schema (component VARCHAR PRIMARY KEY, version INTEGER NOT NULL)"


def versions(store: Store) -> dict[str, int]:
    """Steps that this database has seen, by component. One SELECT: read it once a wake and pass it along."""
    try:
        found = store.execute("SELECT component, version FROM cf_schema")
    except SqlError as error:
        if "cf_schema" in error.message:
            return {}  # a new file
        raise
    known: dict[str, int] = {}
    for component, version in found.rows:
        assert isinstance(component, str)
        assert isinstance(version, int)
        known[component] = version
    return known


def migrate(store: Store, component: str, steps: Sequence[str], known: dict[str, int] | None = None) -> None:
    """Bring the tables of one component up to date; on return they are on disk.

    All missing steps and the new version are one transaction. It ends with a checkpoint, since a log with changes of
    the schema in it has failed to replay in earlier releases of DuckDB.

    Args:
        store: Without an open transaction.
        component: Who owns the tables.
        steps: Each one or several statements; the version is their number.
        known: What ``versions`` returned; kept up to date. Read if not given.

    Raises:
        StorageCorrupt: The file was written by a newer release.
    """
    assert not store.is_open_transaction, "a migration is a transaction of its own"
    known = versions(store) if known is None else known
    seen = known.get(component, 0)
    if seen == len(steps):
        return
    if seen > len(steps):
        raise StorageCorrupt(
            f"the tables of {component!r} have version {seen}, this release knows {len(steps)}: "
            "a newer release wrote them. Nothing was changed; run that release or a later one."
        )
    try:
        store.execute(SCHEMA_TABLE)
        for step in steps[seen:]:
            store.execute(step)
        if seen == 0:
            store.execute("INSERT INTO cf_schema VALUES (?, ?)", (component, len(steps)))
        else:
            store.execute("UPDATE cf_schema SET version = ? WHERE component = ?", (len(steps), component))
    except BaseException:
        store.rollback()
        raise
    store.commit()
    store.checkpoint()
    known[component] = len(steps)
