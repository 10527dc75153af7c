"""What was lost, doubled or written twice: from the history, the final state and the count of the model's requests.

Nothing here asks perdure how it went. A turn is judged by what its parent saw, event by event, by the message that is
stored in the end, and by the same turn when nobody disturbs it. The words of a turn are numbered, so lost and doubled
ones can be counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from agents.submissions import root_of
from benchmarks.kill.final import Final, Message
from benchmarks.kill.history import Acked, Armed, Asked, Ended, Killed, Line, Opened, Ran, Rang, Responded, Shown, Wrote
from benchmarks.kill.scripts import turn_of

__all__ = ["Verdict", "judge", "transcript_of"]

T = TypeVar("T")


@dataclass
class Verdict:
    """The counts, and a line for each thing that is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, key: str, count: int, what: str) -> None:
        """Count something that must not be."""
        self.counts[key] += count
        if count:
            self.wrong.append(f"{key}: {what}")


# Stands for the result of a call that has none.
INTERRUPTED = ("interrupted",)

# Between the call of a hook and the commit that says so, on a busy machine.
CUT_OFF_SECONDS_MAX = 0.1

KEYS = (
    "acked_lost",
    "keyed_doubled",
    "text_lost",
    "text_doubled",
    "events_missing",
    "events_changed",
    "tools_rerun",
    "effects_doubled",
    "two_writers",
    "transcripts_differ",
    "turns_not_ended_once",
    "stuck",
    "unreachable",
    "responses_missed",
    "responses_doubled",
    "alarms_lost",
    "model_calls_over",
)


class Turn(msgspec.Struct):
    """All that is known about one turn."""

    name: str
    shape: int
    parent: str
    child: str
    asked_at: float
    ended_at: float = 0.0
    outcomes: list[str] = []
    readings: dict[str, Opened] = {}
    shown: dict[str, list[Shown]] = {}
    questions: int = 0
    answers: list[Message] = []
    kills: int = 0


def judge(lines: Sequence[Line], final: Final, requests: Iterable[str], undisturbed: str) -> Verdict:
    """Check everything.

    Args:
        lines: The whole history.
        final: What the agents said in the end.
        requests: The request id of each call of a model.
        undisturbed: Turns whose name begins so were not disturbed, and are what others are compared with.
    """
    verdict = Verdict(Counter(dict.fromkeys(KEYS, 0)))
    turns = _turns(lines, final)
    names = _names(turns)
    calls = Counter(names.get(root_of(request), "unknown") for request in requests)
    for turn in turns.values():
        model = turns.get(f"{undisturbed}-{turn.shape}")
        assert model is not None, f"no undisturbed turn has the shape of {turn.name}"
        _check_end(turn, verdict)
        _check_events(turn, verdict)
        _check_text(turn, model, verdict)
        _check_calls(turn, calls[turn.name], calls[model.name], verdict)
    for who, reason in final.silent.items():
        verdict.add("unreachable", 1, f"{who} does not answer in the end: {reason}")
    _check_responses(lines, turns, verdict)
    _check_tools(lines, turns, verdict)
    _check_rows(lines, final, verdict)
    _check_writers(lines, final, verdict)
    _check_alarms(lines, verdict)
    return verdict


def _of(lines: Iterable[Line], kind: type[T]) -> list[T]:
    return [line for line in lines if isinstance(line, kind)]


def _turns(lines: Sequence[Line], final: Final) -> dict[str, Turn]:
    turns = {a.turn: Turn(a.turn, a.shape, a.who, a.child, a.at) for a in _of(lines, Asked)}
    for ended in _of(lines, Ended):
        turns[ended.turn].outcomes.append(ended.outcome)
        turns[ended.turn].ended_at = ended.at
    for opened in _of(lines, Opened):
        turns[opened.turn].readings[opened.life] = opened
    for shown in _of(lines, Shown):
        turns[shown.turn].shown.setdefault(shown.life, []).append(shown)
    for killed in _of(lines, Killed):
        for turn in turns.values():
            turn.kills += killed.who == turn.child and turn.asked_at <= killed.at <= (turn.ended_at or killed.at)
    for parent, conversation in final.conversations.items():
        current: Turn | None = None
        for message in conversation:
            if message.role == "user":
                current = turns[turn_of(_text(message))]
                assert current.parent == parent
                current.questions += 1
            elif current is not None:
                current.answers.append(message)
    return turns


# --- turns ---


