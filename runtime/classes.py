"""Where classes come from: references that another process can load, also long after the script that made them.

A class of an importable module is named by module and import root. A class of a ``__main__`` script has no module
that others could import, so it travels pickled, with the script as its origin.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import cloudpickle

from runtime.errors import UsageError
from runtime.wire import ClassRef

__all__ = ["class_ref", "load_class"]

_refs: dict[type, ClassRef] = {}
_loaded: dict[str, type[Any]] = {}
# In a worker, the script whose pickled class was loaded: its other classes come from there too.
_main_origin: list[str] = []


def class_ref(cls: type) -> ClassRef:
    """The reference of a class.

    Raises:
        UsageError: Not a class derived from DurableObject, or one that cannot be found or pickled.
    """
    # Asked by its mark, not by its base: the base needs stubs, and stubs need this module.
    if not isinstance(cls, type) or not hasattr(cls, "options_type"):
        raise UsageError(f"{cls!r:.100} is no class of durable objects; derive it from DurableObject, Agent or Think.")
    ref = _refs.get(cls)
    if ref is None:
        ref = _refs[cls] = _pickled(cls) if cls.__module__ == "__main__" else _imported(cls)
    return ref


def _imported(cls: type) -> ClassRef:
    if "<locals>" in cls.__qualname__:
        raise UsageError(
            f"class {cls.__qualname__} is defined inside a function, where other processes cannot find it; "
            "move it to the top of its module."
        )
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    root = ""
    if file:
        depth = cls.__module__.count(".") + (1 if Path(file).name == "__init__.py" else 0)
        root = str(Path(file).resolve().parents[depth])
    return ClassRef(name=cls.__name__, qualname=cls.__qualname__, module=cls.__module__, import_root=root)


def _pickled(cls: type) -> ClassRef:
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    origin = _main_origin[0] if _main_origin else (os.path.abspath(file) if file else "<interactive>")
    try:
        data = cloudpickle.dumps(cls, protocol=5)
    except Exception as error:
        raise UsageError(
            f"class {cls.__qualname__} of the script {origin} cannot be copied to another process: {error}. "
            "Move it into a module, or keep open files, locks and the like out of the script's globals."
        ) from error
    return ClassRef(
        name=cls.__name__,
        qualname=cls.__qualname__,
        module="__main__",
        origin=origin,
        pickled=data,
        pickled_hash=hashlib.sha256(data).hexdigest()[:16],
    )


def load_class(ref: ClassRef) -> type[Any]:
    """The class that a reference names.

    Raises:
        UsageError: Its module cannot be imported here, or has no such class.
    """
    key = ref.pickled_hash or f"{ref.import_root}\x00{ref.module}\x00{ref.qualname}"
    known = _loaded.get(key)
    if known is None:
        known = _loaded[key] = _unpickled(ref) if ref.pickled else _import(ref)
        _refs.setdefault(known, ref)
    return known


def _unpickled(ref: ClassRef) -> type[Any]:
    folder = os.path.dirname(ref.origin)
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)  # what the script imports beside itself
    if not _main_origin:
        _main_origin.append(ref.origin)
    try:
        return _checked(cloudpickle.loads(ref.pickled), ref)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"class {ref.qualname} of the script {ref.origin} cannot be loaded here: {type(error).__name__}: {error}"
        ) from error


def _import(ref: ClassRef) -> type[Any]:
    if ref.import_root and ref.import_root not in sys.path:
        sys.path.insert(0, ref.import_root)
    try:
        found: Any = importlib.import_module(ref.module)
        for part in ref.qualname.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise UsageError(
            f"class {ref.qualname} cannot be loaded from module {ref.module!r} in {ref.import_root or 'sys.path'}: "
            f"{type(error).__name__}: {error}. Was the file moved or renamed?"
        ) from error
    return _checked(found, ref)


def _checked(found: object, ref: ClassRef) -> type[Any]:
    if not isinstance(found, type) or not hasattr(found, "options_type"):
        raise UsageError(f"{ref.module}.{ref.qualname} is no class of durable objects")
    return found
