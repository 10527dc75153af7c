"""The kill benchmark itself: it finds nothing where nothing is wrong, and sees each protection that is switched off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kill.checks import KEYS
from benchmarks.kill.plan import PHASES

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 500


def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, figures and what was said on the way."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PERDURE_"))}
    command = [sys.executable, "-m", "benchmarks.bench_kill", "--quick", *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    return ran.returncode, json.loads(ran.stdout.splitlines()[-1]), ran.stderr


def test_a_run_with_kills_in_every_phase_loses_doubles_and_reruns_nothing() -> None:
    # FR-02, FR-05; recovery T4, T5, X2, P1
    status, figures, said = run("--seed", "11")
    assert {key: figures[key] for key in KEYS} == dict.fromkeys(KEYS, 0), said
    assert status == 0, said
    assert figures["kills"] >= 24
    assert set(PHASES) <= set(figures["kills_by_phase"])
    assert figures["turns"] == figures["turns_ended_once"]
    assert figures["kill_to_event_p50_s"] > 0


@pytest.mark.parametrize(
    ("broken", "keys"),
    [
        # recovery T5: the commit precedes the event
        ("journal", ["text_lost", "text_doubled", "events_changed"]),
        # runtime: a keyed call runs once; turns P10: the key names the turn
        ("dedupe", ["keyed_doubled"]),
        # runtime: one live instance
        ("fence", ["two_writers"]),
    ],
)
def test_a_protection_that_is_switched_off_is_seen(broken: str, keys: list[str]) -> None:
    status, figures, said = run("--kills", "14", "--seed", "12", "--break", broken)
    assert status == 1, said
    assert any(figures[key] for key in keys), said
