"""Teaches Ray's serializer about pydantic, starlette and pyarrow when they are imported, not before.

At the first actor of a process Ray registers how some classes of these packages are pickled, and imports them for
that if they are installed: 99 modules, 7 MB and 150-240 ms for an actor that uses none of them. Here each registration
waits for the import of its package by somebody else. Nothing is lost: until then, no object of theirs exists.

Touches internals of Ray; if they are not as expected, Ray is left as it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["WhenImported", "install"]


class WhenImported(importlib.abc.MetaPathFinder):
    """Calls a function once, right after a module was imported; a finder that finds nothing by itself."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], None]] = {}

    def call(self, name: str, function: Callable[[], None]) -> None:
        """Call it at once if the module is there, else after its import."""
        if name in sys.modules:
            function()
        else:
            self._waiting[name] = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give, with our function behind its execution."""
        function = self._waiting.pop(fullname, None)
        if function is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            self._waiting[fullname] = function
            return None
        loader: Any = spec.loader  # loaders are made afresh for each spec, so this one may be changed
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            parent, _, child = fullname.rpartition(".")
            if parent:  # the import system does this too, but only after us
                setattr(sys.modules[parent], child, module)
            try:
                function()
            except Exception as error:  # must not break somebody's import
                print(f"perdure: Ray's serializer did not learn about {fullname}: {error!r}", file=sys.stderr)

        loader.exec_module = exec_module
        return spec


def install() -> None:
    """Put the registrations off; only for processes that Ray has not given a job yet."""
    addons: Any = importlib.import_module("ray.util.serialization_addons")
    starlette: Callable[[Any], None] = addons.register_starlette_serializer
    finder = WhenImported()
    sys.meta_path.insert(0, finder)

    def pydantic(context: Any) -> None:
        importlib.import_module("ray._common.pydantic_compat").register_pydantic_serializers(context)

    def arrow(context: Any) -> None:
        importlib.import_module("ray._private.arrow_serialization")._register_custom_datasets_serializers(context)

    def apply(context: Any) -> None:
        finder.call("pydantic.v1.fields", lambda: pydantic(context))
        finder.call("starlette.datastructures", lambda: starlette(context))
        finder.call("pyarrow", lambda: arrow(context))

    addons.apply = apply
