"""Cores take values and return values (style.md, sections 1 and 4): ``now_ms`` and fresh ids are passed in.

Which modules a core may import stands in test_imports; here is what it may not do with what it has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import Module, module_of, package_modules
from tests.house.test_imports import is_core

# Calls that read a clock, a file or the terminal, or run what is not there yet.
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint"}
CLOCK_METHODS = {"now", "utcnow", "today"}
# The start of a statement, upper case as in all our SQL.
SQL = re.compile(
    r"\s*(SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|(CREATE|ALTER|DROP)\s+TABLE\s)",
    re.DOTALL,
)


def impurities(module: Module) -> Iterator[str]:
    """What a core does that it must not, each with its line."""
    for node in ast.walk(module.tree):
        said = _impurity(node)
        if said:
            yield f"{module.where}:{getattr(node, 'lineno', 0)} {said}"


def _impurity(node: ast.AST) -> str:
    match node:
        case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
            return "is asynchronous"
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
            return f"calls {name}()"
        case ast.Call(func=ast.Attribute(attr=attribute, value=value)) if attribute in CLOCK_METHODS:
            owner = ast.unparse(value).split(".")[-1]
            return f"reads the clock with {owner}.{attribute}()" if owner in {"datetime", "date"} else ""
        case ast.Constant(value=str(text)) if SQL.match(text):
            return "holds SQL"
        case ast.Global():
            return "changes a global"
        case _:
            return ""


def test_no_core_waits_reads_a_clock_or_holds_sql() -> None:
    cores = [module for module in package_modules() if is_core(module.name)]
    assert [said for module in cores for said in impurities(module)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("async def f(): ...", "is asynchronous"),
        ("def f(path):\n    return open(path)", "calls open()"),
        ("import datetime\nat = datetime.datetime.now()", "reads the clock with datetime.now()"),
        ("Q = 'SELECT a FROM b'", "holds SQL"),
        ("Q = 'UPDATE cf_kv SET a = 1'", "holds SQL"),
        ("def f():\n    global x\n    x = 1", "changes a global"),
    ],
)
def test_an_impurity_is_seen(text: str, said: str) -> None:
    (found,) = impurities(module_of("runtime.core.alarms", text))
    assert found.split(" ", 1)[1] == said


def test_words_that_only_look_like_sql_pass() -> None:
    text = (
        '"""Update the state; select what is due from the index."""\nclock.now()\nSAYS = "Select a file FROM the list"'
    )
    assert list(impurities(module_of("runtime.core.alarms", text))) == []
