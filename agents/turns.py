"""Driver of ``core.turn``: runs one turn's steps, from its model calls to the tools that they ask for.

A ``Turn`` is one run of a chain: a value that holds everything the run needs and dies with it. It writes every chunk
twice, into the message that it builds and onto its stream. Two rules keep what outsiders see behind what is stored:

* before each model call and before tools run, everything written so far is durable, so that a crash finds the call
  that it interrupted (recovery X1, X2);
* before a tool's outcome goes on the stream, the tool's own writes are durable, so that a recorded outcome always
  has its effects (recovery T5).

The model's stream is the hot path: nothing is awaited and no task is made for a chunk, unless the source waits itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from agents.core.chunks import (
    Chunk,
    ErrorChunk,
    FileChunk,
    Finish,
    FinishStep,
    JsonObject,
    OtherChunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputError,
)
from agents.core.repair import repair_transcript
from agents.core.transcript import MessageBuilder, is_settled
from agents.core.turn import (
    AskApproval,
    AwaitClient,
    Begin,
    CallKind,
    CallModel,
    Effect,
    EndStep,
    Event,
    FinishTurn,
    ModelFinished,
    PlannedCall,
    RunTools,
    StepEnded,
    ToolFinished,
    TurnState,
    advance,
    steps_done,
)
from agents.errors import ModelConnectionLost, ModelOverloaded, ToolInputInvalid, TurnFailed
from agents.models.model import ModelFinish, ToolCall
from agents.prompts import Inference, request_for
from agents.sessions.messages import UIMessage, input_from_text, is_tool_part
from agents.streams import StreamWriter
from agents.tools import Tool, parse_input, run_tool, wants_approval
from runtime import Clock, ObjectId

__all__ = ["Turn", "current_turn", "error_text", "run_steps"]

# Retries of one step's model call, besides those that a crash causes; a third failure in a row is an outage.
MODEL_RETRIES_MAX = 2
RETRY_SECONDS_MIN = 0.5
# A service may ask for more; beyond this it is better that the caller decides.
RETRY_SECONDS_MAX = 30.0

# Chunks that go through as they are; reasoning is shown only if the agent wants it (L4).
_REASONING = frozenset((ReasoningStart, ReasoningDelta, ReasoningEnd))
_PLAIN = frozenset((TextStart, TextDelta, TextEnd, ToolInputStart, ToolInputDelta, FileChunk, OtherChunk))
# The turn makes these itself.
_OWN = frozenset((Start, Finish, StartStep, FinishStep))

# The agent whose turn the running code serves (turns Q3): set in the turn's task, so also in the tools that it runs.
current_turn: contextvars.ContextVar[ObjectId | None] = contextvars.ContextVar("current_turn", default=None)


class Turn:
    """One run of a turn.

    Args:
        request_id: The run.
        history: The conversation before the turn's message, repaired.
        builder: The message, with the parts that it has already.
        writer: The run's stream.
        clock: Where time comes from.
        flush: Makes what was written to the database durable (``Context.flush``).
        failures: How often the model's call had failed in the step that this run begins with.
        store_failures: Stores how often it has failed in the present step.
    """

    def __init__(
        self,
        *,
        request_id: str,
        history: list[UIMessage],
        builder: MessageBuilder,
        writer: StreamWriter,
        clock: Clock,
        flush: Callable[[], Awaitable[None]],
        failures: int = 0,
        store_failures: Callable[[int], object] = lambda failures: None,
    ) -> None:
        self.request_id = request_id
        self.history = history
        self.builder = builder
        self.writer = writer
        self.clock = clock
        self.flush = flush
        self.store_failures = store_failures
        self.failures = failures
        self.calls: dict[str, tuple[Tool, JsonObject]] = {}
        self.running: dict[asyncio.Task[ToolFinished], str] = {}
        self.is_over = False

    def put(self, chunk: Chunk) -> None:
        """Write a chunk into the message and onto the stream."""
        self.builder.apply(chunk)
        self.writer.write(chunk)

    async def durable(self) -> None:
        """Return when all that the turn and its tools wrote is on disk."""
        await self.flush()
        await self.writer.drained()

    def messages(self) -> list[UIMessage]:
        """The conversation with the turn's message as it is now."""
        message = self.builder.message()
        return [*self.history, message] if message.parts else self.history


