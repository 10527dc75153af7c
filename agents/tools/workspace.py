"""A workspace: files and directories that live in an agent's own database.

``Workspace`` is the face: names, defaults and documentation of the operations; ``Tree`` holds what they mean. Nothing
here touches the host's files, except ``load_folder``, by which a person fills a workspace.

Operations look and write in one go, so two of them never mix. After every few megabytes of writes the workspace lets
the loop run, so that a row of large writes becomes several transactions instead of one that outgrows the database.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from agents.errors import WorkspaceError
from agents.tools.loading import LoadReport, load_folder
from agents.tools.tables import FileInfo, Sql, WorkspaceInfo
from agents.tools.tree import Tree
from runtime.errors import UsageError

__all__ = ["FileInfo", "LoadReport", "Workspace", "WorkspaceInfo"]

_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The reference's threshold for moving a file to the object store; without one it only warns.
INLINE_THRESHOLD = 1_500_000
# Bytes written before the loop gets a turn: far below what one transaction may hold (see tables.PIECE_BYTES).
STRETCH_BYTES_MAX = 4_000_000

# The options of the workspaces of each database, for tools W1; a database that is gone takes them along.
_opened: weakref.WeakKeyDictionary[Sql, dict[str, tuple[str, int]]] = weakref.WeakKeyDictionary()


class Workspace:
    """Files of an agent; paths are absolute, with ``/`` at the top and no way out of it.

    Errors are ``WorkspaceError`` and begin with the code of a file system (ENOENT, EISDIR, ...). A write is durable
    when other writes of the agent are: before anything that depends on it leaves the agent.

    Source: https://developers.cloudflare.com/agents/api-reference/workspace/
    """

    def __init__(
        self,
        sql: Sql,
        namespace: str = "default",
        *,
        inline_threshold: int = INLINE_THRESHOLD,
        name: str | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """A workspace in a database; several may share one, each with a namespace of its own.

        Args:
            sql: The agent's ``ctx.storage.sql``.
            namespace: A letter, then letters, digits or ``_``.
            inline_threshold: Bytes from which on a file is worth a warning, once.
            name: For logs and events.
            now_ms: Gives epoch milliseconds, for the times of files; the machine's clock by default.

        Raises:
            UsageError: An impossible namespace, or one open in this database with other options.
        """
        _claim(sql, namespace, inline_threshold)
        self.namespace = namespace
        self.name = name
        self._tree = Tree(sql, namespace, inline_threshold, now_ms or _machine_ms)
        self._unsettled = 0

    async def read_file(self, path: str) -> str | None:
        """A file's text, what is no UTF-8 replaced by U+FFFD; None if there is no such file.

        Raises:
            WorkspaceError: EISDIR.
        """
        data = self._tree.read(path)
        return None if data is None else data.decode(errors="replace")

    async def read_file_bytes(self, path: str) -> bytes | None:
        """A file's bytes; None if there is no such file.

        Raises:
            WorkspaceError: EISDIR.
        """
        return self._tree.read(path)

    async def read_files(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The bytes of those of these paths that are files, with one query for a hundred of them."""
        return self._tree.read_all(paths)

    async def write_file(self, path: str, content: str, mime_type: str = "text/plain") -> None:
        """Write text as UTF-8, replacing what was there; missing directories are made.

        Raises:
            WorkspaceError: EISDIR; ENOTDIR if a step above is a file; EFBIG; EINVAL for an unpaired surrogate.
        """
        await self.write_files({path: _encoded(path, content)}, mime_type)

    async def write_file_bytes(self, path: str, data: bytes, mime_type: str = "application/octet-stream") -> None:
        """Write bytes, replacing what was there; missing directories are made.

        Raises:
            WorkspaceError: EISDIR, ENOTDIR, EFBIG.
        """
        await self.write_files({path: bytes(data)}, mime_type)

    async def write_files(self, files: Mapping[str, bytes], mime_type: str = "text/plain") -> None:
        """Write several files in one transaction, all or none.

        Raises:
            WorkspaceError: EISDIR, ENOTDIR, EFBIG.
        """
        self._tree.write_all(files, mime_type)
        await self._settle(sum(map(len, files.values())))

    async def append_file(self, path: str, content: str | bytes, mime_type: str = "text/plain") -> None:
        """Add to the end of a file, without reading it; make it if there is none.

        Raises:
            WorkspaceError: EISDIR, ENOTDIR, EFBIG.
        """
        data = _encoded(path, content) if isinstance(content, str) else bytes(content)
        self._tree.append(path, data, mime_type)
        await self._settle(len(data))

    async def exists(self, path: str) -> bool:
        """Whether anything is at the path."""
        return self._tree.stat(path) is not None

    async def file_exists(self, path: str) -> bool:
        """Whether a file is at the path."""
        info = self._tree.stat(path)
        return info is not None and info.type == "file"

    async def stat(self, path: str) -> FileInfo | None:
        """What is at the path; None if nothing is."""
        return self._tree.stat(path)

    async def read_dir(self, directory: str = "/", limit: int = 1000, offset: int = 0) -> list[FileInfo]:
        """What is directly in a directory: directories, files, links, each by name; [] if it does not exist."""
        return self._tree.children(directory, limit, offset)

    async def mkdir(self, path: str, *, recursive: bool = False) -> None:
        """Make a directory; with ``recursive`` also those above it, and an existing one is fine.

        Raises:
            WorkspaceError: EEXIST, ENOENT, ENOTDIR; ELOOP below 100 directories.
        """
        self._tree.make_directory(path, is_recursive=recursive)

    async def rm(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Delete a file or directory; ``recursive`` with everything below it, ``force`` also if nothing is there.

        Raises:
            WorkspaceError: EPERM for the root, ENOENT, ENOTEMPTY.
        """
        self._tree.remove(path, is_recursive=recursive, is_forced=force)

    async def delete_file(self, path: str) -> bool:
        """Delete a file; False if there was none.

        Raises:
            WorkspaceError: EISDIR.
        """
        return self._tree.remove_file(path)

    async def glob(self, pattern: str) -> list[FileInfo]:
        """What a pattern matches, by path: ``*`` and ``?`` within a step, ``**`` over steps, ``[...]``, ``{a,b}``."""
        return self._tree.glob(pattern)

    async def info(self) -> WorkspaceInfo:
        """Counts and bytes; the root counts as a directory."""
        return self._tree.totals()

    async def load_folder(
        self,
        host_path: str | os.PathLike[str],
        to: str = "/",
        include: str = "**/*",
        *,
        exclude: Sequence[str] | None = None,
        max_files: int | None = None,
        max_file_bytes: int | None = None,
        max_total_bytes: int | None = None,
    ) -> LoadReport:
        """Copy the text files of a folder of this machine into the workspace; see ``loading.load_folder``."""
        limits = (max_files, max_file_bytes, max_total_bytes)
        return await load_folder(self, host_path, to, include, exclude=exclude, limits=limits)

    async def _settle(self, written: int) -> None:
        """Let the agent commit what was written, now and then."""
        self._unsettled += written
        if self._unsettled >= STRETCH_BYTES_MAX:
            self._unsettled = 0
            await asyncio.sleep(0)


def _claim(sql: Sql, namespace: str, inline_threshold: int) -> None:
    """Refuse what would put one workspace's files where another does not look (tools W1)."""
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"workspace namespace {namespace!r:.80} must be a letter, then letters, digits or _")
    try:
        known = _opened.setdefault(sql, {})
    except TypeError:  # a database object of another kind that cannot be referred to weakly: nothing to compare
        return
    # DuckDB does not tell names apart by case.
    old_name, old_threshold = known.setdefault(namespace.lower(), (namespace, inline_threshold))
    if old_name != namespace:
        raise UsageError(f"workspace namespaces {old_name!r} and {namespace!r} share one table; change one")
    if old_threshold != inline_threshold:
        raise UsageError(
            f"workspace {namespace!r} of this database is open with inline_threshold={old_threshold}, "
            f"not {inline_threshold}; use the same options"
        )


def _machine_ms() -> int:
    return time.time_ns() // 1_000_000


def _encoded(path: str, content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise WorkspaceError("EINVAL", f"the content for {path} holds an unpaired surrogate", path=path) from error
