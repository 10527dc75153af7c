"""The calls of one instance: delivered once, in order of admission, each answered with data.

A frame that comes twice (the caller's retry overtook the first answer) joins the first. A call with an idempotency
key is answered from its stored result if it finished before; its result is stored in the same commit as its last
writes, so there is no moment in which it has run and the key does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from runtime.alarms import AlarmRunner
from runtime.calls import CallContext, current_call, method_of
from runtime.core.gates import Overloaded
from runtime.core.lifecycle import State
from runtime.errors import ObjectReset, PerdureError, Unavailable
from runtime.instance import Instance
from runtime.recent import RecentCalls
from runtime.storage.store import Store
from runtime.stretch import current_stretches, stepped
from runtime.wire import (
    CallFrame,
    Refused,
    Returned,
    decode_call,
    decode_value,
    encode,
    encode_value,
    failure_from,
)

__all__ = ["MAILBOX_STEPS", "Mailbox"]

log = logging.getLogger("perdure")

MAILBOX_STEPS = ("CREATE TABLE cf_calls (key VARCHAR PRIMARY KEY, reply BLOB NOT NULL, ended_at_ms BIGINT NOT NULL)",)
KEPT_MS = 24 * 3600 * 1000
# D35: queued for too long.
WAITING_SECONDS_MAX = 30.0
ALARM_METHOD = "perdure_alarm"


class Mailbox:
    """Calls, streams and alarms of one host."""

    def __init__(self, host: Instance, alarms: AlarmRunner) -> None:
        self._host = host
        self._alarms = alarms
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._recent = RecentCalls()
        self._keyed: dict[str, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.calls = 0
        self.streams = 0

    async def call(self, data: bytes) -> bytes:
        """The reply to one call frame."""
        host = self._host
        if host.state in (State.CLOSING, State.CLOSED, State.RESET):
            return encode(Refused(str(host.state)))
        frame = decode_call(data)
        earlier = self._recent.get(frame.call_id)
        if earlier is not None:
            return await asyncio.shield(earlier)
        self._recent.began(frame.call_id)
        self.calls += 1
        try:
            reply = await self._guarded(lambda: self._answer(frame, len(data)))
        except BaseException:
            self._recent.broke(frame.call_id)
            raise
        finally:
            self.calls -= 1
            host.last_event_ms = host.platform.clock.now_ms()
        self._recent.ended(frame.call_id, reply)
        return reply

    async def _guarded(self, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Run ``work``; a reset of the object ends it and becomes the answer."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            reply = await work()
            # The object may have swallowed the error that reset it; the answer is an error all the same.
            return encode(failure_from(self._reset())) if self._was_reset() else reply
        except asyncio.CancelledError:
            if not self._was_reset():
                raise
            return encode(failure_from(self._reset()))
        except Exception as error:
            if self._was_reset() and not isinstance(error, PerdureError):
                return encode(failure_from(self._reset()))
            return encode(failure_from(error))
        finally:
            self._tasks.discard(task)

    def _was_reset(self) -> bool:
        return self._host.state is State.RESET

    def _reset(self) -> ObjectReset:
        return ObjectReset(f"{self._host.id} was reset: {self._host.end_reason}")

    async def _answer(self, frame: CallFrame, size: int) -> bytes:
        host = self._host
        await self._enter(size)
        if frame.method == ALARM_METHOD:
            return encode(Returned(encode_value(await self._alarms.fire(), what="the alarm slot")))
        function = method_of(host.cls, frame.method)
        arguments, named = decode_value(frame.arguments, what=f"the arguments of {host.id}.{frame.method}")
        if frame.key:
            return await self._once(frame, function, arguments, named)
        token = current_call.set(CallContext(""))
        try:
            return await self._run(frame, function, arguments, named)
        finally:
            current_call.reset(token)

    async def _enter(self, size: int) -> None:
        """Wait until the event may be delivered; the first one starts the object."""
        host = self._host
        ticket = next(self._tickets)
        host.last_event_ms = now = host.platform.clock.now_ms()
        admission = host.gates.input.arrive(ticket, size, now)
        if isinstance(admission, Overloaded):
            raise Unavailable(f"{host.id} is overloaded: {admission.reason}", retryable=False, overloaded=True)
        if not admission:
            await self._admitted(ticket)
        # Whoever waited for a start-up that failed tries it again (A2).
        if host.state is not State.ACTIVE:
            await host.started()
        current_stretches.set(host.gates)

    async def _admitted(self, ticket: int) -> None:
        host = self._host
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = admitted
        timer = asyncio.ensure_future(host.platform.clock.sleep(WAITING_SECONDS_MAX))
        try:
            await asyncio.wait({admitted, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not admitted.done():
                raise Unavailable(f"{host.id} is overloaded: queued for too long", retryable=False, overloaded=True)
        finally:
            timer.cancel()
            host.gates.input.leave(ticket)
            self._waiting.pop(ticket, None)
        host.check()

    def admit(self, tickets: list[int]) -> None:
        """Let waiting events pass, in this order."""
        for ticket in tickets:
            waiting = self._waiting.pop(ticket, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    async def _run(self, frame: CallFrame, function: Callable[..., Any], arguments: Any, named: Any) -> bytes:
        host = self._host

        async def method() -> bytes:
            result = function(host.object, *arguments, **named)
            if hasattr(result, "__await__"):
                result = await result
            reply = encode(Returned(encode_value(result, what=f"the result of {host.id}.{frame.method}")))
            if frame.key:
                self._store(_key(frame), reply)
            return reply

        return await stepped(method(), host.gates)

    async def _once(self, frame: CallFrame, function: Callable[..., Any], arguments: Any, named: Any) -> bytes:
        key = _key(frame)
        running = self._keyed.get(key)
        if running is not None:
            return await asyncio.shield(running)
        stored = self._stored(key)
        if stored is not None:
            return stored
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._keyed[key] = answered
        token = current_call.set(CallContext(f"{self._host.id.hash}\x00{key}"))
        try:
            reply = await self._run(frame, function, arguments, named)
        except BaseException as error:
            # A call that raised has not finished: the same key runs again. Who waits with it gets the same error.
            if isinstance(error, Exception):
                answered.set_exception(error)
                answered.exception()
            else:
                answered.cancel()
            raise
        finally:
            current_call.reset(token)
            self._keyed.pop(key, None)
        answered.set_result(reply)
        return reply

    def _stored(self, key: str) -> bytes | None:
        store = self._host.store
        assert store is not None
        oldest = self._host.platform.clock.now_ms() - KEPT_MS
        rows = store.execute("SELECT reply FROM cf_calls WHERE key = ? AND ended_at_ms > ?", (key, oldest)).rows
        return bytes(rows[0][0]) if rows else None  # type: ignore[arg-type]  # a BLOB

    def _store(self, key: str, reply: bytes) -> None:
        store, now = self._host.store, self._host.platform.clock.now_ms()
        assert store is not None
        query = "UPDATE cf_calls SET reply = ?, ended_at_ms = ? WHERE key = ?"
        if store.execute(query, (reply, now, key)).changed == 0:
            store.execute("INSERT INTO cf_calls VALUES (?, ?, ?)", (key, reply, now))
        self._host.gates.wrote(confirmed=True)

    def forget_expired(self, store: Store) -> None:
        """Delete stored results that nobody may ask for any more."""
        oldest = self._host.platform.clock.now_ms() - KEPT_MS
        if store.execute("SELECT 1 FROM cf_calls WHERE ended_at_ms <= ? LIMIT 1", (oldest,)).rows:
            store.execute("DELETE FROM cf_calls WHERE ended_at_ms <= ?", (oldest,))
            store.commit()

    async def stream(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """The items of an async generator method, each a reply frame; an error is the last of them."""
        host = self._host
        if host.state in (State.CLOSING, State.CLOSED, State.RESET):
            yield encode(Refused(str(host.state)))
            return
        self.streams += 1
        generator: Any = None
        task = asyncio.current_task()
        assert task is not None
        try:
            self._tasks.add(task)
            frame = decode_call(data)
            await self._enter(len(data))
            function = method_of(host.cls, frame.method)
            arguments, named = decode_value(frame.arguments, what=f"the arguments of {host.id}.{frame.method}")
            generator = function(host.object, *arguments, **named)
            while True:
                try:
                    item = await stepped(generator.__anext__(), host.gates)
                except StopAsyncIteration:
                    return
                yield encode(Returned(encode_value(item, what=f"an item of {host.id}.{frame.method}")))
        except asyncio.CancelledError:
            if not self._was_reset():
                raise
            yield encode(failure_from(self._reset()))
        except Exception as error:
            yield encode(failure_from(error))
        finally:
            self._tasks.discard(task)
            self.streams -= 1
            host.last_event_ms = host.platform.clock.now_ms()
            if generator is not None and hasattr(generator, "aclose"):
                await stepped(generator.aclose(), host.gates)

    def fail_all(self) -> None:
        """The object was reset: end every call under way; each answers with the reason."""
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_result(None)
        current = None
        with contextlib.suppress(RuntimeError):  # called from a plain callback of the loop
            current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()


def _key(frame: CallFrame) -> str:
    """One key names one call of each method: the same text given to two methods is two calls."""
    return f"{frame.method}\x00{frame.key}"
