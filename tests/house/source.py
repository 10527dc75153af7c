"""The repository as the tests of the house see it: files, dotted names, syntax trees, imports.

Nothing here imports the packages. A rule is a function over ``Module`` values, so each can be tried on a few made-up
lines too: a rule that sees nothing is worse than none.
"""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("runtime", "fibers", "agents")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file."""

    name: str
    where: str
    tree: ast.Module
    lines: int
    is_package: bool = False


@dataclass(frozen=True)
class Import:
    """One imported module: ours by its full name, a foreign one by the name that was written."""

    source: str
    target: str
    where: str
    is_late: bool = False
    is_for_types: bool = False

    @property
    def top(self) -> str:
        return self.target.split(".")[0]


def module_of(name: str, text: str, *, is_package: bool = False) -> Module:
    """A module of made-up lines."""
    where = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
    return Module(name, where, ast.parse(text), text.count("\n") + 1, is_package)


@functools.cache
def read(path: Path) -> Module:
    """The file at ``path``, parsed."""
    text = path.read_text(encoding="utf-8")
    relative = path.relative_to(ROOT)
    parts = list(relative.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, relative.as_posix(), ast.parse(text, str(relative)), len(text.splitlines()), is_package)


@functools.cache
def package_modules() -> tuple[Module, ...]:
    """Every module of the three packages."""
    return tuple(read(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


@functools.cache
def all_modules() -> tuple[Module, ...]:
    """Every Python file of the repository."""
    return tuple(read(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))


@functools.cache
def tracked_files() -> tuple[str, ...]:
    """The paths that git knows, as in ``git ls-files``."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    return tuple(path for path in listing.stdout.split("\0") if path and (ROOT / path).is_file())


def is_struct(node: ast.ClassDef) -> bool:
    """Whether a class says that it is a msgspec Struct (or a base of this project that is one)."""
    return any(ast.unparse(base).split(".")[-1].lstrip("_") in {"Struct", "Chunk"} for base in node.bases)


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements after a docstring."""
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def imports_of(module: Module, ours: frozenset[str]) -> list[Import]:
    """Every import of a module, wherever it stands.

    Args:
        module: The importing file.
        ours: The names of all modules of the packages, to tell a module from a name inside one.
    """
    return list(_walk(module.tree, module, ours, is_late=False, is_for_types=False))


def _walk(
    node: ast.AST, module: Module, ours: frozenset[str], *, is_late: bool, is_for_types: bool
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for target in _targets(child, module, ours):
            yield Import(module.name, target, f"{module.where}:{child.lineno}", is_late, is_for_types)  # type: ignore[attr-defined]
        guarded = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        yield from _walk(
            child,
            module,
            ours,
            is_late=is_late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
            is_for_types=is_for_types or guarded,
        )


def _targets(node: ast.AST, module: Module, ours: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            steps = module.name.split(".")
            package = steps[: len(steps) - node.level + module.is_package]
            base = ".".join([*package, base] if base else package)
        inside = [f"{base}.{alias.name}" for alias in node.names]
        yield from dict.fromkeys(name if name in ours else base for name in inside)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}:
        literal = node.args[0] if node.args else None
        if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
            yield literal.value
