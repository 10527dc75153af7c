"""Versions of the tables in an object's database.

Each component (the storage itself, the host, the fibers, the agents) owns some tables and a list of steps that lead
to them. A database remembers in ``cf_schema`` how many steps of each component it has seen; ``migrate`` runs the rest
in one transaction. Steps are never changed once released, only added (see tests/golden).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.errors import SqlError, StorageCorrupt
from runtime.storage.store import Store

__all__ = ["migrate", "migrate_all", "versions"]

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
    """Bring the tables of one component up to date; see ``migrate_all``."""
    migrate_all(store, {component: steps}, known)


def migrate_all(store: Store, components: Mapping[str, Sequence[str]], known: dict[str, int] | None = None) -> None:
    """Bring the tables of several components up to date; on return they are on disk.

    All missing steps and the new versions are one transaction. It ends with a checkpoint, since a log with changes of
    the schema in it has failed to replay in earlier releases of DuckDB. That costs 5 ms, so a new object is best made
    with one call for all components.

    Args:
        store: Without an open transaction.
        components: Who owns the tables, and the steps to them, each one or several statements; the version is their
            number. All tables must be named ``cf_...``: what is not is the user's, and ``delete_all`` drops it.
        known: What ``versions`` returned; kept up to date. Read if not given.

    Raises:
        StorageCorrupt: A newer release wrote the file.
    """
    assert not store.is_open_transaction, "a migration is a transaction of its own"
    known = versions(store) if known is None else known
    behind = {name: steps for name, steps in components.items() if known.get(name, 0) != len(steps)}
    if not behind:
        return
    for name, steps in behind.items():
        if known.get(name, 0) > len(steps):
            raise StorageCorrupt(
                f"the tables of {name!r} have version {known[name]}, this release knows {len(steps)}: a newer release "
                "wrote them. Nothing was changed; run that release or a later one."
            )
    try:
        store.execute(SCHEMA_TABLE)
        for name, steps in behind.items():
            _run_steps(store, name, known.get(name, 0), steps)
    except BaseException:
        store.rollback()
        raise
    store.commit()
    store.checkpoint()
    known.update({name: len(steps) for name, steps in behind.items()})


def _run_steps(store: Store, component: str, seen: int, steps: Sequence[str]) -> None:
    for step in steps[seen:]:
        store.execute(step)
    if seen == 0:
        store.execute("INSERT INTO cf_schema VALUES (?, ?)", (component, len(steps)))
    else:
        store.execute("UPDATE cf_schema SET version = ? WHERE component = ?", (len(steps), component))
