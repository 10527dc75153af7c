"""The commands that the demonstration tells people to paste."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path

import pytest

from runtime import ObjectId
from runtime.cluster import log_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_pasted_command_shows_the_log_of_a_sub_agent_in_a_folder_with_blanks(tmp_path: Path) -> None:
    data = tmp_path / "the output" / "data"
    agent = ObjectId.root("Editor", "killed-1").child("Researcher", "researcher-2")
    # What says that there is such an object, and what it has logged.
    (data / agent.folder).mkdir(parents=True)
    (data / agent.folder / "id.json").write_text("{}")
    log = log_path(data, agent)
    log.parent.mkdir(parents=True, exist_ok=True)
    line = f"2026-12-01T04:47:17.128+00:00 {agent} | INFO here: the researcher\n"
    log.write_text(line)
    hint = runpy.run_path(str(ROOT / "examples" / "newsroom.py"))["logs_command"](data, str(agent))
    ran = subprocess.run(
        hint,
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, line, "")
