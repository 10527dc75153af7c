"""The step loop of a turn, as a state machine (turns L1-L3, T5, T6, T8).

A turn is a sequence of steps; a step is one model call and the calls of tools that it asked for. The machine says what
comes next, the driver (``agents.turns``) does it, journals what came of it and feeds that back as the next event.

    phase     event                                     phase      effects
    new       Begin; the limit or a stop holds already  finished   FinishTurn
    new       Begin with approved calls                 preparing  RunTools
    new       Begin                                     model      CallModel
    preparing ToolFinished, others still run            preparing
    preparing ToolFinished, the last                    model      CallModel
    model     ModelFinished, there is something to run  tools      AskApproval?, RunTools
    model     ModelFinished, nothing to run             ending     AskApproval?, EndStep
    tools     ToolFinished, others still run            tools
    tools     ToolFinished, the last                    ending     EndStep
    ending    StepEnded, the loop goes on               model      CallModel
    ending    StepEnded, it does not                    finished   AwaitClient?, FinishTurn
    any       Aborted                                   finished   FinishTurn
    any       ModelFailed                               finished   FinishTurn
    finished  anything, for example a late tool         finished

**The loop goes on** if the step made calls, every one of them has an outcome, and no stop condition holds (L2). A call
that waits for the client or for an approval has none, so the turn ends and a later one continues (T4, T8). A tool that
failed has one: the model reads the error (T6). The calls of one step run together, and only after a model message that
was whole: behind ``length`` a call may be half a call (T5).

**A turn that recovery continues** begins behind the steps that its parts show (``steps_done``). They count towards
``max_steps``: the limit bounds what one turn may cost, and a crash must not buy a second allowance. A step that was cut
off does not count, since its model call has to be made again: otherwise a turn that uses its whole allowance could not
survive a single restart (FR-02). What that may cost is bounded by the budgets of recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from agents.core.chunks import JsonObject
from agents.core.repair import is_interrupted
from agents.core.transcript import is_settled, rounds
from agents.models.model import Usage
from agents.sessions.messages import is_tool_part

__all__ = [
    "Aborted",
    "AskApproval",
    "AwaitClient",
    "Begin",
    "CallModel",
    "Effect",
    "EndStep",
    "Event",
    "FinishTurn",
    "ModelFailed",
    "ModelFinished",
    "PlannedCall",
    "RunTools",
    "StepEnded",
    "ToolFinished",
    "TurnState",
    "advance",
    "steps_done",
]

# After these the model's message is whole and its calls may run (T5).
WHOLE = frozenset(("stop", "tool-calls"))

# run: the server runs it. client: the client does. approval: a person decides first. settled: it has its outcome
# already, because its input was invalid, its tool unknown (T7), or it was denied without asking.
CallKind: TypeAlias = Literal["run", "client", "approval", "settled"]
Phase: TypeAlias = Literal["new", "preparing", "model", "tools", "ending", "finished"]
Outcome: TypeAlias = Literal["completed", "aborted", "error"]

# As many as there are tries without progress.
INTERRUPTED_STEPS_MAX = 10


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a step and who is to answer it."""

    tool_call_id: str
    kind: CallKind


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """The turn starts.

    ``steps_done`` counts the steps of a recovered turn, ``stop_holds`` says that a stop condition holds behind the
    last of them. ``approved`` are the calls that a person has approved since; they run first and are no step.
    """

    steps_done: int = 0
    stop_holds: bool = False
    approved: tuple[str, ...] = ()


class ModelFinished(msgspec.Struct, frozen=True, kw_only=True, tag="model-finished"):
    """The model's message has ended."""

    calls: tuple[PlannedCall, ...] = ()
    finish_reason: str
    usage: Usage = Usage()


class ToolFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tool-finished"):
    """A call has its outcome, output or error; it is journalled."""

    tool_call_id: str
    outcome: Literal["output", "error"] = "output"


