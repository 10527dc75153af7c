"""Names (style.md, section 2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import PACKAGES, Function, Module, is_struct, module_of, package_modules

EMPTY_WORDS = {"util", "utils", "manager", "helper", "helpers"}
# The clock of the tests and of the host speaks in the unit that is stored.
MILLISECONDS_ALLOWED = {"now_ms"}


def words_of(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def empty_names(module: Module) -> Iterator[str]:
    """Modules, classes and functions named after nothing."""
    if words_of(module.name.split(".")[-1]) & EMPTY_WORDS:
        yield module.where
    for node in ast.walk(module.tree):
        if isinstance(node, Function | ast.ClassDef) and words_of(node.name) & EMPTY_WORDS:
            yield f"{module.where}:{node.lineno} {node.name}"


def exported(module: Module) -> set[str]:
    """The names of ``__all__``; of a module without one, none."""
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return {
                    item.value
                    for item in ast.walk(value)
                    if isinstance(item, ast.Constant) and isinstance(item.value, str)
                }
            case _:
                continue
    return set()


def names_in_milliseconds(definition: Function | ast.ClassDef) -> set[str]:
    """The public names of a function or class that end in ``_ms``: itself, its parameters, its fields and methods."""
    names = {definition.name}
    if isinstance(definition, Function):
        arguments = definition.args
        names |= {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        return {name for name in names if name.endswith("_ms")} - MILLISECONDS_ALLOWED
    if is_struct(definition):
        return set()
    found = {name for name in names if name.endswith("_ms")}
    for node in definition.body:
        if isinstance(node, Function) and (not node.name.startswith("_") or node.name == "__init__"):
            found |= names_in_milliseconds(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.endswith("_ms"):
            found.add(node.target.id)
    return found - MILLISECONDS_ALLOWED


def public_definitions() -> Iterator[tuple[Module, Function | ast.ClassDef]]:
    """What the three packages export by name, where it is defined."""
    public = {name for module in package_modules() if module.name in PACKAGES for name in exported(module)}
    for module in package_modules():
        for node in module.tree.body:
            if isinstance(node, Function | ast.ClassDef) and node.name in public and node.name in exported(module):
                yield module, node


def test_nothing_is_called_util_manager_or_helper() -> None:
    assert [name for module in package_modules() for name in empty_names(module)] == []


def test_no_public_name_ends_in_ms() -> None:
    found = [
        f"{module.where}:{node.lineno} {node.name}: {name}"
        for module, node in public_definitions()
        for name in sorted(names_in_milliseconds(node))
    ]
    assert found == []


def test_runtime_exports_at_most_25_names() -> None:
    counts = {module.name: len(exported(module)) for module in package_modules() if module.name == "runtime"}
    assert counts["runtime"] <= 25


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A:\n    def wait(self, timeout_ms: int): ...", {"timeout_ms"}),
        ("class A:\n    delay_ms: int", {"delay_ms"}),
        ("async def wait(*, quiet_ms=1): ...", {"quiet_ms"}),
        ("class A(msgspec.Struct):\n    due_at_ms: int", set()),
        ("class A:\n    def now_ms(self): ...\n    def _private(self, a_ms): ...", set()),
    ],
)
def test_a_public_name_in_milliseconds_is_seen(text: str, found: set[str]) -> None:
    (node,) = module_of("runtime.object", text).tree.body
    assert isinstance(node, Function | ast.ClassDef)
    assert names_in_milliseconds(node) == found


def test_an_empty_name_is_seen_in_modules_and_classes() -> None:
    assert list(empty_names(module_of("runtime.sql_utils", "class LeaseManager: ..."))) == [
        "runtime/sql_utils.py",
        "runtime/sql_utils.py:1 LeaseManager",
    ]
