"""What a person names on the command line: ``app.py:Class/name``, ``module:Class/name``, ``Class/name``, and paths."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from runtime import ObjectId
from runtime.cluster import load_class
from runtime.errors import UsageError

__all__ = ["Target", "class_of", "parse_target"]

FORMS = "app.py:Class/name, module:Class/name, or Class/name of an object that exists"


class Target(NamedTuple):
    """An object, and the file or module of its class if one was named."""

    source: str
    object_id: ObjectId


def parse_target(text: str) -> Target:
    """Read a target; sub-agents are ``Class/name > Class/name``.

    Raises:
        UsageError: It has no such form; says which forms there are.
    """
    first, *rest = (step.strip() for step in text.split(" > "))
    source, class_name, name = "", *_step(first, text)
    if ":" in class_name:
        source, class_name = class_name.rsplit(":", 1)
    object_id = ObjectId.root(class_name, name)
    for step in rest:
        object_id = object_id.child(*_step(step, text))
    return Target(source, object_id)


def _step(step: str, text: str) -> tuple[str, str]:
    # A file may have folders: the class begins behind the colon, the name behind the next slash.
    at = step.find("/", step.rfind(":", 0, step.find(".py:") + 4) + 1 if ".py:" in step else 0)
    if at <= 0 or at == len(step) - 1:
        raise UsageError(f"{text!r} names no object; write {FORMS}")
    return step[:at], step[at + 1 :]


async def class_of(target: Target, cluster: Any) -> type:
    """The class of the object itself.

    Raises:
        UsageError: The file or module cannot be loaded or has no such class.
        UnknownObject: The directory knows no such class.
    """
    root = target.object_id.path[0].class_name
    if target.source:
        cls = _from_source(target.source, root)
        if len(target.object_id.path) == 1:
            return cls
    return load_class(await cluster.find_class(target.object_id.class_name))


def _from_source(source: str, class_name: str) -> type:
    if source.endswith(".py"):
        path = Path(source).resolve()
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        name = path.stem
        folder = str(path.parent)
    else:
        name, folder = source, os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == name)
        names = [key for key in own if isinstance(getattr(module, key), type)]
        raise UsageError(f"{source} has no class {class_name!r}; it has {', '.join(sorted(names)) or 'none of agents'}")
    return found
