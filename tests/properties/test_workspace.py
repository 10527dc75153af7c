"""Any sequence of operations leaves a workspace as the same sequence leaves a plain dict of paths (tools W2-W6, W9)."""

from __future__ import annotations

import asyncio
import fnmatch
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agents.errors import WorkspaceError
from agents.tools.globs import compile_glob
from agents.tools.paths import normalise
from agents.tools.workspace import Workspace
from tests.agents.tools.database import Database

DIRECTORY = object()

# Names that are patterns to SQL or to a glob, that begin alike, and that sort around the slash.
names = st.sampled_from(["a", "a_b", "aXb", "100%", "a-", "a.", "a0", "[x]", "it's", "ä"])
paths = st.lists(names, min_size=0, max_size=3).map(lambda steps: "/" + "/".join(steps))
# Across the size of a piece, so that a file has none, one or several.
contents = st.sampled_from([b"", b"x", b"y" * 15_999, b"z" * 16_000, b"w" * 40_000])


class Model:
    """The whole meaning in a dict: path to bytes, or to DIRECTORY."""

    def __init__(self):
        self.entries: dict[str, object] = {"/": DIRECTORY}

    @staticmethod
    def above(path):
        steps = path.split("/")
        return ["/".join(steps[:end]) or "/" for end in range(1, len(steps))]

    def below(self, path):
        return [each for each in self.entries if each.startswith(path.rstrip("/") + "/") and each != path]

    def write(self, path, data):
        if self.entries.get(path) is DIRECTORY:
            return "EISDIR"
        return self._place(path, data)

    def append(self, path, data):
        old = self.entries.get(path, b"")
        return self.write(path, data if old is DIRECTORY else old + data)

    def mkdir(self, path, recursive):
        if path in self.entries:
            return None if recursive and self.entries[path] is DIRECTORY else "EEXIST"
        if any(self.entries.get(each, DIRECTORY) is not DIRECTORY for each in self.above(path)):
            return "ENOTDIR"
        if not recursive and any(each not in self.entries for each in self.above(path)):
            return "ENOENT"
        return self._place(path, DIRECTORY)

    def rm(self, path, recursive):
        if path == "/":
            return "EPERM"
        if path not in self.entries:
            return "ENOENT"
        if self.below(path) and not recursive:
            return "ENOTEMPTY"
        for each in [path, *self.below(path)]:
            del self.entries[each]
        return None

    def _place(self, path, value):
        if any(self.entries.get(each, DIRECTORY) is not DIRECTORY for each in self.above(path)):
            return "ENOTDIR"
        for each in self.above(path):
            self.entries[each] = DIRECTORY
        self.entries[path] = value
        return None


class Operations(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = Database(Path(self.folder.name))
        self.workspace = Workspace(self.database)
        self.model = Model()

    def both(self, operation, expected):
        try:
            asyncio.run(operation)
            actual = None
        except WorkspaceError as error:
            actual = error.code
        assert actual == expected

    @rule(path=paths, data=contents)
    def write(self, path, data):
        self.both(self.workspace.write_file_bytes(path, data), self.model.write(path, data))

    @rule(path=paths, data=contents)
    def append(self, path, data):
        self.both(self.workspace.append_file(path, data), self.model.append(path, data))

    @rule(path=paths, recursive=st.booleans())
    def mkdir(self, path, recursive):
        self.both(self.workspace.mkdir(path, recursive=recursive), self.model.mkdir(path, recursive))

    @rule(path=paths, recursive=st.booleans())
    def rm(self, path, recursive):
        self.both(self.workspace.rm(path, recursive=recursive), self.model.rm(path, recursive))

    @rule()
    def wake(self):
        """A new process has a new workspace over the same file."""
        self.database.commit()
        self.database.close()
        self.database = Database(Path(self.folder.name))
        self.workspace = Workspace(self.database)

    @rule()
    def commit(self):
        self.database.commit()

    def teardown(self):
        self.database.close()
        self.folder.cleanup()

    @invariant()
    def holds_the_same_entries(self):
        found = asyncio.run(self.workspace.glob("**"))
        assert {info.path: info.type for info in found} == {
            path: "directory" if value is DIRECTORY else "file"
            for path, value in self.model.entries.items()
            if path != "/"
        }

    @invariant()
    def holds_the_same_bytes(self):
        files = {path: value for path, value in self.model.entries.items() if value is not DIRECTORY}
        assert asyncio.run(self.workspace.read_files(list(files))) == files
        info = asyncio.run(self.workspace.info())
        assert info.total_bytes == sum(len(value) for value in files.values() if isinstance(value, bytes))

    @invariant()
    def keeps_no_content_without_a_file(self):
        owned = "select count(*) as orphans from cf_content_default where path not in"
        if len(self.model.entries) > 1:
            rows = self.database.rows(f"{owned} (select path from cf_workspace_default)")
            assert rows == [{"orphans": 0}]


Operations.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
test_operations = pytest.mark.slow(Operations.TestCase)


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c", "...", "ä"]), max_size=8))
def test_a_normalised_path_is_its_own_spelling_and_below_the_root(steps):
    path = normalise("/".join(steps))
    assert normalise(path) == path
    assert path == "/" or all(step not in ("", ".", "..") for step in path[1:].split("/"))


@given(st.text("ab*?", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=8))
def test_a_step_matches_as_the_standard_library_says(pattern, name):
    # "**" alone is another thing here, and a single name is still what it matches.
    assert compile_glob(pattern).matches(f"/{name}") == fnmatch.fnmatchcase(name, pattern)


def brute(pattern, steps):
    """Whether steps fit a pattern, by trying every length for every ``**``; the last ``**`` takes at least one."""
    if not pattern:
        return not steps
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(steps)
        return any(brute(pattern[1:], steps[skip:]) for skip in range(len(steps) + 1))
    return bool(steps) and fnmatch.fnmatchcase(steps[0], pattern[0]) and brute(pattern[1:], steps[1:])


@given(
    st.lists(st.sampled_from(["**", "a", "b", "*", "a*"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=6),
)
def test_steps_match_as_if_every_length_had_been_tried(pattern, steps):
    assert compile_glob("/".join(pattern)).matches("/" + "/".join(steps)) == brute(pattern, steps)
