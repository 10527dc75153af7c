"""Glob patterns (tools W9)."""

from __future__ import annotations

import pytest

from agents.errors import WorkspaceError
from agents.tools.globs import compile_glob


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*", "/a"),
        ("*.md", "/a.md"),
        ("a?c", "/abc"),
        ("a*b*c", "/aXbbYc"),
        ("**", "/a/b"),
        ("**/*.py", "/a.py"),
        ("**/*.py", "/x/y/a.py"),
        ("/src/**", "/src/a"),
        ("/src/**", "/src/a/b"),
        ("/a/**/b/**/c", "/a/b/c"),
        ("/a/**/b/**/c", "/a/b/x/b/y/c"),
        ("**/**/a", "/a"),
        ("[ab]", "/b"),
        ("[a-c]x", "/bx"),
        ("[!a]", "/b"),
        ("[^a]", "/b"),
        ("[]]", "/]"),
        ("[[]x].md", "/[x].md"),
        (r"\[x\].md", "/[x].md"),
        (r"\*", "/*"),
        ("[z-a]", "/[z-a]"),
        ("[x", "/[x"),
        ("{a,b}.txt", "/b.txt"),
        ("{a,b{1,2}}", "/b2"),
        ("{src,test}/**/*.py", "/test/x/a.py"),
        ("{a}", "/{a}"),
        ("{a", "/{a"),
        (r"\{a,b\}", "/{a,b}"),
        ("a{,.bak}", "/a"),
        ("100%_*", "/100%_done"),
        ("*", "/.hidden"),
        ("*", "/two\nlines"),
    ],
)
def test_matches(pattern, path):
    assert compile_glob(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*", "/a/b"),
        ("*", "/"),
        ("a?c", "/a/c"),
        ("a[!x]c", "/a/c"),
        ("*.md", "/x/a.md"),
        ("*.md", "/a.mdx"),
        ("a*b*c", "/abcd"),
        ("/src/**", "/src"),
        ("/src/**", "/srcs/a"),
        ("**/a/**/b", "/b"),
        ("{a,b}", "/c"),
        ("[!a]", "/a"),
        ("100%_*", "/100x_done"),
        (r"\*", "/x"),
        ("", "/a"),
        ("a.c", "/abc"),
    ],
)
def test_does_not_match(pattern, path):
    assert not compile_glob(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "base"),
    [
        ("/a/b/*.py", "/a/b"),
        ("/a/b", "/a"),
        ("**", "/"),
        ("/a/{b,c}/d", "/a"),
        ("/a/{b,b}/x", "/a/b"),
        ("/a/[b]/c", "/a"),
    ],
)
def test_the_base_is_the_lowest_directory_that_holds_all(pattern, base):
    assert compile_glob(pattern).base == base


def test_too_many_alternatives_are_refused():
    with pytest.raises(WorkspaceError, match=r"^EINVAL: .* stands for more than 256 patterns"):
        compile_glob("{a,b}" * 9)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 500 + "b", "/" + "a" * 4000),
        ("**/a/" * 500 + "b", "/a" * 2000),
        ("**/*a*a*a/" * 50 + "b", "/" + "/".join(["a" * 40] * 95)),
    ],
)
@pytest.mark.timeout(5)
def test_no_pattern_takes_for_ever(pattern, path):
    assert not compile_glob(pattern).matches(path)
