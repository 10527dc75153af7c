import pytest

from agents.core.chunks import JsonObject
from agents.core.repair import interrupted_part
from agents.core.turn import (
    Aborted,
    AskApproval,
    AwaitClient,
    Begin,
    CallKind,
    CallModel,
    Effect,
    EndStep,
    Event,
    FinishTurn,
    ModelFailed,
    ModelFinished,
    PlannedCall,
    RunTools,
    StepEnded,
    ToolFinished,
    TurnState,
    advance,
    steps_done,
)
from agents.models.model import Usage


def effects_of(*events: Event, max_steps: int = 10) -> tuple[Effect, ...]:
    """What the last of these events leads to."""
    state = TurnState(max_steps=max_steps)
    effects: tuple[Effect, ...] = ()
    for event in events:
        state, effects = advance(state, event)
    return effects


def state_after(*events: Event) -> TurnState:
    state = TurnState()
    for event in events:
        state, _ = advance(state, event)
    return state


def asks(*kinds: CallKind, finish_reason: str = "tool-calls") -> ModelFinished:
    """The model asks for calls c0, c1, ... of these kinds."""
    calls = tuple(PlannedCall(tool_call_id=f"c{index}", kind=kind) for index, kind in enumerate(kinds))
    return ModelFinished(calls=calls, finish_reason=finish_reason)


def done(call_id: str) -> ToolFinished:
    return ToolFinished(tool_call_id=call_id)


ANSWERS = ModelFinished(finish_reason="stop")
ENDED = StepEnded()
END_0 = EndStep(step=0, finish_reason="tool-calls")


def test_a_turn_begins_with_a_model_call() -> None:
    assert effects_of(Begin()) == (CallModel(step=0),)


def test_an_answer_without_calls_ends_step_and_turn() -> None:
    # turns L1, L2
    assert effects_of(Begin(), ANSWERS) == (EndStep(step=0, finish_reason="stop"),)
    assert effects_of(Begin(), ANSWERS, ENDED) == (FinishTurn(outcome="completed", finish_reason="stop"),)


@pytest.mark.parametrize("reason", ["stop", "tool-calls"])
def test_all_calls_of_a_step_run_together_after_a_whole_message(reason: str) -> None:
    # turns T5
    assert effects_of(Begin(), asks("run", "run", finish_reason=reason)) == (RunTools(tool_call_ids=("c0", "c1")),)


@pytest.mark.parametrize("reason", ["length", "content-filter", "error", "other"])
def test_no_call_runs_after_a_message_that_was_cut(reason: str) -> None:
    # turns T5
    assert effects_of(Begin(), asks("run", "approval", finish_reason=reason)) == (
        EndStep(step=0, finish_reason=reason),
    )


def test_a_step_with_a_call_that_never_ran_is_the_last() -> None:
    # turns L2
    assert effects_of(Begin(), asks("run", finish_reason="length"), ENDED) == (
        FinishTurn(outcome="completed", finish_reason="length"),
    )


def test_a_step_ends_when_the_last_of_its_tools_has_ended() -> None:
    assert effects_of(Begin(), asks("run", "run"), done("c1")) == ()
    assert effects_of(Begin(), asks("run", "run"), done("c1"), done("c0")) == (END_0,)


def test_the_model_is_called_again_after_a_step_whose_calls_have_outcomes() -> None:
    # turns L2
    assert effects_of(Begin(), asks("run", "settled"), done("c0"), ENDED) == (CallModel(step=1),)


def test_a_tool_that_failed_does_not_end_the_turn() -> None:
    # turns T6
    failed = ToolFinished(tool_call_id="c0", outcome="error")
    assert effects_of(Begin(), asks("run"), failed, ENDED) == (CallModel(step=1),)


def test_a_call_that_was_invalid_is_answered_by_the_next_model_call() -> None:
    # turns T7
    assert effects_of(Begin(), asks("settled")) == (END_0,)
    assert effects_of(Begin(), asks("settled"), ENDED) == (CallModel(step=1),)


