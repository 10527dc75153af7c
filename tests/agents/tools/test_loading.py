"""Filling a workspace from a folder of the machine."""

from __future__ import annotations

import os

import pytest

from agents.errors import WorkspaceError
from agents.tools.loading import LoadReport, SkippedFile
from runtime.errors import UsageError


@pytest.fixture
def folder(tmp_path):
    for path, data in {"a.txt": b"A", "sub/b.py": b"B", "sub/__pycache__/c.py": b"C", ".git/config": b"D"}.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return tmp_path


async def files(workspace):
    return [info.path for info in await workspace.glob("**") if info.type == "file"]


async def test_the_text_files_of_a_folder_are_copied_below_a_directory(workspace, folder):
    report = await workspace.load_folder(folder, to="/docs/in")
    assert report == LoadReport(files=2, bytes=2)
    assert await workspace.read_file("/docs/in/sub/b.py") == "B"
    assert await files(workspace) == ["/docs/in/a.txt", "/docs/in/sub/b.py"]


async def test_include_chooses_by_pattern(workspace, folder):
    await workspace.load_folder(folder, include="**/*.py")
    assert await files(workspace) == ["/sub/b.py"]


async def test_include_may_name_folders(workspace, folder):
    await workspace.load_folder(folder, include="/sub/*.py")
    assert await files(workspace) == ["/sub/b.py"]


async def test_exclude_replaces_what_is_left_out(workspace, folder):
    await workspace.load_folder(folder, exclude=["sub/b.py"])
    assert await files(workspace) == ["/.git/config", "/a.txt", "/sub/__pycache__/c.py"]


async def test_what_is_no_text_is_reported_and_not_copied(workspace, folder):
    (folder / "nul.bin").write_bytes(b"a\x00b")
    (folder / "latin.txt").write_bytes("grün".encode("latin-1"))
    report = await workspace.load_folder(folder, include="*")
    assert report.skipped == (SkippedFile("latin.txt", "not text"), SkippedFile("nul.bin", "not text"))


async def test_links_are_never_followed(workspace, folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(outside / "secret.txt")
    (folder / "linked").symlink_to(outside)
    report = await workspace.load_folder(folder)
    assert report.skipped == (SkippedFile("link.txt", "not a plain file"),)
    assert await files(workspace) == ["/a.txt", "/sub/b.py"]


async def test_files_over_a_limit_are_reported_with_the_limit(workspace, folder):
    (folder / "big.txt").write_bytes(b"x" * 101)
    report = await workspace.load_folder(folder, max_file_bytes=100, max_files=1)
    assert report.skipped == (
        SkippedFile("big.txt", "larger than 100 bytes"),
        SkippedFile("sub/b.py", "beyond 1 files"),
    )


async def test_bytes_over_the_total_are_reported_with_the_limit(workspace, folder):
    report = await workspace.load_folder(folder, max_total_bytes=1)
    assert report.skipped == (SkippedFile("sub/b.py", "beyond 1 bytes in all"),)
    assert report.bytes == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_an_unreadable_file_is_reported(workspace, folder):
    (folder / "a.txt").chmod(0)
    report = await workspace.load_folder(folder)
    assert report.skipped == (SkippedFile("a.txt", "unreadable (Permission denied)"),)


async def test_a_name_that_is_no_text_is_reported(workspace, folder):
    (folder / os.fsdecode(b"bad\xff.txt")).write_text("x")
    report = await workspace.load_folder(folder)
    assert report.skipped == (SkippedFile("bad?.txt", "impossible name (EINVAL)"),)


async def test_the_summary_counts_files_and_reasons(workspace, folder):
    (folder / "0nul1").write_bytes(b"\x00")
    (folder / "0nul2").write_bytes(b"\x00")
    report = await workspace.load_folder(folder, max_files=1)
    assert report.summary == "1 files, 1 bytes; skipped: 2 not text, 1 beyond 1 files"


async def test_loading_again_replaces(workspace, folder):
    await workspace.load_folder(folder)
    (folder / "a.txt").write_text("new")
    await workspace.load_folder(folder)
    assert await workspace.read_file("/a.txt") == "new"


async def test_many_files_are_written_in_batches(workspace, tmp_path):
    for number in range(201):
        (tmp_path / f"{number:03}").write_text(str(number))
    assert (await workspace.load_folder(tmp_path)).files == 201
    assert await workspace.read_file("/200") == "200"


async def test_a_folder_that_does_not_exist_is_refused(workspace, tmp_path):
    with pytest.raises(UsageError, match="is no folder"):
        await workspace.load_folder(tmp_path / "missing")


async def test_a_file_in_the_way_of_a_directory_is_refused(workspace, folder):
    await workspace.write_file("/sub", "x")
    with pytest.raises(WorkspaceError, match=r"^ENOTDIR: "):
        await workspace.load_folder(folder)
