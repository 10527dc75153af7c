"""The demonstration, as a person runs it: it recovers, it compares, and it fails where recovery is switched off."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.cluster.local import end

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]


def folders(tmp_path: Path) -> list[str]:
    made = []
    for name, word in (("north", "glacier"), ("south", "desert"), ("west", "harbour")):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(4):
            lines = [f"The {word} number {i} raises errors when parsing and encoding goes wrong." for i in range(12)]
            (folder / f"{word}-{number}.txt").write_text("\n".join(lines))
        made.append(str(folder))
    return made


def newsroom(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    out = tmp_path / "out"
    environment = {k: v for k, v in os.environ.items() if k not in ("ANTHROPIC_API_KEY", "RAY_ADDRESS")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [
        sys.executable,
        "examples/newsroom.py",
        *folders(tmp_path),
        "--out",
        str(out),
        "--pace",
        "0.01",
        *options,
    ]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        end(out / "data")


def whole(content: list[Any]) -> str:
    return "".join(part for part in content if isinstance(part, str))


def test_a_killed_researcher_leaves_no_trace_in_the_transcripts(tmp_path: Path) -> None:
    ran = newsroom(tmp_path)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    found = re.search(r"killed pid (\d+); events of its agent before the kill: (\d+), after: (\d+)", ran.stdout)
    assert found is not None
    pid, before, after = map(int, found.groups())
    assert before > 0
    assert after > 0
    assert not Path(f"/proc/{pid}").exists()
    calm = json.loads((tmp_path / "out" / "undisturbed.json").read_text())
    killed = json.loads((tmp_path / "out" / "killed.json").read_text())
    assert sorted(calm) == ["editor", "researcher-1", "researcher-2", "researcher-3"]
    for agent, messages in calm.items():
        assert [m["role"] for m in killed[agent]] == [m["role"] for m in messages] == ["user", "assistant"]
        assert whole(killed[agent][1]["content"]) == whole(messages[1]["content"])
        tools = [[c for c in m[1]["content"] if not isinstance(c, str)] for m in (killed[agent], messages)]
        assert tools[0] == tools[1]
    report = whole(killed["editor"][1]["content"])
    headings = [line for line in report.splitlines() if line.startswith("#")]
    sections = ["## 1. North", "## 2. South", "## 3. West"]
    title = "# Report on errors, parsing and encoding"
    assert headings == [title, "## Summary", *sections, "## What they share", "## Sources"]
    assert "## 1. North\n\nThe glacier number 0 raises errors when parsing" in report
    sources = report.partition("## Sources\n\n")[2]
    assert sorted(re.findall(r"`([^`]+)`", sources)) == [
        f"/{folder}/{word}-{number}.txt"
        for folder, word in (("north", "glacier"), ("south", "desert"), ("west", "harbour"))
        for number in range(3)
    ]
    # The terminal shows the agents' events; their logs stay in their files.
    assert [line for line in ran.stderr.splitlines() if not line.startswith("perdure: ")] == []
    assert ran.stdout.count("the model is offline") == 1


def test_the_newsroom_fails_where_recovery_is_switched_off(tmp_path: Path) -> None:
    ran = newsroom(tmp_path, "--no-recovery")
    assert ran.returncode == 1
    assert "FAILED" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
