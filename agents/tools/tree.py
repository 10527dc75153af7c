"""What a workspace's operations mean, on top of its two tables.

All of it is synchronous: an operation begins and ends in one stretch of the agent, so its writes are one transaction
and no other operation comes between looking and writing. Every check is made before the first write. Paths come as
users wrote them and are normalised here, nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from agents.errors import WorkspaceError
from agents.tools.globs import compile_glob
from agents.tools.paths import DEPTH_MAX, ancestors, normalise, parent_of
from agents.tools.tables import (
    DIRECTORY,
    FILE,
    PIECE_BYTES,
    Contents,
    Entries,
    Entry,
    FileInfo,
    Sql,
    Statements,
    WorkspaceInfo,
    piece_count,
)

__all__ = ["FILE_BYTES_MAX", "Tree"]

logger = logging.getLogger(__name__)

# A file passes through memory as a whole, several times; at 16 MiB an agent stays below its 128 MB (30 MB: 160 MB).
FILE_BYTES_MAX = 16 * 1024 * 1024
# A file made by many small appends is put together again when it has this many pieces more than it needs.
SPARE_PIECES_MAX = 64


class Tree:
    """The files and directories of one workspace."""

    def __init__(self, sql: Sql, namespace: str, inline_threshold: int, now_ms: Callable[[], int]) -> None:
        statements = Statements(sql, namespace)
        self._entries = Entries(statements)
        self._contents = Contents(statements)
        self._inline_threshold = inline_threshold
        self._now_ms = now_ms
        self._has_warned = False

    def stat(self, path: str) -> FileInfo | None:
        """The entry at a path."""
        entry = self._entry(normalise(path))
        return None if entry is None else entry.info()

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if there is nothing at the path."""
        wanted = normalise(path)
        entry = self._entry(wanted)
        if entry is None:
            return None
        if entry.type != FILE:
            raise WorkspaceError("EISDIR", f"{path} is a directory", path=path)
        return self._contents.read([wanted]).get(wanted, b"")

    def read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The bytes of those of these paths that are files, by the path as it was given."""
        spelled = {path: normalise(path) for path in paths}
        entries = self._entries.find(set(spelled.values()))
        files = {path for path, entry in entries.items() if entry.type == FILE}
        contents = self._contents.read(sorted(files))
        return {path: contents.get(real, b"") for path, real in spelled.items() if real in files}

    def write_all(self, files: Mapping[str, bytes], mime_type: str) -> None:
        """Write files, all or none, and make the directories above them."""
        new = {normalise(path): data for path, data in files.items()}
        known = self._entries.find({step for path in new for step in (*ancestors(path), path)})
        for path, data in new.items():
            self._refuse_write(path, known.get(path), len(data))
        made = self._missing_directories((ancestors(path) for path in new), known)
        self._refuse_files_as_directories(made, new)
        now_ms = self._now_ms()
        created = [_directory(path, now_ms) for path in made]
        created += [_file(path, len(data), mime_type, now_ms) for path, data in new.items() if path not in known]
        replaced = [path for path in new if path in known]
        self._entries.add(created)
        for path in replaced:
            self._entries.update(_file(path, len(new[path]), mime_type, now_ms))
        self._contents.remove(replaced)
        self._contents.add(new)

    def append(self, path: str, data: bytes, mime_type: str) -> None:
        """Add bytes to the end of a file; make it if there is none."""
        wanted = normalise(path)
        entry = self._entry(wanted)
        if entry is None:
            self.write_all({path: data}, mime_type)
            return
        self._refuse_write(wanted, entry, entry.size + len(data))
        grown = Entry(
            path=wanted,
            type=FILE,
            mime_type=entry.mime_type,
            size=entry.size + len(data),
            pieces=entry.pieces + piece_count(len(data)),
            created_at_ms=entry.created_at_ms,
            updated_at_ms=self._now_ms(),
        )
        if grown.pieces > SPARE_PIECES_MAX + 2 * piece_count(grown.size):
            self.write_all({path: (self.read(path) or b"") + data}, entry.mime_type)
            return
        self._entries.update(grown)
        self._contents.add({wanted: data}, first_piece=entry.pieces)

    def remove_file(self, path: str) -> bool:
        """Delete a file; False if there was none."""
        wanted = normalise(path)
        entry = self._entry(wanted)
        if entry is None:
            return False
        if entry.type == DIRECTORY:
            raise WorkspaceError("EISDIR", f"{path} is a directory; use rm", path=path)
        self._remove(entry)
        return True

    def children(self, directory: str, limit: int, offset: int) -> list[FileInfo]:
        """Entries directly in a directory, by type, then name; none if there is no such directory."""
        return [entry.info() for entry in self._entries.children(normalise(directory), limit, offset)]

    def make_directory(self, path: str, *, is_recursive: bool) -> None:
        """Make a directory, and with ``is_recursive`` those above it."""
        wanted = normalise(path)
        above = ancestors(wanted)
        known = self._entries.find([*above, wanted])
        if wanted == "/" or wanted in known:
            if is_recursive and (wanted == "/" or known[wanted].type == DIRECTORY):
                return
            raise WorkspaceError("EEXIST", f"{path} exists", path=path)
        made = self._missing_directories([[*above, wanted]], known)
        if len(made) > 1 and not is_recursive:
            raise WorkspaceError("ENOENT", f"{parent_of(wanted)} does not exist, so {path} cannot be made", path=path)
        now_ms = self._now_ms()
        self._entries.add([_directory(each, now_ms) for each in made])

    def remove(self, path: str, *, is_recursive: bool, is_forced: bool) -> None:
        """Delete a file or directory, with ``is_recursive`` with everything below it."""
        wanted = normalise(path)
        if wanted == "/":
            raise WorkspaceError("EPERM", "the root cannot be removed", path=path)
        entry = self._entry(wanted)
        if entry is None:
            if is_forced:
                return
            raise WorkspaceError("ENOENT", f"{path} does not exist", path=path)
        if entry.type == DIRECTORY and self._entries.children(wanted, 1, 0):
            if not is_recursive:
                raise WorkspaceError("ENOTEMPTY", f"{path} is not empty; pass recursive=True", path=path)
            self._entries.remove_below(wanted)
            self._contents.remove_below(wanted)
        self._remove(entry)

    def glob(self, pattern: str) -> list[FileInfo]:
        """All entries that a pattern matches, by path."""
        glob = compile_glob(pattern)
        return [entry.info() for entry in self._entries.below(glob.base) if glob.matches(entry.path)]

    def totals(self) -> WorkspaceInfo:
        """Counts and bytes."""
        return self._entries.totals()

    def _entry(self, path: str) -> Entry | None:
        return _directory(path, 0) if path == "/" else self._entries.find([path]).get(path)

    def _remove(self, entry: Entry) -> None:
        self._entries.remove(entry.path)
        if entry.pieces:
            self._contents.remove([entry.path])

    def _refuse_write(self, path: str, entry: Entry | None, size: int) -> None:
        if path == "/":
            raise WorkspaceError("EISDIR", "the root is a directory", path=path)
        if entry is not None and entry.type == DIRECTORY:
            raise WorkspaceError("EISDIR", f"{path} is a directory", path=path)
        if size > FILE_BYTES_MAX:
            raise WorkspaceError("EFBIG", f"{path} would have {size:,} bytes, at most {FILE_BYTES_MAX:,}", path=path)
        if size >= self._inline_threshold and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "workspace file %s has %d bytes, over the inline threshold of %d; it is kept in the agent's database",
                *(path, size, self._inline_threshold),
            )

    def _missing_directories(self, chains: Iterable[Sequence[str]], known: Mapping[str, Entry]) -> list[str]:
        """The directories of each chain that are not there, the highest first, each once."""
        made: dict[str, None] = {}
        for chain in chains:
            if len(chain) > DEPTH_MAX:
                raise WorkspaceError(
                    "ELOOP", f"{chain[-1][:80]} is deeper than {DEPTH_MAX} directories", path=chain[-1]
                )
            for path in chain:
                if path not in known:
                    made[path] = None
                elif known[path].type != DIRECTORY:
                    raise WorkspaceError("ENOTDIR", f"{path} is not a directory", path=path)
        return list(made)

    def _refuse_files_as_directories(self, made: Sequence[str], files: Mapping[str, bytes]) -> None:
        """One call may not write ``/a`` and ``/a/b``."""
        for path in made:
            if path in files:
                raise WorkspaceError("ENOTDIR", f"{path} is not a directory", path=path)


def _directory(path: str, now_ms: int) -> Entry:
    return Entry(path=path, type=DIRECTORY, mime_type="", size=0, pieces=0, created_at_ms=now_ms, updated_at_ms=now_ms)


def _file(path: str, size: int, mime_type: str, now_ms: int) -> Entry:
    return Entry(
        path=path,
        type=FILE,
        mime_type=mime_type,
        size=size,
        pieces=piece_count(size),
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


assert PIECE_BYTES < FILE_BYTES_MAX
