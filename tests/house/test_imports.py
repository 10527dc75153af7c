"""Who may import whom (style.md, section 1).

Every import counts, in function bodies and behind ``TYPE_CHECKING`` too: a direction that is only hidden is still
there for the reader.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from tests.house.source import PACKAGES, ROOT, Import, Module, imports_of, module_of, package_modules

# What of a package another one may name. Errors, the cluster and the fakes have too many names for one `__init__`;
# everything else goes through it.
DOORS = {*PACKAGES, "runtime.errors", "runtime.cluster", "runtime.testing"}

# Structs and protocols without behaviour, which everything in the package may import and which import only each
# other and core. A package's `core/` may import these.
LEAVES = {
    "runtime": {"runtime.errors", "runtime.ids", "runtime.clock", "runtime.wire"},
    "fibers": {"fibers.errors", "fibers.records"},
    "agents": {"agents.errors", "agents.models.model", "agents.sessions.messages"},
}

# Inside runtime, lowest first. What is not named here stands with object, host, alarms, stub and keeper.
RUNTIME_LAYERS = (
    ("runtime.errors", 0),
    ("runtime.ids", 0),
    ("runtime.clock", 0),
    ("runtime.wire", 0),
    ("runtime.core", 1),
    ("runtime.storage", 2),
    ("runtime.replication", 2),
    ("runtime.gateway", 4),
    ("runtime.cluster", 5),
    ("runtime.testing", 5),
)
RUNTIME_LAYER_OTHERS = 3

# Where a foreign package may be imported at all.
HOMES = {
    "ray": ("runtime.cluster",),
    "duckdb": ("runtime.storage.duckdb",),
    "anthropic": ("agents.models.anthropic",),
    "httpx2": ("agents.models.anthropic",),
    # httpx: only where a request is sent.
    "httpx": ("agents.models.openai", "agents.cli"),
}

# Late imports, each with its reason.
LATE = {
    "runtime": "connect is loaded on first use: it brings Ray",
    "runtime.cluster.holder": "Ray reads its settings from the environment while it is imported",
    "runtime.cluster.join": "Ray reads how to authenticate from the environment while it is imported",
    "runtime.cluster.late_serializers": "it works on modules of Ray's that it must not import before Ray does",
    "runtime.cluster.pool": "the holder imports it before Ray may be imported",
    "runtime.cluster.preload": "guarded one by one: what fails must not kill the worker",
    "runtime.cluster.ray_rpc": "the same; and grpc costs 60 ms that only a foreign address needs",
    "agents.models": "the models are loaded on first use: they bring what they speak with",
    "agents.tools.grep": "regex costs 18 ms and 2 MiB that most agents never need",
    "agents.tools.schema": "docstring_parser costs 18 ms and 2 MiB that a docstring without sections needs not",
    "agents.tools.validation": "jsonschema costs 80 ms and 7 MiB that only tools with a raw JSON Schema need",
    "agents.models.anthropic": "the SDK costs seconds and 69 MiB, which only its own process may pay",
}

# What core/ may import of the standard library: no clock, no randomness, no I/O, no concurrency.
PURE = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "zlib",
}


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def package_of(name: str) -> str:
    return name.split(".")[0]


def is_core(name: str) -> bool:
    return name.split(".")[1:2] == ["core"]


def layer_of(name: str) -> int:
    return next((layer for prefix, layer in RUNTIME_LAYERS if within(name, prefix)), RUNTIME_LAYER_OTHERS)


def turns_back(one: Import) -> bool:
    """A package imports one that stands above it."""
    return one.top in PACKAGES and PACKAGES.index(one.top) > PACKAGES.index(package_of(one.source))


def avoids_the_door(one: Import) -> bool:
    """A package reaches into another one past its public names."""
    return one.top in PACKAGES and one.top != package_of(one.source) and one.target not in DOORS


def climbs_in_runtime(one: Import) -> bool:
    """A module of runtime imports one of a higher layer; the package's ``__init__`` may name all."""
    if package_of(one.source) != "runtime" or one.top != "runtime" or "runtime" in (one.source, one.target):
        return False
    return layer_of(one.target) > layer_of(one.source)