async def run_steps(turn: Turn, inference: Inference) -> FinishTurn:
    """Run the turn's steps to their end.

    Raises:
        Exception: What the model or the agent raised; the turn has failed with it.
        asyncio.CancelledError: The turn was aborted, or its instance ends.
    """
    state = TurnState(max_steps=max(1, inference.max_steps))
    state, more = advance(state, Begin(steps_done=steps_done(turn.builder.parts)))
    effects: deque[Effect] = deque(more)
    try:
        while True:
            effect = effects.popleft() if effects else None
            if isinstance(effect, FinishTurn):
                return effect
            event = await (_next_tool(turn) if effect is None else _do(turn, inference, effect))
            if event is not None:
                state, more = advance(state, event)
                effects.extend(more)
    finally:
        turn.is_over = True  # a tool that does not stop has nobody to answer to
        for task in turn.running:
            task.cancel()


async def _do(turn: Turn, inference: Inference, effect: Effect) -> Event | None:
    """Carry out one effect; the event that it answers with, if it has one."""
    match effect:
        case CallModel():
            return await _call_model(turn, inference)
        case RunTools():
            await turn.durable()
            for call_id in effect.tool_call_ids:
                turn.running[asyncio.create_task(_run_call(turn, call_id))] = call_id
        case AskApproval():
            for call_id in effect.tool_call_ids:
                body = {"type": "tool-approval-request", "approvalId": call_id, "toolCallId": call_id}
                turn.put(OtherChunk(body))
        case EndStep():
            turn.put(FinishStep())
            return StepEnded()
        case AwaitClient() | FinishTurn():
            pass
    return None


# The model


class _Closing:
    """Closes a model's stream, which ends its request at the vendor.

    Not when the turn's own coroutine is being closed: nothing can be awaited then, and the error of trying would pass
    for a failure of the turn.
    """

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not GeneratorExit:
            await self._parts.aclose()


class _Step:
    """What one model call has brought so far."""

    def __init__(self) -> None:
        self.is_begun = False
        self.calls: list[PlannedCall] = []
        self.finish: ModelFinish | None = None


async def _call_model(turn: Turn, inference: Inference) -> ModelFinished:
    """One step's model call, repeated if the service fails in passing; each failure is counted durably.

    What came before a failure stays, and the next call continues behind it, like after a crash.
    """
    step = _Step()
    await (turn.durable() if turn.calls else turn.flush())
    while True:
        request = request_for(inference, turn.messages(), turn.request_id)
        try:
            await _stream(turn, inference, step, inference.model.stream(request))
            assert step.finish is not None
            turn.failures = 0
            return ModelFinished(
                calls=tuple(step.calls), finish_reason=step.finish.finish_reason, usage=step.finish.usage
            )
        except (ModelOverloaded, ModelConnectionLost) as error:
            if turn.failures >= MODEL_RETRIES_MAX:
                raise
            turn.failures += 1
            turn.store_failures(turn.failures)
            close_open_parts(turn)
            step.calls.clear()
            await turn.durable()
            await turn.clock.sleep(_pause(error, turn.failures))


def _pause(error: ModelOverloaded | ModelConnectionLost, failures: int) -> float:
    asked = error.retry_after if isinstance(error, ModelOverloaded) else 0.0
    return min(max(asked, RETRY_SECONDS_MIN * (1 << (failures - 1))), RETRY_SECONDS_MAX)


def close_open_parts(turn: Turn) -> None:
    """Give what an interruption left open in the turn's message its outcome, also on the stream."""
    turn.builder.finish()
    for part in list(turn.builder.parts):
        if is_tool_part(part) and not is_settled(part) and part.get("state") != "approval-responded":
            _, (changed,) = repair_transcript([UIMessage("", "assistant", [part])])
            turn.put(ToolOutputError(str(part.get("toolCallId")), changed.parts[0].get("errorText", "")))
            part.setdefault("input", changed.parts[0].get("input", {}))


