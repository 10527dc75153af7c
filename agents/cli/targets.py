"""What a person names on the command line: ``app.py:Class/name``, ``module:Class/name``, ``Class/name``, and paths."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import os
import re
import shlex
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from runtime import ObjectId
from runtime.cluster import load_class, status
from runtime.errors import UnknownObject, UsageError

__all__ = [
    "Target",
    "check_directory",
    "check_exists",
    "check_source",
    "class_of",
    "exists",
    "find_target",
    "lives_here",
    "logs_command",
    "parse_target",
    "sub_agent_hint",
]

FORMS = "app.py:Class/name, module:Class/name, or Class/name of an object that exists"
NAMED_MAX = 8
KEEPER = "PerdureKeeper"
# Where an error's place says nothing to a person whose file failed.
LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    *(str(Path(__file__).parents[2] / package) + os.sep for package in ("runtime", "fibers", "agents")),
)


class Target(NamedTuple):
    """An object, and the file or module of its class if one was named."""

    source: str
    object_id: ObjectId


def find_target(data_dir: Path, text: str) -> Target:
    """Read a target. A name may hold what separates names: an address as the directory shows it means that object.

    Raises:
        UsageError: It has no form of a target and is no object's address; says which forms there are.
    """
    refused: UsageError | None = None
    try:
        target = parse_target(text)
        if " > " not in text or exists(data_dir, target.object_id):
            return target
    except UsageError as error:
        target, refused = None, error
    known = {str(object_id): object_id for object_id in _known(data_dir)}
    source, _, address = text.partition(":")
    if text in known:
        return Target("", known[text])
    if address in known and (source.endswith(".py") or source.replace(".", "").isidentifier()):
        return Target(source, known[address])
    if target is None:
        raise refused or UsageError(text)
    return target


def parse_target(text: str) -> Target:
    """Read a target, knowing no directory; sub-agents are ``Class/name > Class/name``.

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


def check_source(target: Target) -> None:
    """Make sure that the file or module of a target, if it names one, has its class.

    Raises:
        UsageError: It cannot be loaded or has no such class; names what it has.
    """
    if target.source:
        _from_source(target.source, target.object_id.path[0].class_name)


def check_exists(data_dir: Path, target: Target) -> None:
    """Make sure that a target means an object of this data directory, and that its file has its class.

    Raises:
        UsageError: The file or module cannot be loaded or has no such class.
        UnknownObject: There is no such object; names those that are most like it.
    """
    check_source(target)
    if exists(data_dir, target.object_id):
        return
    wanted, known = str(target.object_id), sorted(map(str, _known(data_dir)))
    if not known:
        raise UnknownObject(f"{wanted} does not exist: there are no objects in {data_dir} yet")
    close = difflib.get_close_matches(wanted, known, NAMED_MAX, cutoff=0.3)
    named = [*close, *(name for name in known if name not in close)][:NAMED_MAX]
    more = f", and {len(known) - len(named)} more (perdure list)" if len(known) > len(named) else ""
    hint = sub_agent_hint(data_dir, target) or (
        'A sub-agent is named with its parents, in quotes: "Class/name > Class/name"'
    )
    are = "is" if len(known) == 1 else "are"
    raise UnknownObject(f"{wanted} does not exist in {data_dir}; there {are} {', '.join(named)}{more}. {hint}")


def exists(data_dir: Path, object_id: ObjectId) -> bool:
    """Whether an object left files in this data directory."""
    return (data_dir / object_id.folder / "id.json").is_file()


def sub_agent_hint(data_dir: Path, target: Target) -> str:
    """How the sub-agent is written that a name with a bare ``>`` may mean; empty if there is no such parent."""
    pieces = [piece.strip() for piece in str(target.object_id).split(">")]
    written = " > ".join(pieces)
    if len(pieces) == len(target.object_id.path) or not all(re.fullmatch(r"[^/]+/.+", piece) for piece in pieces):
        return ""
    parent = parse_target(written).object_id.root_id
    return f'A sub-agent of {parent} is written "{written}"' if exists(data_dir, parent) else ""


def check_directory(data_dir: Path, target: Target) -> None:
    """Make sure that there is a directory which may know the class of a target without a file.

    Raises:
        UnknownObject: Nothing was ever made here.
    """
    if not os.environ.get("RAY_ADDRESS") and not (data_dir / "objects").is_dir():
        raise UnknownObject(
            f"{target.object_id} does not exist: there are no objects in {data_dir} yet. "
            f"Give the file too: app.py:{target.object_id.path[0].class_name}/name"
        )


def lives_here(data_dir: Path) -> bool:
    """Whether anything can be alive: without a Ray all sleep, and connecting would start one."""
    return bool(os.environ.get("RAY_ADDRESS")) or status(data_dir).is_running


def _known(data_dir: Path) -> list[ObjectId]:
    """All objects of people's classes, by the files that they left."""
    found: list[ObjectId] = []
    for file in data_dir.glob("objects/*/*/id.json"):
        try:
            path = msgspec.json.decode(file.read_bytes())["path"]
            found.append(_address(path))
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue  # one that is just being made
    return [object_id for object_id in found if object_id.class_name != KEEPER]


def _address(path: list[tuple[str, str]]) -> ObjectId:
    (class_name, name), *rest = path
    object_id = ObjectId.root(class_name, name)
    for class_name, name in rest:
        object_id = object_id.child(class_name, name)
    return object_id


def logs_command(data_dir: Path, object_name: str) -> str:
    """The command that shows an object's log, as a person types it here."""
    usual = Path(os.environ.get("PERDURE_DATA") or ".perdure").expanduser().resolve()
    data = "" if data_dir == usual else f" --data {shlex.quote(str(data_dir))}"
    return f"perdure{data} logs {shlex.quote(object_name)}"


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
    module = _imported(source, name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == name)
        names = [key for key in own if isinstance(getattr(module, key), type)]
        raise UsageError(f"{source} has no class {class_name!r}; it has {', '.join(sorted(names)) or 'none of agents'}")
    return found


def _imported(source: str, name: str) -> ModuleType:
    """Import a module while an event loop runs, so that a script without a main guard does not run as one."""

    async def load() -> ModuleType:
        return importlib.import_module(name)

    try:
        return importlib.import_module(name) if _is_in_loop() else asyncio.run(load())
    except (Exception, SystemExit) as error:
        _close_coroutines(error)
        text = f"{source} cannot be loaded: {_place(error)}{type(error).__name__}: {error}"
        if isinstance(error, SystemExit) or "asyncio.run() cannot be called" in str(error):
            text += '. What a script does when it is run belongs below `if __name__ == "__main__":`'
        raise UsageError(text) from error


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _place(error: BaseException) -> str:
    """File and line where an import failed: the last of the person's own, not of a library."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", *LIBRARIES))]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""


def _close_coroutines(error: BaseException) -> None:
    # Python would warn of the script's main that was never awaited, at a moment of its own.
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in list(frame.f_locals.values()):
            if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
                value.close()