def imports_the_fakes(one: Import) -> bool:
    """Code that users run imports what is made for tests."""
    is_test_code = within(one.source, "runtime.testing") or one.source == "agents.testing"
    return within(one.target, "runtime.testing") and not is_test_code


def leaves_home(one: Import) -> bool:
    """A foreign package is imported outside the one place that knows it."""
    homes = HOMES.get(one.top)
    return homes is not None and not any(within(one.source, home) for home in homes)


def comes_late(one: Import) -> bool:
    """An import inside a function body that has no reason on the list."""
    return one.is_late and one.source not in LATE


def soils_a_core(one: Import) -> bool:
    """A core imports something that is not pure."""
    package = package_of(one.source)
    if not is_core(one.source):
        return False
    if one.top == package:
        return not is_core(one.target) and one.target not in LEAVES[package]
    return one.top not in {*PURE, *PACKAGES, "msgspec"} and one.target != "urllib.parse"


def grows_on_a_leaf(one: Import) -> bool:
    """A leaf imports something of its own package that is neither a leaf nor core."""
    package = package_of(one.source)
    if one.source not in LEAVES[package] or one.top != package:
        return False
    return not is_core(one.target) and one.target not in LEAVES[package]


@functools.cache
def imports() -> tuple[Import, ...]:
    ours = frozenset(module.name for module in package_modules())
    return tuple(one for module in package_modules() for one in imports_of(module, ours))


def broken(rule: Callable[[Import], bool]) -> list[str]:
    return [f"{one.where} imports {one.target}" for one in imports() if rule(one)]


def test_no_package_imports_one_above_it() -> None:
    assert broken(turns_back) == []


def test_no_package_reaches_past_the_public_names_of_another() -> None:
    assert broken(avoids_the_door) == []


def test_no_module_of_runtime_imports_a_higher_layer() -> None:
    assert broken(climbs_in_runtime) == []


def test_no_code_that_users_run_imports_the_fakes() -> None:
    assert broken(imports_the_fakes) == []


def test_no_foreign_package_is_imported_outside_its_home() -> None:
    assert broken(leaves_home) == []


def test_no_import_comes_late_without_a_reason() -> None:
    assert broken(comes_late) == []


def test_no_core_imports_anything_impure() -> None:
    assert broken(soils_a_core) == []


