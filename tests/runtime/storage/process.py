"""Running a few lines in a process of their own, with what the storage tests need at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 60

PREAMBLE = """
import os, resource, sys
from pathlib import Path
from runtime.errors import PerdureError
from runtime.storage.duckdb import open_store
folder = Path(sys.argv[1])
"""


def run(code: str, folder: Path) -> str:
    """What the lines print; they find the object's folder in ``folder``."""
    result = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    """The same, still running; its input and output are pipes."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", PREAMBLE + code, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
