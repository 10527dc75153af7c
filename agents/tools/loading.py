"""Fills a workspace from a folder of this machine: what an operator does before an agent starts to work.

Only text is copied. Links are never followed, or a folder could smuggle in what lies outside it. Every file that the
pattern chose but that was not copied is reported with the reason, so that "not found" later has an explanation.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from agents.errors import WorkspaceError
from agents.tools.globs import compile_glob
from agents.tools.paths import normalise
from runtime.errors import UsageError

__all__ = ["EXCLUDE", "FILES_MAX", "FILE_BYTES_MAX", "TOTAL_BYTES_MAX", "LoadReport", "SkippedFile", "load_folder"]

# A folder of documents or a code base of middle size; what is beyond it should be chosen with ``include``.
FILES_MAX = 5_000
# grep skips files over 1 MiB, and no model reads one.
FILE_BYTES_MAX = 1_048_576
# Two thirds of what the database was measured to hold in comfort, half of a default agent's memory.
TOTAL_BYTES_MAX = 64_000_000
# Left out unseen: what tools make beside the text.
EXCLUDE = ("**/__pycache__/**", "**/.git/**", "**/node_modules/**")
# One transaction; also what is read ahead of it.
BATCH_FILES = 100
BATCH_BYTES = 4_000_000


class SkippedFile(msgspec.Struct, frozen=True):
    """A chosen file that was not copied, and why; ``path`` is relative to the folder."""

    path: str
    reason: str


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``load_folder`` did."""

    files: int
    bytes: int
    skipped: tuple[SkippedFile, ...] = ()

    @property
    def summary(self) -> str:
        """One line for people: counts, and the reasons with how many files each held back."""
        text = f"{self.files:,} files, {self.bytes:,} bytes"
        reasons = Counter(each.reason for each in self.skipped)
        if reasons:
            text += "; skipped: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        return text


class Target(Protocol):
    """Where the files go."""

    async def write_files(self, files: Mapping[str, bytes], mime_type: str = "text/plain") -> None:
        """Write several files, all or none."""
        ...


class _Limits(msgspec.Struct, frozen=True):
    files: int
    file_bytes: int
    total_bytes: int


async def load_folder(
    target: Target,
    host_path: str | os.PathLike[str],
    to: str,
    include: str,
    *,
    exclude: Sequence[str] | None = None,
    limits: tuple[int | None, int | None, int | None] = (None, None, None),
) -> LoadReport:
    """Copy text files in batches, in the order of their paths; existing ones are replaced.

    Args:
        target: A workspace.
        host_path: The folder.
        to: Directory of the workspace that stands for the folder.
        include: Glob of the files to copy, relative to the folder.
        exclude: Globs of files to leave out unseen; caches and repositories by default.
        limits: At most so many files, bytes of one file, and bytes of all; None takes the module's limit.

    Raises:
        UsageError: There is no such folder.
        WorkspaceError: A file stands where a directory is needed, or the other way round; earlier batches stay.
    """
    files, file_bytes, total_bytes = limits
    walk = _Walk(
        root=_folder(host_path),
        include=include,
        exclude=EXCLUDE if exclude is None else exclude,
        limits=_Limits(
            FILES_MAX if files is None else files,
            FILE_BYTES_MAX if file_bytes is None else file_bytes,
            TOTAL_BYTES_MAX if total_bytes is None else total_bytes,
        ),
    )
    base = normalise(to).rstrip("/")
    for batch in walk.batches():
        await target.write_files({f"{base}/{path}": data for path, data in batch.items()})
        await asyncio.sleep(0)  # lets the agent commit the batch and answer others
    return LoadReport(files=walk.files, bytes=walk.bytes, skipped=tuple(walk.skipped))


def _folder(host_path: str | os.PathLike[str]) -> str:
    root = os.path.abspath(host_path)
    if not os.path.isdir(root):
        raise UsageError(f"{root} is no folder; load_folder copies the text files below one")
    return root


class _Walk:
    """Reads a folder, and counts."""

    def __init__(self, *, root: str, include: str, exclude: Sequence[str], limits: _Limits) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[SkippedFile] = []
        self._root = root
        self._include = compile_glob(include)
        self._depth_max = None if "**" in include else include.strip("/").count("/")
        self._exclude = [compile_glob(each) for each in exclude]
        self._closed = [compile_glob(each.removesuffix("/**")) for each in exclude if each.endswith("/**")]
        self._limits = limits

    def batches(self) -> Iterator[dict[str, bytes]]:
        """The files to copy, {relative path: bytes}."""
        batch: dict[str, bytes] = {}
        size = 0
        for path in self._chosen():
            data = self._read(path)
            if isinstance(data, str):
                self.skipped.append(SkippedFile(path.encode(errors="replace").decode(), data))
                continue
            if batch and (len(batch) >= BATCH_FILES or size + len(data) > BATCH_BYTES):
                yield batch
                batch, size = {}, 0
            batch[path] = data
            size += len(data)
            self.files += 1
            self.bytes += len(data)
        if batch:
            yield batch

    def _chosen(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self._root):
            below = os.path.relpath(folder, self._root)
            prefix = "" if below == "." else f"{below}/"
            folders[:] = sorted(name for name in folders if self._may_hold(f"/{prefix}{name}"))
            for name in sorted(names):
                shown = f"/{prefix}{name}"
                if self._include.matches(shown) and not any(glob.matches(shown) for glob in self._exclude):
                    yield f"{prefix}{name}"

    def _may_hold(self, folder: str) -> bool:
        """Whether to look into a folder: repositories and caches may hold a hundred times what is wanted."""
        if self._depth_max is not None and folder.count("/") > self._depth_max:
            return False
        return not any(glob.matches(folder) for glob in self._closed)

    def _read(self, path: str) -> bytes | str:
        """The file's bytes, or why it is not copied."""
        full = os.path.join(self._root, path)
        try:
            normalise(path)
            if os.path.islink(full) or not os.path.isfile(full):
                return "not a plain file"
            size = os.path.getsize(full)
            if size > self._limits.file_bytes:
                return f"larger than {self._limits.file_bytes:,} bytes"
            if self.files >= self._limits.files:
                return f"beyond {self._limits.files:,} files"
            if self.bytes + size > self._limits.total_bytes:
                return f"beyond {self._limits.total_bytes:,} bytes in all"
            with open(full, "rb") as file:
                data = file.read(self._limits.file_bytes)
        except WorkspaceError as error:
            return f"impossible name ({error.code})"
        except OSError as error:
            return f"unreadable ({error.strerror})"
        return data if _is_text(data) else "not text"


def _is_text(data: bytes) -> bool:
    if b"\x00" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
