"""The relay: a node's process that talks to model vendors for its agents, and the agents' way to it.

An agent process must not load a vendor's SDK. So ``ModelRelay`` runs once a node, as a service of the runtime; an
agent sends it a call as bytes and gets batches of parts back. In a script or a test the same class works in the
process itself, without bytes. ``use_relay`` says which; without it, in-process.

**Retries** are made here. A request that failed before its first part is sent again, at most ``call.retries`` times:
after what ``retry-after`` says, if that is no longer than ``RETRY_AFTER_S_MAX``, else after a doubling delay. Once a
part was yielded nothing is sent again: the client has seen it, and only the turn can continue behind it.

**Ends.** A request costs money until it ends, so it ends with its generator, and also when nobody takes its parts for
``READER_SILENCE_S``: an agent that was killed cannot close anything. Seen from the agent, a relay that dies in
mid-stream is a lost connection.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Protocol

from agents.errors import ModelConnectionLost, ModelOverloaded
from agents.models.anthropic import Anthropic
from agents.models.batches import (
    ModelCall,
    Trouble,
    decode_batch,
    decode_call,
    encode_batch,
    encode_call,
    error_of,
    trouble_of,
)
from agents.models.model import ModelFinish, ModelPart
from runtime import Context
from runtime.errors import PerdureError, Unavailable

__all__ = ["ModelRelay", "ServiceHandle", "close_relay", "parts_of", "use_relay"]

# A batch goes out when it is this old or this large. The first part of an answer does not wait.
HOLD_S = 0.01
BATCH_PARTS_MAX = 64
# Parts that wait for a slow reader; behind them the vendor's connection waits.
WAITING_PARTS_MAX = 1024
READER_SILENCE_S = 60.0
BACKOFF_S, BACKOFF_S_MAX = 0.5, 8.0
# A service that asks for more gets its error handed to the turn, whose recovery can wait without a connection.
RETRY_AFTER_S_MAX = 30.0
SERVICE_METHOD = "stream"


class ServiceHandle(Protocol):
    """A service of the node, as the runtime reaches it."""

    def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """Call the service's generator ``method``; closing the iterator closes the generator there.

        Raises:
            Unavailable: The service died or cannot be reached.
        """
        ...


RelayFactory = Callable[[], ServiceHandle | Awaitable[ServiceHandle]]


class ModelRelay:
    """Talks to the vendors. Bound to the event loop that first uses it.

    Args:
        sleep: How retries wait.
        reader_silence: Seconds after which an answer that nobody reads is ended.
    """

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        reader_silence: float = READER_SILENCE_S,
    ) -> None:
        self._vendor = Anthropic()
        self._sleep = sleep
        self._reader_silence = reader_silence

    async def parts(self, call: ModelCall) -> AsyncGenerator[ModelPart, None]:
        """The parts of one answer, with retries before the first of them.

        Raises:
            ModelRefused, ModelOverloaded, ModelConnectionLost: See ``agents.models.anthropic``.
        """
        tries = 1 + max(0, int(call.request.settings.get("max_retries", call.retries)))
        for attempt in range(1, tries + 1):
            has_begun = False
            try:
                async with aclosing(self._vendor.stream(call)) as parts:
                    async for part in parts:
                        has_begun = True
                        yield part
                return
            except (ModelOverloaded, ModelConnectionLost) as error:
                delay = _delay_behind(error, attempt)
                if has_begun or attempt == tries or delay is None:
                    raise
            await self._sleep(delay)

    async def stream(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """The same for another process: a call as bytes, its parts in batches, an error as the last of them."""
        reader = _Reader(self.parts(decode_call(request)), self._reader_silence)
        try:
            async for batch in reader.batches():
                yield encode_batch(batch)
        finally:
            await reader.close()

    async def close(self) -> None:
        """Close the connections to the vendors."""
        await self._vendor.close()


def _delay_behind(error: PerdureError, attempt: int) -> float | None:
    """Seconds to wait before the next try; None if there should be none."""
    if not error.retryable:
        return None
    if isinstance(error, ModelOverloaded) and error.retry_after:
        return error.retry_after if error.retry_after <= RETRY_AFTER_S_MAX else None
    # A quarter of chance keeps many agents from coming back all at once.
    return float(min(BACKOFF_S * 2 ** (attempt - 1), BACKOFF_S_MAX) * random.uniform(0.75, 1.0))


class _Reader:
    """Reads an answer ahead of a slower consumer and gathers what has come meanwhile."""

    def __init__(self, parts: AsyncGenerator[ModelPart, None], silence: float) -> None:
        self._parts = parts
        self._silence = silence
        self._waiting: deque[ModelPart | Trouble] = deque()
        self._changed = asyncio.Condition()
        self._is_done = False
        self._loop = asyncio.get_running_loop()
        self._taken_at = self._loop.time()
        self._task = asyncio.ensure_future(self._pump())

    async def batches(self) -> AsyncGenerator[list[ModelPart | Trouble], None]:
        """The parts in their order, as many at a time as came within the hold."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._waiting or self._is_done)
                self._taken_at = self._loop.time()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_PARTS_MAX))]
                self._changed.notify_all()
            if batch:
                yield batch
            elif self._is_done:
                return
            if not self._is_done and len(self._waiting) < BATCH_PARTS_MAX:
                await asyncio.sleep(HOLD_S)

    async def close(self) -> None:
        """End the request, if it has not ended."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _pump(self) -> None:
        try:
            async with aclosing(self._parts) as parts:
                async for part in parts:
                    await self._put(part)
        except PerdureError as error:
            self._waiting.append(trouble_of(error))
        finally:
            self._is_done = True
            async with self._changed:
                self._changed.notify_all()

    async def _put(self, part: ModelPart) -> None:
        async with self._changed:
            # Time decides, not the number of parts: a slow model would fill the room for many minutes.
            if not self._waiting:
                self._taken_at = self._loop.time()  # a reader that has everything is not silent
            elif self._loop.time() - self._taken_at > self._silence:
                raise self._unread()
            if len(self._waiting) >= WAITING_PARTS_MAX:
                await self._wait_for_reader()
            self._waiting.append(part)
            self._changed.notify_all()

    async def _wait_for_reader(self) -> None:
        try:
            has_room = self._changed.wait_for(lambda: len(self._waiting) < WAITING_PARTS_MAX)
            await asyncio.wait_for(has_room, self._silence)
        except TimeoutError:
            raise self._unread() from None

    def _unread(self) -> ModelConnectionLost:
        return ModelConnectionLost(
            f"The model's answer was ended, since its agent had read nothing of it for {self._silence:g} s."
        )


_factory: RelayFactory | None = None
_local: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ModelRelay] = weakref.WeakKeyDictionary()


def use_relay(factory: RelayFactory | None) -> None:
    """Say where the models of this process send their calls: to a node's service, or (None) to the process itself.

    The factory is asked for each call, so it may return a new handle when the service was started again.
    """
    global _factory
    _factory = factory


def reach_models(ctx: Context) -> None:
    """In an agent: send model calls through the node's relay, where there is one."""
    service = ctx.service(ModelRelay, "models")
    if service is not None:
        use_relay(lambda: service)


