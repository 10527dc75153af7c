"""What the kill benchmark's checker sees in made-up histories: a check that sees nothing is worse than none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.kill.checks import Verdict, judge
from benchmarks.kill.final import Final, Message, Row
from benchmarks.kill.history import (
    Acked,
    Armed,
    Asked,
    Born,
    Closed,
    Ended,
    Killed,
    Line,
    Opened,
    Ran,
    Rang,
    Responded,
    Shown,
    Wrote,
)
from benchmarks.kill.plan import PHASES, Plan, shares
from benchmarks.kill.timings import measure

PARENT, CHILD = "Editor/e", "Editor/e > Writer/writer"
CALM = "Editor/calm"
CALL = '{"type":"tool-output-available","toolCallId":"c1","output":"noted"}'
CHUNKS = (
    '{"type":"text-delta","id":"0","delta":"one two "}',
    CALL,
    '{"type":"text-delta","id":"0","delta":"three"}',
)
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "one two "},
    {"type": "tool-note", "state": "output-available", "input": {"turn": "t", "place": "p"}, "output": "noted"},
    {"type": "text", "text": "three"},
]


def question(turn: str) -> Message:
    return Message("user", [{"type": "text", "text": f"Turn {turn}, shape 0."}])


def turn(name: str, parent: str = PARENT, chunks: tuple[str, ...] = CHUNKS, at: float = 10.0) -> list[Line]:
    """The lines of a turn that nothing disturbs."""
    child = f"{parent} > Writer/writer"
    return [
        Asked(who=parent, turn=name, shape=0, child=child, at=at),
        Opened(who=parent, turn=name, life="a", request_id=f"id-{name}", at=at),
        Ran(who=child, turn=name, place="p", call_id="c1", at=at + 0.5),
        *(
            Shown(who=parent, turn=name, life="a", number=number, chunk=chunk, at=at + number)
            for number, chunk in enumerate(chunks, 1)
        ),
        Closed(who=parent, turn=name, life="a", outcome="done", at=at + 8),
        Responded(who=child, request_id=f"id-{name}", status="completed", at=at + 8, pid=7),
        Ended(who=parent, turn=name, outcome="done", at=at + 9),
    ]


def judged(
    lines: Sequence[Line],
    *,
    stored: list[Message] | None = None,
    rows: dict[str, list[Row]] | None = None,
    requests: list[str] | None = None,
) -> Verdict:
    """What the checker says about lines of a turn ``t`` beside an undisturbed one."""
    conversations = {
        CALM: [question("calm-0"), Message("assistant", PARTS)],
        PARENT: [question("t"), *([Message("assistant", PARTS)] if stored is None else stored)],
    }
    final = Final(conversations=conversations, rows=rows or {})
    return judge([*turn("calm-0", CALM), *lines], final, requests or ["id-calm-0", "id-t"], "calm")


def found(verdict: Verdict) -> dict[str, int]:
    return {key: count for key, count in verdict.counts.items() if count and key != "extra_model_calls"}


def test_an_undisturbed_turn_has_nothing_wrong() -> None:
    assert found(judged(turn("t"))) == {}


def test_a_word_that_was_shown_and_is_not_stored_is_lost() -> None:
    assert found(judged(turn("t"), stored=[Message("assistant", PARTS[:2])])) == {
        "text_lost": 1,
        "transcripts_differ": 1,
    }


def test_a_word_that_is_stored_and_was_not_shown_is_lost() -> None:
    assert found(judged(turn("t", chunks=CHUNKS[:2]))) == {"text_lost": 1}


def test_a_word_that_was_shown_twice_is_doubled() -> None:
    assert found(judged(turn("t", chunks=(*CHUNKS, '{"type":"text-delta","id":"0","delta":" three"}')))) == {
        "text_doubled": 1
    }


def test_a_missing_number_is_seen() -> None:
    lines = [line for line in turn("t") if not (isinstance(line, Shown) and line.number == 2)]
    assert found(judged(lines)) == {"events_missing": 1}


def test_another_event_under_a_known_number_in_a_later_reading_is_seen() -> None:
    again: list[Line] = [
        Opened(who=PARENT, turn="t", life="b", request_id="id-t", after=1, at=15),
        Shown(who=PARENT, turn="t", life="b", number=2, chunk=CHUNKS[0], at=15),
    ]
    assert judged([*turn("t"), *again]).counts["events_changed"] == 1


def test_a_later_reading_may_show_the_same_again() -> None:
    again: list[Line] = [
        Opened(who=PARENT, turn="t", life="b", request_id="id-t", after=1, at=15),
        Shown(who=PARENT, turn="t", life="b", number=2, chunk=CHUNKS[1], at=15),
        Shown(who=PARENT, turn="t", life="b", number=3, chunk=CHUNKS[2], at=15),
    ]
    assert found(judged([*turn("t"), *again])) == {}


def test_two_answers_to_one_question_are_doubled_text_and_no_single_end() -> None:
    twice = [Message("assistant", PARTS), Message("assistant", PARTS)]
    assert found(judged(turn("t"), stored=twice)) == {"text_doubled": 3, "turns_not_ended_once": 1}


def test_a_call_that_runs_again_after_its_result_was_seen_is_a_rerun() -> None:
    again = Ran(who=CHILD, turn="t", place="p", call_id="c1", at=12.5)
    assert found(judged([*turn("t"), again])) == {"tools_rerun": 1, "effects_doubled": 1}


def test_the_same_place_under_another_call_id_is_a_rerun_too() -> None:
    again = Ran(who=CHILD, turn="t", place="p", call_id="c2", at=12.5)
    assert found(judged([*turn("t"), again])) == {"tools_rerun": 1}


def test_a_call_that_runs_again_before_its_result_was_seen_is_a_doubled_effect() -> None:
    again = Ran(who=CHILD, turn="t", place="p", call_id="c1", at=10.6)
    assert found(judged([*turn("t"), again])) == {"effects_doubled": 1}


def test_an_interrupted_call_may_be_an_error_in_a_turn_that_was_killed() -> None:
    parts = [PARTS[0], {**PARTS[1], "state": "output-error", "output": None}, PARTS[2]]
    killed = Killed(who=CHILD, wanted="tool", phase="tool", at=10.7)
    stored = [Message("assistant", parts)]
    assert judged([*turn("t"), killed], stored=stored).counts["transcripts_differ"] == 0
    assert judged(turn("t"), stored=stored).counts["transcripts_differ"] == 1


def test_a_call_that_was_cut_off_in_its_input_may_lack_it() -> None:
    parts = [PARTS[0], {**PARTS[1], "state": "output-error", "input": {}}, PARTS[2]]
    killed = Killed(who=CHILD, wanted="stream", phase="stream", at=10.7)
    verdict = judged([*turn("t"), killed], stored=[Message("assistant", parts)])
    assert verdict.counts["transcripts_differ"] == 0


def test_a_finish_hook_that_fires_twice_or_never_is_seen() -> None:
    # FR-05
    again = Responded(who=CHILD, request_id="id-t~1", status="completed", at=18.5, pid=8)
    assert found(judged([*turn("t"), again])) == {"responses_doubled": 1}
    killed = Killed(who=CHILD, pid=7, wanted="stream", phase="stream", at=18.01)
    assert found(judged([*turn("t"), killed, again])) == {"responses_repeated": 1}
    silent = [line for line in turn("t") if not isinstance(line, Responded)]
    assert found(judged(silent)) == {"responses_missed": 1}


def test_a_model_call_for_each_interruption_and_one_more_are_allowed() -> None:
    killed = Killed(who=CHILD, wanted="stream", phase="stream", at=10.7)
    lines = [*turn("t"), killed]
    calls = ["id-calm-0", "id-t", "id-t~1", "id-t~2"]
    assert judged(lines, requests=calls).counts["model_calls_over"] == 0
    assert judged(lines, requests=[*calls, "id-t~3"]).counts["model_calls_over"] == 1
    assert judged(lines, requests=calls).counts["extra_model_calls"] == 2


@pytest.mark.parametrize(
    ("outcome", "key"), [("stuck", "stuck"), ("failed: TurnFailed: x", "turns_not_ended_once"), ("", "stuck")]
)
def test_a_turn_that_does_not_end_well_is_seen(outcome: str, key: str) -> None:
    lines = [line for line in turn("t") if not isinstance(line, Ended)]
    ends: list[Line] = [Ended(who=PARENT, turn="t", outcome=outcome, at=19)] if outcome else []
    assert found(judged([*lines, *ends])) == {key: 1}


def test_an_acknowledged_row_that_is_not_there_is_lost() -> None:
    acked: list[Line] = [Acked(who="Ledger/main", row="a"), Wrote(who="Ledger/main", row="b", epoch=1)]
    assert found(judged([*turn("t"), *acked], rows={"Ledger/main": [Row("a", 1, 7)]})) == {"acked_lost": 1}


def test_a_keyed_row_that_is_there_twice_is_doubled() -> None:
    acked: list[Line] = [Acked(who="Ledger/main", row="a", is_keyed=True), Acked(who="Ledger/main", row="b")]
    rows = {"Ledger/main": [Row("a", 1, 7), Row("a", 1, 7), Row("b", 1, 7), Row("b", 1, 7)]}
    assert found(judged([*turn("t"), *acked], rows=rows)) == {"keyed_doubled": 1}


def test_an_older_epoch_behind_a_newer_one_is_a_second_writer() -> None:
    rows = {"Ledger/main": [Row("a", 1, 7), Row("b", 2, 8), Row("c", 1, 7)]}
    assert found(judged(turn("t"), rows=rows)) == {"two_writers": 1}


def test_two_processes_of_one_epoch_are_two_writers() -> None:
    wrote: list[Line] = [Wrote(who="Ledger/main", row=row, epoch=1, pid=pid) for row, pid in (("a", 7), ("b", 8))]
    rows = {"Ledger/main": [Row("a", 1, 7), Row("b", 1, 7)]}
    assert found(judged([*turn("t"), *wrote], rows=rows)) == {"two_writers": 1}


def test_an_alarm_that_never_rang_is_lost() -> None:
    lines: list[Line] = [
        Armed(who="Ringer/one", row="a"),
        Armed(who="Ringer/one", row="b"),
        Rang(who="Ringer/one", row="a"),
    ]
    assert found(judged([*turn("t"), *lines])) == {"alarms_lost": 1}


# --- times ---


def test_what_the_dead_one_had_sent_is_no_recovery() -> None:
    lines = turn("t")[:4]
    lines += [
        Killed(who=CHILD, wanted="stream", phase="stream", at=11.1),
        Shown(who=PARENT, turn="t", life="a", number=2, chunk=CHUNKS[1], at=11.11),
        Born(who=CHILD, epoch=2, at=11.2),
        Shown(who=PARENT, turn="t", life="a", number=3, chunk=CHUNKS[2], at=11.3),
    ]
    times = measure(lines)
    assert (times.child, times.repeated, times.parent) == ([pytest.approx(0.2)], [], [])


def test_of_two_deaths_without_progress_only_the_second_is_measured_and_told_apart() -> None:
    lines = turn("t")[:4]
    lines += [
        Killed(who=CHILD, wanted="stream", phase="stream", at=11.1),
        Born(who=CHILD, epoch=2, at=11.2),
        Killed(who=CHILD, wanted="recovery", phase="recovery", at=11.25),
        Born(who=CHILD, epoch=3, at=12.3),
        Shown(who=PARENT, turn="t", life="a", number=2, chunk=CHUNKS[1], at=12.5),
    ]
    times = measure(lines)
    assert (times.child, times.repeated) == ([], [pytest.approx(1.25)])


def test_the_events_that_a_parent_sees_again_after_its_own_death_are_not_new() -> None:
    lines = turn("t")[:5]
    lines += [
        Killed(who=PARENT, wanted="parent", phase="parent", at=12.5),
        Born(who=PARENT, epoch=2, at=12.6),
        Opened(who=PARENT, turn="t", life="b", request_id="id-t", at=12.7),
        *(
            Shown(who=PARENT, turn="t", life="b", number=number, chunk=CHUNKS[number - 1], at=12.7 + number / 10)
            for number in (1, 2, 3)
        ),
    ]
    times = measure(lines)
    assert (times.child, times.parent) == ([], [pytest.approx(0.5)])


# --- the plan ---


def test_half_of_the_kills_go_into_streams_and_each_other_phase_gets_its_share() -> None:
    assert shares(200) == {"stream": 101, **dict.fromkeys(PHASES[1:], 11)}


def test_a_seed_draws_the_same_order_again() -> None:
    def order(seed: int) -> list[str]:
        plan, hits = Plan(20, seed), Counter[str]()
        drawn: list[str] = []
        while (phase := plan.next(hits)) is not None:
            drawn.append(phase)
            hits[phase] += phase != "rival"
        return drawn

    assert order(5) == order(5)
    assert order(5) != order(6)
    assert Counter(order(5)) == {"stream": 11, **dict.fromkeys(PHASES[1:], 1), "rival": 2}


def test_what_was_missed_is_drawn_again() -> None:
    plan, hits = Plan(20, 1), Counter[str]({"stream": 19, "tool": 1})
    assert {plan.next(hits) for _ in range(50)} <= {*PHASES[1:], "rival"} - {"tool"}


def test_the_run_ends_even_if_a_phase_is_never_hit() -> None:
    plan, hits = Plan(20, 1), Counter[str]()
    rng = random.Random(1)
    for _ in range(100):
        phase = plan.next(hits)
        if phase is None:
            break
        hits["stream" if rng.random() < 0.9 else "other"] += 1
    assert hits.total() == 26
