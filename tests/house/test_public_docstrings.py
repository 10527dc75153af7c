"""Everything public says what it is (style.md, section 7): a docstring whose first line is a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.source import Function, Module, module_of, package_modules


def is_public(name: str) -> bool:
    return not name.startswith("_")


def undocumented(module: Module) -> Iterator[str]:
    """What is public and has no docstring, or one that does not begin with a sentence."""
    if all(is_public(step) for step in module.name.split(".")):
        yield from _judge(module.tree, module.where)
        yield from _below(module.tree, module.where)


def _below(parent: ast.Module | ast.ClassDef, where: str) -> Iterator[str]:
    for node in parent.body:
        if isinstance(node, Function | ast.ClassDef) and is_public(node.name) and not _is_repeated(node):
            yield from _judge(node, f"{where}:{node.lineno} {node.name}")
            if isinstance(node, ast.ClassDef):
                yield from _below(node, where)


def _is_repeated(node: Function | ast.ClassDef) -> bool:
    """Overloads, setters and overrides speak through the first of their name."""
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    return bool(decorators & {"overload", "setter", "deleter", "override"})


def _judge(node: ast.Module | ast.ClassDef | Function, where: str) -> Iterator[str]:
    text = ast.get_docstring(node)
    if not text:
        yield f"{where}: no docstring"
        return
    # The first sentence may run over two lines; what counts is that it begins and ends as one.
    first = text.split("\n\n")[0].strip()
    if not (first[0].isupper() or first[0].isdigit() or first[0] in "`\"'("):
        yield f"{where}: begins in the middle of a sentence: {first[:60]}"
    elif first[-1] not in ".?!:":
        yield f"{where}: ends without a full stop: {first[-60:]}"


def test_everything_public_has_a_docstring_that_begins_with_a_sentence() -> None:
    assert [said for module in package_modules() for said in undocumented(module)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "runtime/host.py: no docstring"),
        ('"""Host."""\ndef f(): ...', "runtime/host.py:2 f: no docstring"),
        ('"""Host"""', "runtime/host.py: ends without a full stop: Host"),
        ('"""the host."""', "runtime/host.py: begins in the middle of a sentence: the host."),
        ('"""Host."""\nclass C:\n    """C."""\n    def m(self): ...', "runtime/host.py:4 m: no docstring"),
    ],
)
def test_a_missing_or_broken_docstring_is_seen(text: str, said: str) -> None:
    assert list(undocumented(module_of("runtime.host", text))) == [said]


def test_private_names_and_inner_functions_need_no_docstring() -> None:
    text = '"""Host."""\ndef _f(): ...\ndef g():\n    """G."""\n    def h(): ...'
    assert list(undocumented(module_of("runtime.host", text))) == []
