"""Durable objects: addressed for ever by class and name, each with its own database file, alive when called.

The public names of this package. Nothing here imports Ray: ``connect`` is loaded on first use.
"""

from __future__ import annotations

import importlib

from runtime.calls import caller_side, idempotent, not_callable
from runtime.cancel import CancelToken
from runtime.clock import Clock, SystemClock
from runtime.context import Context
from runtime.ids import ObjectId, kebab
from runtime.instance import Lease, Service
from runtime.object import AlarmInfo, DurableObject
from runtime.options import ObjectOptions, merged_options
from runtime.storage.storage import Storage
from runtime.storage.store import Store
from runtime.stub import Stub, make_stub, timed_items, turn_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime.cluster.connect import Cluster, connect
    from runtime.cluster.serve import node_service
    from runtime.storage.duckdb import open_store

__all__ = [
    "AlarmInfo",
    "CancelToken",
    "Clock",
    "Cluster",
    "Context",
    "DurableObject",
    "Lease",
    "ObjectId",
    "ObjectOptions",
    "Service",
    "Storage",
    "Store",
    "Stub",
    "SystemClock",
    "caller_side",
    "connect",
    "idempotent",
    "kebab",
    "make_stub",
    "merged_options",
    "node_service",
    "not_callable",
    "open_store",
    "timed_items",
    "turn_key",
]

_LATE = {
    "Cluster": "cluster.connect",
    "connect": "cluster.connect",
    "node_service": "cluster.serve",
    "open_store": "storage.duckdb",
}


def __getattr__(name: str) -> object:
    home = _LATE.get(name)
    if home is not None:
        return getattr(importlib.import_module(f"runtime.{home}"), name)
    raise AttributeError(f"module 'runtime' has no attribute {name!r}")