class StepEnded(msgspec.Struct, frozen=True, kw_only=True, tag="step-ended"):
    """``EndStep`` was done; ``stop_holds`` is what the turn's ``stop_when`` said."""

    stop_holds: bool = False


class Aborted(msgspec.Struct, frozen=True, kw_only=True, tag="aborted"):
    """Somebody cancelled the turn."""

    reason: str = ""


class ModelFailed(msgspec.Struct, frozen=True, kw_only=True, tag="model-failed"):
    """The model call failed for good, or a hook around it raised."""

    error_text: str


Event = Begin | ModelFinished | ToolFinished | StepEnded | Aborted | ModelFailed


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag="call-model"):
    """Run ``before_step`` and the model, for the step with this number, counted from 0."""

    step: int


class RunTools(msgspec.Struct, frozen=True, kw_only=True, tag="run-tools"):
    """Run these calls, all at once; each answers with ``ToolFinished``."""

    tool_call_ids: tuple[str, ...]


class AskApproval(msgspec.Struct, frozen=True, kw_only=True, tag="ask-approval"):
    """Put an approval request on the stream for each of these calls."""

    tool_call_ids: tuple[str, ...]


class EndStep(msgspec.Struct, frozen=True, kw_only=True, tag="end-step"):
    """Close the step: ``finish-step``, ``on_step_finish``, then the stop conditions; answers with ``StepEnded``."""

    step: int
    finish_reason: str


class AwaitClient(msgspec.Struct, frozen=True, kw_only=True, tag="await-client"):
    """These calls stay open; their results or approvals start a turn of their own."""

    tool_call_ids: tuple[str, ...]


class FinishTurn(msgspec.Struct, frozen=True, kw_only=True, tag="finish-turn"):
    """Store the message and close the stream. ``text`` is the error's, or the reason of an abort."""

    outcome: Outcome
    finish_reason: str = ""
    text: str = ""


Effect = CallModel | RunTools | AskApproval | EndStep | AwaitClient | FinishTurn


