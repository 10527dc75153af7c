"""Scripts of users, run as processes of their own; they print one JSON value as their last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 90

HEAD = """
import json, os, sys, time
from pathlib import Path
from runtime.cluster.join import connect_ray, disconnect_ray
from runtime.cluster.local import NAMESPACE
DATA = Path(sys.argv[1])

def actor(name):
    import ray
    class Plain:
        def pid(self):
            print("said by the actor")
            return os.getpid()
        def fail(self):
            raise ValueError("raised in the actor")
        def see(self, code):
            found = {}
            exec(code, found)
            return found["answer"]
    options = dict(name=name, namespace=NAMESPACE, lifetime="detached", max_restarts=0, num_cpus=0, get_if_exists=True)
    return ray.remote(Plain).options(**options).remote()

def get(reference):
    import ray
    return ray.get(reference, timeout=60)

def answer(value):
    print(json.dumps(value), flush=True)
"""


def start_script(code: str, data_dir: Path, **env: str) -> subprocess.Popen[str]:
    """Start it without waiting."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PERDURE_"))}
    clean["PYTHONPATH"] = str(ROOT)
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(data_dir)],
        env=clean | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(script: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for its end; exit status, standard output, standard error."""
    out, err = script.communicate(timeout=SECONDS_MAX)
    return script.returncode, out, err


def run_script(code: str, data_dir: Path, **env: str) -> Any:
    """Run it to its end and return what it answered."""
    status, out, err = output_of(start_script(code, data_dir, **env))
    assert status == 0, err
    return json.loads(out.splitlines()[-1])