def _check_end(turn: Turn, verdict: Verdict) -> None:
    if turn.outcomes == ["stuck"] or not turn.outcomes:
        verdict.add("stuck", 1, f"turn {turn.name} did not end")
    elif turn.outcomes != ["done"]:
        verdict.add("turns_not_ended_once", 1, f"turn {turn.name} ended as {turn.outcomes}")
    elif (turn.questions, len(turn.answers)) != (1, 1):
        count = f"{turn.questions} questions and {len(turn.answers)} answers"
        verdict.add("turns_not_ended_once", 1, f"turn {turn.name} has {count} in the conversation")


def _check_responses(lines: Sequence[Line], turns: Mapping[str, Turn], verdict: Verdict) -> None:
    """The hook at the end fires once for each turn, whatever ends it (recovery P1, FR-05).

    One that a death cuts off, or overtakes before its end is on disk, is called again, as it must be.
    """
    names = _names(turns)
    called: dict[str, list[Responded]] = defaultdict(list)
    for line in _of(lines, Responded):
        called[names.get(root_of(line.request_id), "")].append(line)
    killed_at = {killed.pid: killed.at for killed in _of(lines, Killed)}
    for turn in turns.values():
        if turn.outcomes != ["done"]:
            continue
        verdict.add("responses_missed", not called[turn.name], f"turn {turn.name} ended and its hook was never called")
        for earlier in called[turn.name][:-1]:
            is_cut_off = killed_at.get(earlier.pid, float("inf")) - earlier.at < CUT_OFF_SECONDS_MAX
            verdict.counts["responses_repeated"] += is_cut_off
            verdict.add("responses_doubled", not is_cut_off, f"the hook of turn {turn.name} was called more than once")


def _check_events(turn: Turn, verdict: Verdict) -> None:
    """One reading has every number once, in order; several readings show the same under the same number."""
    chunks: dict[int, str] = {}
    for life, shown in turn.shown.items():
        expected = turn.readings[life].after
        for event in shown:
            if event.number > expected + 1:
                gap = f"event {event.number} follows {expected}"
                verdict.add("events_missing", event.number - expected - 1, f"turn {turn.name}: {gap}")
            elif event.number <= expected:
                verdict.add("text_doubled", 1, f"turn {turn.name}: event {event.number} came twice in one reading")
            expected = max(expected, event.number)
            if chunks.setdefault(event.number, event.chunk) != event.chunk:
                verdict.add(
                    "events_changed", 1, f"turn {turn.name}: event {event.number} is another in a later reading"
                )


def _check_text(turn: Turn, model: Turn, verdict: Verdict) -> None:
    """Each word of the undisturbed turn once, both in what was shown and in what is stored."""
    wanted = Counter("".join(_text(message) for message in model.answers).split())
    stored = " ".join(_text(message) for message in turn.answers)
    shown = _shown_text(turn)
    for where, text in (("stored", stored), ("shown", shown)):
        have = Counter(text.split())
        lost, doubled = wanted - have, have - wanted
        verdict.add("text_lost", lost.total(), f"turn {turn.name}: not {where}: {_some(lost)}")
        verdict.add("text_doubled", doubled.total(), f"turn {turn.name}: {where} more than once: {_some(doubled)}")
    if shown != stored and Counter(shown.split()) == Counter(stored.split()):
        verdict.add("text_lost", 1, f"turn {turn.name}: what was shown has another order than what is stored")
    if len(turn.answers) == len(model.answers) == 1 and not _same(
        transcript_of(turn.answers[0]), transcript_of(model.answers[0]), may_interrupt=turn.kills > 0
    ):
        difference = f"{transcript_of(turn.answers[0])} instead of {transcript_of(model.answers[0])}"
        verdict.add("transcripts_differ", 1, f"turn {turn.name}: {difference[:2000]}")


def _some(words: Counter[str]) -> str:
    return " ".join(sorted(words))[:200]


def _shown_text(turn: Turn) -> str:
    chunks = {event.number: event.chunk for shown in turn.shown.values() for event in shown}
    parts = [msgspec.json.decode(chunks[number]) for number in sorted(chunks)]
    return "".join(part["delta"] for part in parts if part["type"] == "text-delta")


def _text(message: Message) -> str:
    return "".join(part["text"] for part in message.parts if part["type"] == "text")