def test_a_client_call_ends_the_turn_after_its_step() -> None:
    # turns T4
    assert effects_of(Begin(), asks("client")) == (END_0,)
    assert effects_of(Begin(), asks("client"), ENDED) == (
        AwaitClient(tool_call_ids=("c0",)),
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


def test_the_servers_calls_beside_a_client_call_run_first() -> None:
    # turns T4, T5
    events = (Begin(), asks("client", "run"), done("c1"))
    assert effects_of(*events[:2]) == (RunTools(tool_call_ids=("c1",)),)
    assert effects_of(*events, ENDED)[0] == AwaitClient(tool_call_ids=("c0",))


def test_an_approval_is_asked_and_ends_the_turn() -> None:
    # turns T8
    assert effects_of(Begin(), asks("approval")) == (AskApproval(tool_call_ids=("c0",)), END_0)
    assert effects_of(Begin(), asks("approval"), ENDED) == (
        AwaitClient(tool_call_ids=("c0",)),
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


def test_an_approval_is_asked_before_the_other_calls_run() -> None:
    assert effects_of(Begin(), asks("run", "approval")) == (
        AskApproval(tool_call_ids=("c1",)),
        RunTools(tool_call_ids=("c0",)),
    )


def test_an_approval_that_was_not_asked_is_not_waited_for() -> None:
    events = (Begin(), asks("approval", finish_reason="length"), ENDED)
    assert effects_of(*events) == (FinishTurn(outcome="completed", finish_reason="length"),)


def test_the_step_limit_counts_model_calls_and_the_last_tools_still_run() -> None:
    # turns L3
    events = (Begin(), asks("run"), done("c0"), ENDED, asks("run"))
    assert effects_of(*events, max_steps=2) == (RunTools(tool_call_ids=("c0",)),)
    assert effects_of(*events, done("c0"), ENDED, max_steps=2) == (
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


def test_ten_steps_are_the_default_limit() -> None:
    # turns L3
    state, effects = advance(TurnState(), Begin())
    called = []
    while isinstance(effects[0], CallModel):
        called.append(effects[0].step)
        for event in (asks("run"), done("c0"), ENDED):
            state, effects = advance(state, event)
    assert called == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_stop_condition_ends_the_turn() -> None:
    # turns L3
    assert effects_of(Begin(), asks("run"), done("c0"), StepEnded(stop_holds=True)) == (
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


# --- a turn that goes on ---


def test_approved_calls_run_before_the_first_model_call_and_are_no_step() -> None:
    # turns T8
    begin = Begin(approved=("c7", "c8"))
    assert effects_of(begin) == (RunTools(tool_call_ids=("c7", "c8")),)
    assert effects_of(begin, done("c8")) == ()
    assert effects_of(begin, done("c8"), done("c7")) == (CallModel(step=0),)


def test_the_steps_of_a_recovered_turn_count() -> None:
    assert effects_of(Begin(steps_done=3)) == (CallModel(step=3),)
    assert effects_of(Begin(steps_done=3), asks("run"), done("c0"), ENDED, max_steps=4) == (
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


def test_a_recovered_turn_that_had_used_up_its_steps_makes_no_model_call() -> None:
    # turns L3: the process died behind the last tool of the last step
    assert effects_of(Begin(steps_done=10)) == (FinishTurn(outcome="completed", finish_reason="tool-calls"),)


def test_a_stop_condition_that_held_before_the_crash_ends_the_recovered_turn() -> None:
    assert effects_of(Begin(steps_done=1, stop_holds=True)) == (
        FinishTurn(outcome="completed", finish_reason="tool-calls"),
    )


def test_a_stop_condition_says_nothing_before_the_first_step() -> None:
    assert effects_of(Begin(stop_holds=True)) == (CallModel(step=0),)


# --- ends ---

UNFINISHED: list[tuple[Event, ...]] = [
    (),
    (Begin(approved=("c0",)),),
    (Begin(),),
    (Begin(), asks("run")),
    (Begin(), ANSWERS),
]


@pytest.mark.parametrize("events", UNFINISHED)
def test_an_abort_ends_the_turn_in_every_phase(events: tuple[Event, ...]) -> None:
    assert effects_of(*events, Aborted(reason="stop")) == (FinishTurn(outcome="aborted", text="stop"),)


@pytest.mark.parametrize("events", UNFINISHED)
def test_a_failure_ends_the_turn_in_every_phase(events: tuple[Event, ...]) -> None:
    # turns C4
    assert effects_of(*events, ModelFailed(error_text="no")) == (
        FinishTurn(outcome="error", finish_reason="error", text="no"),
    )


@pytest.mark.parametrize("late", [done("c0"), ENDED, ANSWERS, Aborted(), ModelFailed(error_text="no"), Begin()])
def test_a_finished_turn_takes_anything_and_does_nothing(late: Event) -> None:
    assert effects_of(Begin(), asks("run"), Aborted(), late) == ()


@pytest.mark.parametrize(
    "events",
    [
        (ANSWERS,),
        (Begin(), Begin()),
        (Begin(), done("c0")),
        (Begin(), asks("run"), done("other")),
        (Begin(), asks("run", "run"), done("c0"), done("c0")),
        (Begin(), asks("run"), ENDED),
        (Begin(), ANSWERS, ANSWERS),
        (Begin(approved=("c0",)), ANSWERS),
    ],
)
def test_an_event_that_the_phase_does_not_expect_is_a_fault_of_the_driver(events: tuple[Event, ...]) -> None:
    with pytest.raises(AssertionError):
        effects_of(*events)


def test_two_calls_of_a_step_cannot_have_one_id() -> None:
    twice = PlannedCall(tool_call_id="c", kind="run")
    with pytest.raises(AssertionError):
        effects_of(Begin(), ModelFinished(calls=(twice, twice), finish_reason="stop"))


def test_one_step_is_the_smallest_limit() -> None:
    assert effects_of(Begin(), max_steps=1) == (CallModel(step=0),)


def test_a_turn_without_any_step_is_refused() -> None:
    with pytest.raises(AssertionError):
        effects_of(Begin(), max_steps=0)


def test_tokens_of_all_steps_are_added() -> None:
    spent = Usage(input_tokens=10, output_tokens=2, cached_tokens=5, reasoning_tokens=1)
    ask = ModelFinished(calls=asks("settled").calls, finish_reason="tool-calls", usage=spent)
    state = state_after(Begin(), ask, ENDED, ModelFinished(finish_reason="stop", usage=spent))
    assert state.usage == Usage(input_tokens=20, output_tokens=4, cached_tokens=10, reasoning_tokens=2)


# --- steps of a recovered turn ---

STEP: JsonObject = {"type": "step-start"}
TEXT: JsonObject = {"type": "text", "text": "x"}
CALL: JsonObject = {"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
OPEN: JsonObject = {"type": "tool-look", "toolCallId": "d", "state": "input-available", "input": {}}


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ([], 0),
        ([STEP, TEXT], 0),
        ([STEP, TEXT, CALL], 1),
        ([STEP, CALL, STEP, TEXT, CALL, CALL, STEP, TEXT], 2),
        ([STEP, CALL, STEP, TEXT, STEP, CALL], 2),
        ([STEP, CALL, OPEN], 0),
        ([STEP, CALL, STEP, interrupted_part(OPEN)], 1),
        ([STEP, CALL, *(STEP, interrupted_part(OPEN)) * 10], 1),
        ([STEP, CALL, *(STEP, interrupted_part(OPEN)) * 12], 3),
    ],
)
def test_a_step_counts_if_its_calls_have_outcomes_of_their_own(parts: list[JsonObject], count: int) -> None:
    # FR-02: a step that was cut off is made again and must not use up the limit; L3: not without end
    assert steps_done(parts) == count
