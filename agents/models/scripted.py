"""A model that says what a script tells it: for tests, benchmarks and demonstrations.

A script is a list of *steps*; a step is one model call: texts, reasoning, tool calls, and faults at exact places among
them. ``Scripted`` keeps no state between requests. Which step comes next, and how much of it has been said, is read
from the request (``agents.models.position``), so a process that never saw the first half of an answer goes on exactly
where it stops, even inside a chunk.

    Scripted([
        Scripted.text("Let me look. ") + Scripted.call("read", {"path": "/a"}),
        Scripted.text("It says hello.", chunk_size=4),
    ])

Faults that happen a number of ``times`` are the one exception. They are counted in ``count_file`` if there is one,
where the count outlives the process, else in this process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from agents.core.chunks import Chunk, JsonObject
from agents.errors import ModelRefused
from agents.models.counting import Counter
from agents.models.model import ModelFinish, ModelPart, ModelRequest, Usage
from agents.models.position import CHARACTERS_PER_TOKEN, Position, position_of, refusal_of, tokens_of
from agents.models.script import CHUNK_SIZE, Call, Cut, Emit, Fail, Pause, Performance, Reason, Say, Step, Wait
from runtime.errors import UsageError

__all__ = ["Script", "Scripted", "Sleeper", "Step"]

# Requests that ``Scripted.requests`` remembers.
REQUESTS_MAX = 100


class Sleeper(Protocol):
    """A clock, as far as a script needs one."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


Steps = Sequence[Step | str] | Step | str
Script = Steps | Mapping[str, Steps] | Callable[[str], Steps]