class TurnState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn stands.

    Attributes:
        max_steps: The limit of model calls, at least 1 (turns L3).
        phase: See the table above.
        step: Number of the present step, from 0.
        calls: The calls of the present step.
        running: Those of them, or of the approved ones, that have no outcome yet.
        finish_reason: What the model said last.
        usage: Tokens of all steps of this run of the turn.
    """

    max_steps: int = 10
    phase: Phase = "new"
    step: int = 0
    calls: tuple[PlannedCall, ...] = ()
    running: frozenset[str] = frozenset()
    finish_reason: str = ""
    usage: Usage = Usage()


_Next: TypeAlias = tuple[TurnState, tuple[Effect, ...]]
_replace = msgspec.structs.replace


def advance(state: TurnState, event: Event) -> _Next:
    """The state after an event and what the driver must do, in order.

    An event that the phase does not expect is a fault of the driver and fails an assertion; only a finished turn takes
    anything, because tools that nobody waits for any more still end.
    """
    if state.phase == "finished":
        return state, ()
    if isinstance(event, Aborted):
        return _replace(state, phase="finished"), (FinishTurn(outcome="aborted", text=event.reason),)
    if isinstance(event, ModelFailed):
        failed = FinishTurn(outcome="error", finish_reason="error", text=event.error_text)
        return _replace(state, phase="finished"), (failed,)
    transition = _TABLE.get((state.phase, type(event)))
    assert transition is not None, f"a turn in phase {state.phase} got {event!r}"
    return transition(state, event)


def _begin(state: TurnState, event: Begin) -> _Next:
    assert state.max_steps >= 1, f"max_steps is {state.max_steps}, a turn needs at least one"
    state = _replace(state, step=event.steps_done)
    if event.steps_done >= state.max_steps or (event.steps_done > 0 and event.stop_holds):
        # Only steps with calls are counted, so that is how the last of them ended.
        finish = FinishTurn(outcome="completed", finish_reason="tool-calls")
        return _replace(state, phase="finished"), (finish,)
    if event.approved:
        state = _replace(state, phase="preparing", running=frozenset(event.approved))
        return state, (RunTools(tool_call_ids=event.approved),)
    return _call_model(state, event.steps_done)


def _call_model(state: TurnState, step: int) -> _Next:
    return _replace(state, phase="model", step=step, calls=()), (CallModel(step=step),)


def _model_finished(state: TurnState, event: ModelFinished) -> _Next:
    ids = [call.tool_call_id for call in event.calls]
    assert len(set(ids)) == len(ids), f"step {state.step} has two calls with one id: {ids}"
    is_whole = event.finish_reason in WHOLE
    run = tuple(call.tool_call_id for call in event.calls if call.kind == "run" and is_whole)
    ask = tuple(call.tool_call_id for call in event.calls if call.kind == "approval" and is_whole)
    state = _replace(
        state,
        calls=event.calls,
        running=frozenset(run),
        finish_reason=event.finish_reason,
        usage=_sum(state.usage, event.usage),
    )
    asking: tuple[Effect, ...] = (AskApproval(tool_call_ids=ask),) if ask else ()
    if run:
        return _replace(state, phase="tools"), (*asking, RunTools(tool_call_ids=run))
    state, effects = _end_step(state)
    return state, (*asking, *effects)


def _end_step(state: TurnState) -> _Next:
    return _replace(state, phase="ending"), (EndStep(step=state.step, finish_reason=state.finish_reason),)


def _tool_finished(state: TurnState, event: ToolFinished) -> _Next:
    assert event.tool_call_id in state.running, f"call {event.tool_call_id!r} is not running in step {state.step}"
    state = _replace(state, running=state.running - {event.tool_call_id})
    if state.running:
        return state, ()
    return _call_model(state, state.step) if state.phase == "preparing" else _end_step(state)


def _step_ended(state: TurnState, event: StepEnded) -> _Next:
    is_whole = state.finish_reason in WHOLE
    client = tuple(call.tool_call_id for call in state.calls if call.kind == "client")
    asked = tuple(call.tool_call_id for call in state.calls if call.kind == "approval" and is_whole)
    has_outcomes = all(call.kind == "settled" or (call.kind == "run" and is_whole) for call in state.calls)
    is_last = event.stop_holds or state.step + 1 >= state.max_steps
    if state.calls and has_outcomes and not is_last:
        return _call_model(state, state.step + 1)
    finish = FinishTurn(outcome="completed", finish_reason=state.finish_reason)
    state = _replace(state, phase="finished")
    if client or asked:
        return state, (AwaitClient(tool_call_ids=client + asked), finish)
    return state, (finish,)


# The event's type is the key, so each function gets the event that it names.
_TABLE: Mapping[tuple[Phase, type], Callable[[TurnState, Any], _Next]] = {
    ("new", Begin): _begin,
    ("preparing", ToolFinished): _tool_finished,
    ("model", ModelFinished): _model_finished,
    ("tools", ToolFinished): _tool_finished,
    ("ending", StepEnded): _step_ended,
}


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
    )


def steps_done(parts: Iterable[JsonObject]) -> int:
    """How many steps of a turn that goes on in these parts count: those whose calls all have an outcome of their own.

    A step that a death cut off is made again and uses nothing up, as long as there are few: a tool that kills its
    process each time must not buy steps without end. A step without calls is no finished step of a turn that goes on:
    it is an answer that was cut off.
    """
    done = interrupted = 0
    for round_parts in rounds(parts):
        calls = [part for part in round_parts if is_tool_part(part)]
        if any(is_interrupted(call) for call in calls):
            interrupted += 1
        elif calls and all(is_settled(call) for call in calls):
            done += 1
    return done + max(0, interrupted - INTERRUPTED_STEPS_MAX)