def parts_of(call: ModelCall) -> AsyncGenerator[ModelPart, None]:
    """The parts of one answer, from wherever ``use_relay`` says."""
    return _local_relay().parts(call) if _factory is None else _remote_parts(_factory, call)


def _local_relay() -> ModelRelay:
    # One for each loop: connections belong to the loop that opened them, and a script may run several.
    return _local.setdefault(asyncio.get_running_loop(), ModelRelay())


async def close_relay() -> None:
    """Close the connections that this process itself holds to vendors on the running loop."""
    relay = _local.pop(asyncio.get_running_loop(), None)
    if relay is not None:
        await relay.close()


async def _remote_parts(factory: RelayFactory, call: ModelCall) -> AsyncGenerator[ModelPart, None]:
    """Ask the node's relay; one that is gone before it said anything is asked for anew, once."""
    data = encode_call(call)
    for is_last in (False, True):
        has_begun = False
        try:
            handle = factory()
            handle = await handle if inspect.isawaitable(handle) else handle
            async with aclosing(_decoded(handle.stream(SERVICE_METHOD, data))) as parts:
                async for part in parts:
                    has_begun = True
                    yield part
            return
        except (ModelConnectionLost, ModelOverloaded):
            raise  # what the relay reports has had its retries there
        except Unavailable as error:
            if has_begun or is_last:
                raise ModelConnectionLost(
                    f"The node's model relay was lost while {call.model} answered: {error}. Ask again."
                ) from error


async def _decoded(batches: AsyncIterator[bytes]) -> AsyncGenerator[ModelPart, None]:
    """The parts in batches, up to the last one.

    Raises:
        ModelConnectionLost: The batches ended before the answer did.
    """
    try:
        async for batch in batches:
            for part in decode_batch(batch):
                if isinstance(part, Trouble):
                    raise error_of(part)
                yield part
                if isinstance(part, ModelFinish):
                    return
        raise ModelConnectionLost("The node's model relay stopped before the answer was whole. Ask again.")
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()
