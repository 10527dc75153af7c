"""Paths of a workspace (tools W2; FR-14)."""

from __future__ import annotations

import pytest

from agents.errors import WorkspaceError
from agents.tools.paths import ancestors, name_of, normalise, parent_of, subtree


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("", "/"),
        ("/", "/"),
        ("a", "/a"),
        ("/a/", "/a"),
        ("//a///b", "/a/b"),
        ("/a/./b/.", "/a/b"),
        ("/a/../b", "/b"),
        ("../../etc/x", "/etc/x"),
        ("/a/b/../..", "/"),
        ("/...", "/..."),
        ("/ a", "/ a"),
    ],
)
def test_a_path_has_one_spelling_and_never_leaves_the_root(given, meant):
    assert normalise(given) == meant


def test_a_path_of_4096_characters_is_the_longest():
    assert len(normalise("/" + "a" * 4095)) == 4096
    with pytest.raises(WorkspaceError, match=r"^ENAMETOOLONG: "):
        normalise("/" + "a" * 4096)


@pytest.mark.parametrize("given", ["/a\x00b", "/\ud800", 7, None])
def test_what_cannot_be_a_path_is_refused(given):
    with pytest.raises(WorkspaceError, match=r"^EINVAL: "):
        normalise(given)


def test_names_and_parents():
    assert (parent_of("/a/b"), parent_of("/a"), parent_of("/")) == ("/a", "/", "/")
    assert (name_of("/a/b"), name_of("/")) == ("b", "")
    assert ancestors("/a/b/c") == ["/a", "/a/b"]
    assert ancestors("/a") == ancestors("/") == []


@pytest.mark.parametrize("beside", ["/dir", "/dir0", "/dir-x", "/dir.txt", "/dirx/a", "/d"])
def test_the_range_of_a_subtree_holds_only_what_is_below(beside):
    low, high = subtree("/dir")
    assert not low <= beside < high


@pytest.mark.parametrize("below", ["/dir/a", "/dir/a/b", "/dir/\U0010ffff", "/dir/ "])
def test_the_range_of_a_subtree_holds_all_that_is_below(below):
    low, high = subtree("/dir")
    assert low <= below < high


def test_the_range_of_the_root_holds_everything_but_the_root():
    low, high = subtree("/")
    assert low <= "/\U0010ffff" < high
    assert low <= "/a" < high
