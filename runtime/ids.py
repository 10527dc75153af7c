"""Addresses of durable objects.

An ``ObjectId`` is a path of (class name, object name) steps: one step for a root object, one more for each level
of sub-agents. The same path always means the same object and the same storage; nothing else does. Names stay in
clear in the id; what needs a safe alphabet (actor names, folders) uses a readable head plus a hash of the path.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import NamedTuple

from runtime.errors import InvalidId

__all__ = ["NAME_BYTES_MAX", "ObjectId", "Step", "check_name", "kebab"]

# D1: the reference's limit, in UTF-8 bytes.
NAME_BYTES_MAX = 1024
# 64 bits of the hash in hexadecimal: 4e9 objects before a collision is likely, and an actor name stays readable.
HASH_DIGITS = 16
HEAD_CHARACTERS_MAX = 32


class Step(NamedTuple):
    """One element of a path: the class's name and the object's name."""

    class_name: str
    name: str


def check_name(name: object, *, what: str = "name") -> str:
    """Return ``name`` if it can be an address.

    Raises:
        InvalidId: Not text, empty, over 1,024 UTF-8 bytes, with NUL, or not encodable.
    """
    if not isinstance(name, str):
        raise InvalidId(f"{what} must be text, not {type(name).__name__}: {name!r:.80}")
    if not name:
        raise InvalidId(f"{what} is empty; give it 1 to {NAME_BYTES_MAX:,} bytes")
    if "\x00" in name:
        raise InvalidId(f"{what} {name!r:.80} holds a NUL character; leave it out")
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidId(f"{what} {name!r:.80} holds an unpaired surrogate and cannot be encoded as UTF-8") from error
    if length > NAME_BYTES_MAX:
        raise InvalidId(f"{what} {name[:40]!r}... has {length:,} bytes; at most {NAME_BYTES_MAX:,} are possible")
    return name


class ObjectId:
    """The address of one durable object: a path of steps from its root.

    Equal paths are equal ids. ``str(id)`` reads ``Class/name`` or, for sub-agents, ``Class/name > Class/name``.
    """

    __slots__ = ("__dict__", "path")

    def __init__(self, path: tuple[Step, ...]) -> None:
        if not path:
            raise InvalidId("an object id needs at least one (class, name) step")
        self.path = path

    @classmethod
    def root(cls, class_name: str, name: object) -> ObjectId:
        """The id of a root object.

        Raises:
            InvalidId: The name cannot be an address.
        """
        return cls((Step(check_name(class_name, what="class name"), check_name(name)),))

    def child(self, class_name: str, name: object) -> ObjectId:
        """The id of a sub-agent of this object."""
        return ObjectId((*self.path, Step(check_name(class_name, what="class name"), check_name(name))))

    @property
    def class_name(self) -> str:
        """The class of the object itself."""
        return self.path[-1].class_name

    @property
    def name(self) -> str:
        """The object's own name, without its parents'."""
        return self.path[-1].name

    @property
    def parent(self) -> ObjectId | None:
        """The id of the direct parent; None for a root."""
        return ObjectId(self.path[:-1]) if len(self.path) > 1 else None

    @property
    def root_id(self) -> ObjectId:
        """The id of the root of this path; itself for a root."""
        return self if len(self.path) == 1 else ObjectId(self.path[:1])

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits over the whole path, lengths included, so no two paths run together."""
        digest = hashlib.sha256()
        for part in (text for step in self.path for text in step):
            data = part.encode()
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.hexdigest()[:HASH_DIGITS]

    @cached_property
    def actor_name(self) -> str:
        """A name that Ray accepts: readable head, then the hash."""
        head = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.class_name}-{self.name}")[:HEAD_CHARACTERS_MAX]
        return f"{head}~{self.hash}"

    @cached_property
    def folder(self) -> str:
        """Relative folder of the object's files: ``objects/<class>/<hash>``."""
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", self.class_name)[:HEAD_CHARACTERS_MAX]
        return f"objects/{safe}/{self.hash}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectId) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return " > ".join(f"{step.class_name}/{step.name}" for step in self.path)

    def __repr__(self) -> str:
        return f"ObjectId({str(self)!r})"

    def __reduce__(self) -> tuple[type[ObjectId], tuple[tuple[Step, ...]]]:
        return (ObjectId, (self.path,))


def kebab(class_name: str) -> str:
    """The URL form of a class name: ``MyChatAgent`` is ``my-chat-agent``, ``MY_AGENT`` is ``my-agent``.

    Source: https://developers.cloudflare.com/agents/api-reference/routing/
    """
    if class_name.upper() == class_name:
        return class_name.lower().replace("_", "-").strip("-")
    dashed = "".join(f"-{c.lower()}" if c.isupper() else c for c in class_name).replace("_", "-")
    return dashed.removeprefix("-").removesuffix("-")
