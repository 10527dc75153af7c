"""The file tools: exact results and limits (tools section 2, the table; W13)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agents.tools.execution import run_tool
from agents.tools.files import (
    create_find_tool,
    create_grep_tool,
    create_list_tool,
    create_read_tool,
    create_workspace_tools,
    create_write_tool,
)
from runtime.errors import UsageError


@pytest.fixture
def call(workspace):
    tools = create_workspace_tools(workspace)

    async def call(name, /, **value):
        outcome = await run_tool(tools[name], value)
        return outcome.output if outcome.error_text is None else outcome.error_text

    return call


def test_the_set_is_named_after_what_the_tools_do(workspace):
    tools = create_workspace_tools(workspace)
    assert list(tools) == [made.name for made in tools.values()] == ["read", "write", "list", "find", "grep"]


def test_every_tool_and_parameter_is_described(workspace):
    for made in create_workspace_tools(workspace).values():
        assert made.description
        assert all("description" in schema for schema in made.input_schema["properties"].values())


# --- read


async def test_read_numbers_the_lines(call, workspace):
    await workspace.write_file("/a.txt", "one\ntwo\n")
    assert await call("read", path="/a.txt") == {"path": "/a.txt", "content": "1\tone\n2\ttwo\n3\t", "total_lines": 3}


async def test_read_of_a_part_says_which(call, workspace):
    await workspace.write_file("/a.txt", "1\n2\n3\n4\n5")
    assert await call("read", path="/a.txt", offset=2, limit=2) == {
        "path": "/a.txt",
        "content": "2\t2\n3\t3",
        "total_lines": 5,
        "from_line": 2,
        "to_line": 3,
    }
    assert (await call("read", path="/a.txt", offset=4, limit=9))["to_line"] == 5


@pytest.mark.parametrize("value", [{"offset": 0}, {"limit": 0}])
async def test_read_refuses_what_is_no_line_number(call, value):
    assert "Expected `int` >= 1" in await call("read", path="/a.txt", **value)


async def test_read_cuts_a_line_over_2000_characters(call, workspace):
    await workspace.write_file("/a.txt", "x" * 2000 + "\n" + "y" * 2001)
    lines = (await call("read", path="/a.txt"))["content"].split("\n")
    assert lines == ["1\t" + "x" * 2000, "2\t" + "y" * 2000 + "... (truncated)"]


async def test_read_cuts_after_2000_lines_and_says_how_many_are_left_out(call, workspace):
    await workspace.write_file("/a.txt", "\n".join("x" * 2005))
    result = await call("read", path="/a.txt")
    lines = result["content"].split("\n")
    assert (len(lines), lines[1999], lines[2000]) == (2001, "2000\tx", "... (5 more lines truncated)")
    assert result["total_lines"] == 2005


async def test_read_says_what_is_missing_or_a_directory(call, workspace):
    await workspace.mkdir("/d")
    assert await call("read", path="/a.txt") == {"error": "File not found: /a.txt"}
    assert await call("read", path="/d") == {"error": "/d is a directory, not a file"}
    assert await call("read", path="/") == {"error": "/ is a directory, not a file"}


@pytest.mark.parametrize(
    ("data", "kind", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image", "image/png"),
        (b"\xff\xd8\xff....", "image", "image/jpeg"),
        (b"GIF89a....", "image", "image/gif"),
        (b"RIFF....WEBP", "image", "image/webp"),
        (b'<?xml version="1.0"?><SVG width="1">', "image", "image/svg+xml"),
        (b"%PDF-1.7", "file", "application/pdf"),
    ],
)
async def test_read_describes_media_without_their_bytes(call, workspace, data, kind, media_type):
    await workspace.write_file_bytes("/d/a", data)
    assert await call("read", path="/d/a") == {
        "kind": kind,
        "path": "/d/a",
        "name": "a",
        "media_type": media_type,
        "size_bytes": len(data),
    }


@pytest.mark.parametrize("data", [b"\x00\x01", b"text\x00text", b"\xff\xfe" * 100])
async def test_read_describes_what_no_model_reads_as_unsupported(call, workspace, data):
    await workspace.write_file_bytes("/a", data)
    result = await call("read", path="/a")
    assert (result["kind"], result["unsupported"], result["media_type"]) == (
        "binary",
        True,
        "application/octet-stream",
    )


async def test_read_takes_bytes_that_look_like_text_as_text(call, workspace):
    await workspace.write_file_bytes("/a", b"caf\xc3\xa9 " * 50 + b"\xff")
    assert (await call("read", path="/a"))["content"].startswith("1\tcafé café")


async def test_read_believes_the_stored_type(call, workspace):
    await workspace.write_file_bytes("/a", b"plain", "image/png")
    await workspace.write_file_bytes("/b", b'{"a":1}', "application/json; charset=utf-8")
    assert (await call("read", path="/a"))["kind"] == "image"
    assert (await call("read", path="/b"))["content"] == '1\t{"a":1}'


async def test_read_of_an_empty_file_is_one_empty_line(call, workspace):
    await workspace.write_file_bytes("/a", b"")
    assert await call("read", path="/a") == {"path": "/a", "content": "1\t", "total_lines": 1}


# --- write


async def test_write_counts_bytes_and_lines(call, workspace):
    assert await call("write", path="/d/a.txt", content="grün\nb") == {
        "path": "/d/a.txt",
        "bytes_written": 7,
        "lines": 2,
    }
    assert await workspace.read_file("/d/a.txt") == "grün\nb"


async def test_write_to_a_directory_is_an_error_for_the_model(call):
    assert (await call("write", path="/", content="x")).startswith("EISDIR: ")


# --- list


async def test_list_shows_directories_first_and_sizes(call, workspace):
    await workspace.write_files({"/sub/x": b"", "/a": bytes(12), "/b": bytes(1536), "/c": bytes(2 * 1024 * 1024)})
    assert await call("list") == {
        "path": "/",
        "count": 4,
        "entries": ["sub/", "a (12 B)", "b (1.5 KB)", "c (2.0 MB)"],
    }


async def test_list_shows_200_entries_unless_asked(call, workspace):
    await workspace.write_files({f"/{number:03}": b"" for number in range(201)})
    assert (await call("list"))["count"] == 200
    assert (await call("list", limit=201))["count"] == 201
    assert (await call("list", offset=200))["entries"] == ["200 (0 B)"]


@pytest.mark.parametrize("limit", [0, 1001])
async def test_list_refuses_a_limit_out_of_1_to_1000(call, limit):
    assert "at `$.limit`" in await call("list", limit=limit)


async def test_list_says_what_is_missing_or_a_file(call, workspace):
    await workspace.write_file("/a", "x")
    await workspace.mkdir("/empty")
    assert await call("list", path="/missing") == {"error": "Directory not found: /missing"}
    assert await call("list", path="/a") == {"error": "/a is a file, not a directory"}
    assert await call("list", path="/empty") == {"path": "/empty", "count": 0, "entries": []}


# --- find


async def test_find_gives_paths_and_marks_directories(call, workspace):
    await workspace.write_files({"/src/a.py": b"", "/b.py": b""})
    assert await call("find", pattern="**") == {
        "pattern": "**",
        "count": 3,
        "files": ["/b.py", "/src/", "/src/a.py"],
    }


async def test_find_shows_200_and_counts_all(call, workspace):
    await workspace.write_files({f"/{number:03}": b"" for number in range(201)})
    result = await call("find", pattern="*")
    assert (result["count"], len(result["files"]), result["truncated"], result["showing"]) == (201, 200, True, 200)


async def test_find_of_an_impossible_pattern_is_an_error_for_the_model(call):
    assert (await call("find", pattern="{a,b}" * 9)).startswith("EINVAL: ")


# --- grep


async def test_grep_gives_file_line_and_text(call, workspace):
    await workspace.write_files({"/a.txt": b"one\nTwo two\nthree", "/d/b.txt": b"two\r\n", "/c.txt": b"none"})
    assert await call("grep", query="t.o") == {
        "query": "t.o",
        "files_searched": 3,
        "files_with_matches": 2,
        "total_matches": 2,
        "matches": ["/a.txt:2: Two two", "/d/b.txt:1: two"],
    }


async def test_grep_can_tell_capital_from_small_letters(call, workspace):
    await workspace.write_files({"/a.txt": b"Two\ntwo"})
    assert (await call("grep", query="two", case_sensitive=True))["matches"] == ["/a.txt:2: two"]
    assert (await call("grep", query="two", case_sensitive=True, fixed_string=True))["total_matches"] == 1
    assert (await call("grep", query="TWO", fixed_string=True))["total_matches"] == 2


async def test_grep_of_a_fixed_string_takes_no_character_for_a_pattern(call, workspace):
    await workspace.write_files({"/a.txt": b"a.c\nabc\na(c"})
    assert (await call("grep", query="a.c", fixed_string=True))["matches"] == ["/a.txt:1: a.c"]
    assert (await call("grep", query="a(", fixed_string=True))["matches"] == ["/a.txt:3: a(c"]


async def test_grep_searches_only_what_include_names(call, workspace):
    await workspace.write_files({"/a.py": b"x", "/a.md": b"x", "/d/b.py": b"x"})
    assert (await call("grep", query="x", include="**/*.py"))["matches"] == ["/a.py:1: x", "/d/b.py:1: x"]


async def test_grep_shows_lines_around_a_match(call, workspace):
    await workspace.write_files({"/a.txt": b"1\n2\nhit\n4\n5"})
    assert (await call("grep", query="hit", context_lines=1))["matches"] == [
        {"file": "/a.txt", "line": 3, "context": "  2\t2\n> 3\thit\n  4\t4"}
    ]


async def test_grep_shows_no_lines_before_the_first_or_after_the_last(call, workspace):
    await workspace.write_files({"/a.txt": b"hit\n2"})
    (match,) = (await call("grep", query="hit", context_lines=10))["matches"]
    assert match["context"] == "> 1\thit\n  2\t2"


async def test_grep_refuses_more_than_ten_lines_around(call):
    assert "at `$.context_lines`" in await call("grep", query="x", context_lines=11)


async def test_grep_stops_after_200_matches_and_says_so(call, workspace):
    await workspace.write_files({"/a": b"x\n" * 150, "/b": b"x\n" * 50})
    assert "truncated" not in await call("grep", query="x")
    await workspace.write_files({"/c": b"x\n"})
    result = await call("grep", query="x")
    assert (result["total_matches"], len(result["matches"]), result["truncated"]) == (200, 200, True)


async def test_grep_counts_one_match_a_line(call, workspace):
    await workspace.write_files({"/a": b"x x x"})
    assert (await call("grep", query="x"))["total_matches"] == 1


async def test_grep_skips_files_over_a_mebibyte_and_says_how_many(call, workspace):
    await workspace.write_files({"/a": b"x" * 1_048_577, "/b": b"x"})
    result = await call("grep", query="x")
    assert (result["files_searched"], result["matches"]) == (1, ["/b:1: x"])
    assert (result["files_skipped"], result["note"]) == (1, "1 file(s) skipped (larger than 1 MB)")


async def test_grep_of_a_bad_expression_is_an_error_result(call):
    result = await call("grep", query="a(")
    assert list(result) == ["error"]
    assert result["error"].startswith("Invalid regex: a(")


async def test_grep_of_an_expression_that_never_ends_is_an_error_result(call, workspace, monkeypatch):
    monkeypatch.setattr("agents.tools.grep.SEARCH_SECONDS_MAX", 0.05)
    await workspace.write_files({"/a": b"a" * 5000 + b"!"})
    result = await call("grep", query=r"^(a|a)*\1*(a|a)*$")
    assert result == {
        "error": "The pattern takes longer than 0.05 s; use a simpler one, or fixed_string",
    }


async def test_grep_does_not_break_on_bytes_that_are_no_text(call, workspace):
    await workspace.write_file_bytes("/a", b"\xff\x00needle\xfe")
    assert (await call("grep", query="needle"))["total_matches"] == 1


async def test_grep_reads_three_hundred_files_with_few_statements(workspace, database):
    await workspace.write_files({f"/{number}": b"line\n" * 10 for number in range(300)})
    database.queries.clear()
    outcome = await run_tool(create_grep_tool(workspace), {"query": "nothing"})
    assert outcome.output["files_searched"] == 300
    assert len(database.queries) == 7  # the glob, and two for each hundred


# --- W13: other backends


class Backend:
    """The least of a backend: some methods synchronous, files in a dict."""

    def __init__(self):
        self.files = {"/a.txt": "one\ntwo"}
        self.made: list[str] = []

    async def read_file(self, path):
        return self.files.get(path)

    def read_file_bytes(self, path):
        return self.files[path].encode()

    def stat(self, path):
        if path not in self.files:
            return None
        size = len(self.files[path])
        return SimpleNamespace(path=path, name=path[1:], type="file", mime_type="", size=size)

    def glob(self, pattern):
        return [self.stat(path) for path in self.files]

    def mkdir(self, path, *, recursive):
        self.made.append(path)

    async def write_file(self, path, content):
        self.files[path] = content


async def test_tools_work_over_a_backend_with_only_their_methods():
    # tools W13
    backend = Backend()
    assert (await run_tool(create_read_tool(backend), {"path": "/a.txt"})).output["content"] == "1\tone\n2\ttwo"
    assert (await run_tool(create_grep_tool(backend), {"query": "two"})).output["matches"] == ["/a.txt:2: two"]
    assert (await run_tool(create_find_tool(backend), {"pattern": "*"})).output["files"] == ["/a.txt"]
    assert (await run_tool(create_write_tool(backend), {"path": "/d/b", "content": "x"})).output["lines"] == 1
    assert (backend.files["/d/b"], backend.made) == ("x", ["/d"])


@pytest.mark.parametrize(
    ("create", "missing"),
    [
        (create_read_tool, "read_file, read_file_bytes, stat"),
        (create_write_tool, "write_file, mkdir"),
        (create_list_tool, "read_dir"),
        (create_find_tool, "glob"),
        (create_grep_tool, "glob, read_file"),
    ],
)
def test_a_backend_that_lacks_a_method_is_refused_at_creation(create, missing):
    # tools W13
    with pytest.raises(UsageError, match=f"needs the method {missing}, which"):
        create(object())
