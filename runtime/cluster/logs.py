"""What agents print and log: one file for each root object, shown in the script's terminal and by ``perdure logs``.

Each line of the file is a time, the name of the object and the text. All objects of one root append to the same file,
line by line; the operating system keeps short appends whole. Ray's own way to the driver shows only what belongs to
the driver's job, and detached objects outlive jobs.

A script's terminal gets less than the file: tracebacks that perdure itself logs stay in the file, behind a bar, since
the caller is told what failed; and what perdure says of itself is shown once, however many objects and lives say it.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from runtime.ids import ObjectId
from runtime.keeper import KEEPER_CLASS
from runtime.wire import Activation, speak_for

__all__ = ["LOG_FILE", "LogTail", "capture_output", "log_path"]

LOG_FILE = "agent.log"
# Above this the file is cut to its newer half when an object starts.
LOG_BYTES_MAX = 8 * 1024 * 1024
LINE_CHARACTERS_MAX = 4_000
POLL_SECONDS = 0.15
# Begins the lines that are for the file alone: a bar that no program's output begins with.
FILE_ONLY = "\u2502 "
# A user's program that says the same twice means it; perdure's own notes are the same for every object and life.
_OWN_NOTE = re.compile(r"INFO (?:perdure|runtime|fibers|agents)[.:]")


def log_path(data_dir: Path, object_id: ObjectId) -> Path:
    """The log of an object: that of its root."""
    return data_dir / object_id.root_id.folder / LOG_FILE


def capture_output(activation: Activation) -> None:
    """Send what this process prints and logs to the object's log."""
    path = log_path(Path(activation.data_dir), activation.object_id)
    name = str(activation.object_id)
    speak_for(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # a full disk must not keep an object from starting; its storage will say so
    sys.stdout = _LineFile(descriptor, name)
    sys.stderr = _LineFile(descriptor, name)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"perdure logs {shlex.quote(name)}"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if activation.cls.name != KEEPER_CLASS else logging.WARNING)


class _Formatter(logging.Formatter):
    """Log records as lines; of those with a traceback the first line says where to read it."""

    def __init__(self, command: str) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        is_ours = record.name.split(".")[0] == "perdure"
        if record.name == "perdure.failures":  # who called is told
            return _barred(super().format(record))
        if not is_ours or not record.exc_info:
            return super().format(record)
        head = f"{record.levelname} {record.name}: {record.getMessage()}"
        return f"{head}; the traceback: {self._command}\n{_barred(self.formatException(record.exc_info))}"


def _barred(text: str) -> str:
    return "\n".join(FILE_ONLY + line for line in text.splitlines())


def _cut(path: Path) -> None:
    try:
        if path.stat().st_size > LOG_BYTES_MAX:
            data = path.read_bytes()[-LOG_BYTES_MAX // 2 :]
            path.write_bytes(data[data.index(b"\n") + 1 :])
    except (OSError, ValueError):
        return  # no log yet, or one without a line end: nothing to cut


class _LineFile(io.TextIOBase):
    """A text file that appends whole lines with time and name."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._pending = ""
        self._guard = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._guard:
            *lines, self._pending = (self._pending + text).split("\n")
            if lines:
                self._append(lines)
        return len(text)

    def flush(self) -> None:
        """Lines are appended as they end; half a line waits for its end."""

    def _append(self, lines: Iterable[str]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        data = "".join(f"{at} {self._name} | {line[:LINE_CHARACTERS_MAX]}\n" for line in lines)
        try:
            os.write(self._descriptor, data.encode(errors="replace"))
        except OSError:
            return  # a full disk: losing a log line is the least harm


class LogTail:
    """Follows the logs of the objects that a script has called, and writes new lines to its terminal."""

    def __init__(self, data_dir: Path, touched: set[ObjectId], out: TextIO) -> None:
        self._data_dir = data_dir
        self._touched = touched
        self._out = out
        self._positions: dict[Path, int] = {}
        self._notes: set[str] = set()
        self._started = time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-logs", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Show what is there and end."""
        self._stop.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        for object_id in list(self._touched):
            if object_id.class_name == KEEPER_CLASS:
                continue
            path = log_path(self._data_dir, object_id)
            try:
                size = path.stat().st_size
                at = self._positions.get(path)
                if at is None:
                    at = self._first(path)
                if size < at:
                    at = 0
                with path.open("rb") as file:
                    file.seek(at)
                    data = file.read()
            except OSError:
                continue  # no line was logged yet
            end = data.rfind(b"\n") + 1
            self._positions[path] = at + end
            for line in data[:end].decode(errors="replace").splitlines():
                self._show(line)

    def _first(self, path: Path) -> int:
        """Where lines begin that are newer than this script."""
        began = datetime.fromtimestamp(self._started, UTC).isoformat(timespec="milliseconds").encode()
        position = 0
        with path.open("rb") as file:
            for line in file:
                if line[: len(began)] >= began:
                    break
                position += len(line)
        return position

    def _show(self, line: str) -> None:
        head, _, text = line.partition(" | ")
        _, _, name = head.partition(" ")
        if text.startswith(FILE_ONLY) or text in self._notes:
            return
        if _OWN_NOTE.match(text):
            self._notes.add(text)
        print(f"({name}) {text}", file=self._out, flush=True)
