"""``Transport`` over plain function calls, with a network that delays, loses and doubles messages on demand.

A lost message is what a real network makes of it: the sender learns only that there was no answer (``Unreachable``),
never which of the two ways was the broken one. A doubled message is delivered twice, as when a retry overtakes the
first answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from runtime.control import Broken
from runtime.errors import PerdureError
from runtime.host import Host
from runtime.ids import ObjectId
from runtime.keeper import KEEPER_ID
from runtime.testing.faults import EffectKind, Faults
from runtime.testing.life import Life, current_life
from runtime.transport import Absent, Unreachable
from runtime.wire import Activation, Failure, decode_call, encode, failure_from

__all__ = ["LocalTransport"]

# As over Ray: a producer is this many items ahead of its reader, then it waits.
BACKPRESSURE_ITEMS = 16


class LocalTransport:
    """See ``runtime.transport.Transport``.

    Args:
        lives: The processes that live, by object.
        faults: What goes wrong, and where effects are counted.
        make: Makes the process for an activation.
        crash: Ends a process at once; raises ``Crashed`` if it is the running one.
        randomness: Draws the delays.
        delay: The most seconds that a message takes.
    """

    def __init__(
        self,
        lives: dict[ObjectId, Life],
        faults: Faults,
        *,
        make: Callable[[Activation], Life],
        host_of: Callable[[Life], Host],
        crash: Callable[[Life], None],
        randomness: random.Random,
        delay: float,
    ) -> None:
        self._lives = lives
        self._faults = faults
        self._make = make
        self._host_of = host_of
        self._crash = crash
        self._random = randomness
        self._delay = delay

    async def call(self, target: ObjectId, data: bytes) -> bytes:
        """One call frame to the object's loop."""
        life, fault = await self._leave(target)
        method = decode_call(data).method
        kind: EffectKind = "keeper" if target == KEEPER_ID else "call"
        reply = life.reply()
        if fault == "doubled":
            self._deliver(life, data, method, life.reply())
        if fault != "call lost":
            self._deliver(life, data, method, reply)
        self.effect(current_life.get(), kind, f"{target}.{method}")
        if fault == "call lost":
            raise Unreachable("the call was lost")
        answer: bytes = await reply
        if fault == "reply lost":
            raise Unreachable("the reply was lost")
        return answer

    async def control(self, target: ObjectId, data: bytes) -> bytes:
        """One control frame; no effect, since nothing depends on one."""
        life, _ = await self._leave(target, is_control=True)
        reply = life.reply()
        asked = self._answered(life, reply, lambda host: host.control(data), Broken)
        life.start(asked, f"control of {target}")
        answer: bytes = await reply
        return answer

    async def stream(self, target: ObjectId, data: bytes) -> AsyncGenerator[bytes, None]:
        """One call frame of an async generator method."""
        life, fault = await self._leave(target)
        method = decode_call(data).method
        reader = current_life.get()
        pipe = _Pipe()
        end = life.reply()
        end.add_done_callback(pipe.end)
        producer: asyncio.Task[Any] | None = None
        if fault != "call lost":
            producer = life.start(self._produced(life, data, method, pipe, end), f"stream of {target}.{method}")
        self.effect(reader, "call", f"{target}.{method}")
        if producer is None:
            raise Unreachable("the call was lost")
        try:
            while (item := await pipe.get()) is not None:
                yield item
        finally:
            # Leaving a stream cancels it, dying does not.
            if not end.done() and (reader is None or not reader.is_dead):
                producer.cancel()

    async def activate(self, activation: Activation) -> None:
        """Make a process, unless one lives."""
        await self._travel()
        if activation.object_id not in self._lives:
            self._lives[activation.object_id] = self._make(activation)

    def retired(self, target: ObjectId) -> None:
        """Nothing to forget: a process that ends is not listed any more."""

    def effect(self, life: Life | None, kind: EffectKind, detail: str) -> None:
        """Account for an effect of ``life`` (None: of the test itself, which never crashes)."""
        if life is not None and self._faults.add(kind, str(life.object_id), detail):
            self._crash(life)

    async def _leave(self, target: ObjectId, *, is_control: bool = False) -> tuple[Life, Any]:
        """Leave the sender, cross the network, find the target and what becomes of the message."""
        sender = current_life.get()
        if sender is not None:
            sender.check()
        await self._travel()
        life = self._lives.get(target)
        if life is None:
            raise Absent(f"{target} has no instance")
        return life, None if is_control else self._faults.message(str(target))

    async def _travel(self) -> None:
        if self._delay:
            await asyncio.sleep(self._random.uniform(0, self._delay))

    def _deliver(self, life: Life, data: bytes, method: str, reply: asyncio.Future[bytes]) -> None:
        life.start(self._called(life, data, method, reply), f"call of {life.object_id}.{method}")

    async def _called(self, life: Life, data: bytes, method: str, reply: asyncio.Future[bytes]) -> None:
        await self._answered(life, reply, lambda host: host.mailbox.call(data))
        self.effect(life, "reply", method)

    async def _answered(
        self,
        life: Life,
        reply: asyncio.Future[bytes],
        ask: Callable[[Host], Awaitable[bytes]],
        broken: Callable[[Failure], Failure | Broken] = lambda failure: failure,
    ) -> None:
        try:
            answer = await ask(self._host_of(life))
        except PerdureError as error:
            answer = encode(broken(failure_from(error)))  # its class could not be loaded
        except Exception as error:
            fault = PerdureError(f"perdure itself failed at {life.object_id}: {type(error).__name__}: {error}")
            fault.__cause__ = error
            if not reply.done():
                reply.set_exception(fault)
            return
        await self._travel()
        if not reply.done():
            reply.set_result(answer)

    async def _produced(self, life: Life, data: bytes, method: str, pipe: _Pipe, end: asyncio.Future[None]) -> None:
        try:
            items = self._host_of(life).mailbox.stream(data)
        except PerdureError as error:
            await pipe.put(encode(failure_from(error)))
            end.set_result(None)
            return
        try:
            async for item in items:
                await pipe.put(item)
                self.effect(life, "item", method)
        finally:
            await items.aclose()
        if not end.done():
            end.set_result(None)


class _Pipe:
    """Items on their way. What was sent arrives, also if the sender died right after."""

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._ending: asyncio.Future[Any] | None = None
        self._moved = asyncio.Event()

    async def put(self, item: bytes) -> None:
        """Send an item; waits while the reader is too far behind."""
        while len(self._items) >= BACKPRESSURE_ITEMS:
            self._moved.clear()
            await self._moved.wait()
        self._items.append(item)
        self._moved.set()

    def end(self, ending: asyncio.Future[Any]) -> None:
        """Nothing more will be sent; an error in ``ending`` is what the reader gets last."""
        self._ending = ending
        self._moved.set()

    async def get(self) -> bytes | None:
        """The next item; None at the end."""
        while not self._items:
            if self._ending is not None:
                self._ending.result()
                return None
            self._moved.clear()
            await self._moved.wait()
        item = self._items.popleft()
        self._moved.set()
        return item
