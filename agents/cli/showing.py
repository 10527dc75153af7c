"""``perdure list``, ``inspect`` and ``logs``: what is there and what it does."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

import runtime
from agents.cli.targets import Target, check_exists, check_source, lives_here
from agents.inspection import Inspection, inspect_files
from runtime import ObjectId
from runtime.cluster import log_path, sleeping_objects, status
from runtime.errors import PerdureError

__all__ = ["inspect_object", "list_objects", "show_logs"]


def when(at_ms: int) -> str:
    """A time as a person reads it."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


async def list_objects(data_dir: Path, *, as_json: bool) -> int:
    """All objects, and whether they live; where no Ray runs, none is started to look."""
    if not (data_dir / "objects").exists():
        print("[]" if as_json else f"no objects in {data_dir}")
        return 0
    if lives_here(data_dir):
        async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
            rows = [_row(known, await cluster.ping(known.object_id)) for known in await cluster.list_objects()]
    else:  # connecting would start a Ray, and that would go on with interrupted turns
        rows = [_row(known, None) for known in sleeping_objects(data_dir, runtime.open_store)]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max((len(row["object"]) for row in rows), default=6)
    print(f"{'OBJECT':<{width}}  {'STATE':<8} {'PID':>8}  {'CREATED':<19}  DOING")
    for row in rows:
        pid = row["pid"] or ""
        print(f"{row['object']:<{width}}  {row['state']:<8} {pid:>8}  {when(row['created_at_ms'])}  {row['busy']}")
    return 0


def _row(known: Any, pong: Any) -> dict[str, Any]:
    return {
        "object": str(known.object_id),
        "state": str(pong.state) if pong else "asleep",
        "pid": pong.pid if pong else None,
        "busy": pong.busy if pong else "",
        "alarm_at_ms": known.alarm_at_ms,
        "created_at_ms": known.created_at_ms,
    }


def _progress(text: str) -> None:
    print(f"perdure: {text}", file=sys.stderr, flush=True)


async def inspect_object(data_dir: Path, target: Target, *, as_json: bool) -> int:
    """One object: asked if it lives, read from a copy of its files if it sleeps."""
    check_exists(data_dir, target)
    folder = data_dir / target.object_id.folder
    pong, found = None, None
    if status(data_dir).is_running:
        async with runtime.connect(data_dir=data_dir, show_logs=False, on_progress=_progress) as cluster:
            pong = await cluster.ping(target.object_id)
            if pong is not None:
                found = await _asked(cluster, target.object_id)
    if found is None:
        found = inspect_files(folder)
    facts = {"object": str(target.object_id), "status": str(pong.state) if pong else "asleep", "folder": str(folder)}
    if pong is not None:
        facts |= {"pid": str(pong.pid), "epoch": str(pong.epoch), "doing": pong.busy or "nothing"}
    if as_json:
        print(json.dumps({**facts, **msgspec.to_builtins(found)}, indent=2, ensure_ascii=False, default=str))
    else:
        _print(facts, found)
    return 0


async def _asked(cluster: Any, object_id: ObjectId) -> Inspection | None:
    """The object's own answer; None if it is no agent, or ends at this moment."""
    try:
        answer: Inspection = await cluster.ask(object_id, "perdure_inspect")
    except PerdureError:
        return None
    return answer


def _print(facts: dict[str, str], found: Inspection) -> None:
    for key, value in facts.items():
        print(f"{key:<9} {value}")
    if found.state is not None:
        print(f"{'value':<9} {json.dumps(found.state, ensure_ascii=False)[:300]}")
    for child in found.sub_agents:
        print(f"{'child':<9} {child['class_name']}/{child['name']}")
    for fiber in found.fibers:
        print(
            f"{'fiber':<9} {fiber['name']} since {when(fiber['created_at_ms'])}  {str(fiber['snapshot'] or '')[:120]}"
        )
    for turn in found.turns:
        text = (
            f"{turn.request_id} {turn.status}, interrupted {turn.interruptions} time{'s' * (turn.interruptions != 1)}"
        )
        text += f", attempt {turn.attempts} without progress" if turn.attempts > 1 else ""
        print(f"{'turn':<9} {text}{': ' + turn.error if turn.error else ''}")
    print(f"{'messages':<9} {found.message_count}, the last {len(found.messages)}:")
    for message in found.messages:
        print(f"  {message['role']:<9} {_line(message)}{' (aborted)' if message.get('is_aborted') else ''}")


def _line(message: dict[str, Any]) -> str:
    pieces = []
    for part in message["parts"]:
        if part["type"] == "text":
            pieces.append(" ".join(part["text"].split()))
        elif part["type"].startswith("tool-"):
            pieces.append(f"[{part['type'][5:]}: {part.get('state', '')}]")
    return " ".join(pieces)[:160]


def show_logs(data_dir: Path, target: Target, *, follow: bool, lines: int) -> int:
    """What an object's root and its sub-agents printed and logged."""
    path = log_path(data_dir, target.object_id)
    name = str(target.object_id)
    is_root = target.object_id.parent is None
    check_source(target)
    if not (is_root and path.exists()):  # an object that never came to exist may have logged why
        check_exists(data_dir, target)
        path.touch()

    def wanted(line: str) -> bool:
        return is_root or line.partition(" ")[2].startswith(f"{name} |")

    with path.open(errors="replace") as file:
        for line in deque((line for line in file if wanted(line)), maxlen=lines):
            print(line, end="")
        while follow:
            line = file.readline()
            if not line:
                time.sleep(0.2)
            elif wanted(line):
                print(line, end="", flush=True)
    return 0
