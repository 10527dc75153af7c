"""Options of a class of durable objects, merged over its bases and checked when the class is defined."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from runtime.errors import UsageError

__all__ = ["ObjectOptions", "merged_options"]

DURABILITIES = ("local", "replica", "replica_async")


class ObjectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every durable object has. Seconds and bytes.

    Attributes:
        hibernate_after: Idle time after which the instance ends; its storage stays.
        memory_limit: Bytes above the memory of the started process.
        durability: When a write counts as done; ``local``: fsync on the node's disk.
        open_timeout: How long an opening waits for a process that still holds the files.
    """

    hibernate_after: float = 10.0
    memory_limit: int = 134_217_728
    durability: str = "local"
    open_timeout: float = 5.0

    def check(self, where: str) -> None:
        """Raise ``UsageError`` for values that have no meaning."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and math.isnan(value):
                raise UsageError(f"{where}: option {name!r} is NaN; give it a number")
        if self.hibernate_after < 0 or self.open_timeout < 0 or self.memory_limit <= 0:
            raise UsageError(f"{where}: hibernate_after and open_timeout must be >= 0, memory_limit > 0: {self}")
        if self.durability != "local":
            known = " or ".join(DURABILITIES)
            raise UsageError(
                f"{where}: durability {self.durability!r} is not possible: only 'local' has storage behind it today"
                + ("." if self.durability in DURABILITIES else f" (names are {known}).")
            )


def merged_options(cls: Any) -> ObjectOptions:  # any class with ``options`` and ``options_type``
    """The options of a class.

    Raises:
        UsageError: An unknown name, a wrong type or a value without meaning; names class and option.
    """
    values: dict[str, object] = {}
    where = f"class {cls.__qualname__}"
    for base in reversed(cls.__mro__):
        own = base.__dict__.get("options", {})
        if not isinstance(own, dict):
            raise UsageError(f"{where}: options must be a dict, not {type(own).__name__}")
        values.update(own)
    fields = cls.options_type.__struct_fields__
    for name in values:
        if name not in fields:
            raise UsageError(f"{where}: there is no option {name!r}; options are {', '.join(fields)}")
    try:
        options: ObjectOptions = msgspec.convert(values, cls.options_type)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: options: {error}") from error
    options.check(where)
    return options
