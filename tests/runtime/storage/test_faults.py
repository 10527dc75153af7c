"""What the disk and other processes can do to a database, and what is raised then (style.md, section 6)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import LockHeld, PerdureError, StorageCorrupt, StorageFailed
from runtime.storage.duckdb import DATABASE_NAME, open_store, prewarm
from tests.runtime.storage.process import run, start

COUNT = "SELECT count(*), sum(octet_length(body)) FROM cf_rows"


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / DATABASE_NAME


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / f"{DATABASE_NAME}.wal"


def write(folder: Path, *, checkpoint: bool, rows: int = 20) -> None:
    store = open_store(folder)
    store.execute("CREATE TABLE cf_rows (id INTEGER PRIMARY KEY, body BLOB)")
    store.commit()
    for number in range(rows):
        store.execute("INSERT INTO cf_rows VALUES (?, ?)", (number, bytes([number]) * 1000))
        store.commit()
    store.close(checkpoint=checkpoint)


def read(folder: Path) -> list[tuple[object, ...]]:
    store = open_store(folder)
    try:
        return list(store.execute(COUNT).rows)
    finally:
        store.close(checkpoint=False)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# --- held files ---


def test_a_file_that_this_process_holds_is_refused_with_its_path(folder: Path, file: Path) -> None:
    # D3
    store = open_store(folder)
    with pytest.raises(LockHeld, match=str(file)) as caught:
        open_store(folder)
    assert caught.value.retryable
    store.close(checkpoint=False)


@pytest.mark.slow
def test_a_file_that_another_process_holds_is_refused_with_that_process(folder: Path) -> None:
    # D3
    holder = start("store = open_store(folder); print('open'); sys.stdin.read()", folder)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    try:
        with pytest.raises(LockHeld, match=rf"PID {holder.pid}"):
            open_store(folder)
    finally:
        holder.kill()
        holder.communicate()


def test_a_closed_file_can_be_opened_again_at_once(folder: Path) -> None:
    # D3
    for _ in range(3):
        store = open_store(folder)
        store.session().execute("SELECT 1")
        store.close(checkpoint=True)


@pytest.mark.slow
def test_a_closed_file_is_free_for_another_process_while_this_one_lives(folder: Path) -> None:
    # D3
    write(folder, checkpoint=False)
    assert run(f"print(open_store(folder).execute({COUNT!r}).rows)", folder) == "[(20, 20000)]"


def test_stores_of_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, second = open_store(tmp_path / "1"), open_store(tmp_path / "2")
    for number, store in enumerate((first, second)):
        store.execute("CREATE TABLE cf_rows (id INTEGER PRIMARY KEY)")
        store.commit()
        store.append("cf_rows", [(number,)]).result()
    first.close(checkpoint=True)
    second.append("cf_rows", [(7,)]).result()
    assert second.execute("SELECT id FROM cf_rows ORDER BY id").rows == [(1,), (7,)]
    second.close(checkpoint=False)


# --- damaged files ---


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda file: file.write_bytes(b"no database" * 10_000), id="garbage"),
        pytest.param(lambda file: os.truncate(file, 0), id="empty"),
        pytest.param(lambda file: os.truncate(file, 5_000), id="truncated"),
        pytest.param(lambda file: flip(file, 100), id="a bit of the header"),
        pytest.param(lambda file: flip(file, 280_000), id="a bit of a block"),
    ],
)
def test_a_damaged_database_is_reported_with_its_path_and_not_read(
    folder: Path, file: Path, damage: Callable[[Path], object]
) -> None:
    write(folder, checkpoint=True, rows=200)
    damage(file)
    with pytest.raises(StorageCorrupt, match=str(file)):
        read(folder)


def test_a_damaged_block_ends_the_store(folder: Path, file: Path) -> None:
    write(folder, checkpoint=True, rows=200)
    flip(file, 280_000)
    store = open_store(folder)
    for _ in range(2):
        with pytest.raises(StorageCorrupt, match="replica or a backup"):
            store.execute(COUNT)
    store.close(checkpoint=True)


def test_a_log_with_a_flipped_bit_does_not_open(folder: Path, log: Path) -> None:
    write(folder, checkpoint=False)
    flip(log, log.stat().st_size - 500)
    with pytest.raises(StorageCorrupt, match=rf"{log.name} does not open"):
        read(folder)


def test_a_log_of_another_database_does_not_open(folder: Path, log: Path, tmp_path: Path) -> None:
    write(folder, checkpoint=False)
    write(tmp_path / "other", checkpoint=False)
    log.write_bytes((tmp_path / "other" / log.name).read_bytes())
    with pytest.raises(StorageCorrupt, match=log.name):
        read(folder)


def test_a_log_from_before_the_last_checkpoint_does_not_open(folder: Path, log: Path) -> None:
    write(folder, checkpoint=False)
    old = log.read_bytes()
    open_store(folder).close(checkpoint=True)
    log.write_bytes(old)
    with pytest.raises(StorageCorrupt, match=log.name):
        read(folder)


def test_a_log_without_its_database_does_not_open_and_stays(folder: Path, file: Path, log: Path) -> None:
    write(folder, checkpoint=False)
    file.unlink()
    with pytest.raises(StorageCorrupt, match="is missing"):
        open_store(folder)
    assert (file.exists(), log.stat().st_size > 20_000) == (False, True)


@pytest.mark.parametrize(("cut", "rows"), [(1, 19), (500, 19), (1_500, 18)])
def test_a_log_cut_at_its_end_opens_with_the_whole_commits(folder: Path, log: Path, cut: int, rows: int) -> None:
    # A kill in the middle of a commit leaves this.
    write(folder, checkpoint=False)
    os.truncate(log, log.stat().st_size - cut)
    assert read(folder) == [(rows, rows * 1000)]


def test_a_database_whose_making_was_interrupted_is_made_anew(folder: Path, file: Path) -> None:
    folder.mkdir(parents=True)
    (folder / f"{DATABASE_NAME}.new").write_bytes(b"half a header")
    write(folder, checkpoint=True)
    assert (read(folder), sorted(path.name for path in folder.iterdir())) == ([(20, 20_000)], [DATABASE_NAME])


# --- a disk that refuses ---


@pytest.mark.slow
def test_a_full_disk_fails_the_commit_and_ends_the_store(folder: Path, file: Path) -> None:
    code = """
