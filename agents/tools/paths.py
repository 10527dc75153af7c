"""Paths of a workspace: one tree, ``/`` at the top, no way out of it.

Every operation sees a path only after ``normalise`` (tools W2). Subtrees are ranges of the path, never patterns: the
paths below ``/dir`` are those from ``/dir/`` up to, not including, ``/dir0``, since ``0`` follows ``/``; a ``%`` or
``_`` in a name is a character like others (FR-14).
"""

from __future__ import annotations

from agents.errors import WorkspaceError

__all__ = ["DEPTH_MAX", "PATH_CHARACTERS_MAX", "ancestors", "name_of", "normalise", "parent_of", "subtree"]

# tools W2 and W5: the limits of the reference.
PATH_CHARACTERS_MAX = 4096
DEPTH_MAX = 100


def normalise(path: str) -> str:
    """The one spelling of a path: absolute, without ``.``, ``..``, doubled or trailing slashes.

    Raises:
        WorkspaceError: ENAMETOOLONG; EINVAL for what is no text, holds NUL, or cannot be encoded.
    """
    given: object = path
    if not isinstance(given, str):
        raise WorkspaceError("EINVAL", f"a path must be text, not {type(given).__name__}")
    if len(path) > PATH_CHARACTERS_MAX:
        raise WorkspaceError(
            "ENAMETOOLONG", f"{path[:40]}... has {len(path):,} characters, at most {PATH_CHARACTERS_MAX:,}", path=path
        )
    if "\x00" in path or (not path.isascii() and any("\ud800" <= c <= "\udfff" for c in path)):
        raise WorkspaceError("EINVAL", f"{path[:80]!r} holds NUL or an unpaired surrogate", path=path)
    kept: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del kept[-1:]  # at the root it stays there
        elif step not in ("", "."):
            kept.append(step)
    return "/" + "/".join(kept)


def parent_of(path: str) -> str:
    """The directory of a normalised path; the root's is the root."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last step of a normalised path; "" for the root."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> list[str]:
    """The directories above a normalised path, the root left out, the highest first."""
    steps = path.split("/")
    return ["/".join(steps[:end]) for end in range(2, len(steps))]


def subtree(path: str) -> tuple[str, str]:
    """The range that holds exactly the paths below a normalised one: from the first, up to and without the second."""
    stem = "" if path == "/" else path
    return f"{stem}/", f"{stem}0"