async def _stream(turn: Turn, inference: Inference, step: _Step, parts: Any) -> None:
    """Put the model's parts on the stream until its message has ended."""
    apply, write = turn.builder.apply, turn.writer.write
    shown = _PLAIN | _REASONING if inference.send_reasoning else _PLAIN
    async with _Closing(parts):
        async for part in parts:
            if type(part) in shown:
                if not step.is_begun:
                    _begin_step(turn, step)
                apply(part)
                is_full = write(part)
            elif type(part) is ModelFinish:
                step.finish = part
                break
            else:
                is_full = await _special(turn, inference, step, part)
            if is_full:
                await turn.writer.room()
    if step.finish is None:
        raise ModelConnectionLost("the model's stream ended without an end of its message")


def _begin_step(turn: Turn, step: _Step) -> None:
    # With the first part, not before the call: a call that fails and is made again is one step.
    step.is_begun = True
    turn.put(StartStep())


async def _special(turn: Turn, inference: Inference, step: _Step, part: Any) -> bool:
    """Take a part that is not put through; returns whether the stream is full."""
    if type(part) is ErrorChunk:
        raise TurnFailed(part.error_text)
    if type(part) in _OWN:
        return False
    if not step.is_begun:
        _begin_step(turn, step)
    if type(part) is ToolCall:
        await _add_call(turn, inference, step, part)
    elif type(part) in _REASONING:
        turn.builder.apply(part)  # the next step's request needs it
    else:
        turn.put(part)
    return turn.writer.is_full


async def _add_call(turn: Turn, inference: Inference, step: _Step, call: ToolCall) -> None:
    """Take a call whose input is whole; decide who answers it (turns T4, T7, T8)."""
    kind: CallKind
    value = input_from_text(call.input_text)
    try:
        tool = inference.tools.find(call.tool_name)
        value = parse_input(tool, call.input_text)
    except ToolInputInvalid as error:
        text = str(error)
        turn.put(ToolInputError(call.tool_call_id, call.tool_name, value, text))
        turn.put(ToolOutputError(call.tool_call_id, text))
        kind = "settled"
    else:
        turn.put(ToolInputAvailable(call.tool_call_id, call.tool_name, value))
        turn.calls[call.tool_call_id] = (tool, value)
        kind = "client" if tool.is_client_tool else "approval" if await wants_approval(tool, value) else "run"
    step.calls.append(PlannedCall(tool_call_id=call.tool_call_id, kind=kind))


# Tools


async def _run_call(turn: Turn, call_id: str) -> ToolFinished:
    """Run one call and put its outcome on the stream."""
    tool, value = turn.calls[call_id]

    async def show(output: Any) -> None:
        await turn.flush()
        if not turn.is_over:
            turn.put(ToolOutputAvailable(call_id, output, preliminary=True))
            if turn.writer.is_full:
                await turn.writer.room()

    outcome = await run_tool(tool, value, tool_call_id=call_id, on_output=show, sleep=turn.clock.sleep)
    await turn.flush()
    if turn.is_over:
        return ToolFinished(tool_call_id=call_id)
    if outcome.error_text is not None:
        turn.put(ToolOutputError(call_id, outcome.error_text))
        return ToolFinished(tool_call_id=call_id, outcome="error")
    turn.put(ToolOutputAvailable(call_id, outcome.output))
    return ToolFinished(tool_call_id=call_id)


async def _next_tool(turn: Turn) -> ToolFinished:
    """The next call that has its outcome."""
    assert turn.running, "the turn waits for tools and none runs"
    await asyncio.wait(turn.running, return_when=asyncio.FIRST_COMPLETED)
    done = next(task for task in turn.running if task.done())
    call_id = turn.running.pop(done)
    if done.cancelled():  # by itself: whoever aborts the turn cancels the wait above
        turn.put(ToolOutputError(call_id, "the tool cancelled itself"))
        return ToolFinished(tool_call_id=call_id, outcome="error")
    return done.result()


def error_text(error: BaseException) -> str:
    """What a caller reads about an error that ended a turn."""
    text = str(error)
    return text if isinstance(error, TurnFailed) and text else f"{type(error).__name__}: {text}"
