"""A turn as its caller sees it: ``async with agent.chat(text) as events`` and its two short forms (turns P5, P10).

A ``ChatStream`` lives at the caller. It follows the turn's stream at the agent and counts the events; when the
agent's process dies, it attaches again behind the last one it has, to whatever instance then goes on with the turn. So
the events have no gap and no repeat, and the stream ends in exactly one way: ``events.outcome`` is done, aborted or
interrupted, an error is raised.

Nothing that happens at the caller holds the turn up, and a caller that dies cancels nothing. Only one that leaves the
block early does, unless it has said ``events.detach()``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import uuid4

import msgspec

from agents.core.chunks import JsonObject
from agents.core.streams import after
from agents.errors import TurnAborted, TurnFailed, TurnNotAllowed, UnknownTurn
from agents.sessions.messages import UIMessage, message_from_object, message_to_object, user_message
from agents.streams import END_ONLY, Ending, frames_of
from agents.submissions import ChatRequest
from agents.turns import current_turn
from runtime import CancelToken, ObjectId, Stub, timed_items, turn_key
from runtime.errors import ConnectionLost, Unavailable, UsageError

__all__ = ["ChatEvent", "ChatInput", "ChatStream", "ChatTarget", "attach_stream", "chat_stream"]

# A death is known within tens of milliseconds. A turn that dies again and again is asked for less and less often, so
# that a caller does not drive a doomed one.
ATTACH_SECONDS_MIN = 0.02
ATTACH_SECONDS_MAX = 5.0
# Without an event or an answer for so long the agent counts as gone.
ATTACH_SECONDS_TOTAL = 120.0

ChatInput = str | UIMessage | JsonObject | Sequence["UIMessage | JsonObject"]

_ending_decoder = msgspec.json.Decoder(Ending)

# How the events begin that make up a turn's text.
TEXT, TOOL = b'{"type":"text-delta"', b'{"type":"tool-'


class _Delta(msgspec.Struct):
    """A piece of text."""

    delta: str


_delta_decoder = msgspec.json.Decoder(_Delta)


class ChatTarget(Protocol):
    """The agent, or a stub of it."""

    def follow_turn(self, request: bytes | None, request_id: str, after: int) -> AsyncIterator[bytes]:
        """Start the turn if it is not known, and follow its stream."""
        ...

    async def begin_turn(self, request: bytes, request_id: str) -> None:
        """Start the turn if it is not known."""
        ...

    async def cancel_chat(self, request_id: str, reason: str = "") -> None:
        """Abort the turn."""
        ...


class ChatEvent:
    """One event: a chunk of the stream and its number."""

    __slots__ = ("_chunk", "_raw", "number")

    def __init__(self, number: int, raw: msgspec.Raw) -> None:
        self.number = number
        self._raw = raw
        self._chunk: JsonObject | None = None

    @property
    def chunk(self) -> JsonObject:
        """The chunk as a JSON object; decoded on first use."""
        if self._chunk is None:
            decoded: JsonObject = msgspec.json.decode(self._raw)
            self._chunk = decoded
        return self._chunk

    @property
    def json(self) -> str:
        """The chunk as the JSON text that was journalled."""
        return bytes(self._raw).decode()

    def __repr__(self) -> str:
        return f"ChatEvent({self.number}, {self.json})"


class ChatStream:
    """A turn's events; made by ``chat`` and ``attach``, of which see the documentation.

    Attributes:
        request_id: Names the turn, for ``attach`` and ``cancel_chat``.
        number: The last event seen.
        outcome: After the end: done, error, aborted or interrupted; None before.
        message_id: After the end: the assistant message.
    """

    # One that is dropped before it was made has begun nothing.
    _is_begun = True

    def __init__(
        self,
        target: ChatTarget,
        request: bytes | None,
        request_id: str,
        *,
        number: int = 0,
        reattach: bool = True,
        callback: object = None,
        signal: CancelToken | None = None,
        timeout: float | None = None,
    ) -> None:
        self.request_id = request_id
        self.number = number
        self.outcome: str | None = None
        self.message_id = ""
        self._target = target
        self._request = request
        self._reattach = reattach
        self._callback = callback
        self._signal = signal
        self._timeout = timeout
        self._watcher: asyncio.Task[None] | None = None
        self._events: AsyncGenerator[ChatEvent, None] | None = None
        self._first: asyncio.Task[ChatEvent | None] | None = None
        self._is_detached = False
        self._has_items = False
        self._is_begun = False
        self._said: list[msgspec.Raw | None] = []

    def __del__(self) -> None:
        if not self._is_begun:
            warnings.warn(
                "chat() or attach() was called and nothing came of it: write `await agent.chat(...)`, or "
                "`async with agent.chat(...) as events:`",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def text(self) -> str:
        """What this stream has shown of the turn's text so far, as ``UIMessage.text`` would have it."""
        parts: list[JsonObject] = [
            {"type": "tool-call"} if raw is None else {"type": "text", "text": _delta_decoder.decode(raw).delta}
            for raw in self._said
        ]
        return UIMessage("", "assistant", parts).text

    # The block

    async def __aenter__(self) -> Self:
        if self._callback is not None:
            self._is_begun = True
            raise UsageError("chat() with a callback is awaited: await agent.chat(text, callback)")
        self._begin(self._followed())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        if self.outcome is not None or (self._is_detached and self._has_items):
            return
        if not self._has_items and self._request is not None:
            await self._target.begin_turn(self._request, self.request_id)
        if not self._is_detached and self._request is not None:
            await self._target.cancel_chat(self.request_id, "the caller left the block early")

    def detach(self) -> None:
        """Let the turn run on when the block is left."""
        self._is_detached = True

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        if self._events is None:
            raise UsageError("iterate inside of `async with agent.chat(text) as events:`")
        first, self._first = self._first, None
        event = await (first if first is not None else _next(self._events))
        if event is None:
            raise StopAsyncIteration
        return event

    # Awaited

    def __await__(self) -> Generator[Any, None, UIMessage | None]:
        return self._awaited().__await__()

    async def _awaited(self) -> UIMessage | None:
        """The assistant message; or, with a callback, nothing."""
        self._begin(None)
        try:
            if self._callback is not None:
                await self._call_back(self._callback)
                return None
            async for item in self._items(END_ONLY):
                return self._message(_ending_decoder.decode(item))
        except BaseException as error:
            # Who stops waiting has left early; the death of a caller runs nothing.
            if self.outcome is None and not isinstance(error, Exception):
                await self._target.cancel_chat(self.request_id, "the caller stopped waiting")
            raise
        finally:
            await self._close()
        raise ConnectionLost(f"turn {self.request_id} was interrupted, and reattach=False")

    def _message(self, ending: Ending) -> UIMessage:
        self._ended(ending, has_message=True)
        if ending.end == "aborted":
            raise TurnAborted(f"turn {self.request_id} was aborted: {ending.error}", reason=ending.error)
        if ending.end == "interrupted":
            raise TurnFailed(f"turn {self.request_id} was interrupted: {ending.error}")
        if ending.message is None:
            return UIMessage(ending.message_id, "assistant", [])
        return message_from_object(ending.message)

    async def _call_back(self, callback: object) -> None:
        await _call(callback, "on_start", ChatStart(request_id=self.request_id))
        try:
            async for event in self._followed():
                await _call(callback, "on_event", event.json)
        except TurnFailed as error:
            if not hasattr(callback, "on_error"):
                raise
            await _call(callback, "on_error", error.message)
            return
        finally:
            # A callback that raises has left early.
            if self.outcome is None and not self._is_detached:
                await self._target.cancel_chat(self.request_id, "the callback raised")
        if self.outcome == "done":
            await _call(callback, "on_done")
        elif self.outcome == "interrupted":
            await _call(callback, "on_interrupted")

    # Following

    def _begin(self, events: AsyncGenerator[ChatEvent, None] | None) -> None:
        self._is_begun = True
        if self._events is not None or self.outcome is not None:
            raise UsageError("this chat was started before; call chat() again for another turn")
        if self._signal is not None and not self._signal.cancelled:
            self._watcher = asyncio.ensure_future(self._cancel_on(self._signal))
        if events is not None:
            self._events = events
            # The turn starts with the block, not with the first look at it.
            self._first = asyncio.ensure_future(_next(events))

    async def _cancel_on(self, signal: CancelToken) -> None:
        await self._target.cancel_chat(self.request_id, await signal.wait())

    async def _followed(self) -> AsyncGenerator[ChatEvent, None]:
        """The events behind ``number``, over all deaths of the agent."""
        async with contextlib.aclosing(self._items(self.number)) as items:
            async for item in items:
                if item[:1] == b"{":
                    self._ended(_ending_decoder.decode(item))
                    return
                for number, raw in after(frames_of(item), self.number):
                    self.number = number
                    self._note(raw)
                    yield ChatEvent(number, raw)
        self.outcome = "interrupted"

    def _note(self, raw: msgspec.Raw) -> None:
        data = bytes(raw)
        if data.startswith(TEXT):
            self._said.append(raw)
        elif data.startswith(TOOL):
            self._said.append(None)

    async def _items(self, number: int) -> AsyncGenerator[bytes, None]:
        """What the agent sends, for as long as the caller wants to wait."""
        items = self._attached(number)
        if self._timeout is not None:
            items = timed_items(items, self._timeout, f"turn {self.request_id}")
        try:
            async for item in items:
                yield item
        except Unavailable:
            self._is_detached = True  # the turn goes on: the caller did not want its end
            raise
        finally:
            await items.aclose()

    async def _attached(self, number: int) -> AsyncGenerator[bytes, None]:
        """What the agent sends; attaches again when its process dies, until the end."""
        pause = _Pause()
        is_following = number < END_ONLY
        while True:
            items = self._target.follow_turn(self._request, self.request_id, self.number if is_following else number)
            try:
                async for item in items:
                    self._has_items = True
                    pause.reset()
                    yield item
                    if item[:1] == b"{":
                        return
            except Unavailable as error:
                if not self._reattach:
                    return
                if not error.retryable or pause.is_over:
                    raise
            finally:
                await items.aclose()  # type: ignore[attr-defined]  # both are async generators
            await pause.wait()

    def _ended(self, ending: Ending, *, has_message: bool = False) -> None:
        self.outcome = ending.end
        self.message_id = ending.message_id
        if ending.end == "error":
            raise TurnFailed(ending.error)
        if not has_message and self.number < ending.number:
            raise UnknownTurn(
                f"the events of turn {self.request_id} behind {self.number} are not kept any more; "
                "its message is in get_messages()"
            )

    async def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        first, self._first = self._first, None
        if first is not None:
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await first
        if self._events is not None:
            await self._events.aclose()


