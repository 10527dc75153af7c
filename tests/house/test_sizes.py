"""How large a file, a function, a class and a protocol may be (style.md, sections 3 and 5).

``ratchet.json`` holds what is over a ceiling and why nobody has split it yet: ``{"what": size}``. It started empty and
may only shrink: an entry must be the exact size, so it goes down with the code, and there are at most
``RATCHET_ENTRIES_MAX`` of them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from tests.house.source import (
    ROOT,
    Function,
    Module,
    all_modules,
    is_struct,
    module_of,
    package_modules,
    without_docstring,
)

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PUBLIC_METHODS_MAX = 15
PROTOCOL_METHODS_MAX = 8
# The classes whose names the spec fixes: as many methods as it takes, but none that does anything itself.
WIDE_CLASSES = {"Agent", "Think", "Workspace"}
WIDE_METHOD_STATEMENTS_MAX = 5

# Raised only together with a decision in docs/decisions that says why.
RATCHET_ENTRIES_MAX = 0


def functions_of(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function, nested ones included, with its dotted name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}.{child.name}" if isinstance(child, Function | ast.ClassDef) else prefix
            if isinstance(child, Function):
                yield name.lstrip("."), child
            yield from walk(child, name)

    return walk(module.tree, "")


def classes_of(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def methods_of(node: ast.ClassDef) -> list[Function]:
    return [child for child in node.body if isinstance(child, Function)]


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).split("[")[0].split(".")[-1] == "Protocol" for base in node.bases)


def statements_in(function: Function) -> int:
    """Statements at any depth, the docstring not counted."""
    return sum(isinstance(node, ast.stmt) for top in without_docstring(function.body) for node in ast.walk(top))


def file_sizes(module: Module) -> dict[str, int]:
    return {module.where: module.lines}


def function_sizes(module: Module) -> dict[str, int]:
    return {
        f"{module.where}::{name}": (function.end_lineno or function.lineno) - function.lineno + 1
        for name, function in functions_of(module)
    }


def class_sizes(module: Module) -> dict[str, int]:
    """The number of public methods, properties included, of each class but the wide ones."""
    return {
        f"{module.where}::{node.name}": len({m.name for m in methods_of(node) if not m.name.startswith("_")})
        for node in classes_of(module)
        if node.name not in WIDE_CLASSES
    }


def protocol_sizes(module: Module) -> dict[str, int]:
    return {
        f"{module.where}::{node.name} (protocol)": len({m.name for m in methods_of(node)})
        for node in classes_of(module)
        if is_protocol(node)
    }


def wide_method_sizes(module: Module) -> dict[str, int]:
    return {
        f"{module.where}::{node.name}.{method.name} (statements)": statements_in(method)
        for node in classes_of(module)
        if node.name in WIDE_CLASSES and not is_struct(node)
        for method in methods_of(node)
    }


RULES = [
    (file_sizes, FILE_LINES_MAX, all_modules),
    (function_sizes, FUNCTION_LINES_MAX, all_modules),
    (class_sizes, PUBLIC_METHODS_MAX, package_modules),
    (protocol_sizes, PROTOCOL_METHODS_MAX, package_modules),
    (wide_method_sizes, WIDE_METHOD_STATEMENTS_MAX, package_modules),
]


def over_a_ceiling() -> dict[str, int]:
    return {
        what: size
        for measure, ceiling, modules in RULES
        for module in modules()
        for what, size in measure(module).items()
        if size > ceiling
    }


def ratchet() -> dict[str, int]:
    entries: dict[str, int] = json.loads((ROOT / "tests/house/ratchet.json").read_text())
    return entries


def test_nothing_is_over_a_ceiling_but_what_the_ratchet_holds_at_its_exact_size() -> None:
    assert over_a_ceiling() == ratchet()


def test_the_ratchet_only_shrinks() -> None:
    assert len(ratchet()) <= RATCHET_ENTRIES_MAX


# --- the measures themselves ---


def test_a_function_is_measured_with_its_docstring_and_its_inner_functions() -> None:
    module = module_of("runtime.host", 'def f():\n    """F."""\n    def g():\n        pass\n    return g\n')
    assert function_sizes(module) == {"runtime/host.py::f": 5, "runtime/host.py::f.g": 2}


def test_a_property_with_a_setter_counts_once_and_private_methods_do_not() -> None:
    text = "class C:\n    def a(self): ...\n    def a(self, x): ...\n    def b(self): ...\n    def _c(self): ..."
    assert class_sizes(module_of("runtime.host", text)) == {"runtime/host.py::C": 2}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ('"""Only words."""', 0),
        ("return 1", 1),
        ("if a:\n            b = 1\n            return b\n        return a", 4),
    ],
)
def test_statements_are_counted_at_any_depth(body: str, count: int) -> None:
    module = module_of("agents.think", f"class Think:\n    def f(self, a):\n        {body}")
    assert wide_method_sizes(module) == {"agents/think.py::Think.f (statements)": count}
