"""What a worker of an own Ray imports before it is given an object to be.

Ray imports the modules named in RAY_preload_python_modules into every worker as it starts. A warm worker (``pool.py``)
has paid for its imports when a call needs it: that turns a wake of 1,400 ms into one of tens. What is imported here,
every idle and every live worker keeps in memory, so a module is listed only if nearly every object needs it.

Measured on a live bare actor of Ray 2.60 (RssAnon, 47.2 MB): 40.1 MB are there before this module runs; the other 7.1
MB and 150-240 ms of CPU are pydantic, starlette and anyio, which Ray imports at the creation of the first actor only
to teach its serializer about them. Objects of ours never pass by that serializer, so it is taught when the application
imports them (``late_serializers.py``), and both costs are gone. On top come, in MB and ms: msgspec 0.3 and 3,
cloudpickle 0.1 and 1, duckdb 3.3 and 34, the modules of ``runtime`` 2.3 and 38, an opened DuckDB instance 5.2 and 23.
A live object with a few writes then has 55.5 MB, 8.3 more than a bare actor. Left out: httpx 5.1 and 97, pydantic and
starlette 7.1, obstore 1.3 and 3.

PERDURE_PRELOAD names further modules, separated by commas: an application's own, for example.

Nothing here may raise: a preload that raises kills every worker of the Ray. Ray ignores a module that cannot be
imported; whatever else goes wrong costs the next wake its milliseconds, and the worker's log says so.
"""

from __future__ import annotations

import importlib
import os
import sys

__all__ = ["FAILED", "MODULES", "preload"]

# Named, not imported as usual: the packages above this one are not ours to depend on, and one that is absent
# or broken is not this module's concern.
MODULES = (
    "asyncio",
    "concurrent.futures.thread",
    "cloudpickle",
    "msgspec",
    "duckdb",
    "runtime",
    "runtime.host",
    "runtime.storage.duckdb",
    "runtime.cluster.actor",
    "fibers",
    "agents",
)

FAILED: dict[str, str] = {}


def preload(names: tuple[str, ...]) -> None:
    """Import what can be imported; ``FAILED`` keeps what could not, with the reason."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            FAILED[name] = str(error)
        except BaseException as error:  # a module may even call sys.exit()
            FAILED[name] = f"{type(error).__name__}: {error}"
            print(f"perdure: {name} could not be imported ahead: {FAILED[name]}", file=sys.stderr)


def _attempt(module: str, function: str) -> None:
    try:
        getattr(importlib.import_module(module), function)()
    except Exception as error:
        FAILED[f"{module}.{function}"] = f"{type(error).__name__}: {error}"


_attempt("runtime.cluster.late_serializers", "install")
preload(MODULES)
preload(tuple(name.strip() for name in os.environ.get("PERDURE_PRELOAD", "").split(",") if name.strip()))
_attempt("runtime.storage.duckdb", "prewarm")