store = open_store(folder)
store.execute("CREATE TABLE cf_rows (id INTEGER PRIMARY KEY, body BLOB)")
store.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
acknowledged = 0
try:
    while True:
        store.execute("INSERT INTO cf_rows VALUES (?, ?)", (acknowledged, os.urandom(100_000)))
        store.commit()
        acknowledged += 1
except PerdureError as error:
    print(acknowledged, type(error).__name__, error.message)
for use in (lambda: store.execute("SELECT 1"), lambda: store.append("cf_rows", [(9, b"")])):
    try:
        use()
    except PerdureError as error:
        print(type(error).__name__)
store.close(checkpoint=True)
"""
    first, *later = run(code, folder).splitlines()
    assert first.startswith(f"3 StorageFailed {file}: the commit failed")
    assert "free or repair the disk" in first
    assert (later, read(folder)[0][0]) == (["StorageFailed", "StorageFailed"], 3)


@pytest.mark.slow
def test_a_full_disk_fails_the_journal_and_ends_the_store(folder: Path, file: Path) -> None:
    code = """
store = open_store(folder)
store.execute("CREATE TABLE cf_rows (id INTEGER PRIMARY KEY, body BLOB)")
store.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
errors = [store.append("cf_rows", [(number, os.urandom(100_000))]).exception() for number in range(4)]
print(errors[:3], type(errors[3]).__name__, errors[3].message)
try:
    store.execute("SELECT 1")
except PerdureError as error:
    print(type(error).__name__)
store.close(checkpoint=True)
"""
    first, second = run(code, folder).splitlines()
    assert first.startswith(f"[None, None, None] StorageFailed {file}: the commit failed")
    assert (second, read(folder)[0][0]) == ("StorageFailed", 3)


@pytest.mark.slow
def test_a_full_disk_in_a_checkpoint_ends_the_store_and_loses_nothing(folder: Path, file: Path) -> None:
    code = """
store = open_store(folder)
store.execute("CREATE TABLE cf_rows (id INTEGER PRIMARY KEY, body BLOB)")
store.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, resource.RLIM_INFINITY))
for number in range(7):
    store.execute("INSERT INTO cf_rows VALUES (?, ?)", (number, os.urandom(100_000)))
    store.commit()
for use in (store.checkpoint, lambda: store.execute("SELECT 1")):
    try:
        use()
    except PerdureError as error:
        print(type(error).__name__, error.message)
store.close(checkpoint=True)
"""
    first, second = run(code, folder).splitlines()
    assert first.startswith(f"StorageFailed {file}: the checkpoint failed")
    assert (second.split()[0], read(folder)[0][0]) == ("StorageFailed", 7)


def test_a_folder_that_cannot_be_made_is_a_failure_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed, match=str(tmp_path / "file" / "object")):
        open_store(tmp_path / "file" / "object")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_a_failure_with_its_path(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageFailed, match=str(tmp_path)):
            open_store(tmp_path / "object")
    finally:
        tmp_path.chmod(0o700)


def test_a_failed_opening_leaves_nothing_that_holds_the_file(folder: Path, file: Path) -> None:
    write(folder, checkpoint=True)
    whole = file.read_bytes()
    os.truncate(file, 5_000)
    with pytest.raises(PerdureError):
        open_store(folder)
    file.write_bytes(whole)
    assert read(folder) == [(20, 20_000)]


def test_a_path_with_quotes_and_spaces_opens(tmp_path: Path) -> None:
    prewarm()
    write(tmp_path / 'it\'s a "folder"; --', checkpoint=True)
    assert read(tmp_path / 'it\'s a "folder"; --') == [(20, 20_000)]