class Scripted:
    """A model that follows a script.

    Args:
        steps: The steps of a turn, or a mapping or function that gives them for the user's text. A mapping is looked
            up by the whole text, then by its longest key that the text contains, then by ``""``. A string stands for
            ``Scripted.text(string)``. Every turn begins at the first step.
        chunk_delay: Seconds before each chunk of text, reasoning and tool input.
        start_delay: Seconds before the first chunk of each request.
        strict: Refuse, like the vendors, a request that ends with the assistant's message or pairs calls and
            results wrongly.
        refuse_prefill: Refuse at least the first of these, whatever ``strict`` says.
        count_file: Each request is appended to this file as a line of JSON.
        count_url: Each request is posted there too, as the same JSON.
        closed_file: Each request that was ended before its last part is appended there.
        usage: Reported instead of an estimate.
        model_id: The name in events and logs.
        clock: Where delays are slept: anything with ``sleep``; the machine's time if there is none.
    """

    def __init__(
        self,
        steps: Script,
        *,
        chunk_delay: float = 0.0,
        start_delay: float = 0.0,
        strict: bool = True,
        refuse_prefill: bool = True,
        count_file: str | None = None,
        count_url: str | None = None,
        closed_file: str | None = None,
        usage: Usage | None = None,
        model_id: str = "scripted",
        clock: Sleeper | None = None,
    ) -> None:
        self.model_id = model_id
        self.requests: deque[ModelRequest] = deque(maxlen=REQUESTS_MAX)
        self._script = steps
        self._chunk_delay = chunk_delay
        self._start_delay = start_delay
        self._strict = strict
        self._refuse_prefill = refuse_prefill
        self._counter = Counter(count_file=count_file, count_url=count_url, closed_file=closed_file)
        self._usage = usage
        self._sleep = asyncio.sleep if clock is None else clock.sleep

    @staticmethod
    def text(
        text: str, *, chunks: int | None = None, chunk_size: int | None = None, delay: float | None = None
    ) -> Step:
        """Say a text, in ``chunks`` chunks or in chunks of ``chunk_size`` characters."""
        return Step((Say(text, _cut(chunks, chunk_size), delay),))

    @staticmethod
    def reason(
        text: str, *, chunks: int | None = None, chunk_size: int | None = None, signature: str = "scripted"
    ) -> Step:
        """Reason, with a signature that must come back with the next request."""
        return Step((Reason(text, _cut(chunks, chunk_size), signature),))

    @staticmethod
    def call(
        tool_name: str,
        input: JsonObject | str | None = None,
        *,
        fragments: int = 1,
        preamble: str = "",
        call_id: str = "",
        delay: float | None = None,
    ) -> Step:
        """Call a tool.

        Args:
            tool_name: Which tool.
            input: Its input; a string is sent as it is, so that it may be broken JSON. None: no input text at all.
            fragments: Number of deltas that the JSON text is cut into.
            preamble: Text said before the call.
            call_id: Instead of an id made from turn, step and place.
            delay: Seconds before each fragment.
        """
        input_text = msgspec.json.encode(input).decode() if isinstance(input, dict) else input or ""
        said = (Say(preamble),) if preamble else ()
        return Step((*said, Call(tool_name, input_text, fragments, call_id, delay)))

    @staticmethod
    def emit(*chunks: Chunk) -> Step:
        """Yield chunks as they are."""
        return Step((Emit(chunks),))

    @staticmethod
    def fail(error: BaseException | type[BaseException], *, times: int | None = None) -> Step:
        """Raise at this place: always, or in the first ``times`` requests that reach it."""
        return Step((Fail(error, times),))

    @staticmethod
    def hang(seconds: float | None = None, *, times: int | None = None) -> Step:
        """Be silent at this place for ``seconds``, or for ever."""
        return Step((Wait(seconds, times),))

    @staticmethod
    def finish(reason: str, *, usage: Usage | None = None) -> Step:
        """End the step with this reason, and report this usage."""
        return Step((), reason, usage)

    def step_for(self, position: Position) -> Step:
        """The step of the script that a request asks for.

        Raises:
            UsageError: The script has nothing for this text, or no further step.
        """
        steps = _steps_of(self._script, position.user_text)
        if position.round >= len(steps):
            raise UsageError(
                f"the script has {len(steps)} step(s), but this request has {position.round} answered round(s) and "
                "asks for one more; end the script with a step that calls no tool"
            )
        step = steps[position.round]
        return Scripted.text(step) if isinstance(step, str) else step

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield what the script says next.

        Raises:
            ModelRefused: The request is not one that a vendor would take.
            UsageError: The script does not reach that far.
        """
        return self.perform(request, self.step_for)

    async def perform(
        self, request: ModelRequest, step_for: Callable[[Position], Step]
    ) -> AsyncGenerator[ModelPart, None]:
        """Yield what is missing of the step that ``step_for`` names for the place where the request stands."""
        self.requests.append(request)
        self._check(request)
        position = position_of(request)
        step = step_for(position)
        # What does not begin this step's text belongs to something else, so this step has not begun.
        resumed_at = len(position.emitted) if step.full_text.startswith(position.emitted) else 0
        count = await self._counter.begin(request, position, resumed_at)
        performance = Performance(step, position, resumed_at, count, self._chunk_delay)
        is_whole = False
        try:
            if self._start_delay > 0:
                await self._sleep(self._start_delay)
            for part in performance.parts():
                if isinstance(part, Pause):
                    await self._rest(part)
                else:
                    yield part
            yield self._finish(request, step, resumed_at)
            is_whole = True
        finally:
            if not is_whole:
                self._counter.closed(request, position, performance.said)

    def _check(self, request: ModelRequest) -> None:
        fault = refusal_of(request) if self._strict else ""
        if self._refuse_prefill and request.messages and request.messages[-1].role == "assistant":
            fault = "messages: the conversation must end with a user message (no assistant message prefill)"
        if fault:
            raise ModelRefused(f"{self.model_id} refuses the request (400): {fault}", status=400)

    def _finish(self, request: ModelRequest, step: Step, resumed_at: int) -> ModelFinish:
        calls = any(type(item) is Call for item in step.items)
        said = len(step.full_text) - resumed_at + sum(len(i.input_text) for i in step.items if type(i) is Call)
        estimate = Usage(input_tokens=tokens_of(request), output_tokens=max(1, said // CHARACTERS_PER_TOKEN))
        return ModelFinish(
            finish_reason=step.finish_reason or ("tool-calls" if calls else "stop"),
            usage=step.usage or self._usage or estimate,
        )

    async def _rest(self, pause: Pause) -> None:
        if pause.seconds is None:
            await asyncio.Event().wait()
        elif pause.seconds > 0:
            await self._sleep(pause.seconds)
        else:
            await asyncio.sleep(0)  # only the loop's turn, which no clock owns


def _cut(chunks: int | None, chunk_size: int | None) -> Cut:
    if chunks is not None and chunk_size is not None:
        raise UsageError("give chunks or chunk_size, not both")
    for name, value in (("chunks", chunks), ("chunk_size", chunk_size)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    return Cut(chunks, CHUNK_SIZE if chunk_size is None else chunk_size)


def _steps_of(script: Script, user_text: str) -> Sequence[Step | str]:
    if isinstance(script, Mapping):
        key = user_text if user_text in script else ""
        key = key or max((k for k in script if k and k in user_text), key=len, default="")
        if key not in script:
            raise UsageError(f"the script has no steps for {user_text[:200]!r}; give them, or a default under ''")
        steps = script[key]
    elif callable(script) and not isinstance(script, Step):
        steps = script(user_text)
    else:
        steps = script
    return [steps] if isinstance(steps, Step | str) else steps
