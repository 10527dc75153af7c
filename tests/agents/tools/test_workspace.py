"""Operations of a workspace (tools W1-W6, W9, W11; FR-14)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agents.errors import WorkspaceError
from agents.tools.workspace import Workspace, WorkspaceInfo
from runtime.errors import UsageError


class Clock:
    now = 1_000_500

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def workspace(database, clock):
    return Workspace(database, now_ms=clock)


def fails(code):
    return pytest.raises(WorkspaceError, match=rf"^{code}: ")


async def paths(workspace, pattern="**"):
    return [info.path for info in await workspace.glob(pattern)]


# --- W1: tables and namespaces


@pytest.mark.parametrize("namespace", ["", "1a", "a-b", "a b", "ä", "a;drop table x"])
def test_an_impossible_namespace_is_refused(database, namespace):
    with pytest.raises(UsageError, match="must be a letter, then letters, digits or _"):
        Workspace(database, namespace)


async def test_the_table_is_named_after_the_namespace(database):
    await Workspace(database, "notes").write_file("/a", "x")
    assert database.rows("select path from cf_workspace_notes") == [{"path": "/a"}]


async def test_namespaces_do_not_see_each_other(database):
    await Workspace(database, "one").write_file("/a", "x")
    assert await Workspace(database, "two").read_file("/a") is None


async def test_a_second_workspace_with_the_same_options_sees_the_same_files(database, workspace):
    await workspace.write_file("/a", "x")
    assert await Workspace(database).read_file("/a") == "x"


@pytest.mark.usefixtures("workspace")
def test_a_second_workspace_with_another_threshold_is_refused_with_both_values(database):
    with pytest.raises(UsageError, match=r"inline_threshold=1500000, not 5"):
        Workspace(database, inline_threshold=5)


@pytest.mark.usefixtures("workspace")
def test_namespaces_that_differ_only_by_case_are_refused(database):
    with pytest.raises(UsageError, match="'default' and 'Default' share one table"):
        Workspace(database, "Default")


async def test_the_first_write_makes_the_tables_and_keeps_what_was_written_before_it(database, workspace):
    # runtime D10: the failed statement that finds no table must not undo the stretch
    database.exec("create table mine (a integer)")
    database.exec("insert into mine values (1)")
    await workspace.write_file("/a", "x")
    database.commit()
    assert database.rows("select * from mine") == [{"a": 1}]
    assert await workspace.read_file("/a") == "x"


async def test_reading_makes_no_tables(database, workspace):
    assert await workspace.read_file("/a") is None
    assert await workspace.stat("/a") is None
    assert await workspace.read_dir("/") == []
    assert await workspace.glob("**") == []
    assert not await workspace.delete_file("/a")
    await workspace.rm("/a", force=True)
    assert database.rows("select * from duckdb_tables() where table_name like 'cf_%'") == []


# --- W4: files


async def test_text_comes_back_as_written(workspace):
    await workspace.write_file("/a.txt", "grüße\r\n\x00 end")
    assert await workspace.read_file("/a.txt") == "grüße\r\n\x00 end"


async def test_every_spelling_of_a_path_is_the_same_file(workspace):
    await workspace.write_file("../a//b/./c.txt", "x")
    assert await workspace.read_file("/a/x/../b/c.txt") == "x"


async def test_bytes_come_back_as_written(workspace):
    data = bytes(range(256)) * 20_000  # 5 MB, in many pieces (FR-14)
    await workspace.write_file_bytes("/a.bin", data)
    assert await workspace.read_file_bytes("/a.bin") == data


async def test_an_empty_file_is_a_file(workspace):
    await workspace.write_file("/empty", "")
    assert await workspace.read_file("/empty") == ""
    assert await workspace.read_file_bytes("/empty") == b""


async def test_a_missing_file_reads_as_none(workspace):
    await workspace.write_file("/a", "x")
    assert await workspace.read_file("/b") is None
    assert await workspace.read_file_bytes("/b") is None


@pytest.mark.parametrize("path", ["/", "/dir"])
async def test_reading_a_directory_is_refused(workspace, path):
    await workspace.mkdir("/dir")
    with fails("EISDIR"):
        await workspace.read_file(path)
    with fails("EISDIR"):
        await workspace.read_file_bytes(path)


async def test_bytes_that_are_no_text_are_replaced_when_read_as_text(workspace):
    await workspace.write_file_bytes("/a", b"a\xffb")
    assert await workspace.read_file("/a") == "a\ufffdb"


async def test_writing_replaces_content_size_and_type_and_keeps_the_time_of_creation(workspace, clock):
    await workspace.write_file_bytes("/a", b"\xff" * 40_000, "image/png")
    clock.now = 2_000_000
    await workspace.write_file("/a", "short")
    info = await workspace.stat("/a")
    assert await workspace.read_file("/a") == "short"
    assert (info.size, info.mime_type, info.created_at, info.updated_at) == (5, "text/plain", 1000.5, 2000.0)


async def test_bytes_over_text_keep_no_old_encoding(workspace):
    await workspace.write_file("/a", "grüße")
    await workspace.write_file_bytes("/a", b"\xfc\xdf")
    assert await workspace.read_file_bytes("/a") == b"\xfc\xdf"


async def test_writing_makes_the_directories_above(workspace):
    await workspace.write_file("/a/b/c.txt", "x")
    assert [(info.path, info.type) for info in await workspace.glob("**")] == [
        ("/a", "directory"),
        ("/a/b", "directory"),
        ("/a/b/c.txt", "file"),
    ]


async def test_concurrent_writes_below_a_missing_directory_make_it_once(workspace):
    await asyncio.gather(*(workspace.write_file(f"/new/{number}", "x") for number in range(5)))
    assert (await workspace.info()).directory_count == 2


async def test_writing_to_a_directory_is_refused(workspace):
    await workspace.mkdir("/dir")
    for path in ("/", "/dir", "dir/.."):
        with fails("EISDIR"):
            await workspace.write_file(path, "x")
        with fails("EISDIR"):
            await workspace.append_file(path, "x")


async def test_writing_below_a_file_is_refused_and_changes_nothing(workspace):
    await workspace.write_file("/a", "x")
    with fails("ENOTDIR"):
        await workspace.write_file("/a/b/c", "y")
    with fails("ENOTDIR"):
        await workspace.append_file("/a/b", "y")
    assert await paths(workspace) == ["/a"]


async def test_a_file_over_the_limit_is_refused(workspace):
    with fails("EFBIG"):
        await workspace.write_file_bytes("/a", bytes(16 * 1024 * 1024 + 1))
    assert await paths(workspace) == []


async def test_text_that_cannot_be_encoded_is_refused(workspace):
    with fails("EINVAL"):
        await workspace.write_file("/a", "\ud800")


async def test_appending_adds_to_the_end(workspace):
    await workspace.append_file("/log", "one\n")
    await workspace.append_file("/log", b"two\n")
    assert await workspace.read_file("/log") == "one\ntwo\n"
    assert (await workspace.stat("/log")).size == 8


async def test_many_appends_stay_few_pieces(workspace, database):
    for number in range(70):
        await workspace.append_file("/log", f"{number}\n")
    assert await workspace.read_file("/log") == "".join(f"{number}\n" for number in range(70))
    (count,) = database.rows("select count(*) as pieces from cf_content_default")
    assert count["pieces"] == 4


async def test_appending_past_the_limit_is_refused(workspace):
    await workspace.write_file_bytes("/a", bytes(16 * 1024 * 1024))
    with fails("EFBIG"):
        await workspace.append_file("/a", b"x")


async def test_writing_several_files_is_all_or_none(workspace):
    await workspace.write_file("/file", "x")
    with fails("ENOTDIR"):
        await workspace.write_files({"/a": b"1", "/file/b": b"2"})
    with fails("ENOTDIR"):
        await workspace.write_files({"/c": b"1", "/c/d": b"2"})
    assert await paths(workspace) == ["/file"]


async def test_reading_several_files_leaves_out_what_is_no_file(workspace):
    await workspace.write_files({"/a": b"1", "/d/b": b"", "/c": b"3"})
    found = await workspace.read_files(["a", "/d", "/d/b", "/missing", "/"])
    assert found == {"a": b"1", "/d/b": b""}


async def test_a_file_over_the_threshold_is_kept_with_one_warning(database, caplog):
    # tools W3, without an object store
    workspace = Workspace(database, "w", inline_threshold=10)
    with caplog.at_level(logging.WARNING):
        await workspace.write_file("/a", "x" * 10)
        await workspace.write_file("/b", "x" * 10)
    assert [record.getMessage() for record in caplog.records] == [
        "workspace file /a has 10 bytes, over the inline threshold of 10; it is kept in the agent's database"
    ]
    assert await workspace.read_file("/b") == "x" * 10


async def test_large_writes_let_the_agent_commit_in_between(workspace):
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    for number in range(4):
        await workspace.write_file_bytes(f"/{number}", bytes(2_000_000))
    counting.cancel()
    assert turns == 2


# --- W11: stat and info


async def test_stat_of_a_file(workspace):
    await workspace.write_file("/a/b.txt", "grün", "text/markdown")
    info = await workspace.stat("/a/b.txt")
    assert (info.path, info.name, info.type, info.mime_type) == ("/a/b.txt", "b.txt", "file", "text/markdown")
    assert (info.size, info.created_at, info.updated_at, info.target) == (5, 1000.5, 1000.5, None)


async def test_stat_of_the_root_and_of_nothing(workspace):
    root = await workspace.stat("/")
    assert (root.path, root.name, root.type) == ("/", "", "directory")
    assert await workspace.stat("/missing") is None


async def test_exists_is_for_anything_and_file_exists_for_files(workspace):
    await workspace.write_file("/d/a", "x")
    assert [await workspace.exists(path) for path in ("/", "/d", "/d/a", "/d/b")] == [True, True, True, False]
    assert [await workspace.file_exists(path) for path in ("/", "/d", "/d/a", "/d/b")] == [False, False, True, False]


async def test_info_counts_files_bytes_and_directories_with_the_root(workspace):
    assert await workspace.info() == WorkspaceInfo(file_count=0, directory_count=1, total_bytes=0, object_file_count=0)
    await workspace.write_files({"/d/e/a": b"123", "/b": b"4567"})
    assert await workspace.info() == WorkspaceInfo(file_count=2, directory_count=3, total_bytes=7, object_file_count=0)


# --- W5: directories


async def test_a_directory_that_exists_cannot_be_made(workspace):
    await workspace.write_file("/d/a", "x")
    for path in ("/", "/d", "/d/a"):
        with fails("EEXIST"):
            await workspace.mkdir(path)


async def test_a_directory_without_its_parent_cannot_be_made(workspace):
    with fails("ENOENT"):
        await workspace.mkdir("/a/b")


async def test_a_directory_below_a_file_cannot_be_made(workspace):
    await workspace.write_file("/a", "x")
    for recursive in (False, True):
        with fails("ENOTDIR"):
            await workspace.mkdir("/a/b/c", recursive=recursive)


async def test_recursive_mkdir_makes_all_and_may_be_repeated(workspace):
    await workspace.mkdir("/a/b/c", recursive=True)
    await workspace.mkdir("/a/b/c", recursive=True)
    await workspace.mkdir("/", recursive=True)
    assert await paths(workspace) == ["/a", "/a/b", "/a/b/c"]


async def test_recursive_mkdir_over_a_file_is_refused(workspace):
    await workspace.write_file("/a", "x")
    with fails("EEXIST"):
        await workspace.mkdir("/a", recursive=True)


async def test_a_hundred_directories_are_the_deepest(workspace):
    await workspace.mkdir("/d" * 100, recursive=True)
    with fails("ELOOP"):
        await workspace.mkdir("/d" * 101, recursive=True)


async def test_a_directory_is_listed_by_type_then_name(workspace):
    await workspace.write_files({"/z": b"", "/a": b"", "/sub/x": b""})
    await workspace.mkdir("/zdir")
    assert [info.name for info in await workspace.read_dir()] == ["sub", "zdir", "a", "z"]
    assert [info.name for info in await workspace.read_dir("/", limit=2, offset=1)] == ["zdir", "a"]


async def test_a_directory_lists_a_thousand_entries_by_default(workspace):
    await workspace.write_files({f"/{number:04}": b"" for number in range(1001)})
    assert len(await workspace.read_dir("/")) == 1000
    assert [info.name for info in await workspace.read_dir("/", offset=1000)] == ["1000"]


async def test_a_directory_that_does_not_exist_lists_nothing(workspace):
    assert await workspace.read_dir("/missing") == []


# --- W6: removing


async def test_the_root_cannot_be_removed(workspace):
    with fails("EPERM"):
        await workspace.rm("/a/..", recursive=True, force=True)


async def test_removing_what_is_missing_needs_force(workspace):
    with fails("ENOENT"):
        await workspace.rm("/a")
    await workspace.rm("/a", force=True)


async def test_removing_a_full_directory_needs_recursive(workspace):
    await workspace.write_file("/d/a", "x")
    with fails("ENOTEMPTY"):
        await workspace.rm("/d", force=True)
    assert await paths(workspace) == ["/d", "/d/a"]


async def test_an_empty_directory_and_a_file_are_removed(workspace):
    await workspace.mkdir("/d")
    await workspace.write_file("/a", "x")
    await workspace.rm("/d")
    await workspace.rm("/a")
    assert await paths(workspace) == []


async def test_removing_a_directory_keeps_its_neighbours(workspace):
    # FR-14: names that are patterns, or that begin alike
    kept = ["/aXb/1", "/a_b0", "/a_b-x", "/a_b.txt", "/100x/1"]
    await workspace.write_files({path: path.encode() for path in [*kept, "/a_b/1", "/a_b/d/2", "/100%/1"]})
    await workspace.rm("/a_b", recursive=True)
    await workspace.rm("/100%", recursive=True)
    assert sorted(info.path for info in await workspace.glob("**") if info.type == "file") == sorted(kept)
    assert await workspace.read_files(kept) == {path: path.encode() for path in kept}


async def test_what_was_removed_leaves_no_content_behind(workspace, database):
    await workspace.write_files({"/d/a": b"1", "/d/e/b": b"2", "/c": b"3"})
    await workspace.rm("/d", recursive=True)
    await workspace.delete_file("/c")
    assert database.rows("select * from cf_content_default") == []


async def test_a_removed_file_can_be_written_again(workspace):
    await workspace.write_file("/d/a", "old")
    await workspace.rm("/d", recursive=True)
    await workspace.write_file("/d/a", "new")
    assert await workspace.read_file("/d/a") == "new"


async def test_delete_file_tells_whether_there_was_one(workspace):
    await workspace.write_file("/a", "x")
    assert [await workspace.delete_file("/a"), await workspace.delete_file("/a")] == [True, False]


@pytest.mark.parametrize("path", ["/d", "/"])
async def test_delete_file_refuses_a_directory(workspace, path):
    await workspace.mkdir("/d")
    with fails("EISDIR"):
        await workspace.delete_file(path)


# --- W9: glob


async def test_glob_finds_directories_too_and_keeps_the_order_of_paths(workspace):
    await workspace.write_files({"/b/x.py": b"", "/a/y.py": b"", "/a.py/z": b""})
    assert await paths(workspace, "**/*.py") == ["/a.py", "/a/y.py", "/b/x.py"]


@pytest.mark.parametrize(
    "name", ["100%_done.md", "a_b.txt", "[x].md", "it's.txt", 'q"uote', "new\nline", "ä\U0001f600"]
)
async def test_names_that_look_like_patterns_are_only_names(workspace, name):
    # FR-14
    await workspace.write_files({f"/d/{name}": b"1", "/d/100xxdone.md": b"2", "/d/aXb.txt": b"3", "/d/x.md": b"4"})
    assert await workspace.read_file(f"/d/{name}") == "1"
    await workspace.rm(f"/d/{name}")
    assert [info.name for info in await workspace.read_dir("/d")] == ["100xxdone.md", "aXb.txt", "x.md"]


# --- statements


async def test_reading_a_hundred_files_takes_two_statements(workspace, database):
    files = {f"/{number}": b"x" for number in range(100)}
    await workspace.write_files(files)
    database.queries.clear()
    assert await workspace.read_files(list(files)) == files
    assert len(database.queries) == 2


async def test_no_statement_uses_like(workspace, database):
    # FR-14
    await workspace.write_file("/a_b/1", "x")
    await workspace.glob("/a_b/*")
    await workspace.rm("/a_b", recursive=True)
    assert not any("like" in query.lower() for query in database.queries)