class ChatStart(msgspec.Struct, frozen=True):
    """What ``on_start`` of a callback is told."""

    request_id: str


class _Pause:
    """The pauses between attempts to attach."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._seconds = ATTACH_SECONDS_MIN
        self._waited = 0.0

    @property
    def is_over(self) -> bool:
        return self._waited >= ATTACH_SECONDS_TOTAL

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)
        self._waited += self._seconds
        self._seconds = min(self._seconds * 2, ATTACH_SECONDS_MAX)


def chat_stream(
    target: Any,  # the agent or a stub of it, which has the same methods
    content: ChatInput,
    callback: object = None,
    *,
    signal: CancelToken | None = None,
    client_tools: Sequence[JsonObject] = (),
    channel: str | None = None,
    metadata: JsonObject | None = None,
    tools: object = None,
    reattach: bool = True,
) -> ChatStream:
    """A new turn; see ``Think.chat``."""
    _refuse_inside(target)
    if tools is not None:
        warnings.warn("chat(tools=...) is ignored: tools belong to the agent (get_tools, @tool)", stacklevel=3)
    stamps = {key: value for key, value in (("channel", channel), ("turnMetadata", metadata)) if value is not None}
    request = ChatRequest(
        messages=[_stamped(message, stamps) for message in _messages(content)],
        client_tools=list(client_tools),
        aborted=(signal.reason or "cancelled") if signal is not None and signal.cancelled else None,
    )
    return ChatStream(
        _unkeyed(target),
        msgspec.json.encode(request),
        turn_key(target, f"{_object_id(target)}.chat") or uuid4().hex,
        reattach=reattach,
        callback=callback,
        signal=signal,
        timeout=_timeout(target),
    )


def attach_stream(target: Any, request_id: str, *, after: int = 0, reattach: bool = True) -> ChatStream:
    """A turn that was started before; see ``Think.attach``."""
    return ChatStream(_unkeyed(target), None, request_id, number=after, reattach=reattach, timeout=_timeout(target))


def _messages(content: ChatInput) -> list[UIMessage]:
    several = [content] if isinstance(content, str | UIMessage | dict) else content
    try:
        return [user_message(one, uuid4().hex) for one in several]
    except msgspec.ValidationError as error:
        raise UsageError(f"chat() cannot take this message: {error}") from None


def _stamped(message: UIMessage, stamps: JsonObject) -> JsonObject:
    if stamps and message.role == "user":
        message = msgspec.structs.replace(message, metadata={**(message.metadata or {}), **stamps})
    return message_to_object(message)


def _object_id(target: Any) -> ObjectId:
    object_id: ObjectId = target.object_id if isinstance(target, Stub) else target.ctx.id
    return object_id


def _refuse_inside(target: Any) -> None:
    """A turn that waits for another turn of the same agent would wait for ever (turns Q3)."""
    object_id = _object_id(target)
    if current_turn.get() == object_id:
        raise TurnNotAllowed(
            f"chat() of {object_id} cannot be called from inside an active turn of the same agent: it would wait for "
            "itself. Start it behind the turn, for example in on_chat_response."
        )


def _unkeyed(target: Any) -> Any:
    # The key names the turn; the calls about it are other calls.
    return target.without_options() if isinstance(target, Stub) else target


def _timeout(target: Any) -> float | None:
    return target.perdure_handle.timeout if isinstance(target, Stub) else None


async def _next(events: AsyncGenerator[ChatEvent, None]) -> ChatEvent | None:
    """The next event; None at the end, since a task cannot raise StopAsyncIteration to its waiter unharmed."""
    return await anext(events, None)


async def _call(callback: object, name: str, *arguments: object) -> None:
    method = getattr(callback, name, None)
    if method is not None:
        answer = method(*arguments)
        if inspect.isawaitable(answer):
            await answer