def transcript_of(message: Message) -> list[tuple[Any, ...]]:
    """Joined text, tool calls and results in order; without ids, times, part boundaries and the turn's name."""
    transcript: list[tuple[Any, ...]] = []
    for part in message.parts:
        if part["type"] == "text":
            before = transcript.pop()[1] if transcript and transcript[-1][0] == "text" else ""
            transcript.append(("text", before + part["text"]))
        elif part["type"].startswith("tool-"):
            given = {key: value for key, value in part["input"].items() if key != "turn"}
            result = part.get("output") if part["state"] == "output-available" else INTERRUPTED
            transcript.append((part["type"], given, result))
        elif part["type"] != "step-start":
            transcript.append((part["type"],))
    return transcript


def _same(mine: list[tuple[Any, ...]], model: list[tuple[Any, ...]], *, may_interrupt: bool) -> bool:
    return len(mine) == len(model) and all(
        one == theirs or (may_interrupt and _is_interrupted(one, theirs))
        for one, theirs in zip(mine, model, strict=True)
    )


def _is_interrupted(one: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether a call was cut off: it is an error, with its input, or with none if that was not whole yet (X1)."""
    return len(one) == len(theirs) == 3 and one[0] == theirs[0] and one[1] in ({}, theirs[1]) and one[2] == INTERRUPTED


# --- model calls, tools ---


def _names(turns: Mapping[str, Turn]) -> dict[str, str]:
    """The turn of each request id that a parent saw."""
    return {opened.request_id: turn.name for turn in turns.values() for opened in turn.readings.values()}


def _check_calls(turn: Turn, calls: int, undisturbed: int, verdict: Verdict) -> None:
    verdict.counts["extra_model_calls"] += max(0, calls - undisturbed)
    over = calls - undisturbed - turn.kills - 1
    text = f"turn {turn.name}: {calls} model calls, {undisturbed} undisturbed, {turn.kills} interruptions"
    verdict.add("model_calls_over", max(0, over), text)


def _check_tools(lines: Sequence[Line], turns: Mapping[str, Turn], verdict: Verdict) -> None:
    """A call whose result somebody has seen never runs again; no call runs twice at all (recovery X2)."""
    settled: dict[tuple[str, str], float] = {}
    for turn in turns.values():
        for shown in (event for events in turn.shown.values() for event in events):
            if '"tool-output-available"' in shown.chunk:
                call = msgspec.json.decode(shown.chunk)["toolCallId"]
                settled.setdefault((turn.child, call), shown.at)
    begun: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    by_call: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    for ran in _of(lines, Ran):
        if not ran.is_end:
            begun[ran.turn, ran.place].append(ran)
            by_call[ran.who, ran.call_id].append(ran)
    for (turn_name, place), runs in begun.items():
        seen = min((settled.get((run.who, run.call_id), float("inf")) for run in runs), default=float("inf"))
        again = [run for run in runs if run.at > seen]
        verdict.add("tools_rerun", len(again), f"turn {turn_name}: the settled call at {place} ran again")
    for (who, call), runs in by_call.items():
        verdict.add("effects_doubled", len(runs) - 1, f"{who}: call {call} ran {len(runs)} times")


# --- rows, alarms ---


def _check_rows(lines: Sequence[Line], final: Final, verdict: Verdict) -> None:
    have = {who: Counter(row.row for row in rows) for who, rows in final.rows.items()}
    promised = {(line.who, line.row) for line in lines if isinstance(line, Acked | Wrote)}
    for who, row in sorted(promised):
        verdict.add("acked_lost", have.get(who, Counter())[row] == 0, f"{who} has no row {row}")
    for who, row in sorted({(line.who, line.row) for line in _of(lines, Acked) if line.is_keyed}):
        verdict.add("keyed_doubled", max(0, have.get(who, Counter())[row] - 1), f"{who} has row {row} more than once")


def _check_writers(lines: Sequence[Line], final: Final, verdict: Verdict) -> None:
    """No write under an older epoch behind one of a newer; neither in the database nor in what writers noted."""
    written: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in _of(lines, Wrote):
        written[line.who].append((line.epoch, line.pid))
    stored = {f"{who}, stored": [(row.epoch, row.pid) for row in rows] for who, rows in final.rows.items()}
    for who, writes in (written | stored).items():
        newest = 0
        owners: dict[int, int] = {}
        for epoch, pid in writes:
            newest = max(newest, epoch)
            is_wrong = epoch < newest or owners.setdefault(epoch, pid) != pid
            verdict.add("two_writers", is_wrong, f"{who}: epoch {epoch}, process {pid}, behind epoch {newest}")


def _check_alarms(lines: Sequence[Line], verdict: Verdict) -> None:
    rung = {line.row for line in _of(lines, Rang)}
    for armed in _of(lines, Armed):
        verdict.add("alarms_lost", armed.row not in rung, f"alarm {armed.row} never rang")