def test_no_leaf_imports_more_than_leaves_and_core() -> None:
    assert broken(grows_on_a_leaf) == []


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of modules that import each other, each sorted (Tarjan's strongly connected components)."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        graph.setdefault(source, set()).add(target)
        graph.setdefault(target, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            group, stack[at:] = sorted(stack[at:]), []
            if len(group) > 1 or name in graph[name]:
                found.append(group)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles((one.source, one.target) for one in imports() if one.top in PACKAGES) == []


def edges_while_loading(found: Iterable[Import]) -> set[tuple[str, str]]:
    """What loading a module loads: its imports, and the ``__init__`` of each folder on the way that it is not inside.

    The three packages' own ``__init__`` are left out: everything of a package lies inside its own, and another
    package's is the door.
    """
    edges: set[tuple[str, str]] = set()
    for one in found:
        if one.is_late or one.is_for_types or one.top not in PACKAGES:
            continue
        steps = one.target.split(".")
        on_the_way = [".".join(steps[:count]) for count in range(2, len(steps) + 1)]
        edges.update((one.source, name) for name in on_the_way if not within(one.source, name))
        edges.add((one.source, one.target))
    return edges


def test_no_folder_on_the_way_closes_a_circle_while_loading() -> None:
    assert circles(edges_while_loading(imports())) == []


@pytest.mark.slow
def test_importing_the_packages_loads_neither_ray_nor_a_model_sdk_nor_httpx() -> None:
    code = (
        "import sys, runtime, fibers, agents\n"
        "heavy = {'ray', 'anthropic', 'openai', 'httpx', 'httpx2', 'starlette', 'uvicorn', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


# --- the rules themselves: each sees what it is for ---


def imports_in(module: Module, *others: str) -> list[Import]:
    return imports_of(module, frozenset({module.name, *others}))


@pytest.mark.parametrize(
    ("rule", "source", "text"),
    [
        (turns_back, "runtime.host", "import agents"),
        (turns_back, "fibers.fiber", "def f():\n    from agents import Think"),
        (avoids_the_door, "agents.turns", "from runtime.storage.kv import SyncKv"),
        (avoids_the_door, "agents.turns", "from runtime.ids import ObjectId"),
        (climbs_in_runtime, "runtime.storage.kv", "import runtime.host"),
        (climbs_in_runtime, "runtime.core.gates", "import typing\nif typing.TYPE_CHECKING:\n    import runtime.host"),
        (climbs_in_runtime, "runtime.host", "from .cluster import pool"),
        (imports_the_fakes, "agents.think", "from runtime.testing import VirtualClock"),
        (leaves_home, "runtime.host", "import ray"),
        (leaves_home, "runtime.storage.kv", "from duckdb import connect"),
        (leaves_home, "agents.turns", "import importlib\nimportlib.import_module('anthropic.types')"),
        (comes_late, "agents.turns", "async def f():\n    import json"),
        (soils_a_core, "runtime.core.alarms", "import time"),
        (soils_a_core, "agents.core.turn", "from agents.turns import Turn"),
        (soils_a_core, "agents.core.turn", "import rich"),
        (grows_on_a_leaf, "runtime.wire", "import runtime.host"),
    ],
)  # fmt: skip
def test_a_rule_sees_the_import_that_breaks_it(rule: Callable[[Import], bool], source: str, text: str) -> None:
    assert [rule(one) for one in imports_in(module_of(source, text))][-1:] == [True]


@pytest.mark.parametrize(
    ("rule", "source", "text"),
    [
        (turns_back, "agents.turns", "import fibers, runtime"),
        (avoids_the_door, "agents.turns", "from runtime.errors import PerdureError"),
        (climbs_in_runtime, "runtime.host", "from runtime.storage.kv import SyncKv"),
        (imports_the_fakes, "agents.testing", "from runtime.testing import VirtualClock"),
        (leaves_home, "runtime.cluster.actor", "import ray"),
        (comes_late, "agents.turns", "import json"),
        (soils_a_core, "agents.core.turn", "from collections.abc import Iterator"),
    ],
)
def test_a_rule_lets_the_import_pass_that_keeps_it(rule: Callable[[Import], bool], source: str, text: str) -> None:
    assert [rule(one) for one in imports_in(module_of(source, text))][-1:] == [False]


def test_a_circle_of_three_is_found_and_a_chain_is_not() -> None:
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]) == [["a", "b", "c"]]


def test_a_circle_through_the_init_of_a_folder_is_found() -> None:
    core = imports_in(module_of("agents.core.prompt", "import agents.models.model"), "agents.models.model")
    folder = imports_in(module_of("agents.models", "from . import offline", is_package=True), "agents.models.offline")
    offline = imports_in(module_of("agents.models.offline", "import agents.core.prompt"), "agents.core.prompt")
    assert circles(edges_while_loading([*core, *folder, *offline])) == [
        ["agents.core.prompt", "agents.models", "agents.models.offline"]
    ]


def test_a_relative_import_is_read_as_the_module_that_it_names() -> None:
    (one,) = imports_in(module_of("runtime.storage.kv", "from . import store"), "runtime.storage.store")
    assert one.target == "runtime.storage.store"
