"""What kill -9 costs, and whether anything is lost: real agents on a real Ray, killed at random moments."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import runtime
from benchmarks.common import fresh_data, options, p50, p95, report, say
from benchmarks.kill import checks, final, timings
from benchmarks.kill.application import BREAK_VARIABLE
from benchmarks.kill.history import Asked, History, Line, read
from benchmarks.kill.killer import Killer
from benchmarks.kill.observer import Observer
from benchmarks.kill.phases import FOLDER_VARIABLE, count_file, history_file
from benchmarks.kill.plan import PHASES, Plan, shares
from benchmarks.kill.workload import EDITORS, UNDISTURBED, Workload

WRONG_SHOWN_MAX = 40

DESCRIPTION = """What kill -9 costs, and whether anything is lost.

Parent agents stream their children's turns; beside them objects write rows, checkpoint, hibernate and set alarms.
Processes get SIGKILL at seeded random moments in ten phases: half of all kills in the open stream of a child. Every
effect of a tool, every event that a parent sees, every promise to a caller and every request to a model is written
down outside of the processes. In the end this history is compared with what the agents have stored.

A kill counts for the phase that its victim had announced when it died. Between two kills the warm pool gets time to
refill, which is part of the schedule: measured is one death at a time, on a machine that has a worker ready.

kill_to_event   from SIGKILL of a child in mid-stream to the next new event at its parent, nobody calling; the first
                death since the child last made progress. Target: p50 <= 0.25 s, p95 <= 0.5 s
repeat_...      the same for a child that dies again before it made progress: the keeper waits longer each time
acked_lost      rows that somebody was told are durable and that are not there
text_lost, text_doubled  words of a turn that were not shown or stored, or more than once
tools_rerun     tool calls whose result was settled and that ran again
two_writers     writes under an older lease behind one under a newer
extra_model_calls  calls of a model beyond those of undisturbed turns; one for each interruption, and one more, is
                allowed, and what is above that is model_calls_over
responses_repeated  hooks of ended turns that a death cut off and that were called again; any other repeat is wrong
stuck           turns that did not end within 90 s

--break switches one protection off from outside, in the agents' own processes, to show that the checks see it:
journal (events are shown before they are stored), dedupe (repeated calls and turns run again), fence (nobody takes the
lock of an object). The exit status is 1 whenever anything is wrong.
"""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options(DESCRIPTION)
    parser.add_argument("--kills", type=int, default=None, help="how many (default 200, with --quick 24)")
    parser.add_argument("--break", dest="broken", choices=("journal", "dedupe", "fence"), help="what to switch off")
    parser.add_argument("--keep", type=Path, default=None, help="copy history and logs here")
    return parser.parse_args()


async def run(folder: Path, kills: int, seed: int) -> tuple[dict[str, object], list[str]]:
    """Kill, wait until everything is quiet, and check; the figures, and what is wrong."""
    async with runtime.connect(data_dir=folder / "data", show_logs=False, on_progress=say) as cluster:
        history = History(history_file())
        observer = Observer(History(history_file()))
        watching = asyncio.ensure_future(observer.run())
        workload = Workload(cluster, history, seed)
        killer = Killer(cluster, observer, history, workload, Plan(kills, seed), seed)
        say("undisturbed turns, for comparison")
        await workload.undisturbed()
        workload.begin()
        say(f"about {kills} kills")
        await killer.run()
        say("no more kills; waiting for everything to become quiet")
        await workload.finish()
        watching.cancel()
        state = await final.ask(cluster, (*EDITORS, UNDISTURBED), workload.starters)
    lines = list(read(history_file()))
    requests = [msgspec.json.decode(line)["request_id"] for line in count_file().read_bytes().splitlines()]
    verdict = checks.judge(lines, state, requests, UNDISTURBED)
    for failure in workload.failures:
        verdict.add("unreachable", 1, failure)
    missed = {phase: share for phase, share in shares(kills).items() if killer.hits[phase] < min(share, 10)}
    for phase, share in missed.items():
        verdict.add("phases_missed", 1, f"{phase} was hit {killer.hits[phase]} times instead of {share}")
    figures = {
        **kills_of(lines, killer, verdict.counts),
        **verdict.counts,
        **seconds_of(timings.measure(lines), killer),
    }
    return figures, verdict.wrong


def kills_of(lines: Sequence[Line], killer: Killer, counts: Mapping[str, int]) -> dict[str, object]:
    """How many died where, and how many turns there were."""
    asked = sum(isinstance(line, Asked) for line in lines)
    return {
        "kills": killer.hits.total(),
        "kills_by_phase": {phase: killer.hits[phase] for phase in (*PHASES, "other") if killer.hits[phase]},
        "turns": asked,
        "turns_ended_once": asked - counts["stuck"] - counts["turns_not_ended_once"],
    }


def seconds_of(times: timings.Timings, killer: Killer) -> dict[str, object]:
    """The times; null where there was nothing to measure."""
    samples = {
        "kill_to_event": times.child,
        "kill_to_birth": times.to_birth,
        "repeat_kill_to_event": times.repeated,
        "parent_kill_to_event": times.parent,
        "keeper_kill_to_answer": killer.keeper_seconds,
        "kill_to_second_kill": killer.again_seconds,
    }
    figures: dict[str, object] = {}
    for name, seconds in samples.items():
        figures[f"{name}_p50_s"] = p50(seconds) if seconds else None
        figures[f"{name}_p95_s"] = p95(seconds) if seconds else None
        figures[f"{name}_samples"] = len(seconds)
    return figures


def set_environment(folder: Path, broken: str) -> None:
    """Tell the processes of the agents, which Ray starts, where to write and what is switched off."""
    os.environ.pop("RAY_ADDRESS", None)  # a Ray of its own: another one's workers would know nothing of this
    root = str(Path(__file__).resolve().parents[1])
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ[BREAK_VARIABLE] = broken
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    # Warm workers know the application, as they do where one is deployed.
    os.environ["PERDURE_PRELOAD"] = "benchmarks.kill.application"


def keep(folder: Path, kept: Path) -> None:
    """Copy what explains the figures."""
    kept.mkdir(parents=True, exist_ok=True)
    for file in [history_file(), count_file(), *folder.glob("data/objects/*/*/agent.log")]:
        if file.exists():
            shutil.copy(file, kept / "-".join(file.relative_to(folder).parts[-3:]))


def main() -> int:
    """Run it."""
    chosen = arguments()
    kills = chosen.kills or (24 if chosen.quick else 200)
    with fresh_data("kill") as folder:
        set_environment(folder, chosen.broken or "")
        began = time.monotonic()
        try:
            figures, wrong = asyncio.run(run(folder, kills, chosen.seed))
        finally:
            if chosen.keep is not None:
                keep(folder, chosen.keep)
        figures["seconds"] = time.monotonic() - began
        for line in wrong[:WRONG_SHOWN_MAX]:
            say(f"wrong: {line[:400]}")
    figures["broken"] = chosen.broken
    report(figures, seed=chosen.seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
