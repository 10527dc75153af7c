"""Stubs: how code calls an object, wherever it lives and whether or not it lives now.

A stub names an object and its class. The first call activates an instance; when that has hibernated or died, the
next call activates another, and the stub never notices. What a call does when the instance goes away under it:

    the instance                              the call
    refused it (hibernating), or is absent    activate, send again: nothing had run
    hibernated with the call queued           the same
    died, method idempotent or call keyed     activate, send again, at most five times
    died, any other method                    ``ConnectionLost``: it may have run, only the caller can know
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import itertools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from runtime.calls import caller_side, current_call, is_idempotent, method_of
from runtime.classes import class_ref
from runtime.clock import Clock
from runtime.errors import ConnectionLost, Unavailable, UsageError
from runtime.ids import ObjectId, Step
from runtime.stretch import flush_current
from runtime.transport import Absent, Died, Retiring, Transport, Unreachable
from runtime.wire import (
    Activation,
    CallFrame,
    ClassRef,
    Failure,
    Refused,
    Returned,
    decode_reply,
    decode_value,
    encode,
    encode_value,
    error_from,
)

__all__ = ["Caller", "Stub", "current_caller", "make_stub", "timed", "timed_items", "turn_key", "use_caller"]

T = TypeVar("T")

# A death takes tens of milliseconds to be known everywhere; a fresh instance tens more.
RETRY_SECONDS_MIN = 0.005
RETRY_SECONDS_MAX = 0.25
# How long a stub looks for a live instance before it says that there is none to be had.
ACTIVATION_SECONDS_MAX = 30.0
DEATHS_MAX = 5
# The keeper is not listed in its own directory: it is found by its fixed address.
UNLISTED = frozenset(("PerdureKeeper",))


class Caller:
    """One process's way to all objects: the transport, the classes it has announced, the data directory."""

    def __init__(self, transport: Transport, clock: Clock, data_dir: str) -> None:
        self.transport = transport
        self.clock = clock
        self.data_dir = data_dir
        self.register: Callable[[ClassRef], Any] | None = None
        self.touched: set[ObjectId] = set()
        # In an object's process: its root and the node it lives on, where its sub-agents live too.
        self.home: tuple[ObjectId, str] | None = None
        self._announced: dict[str, ClassRef] = {}

    async def announce(self, ref: ClassRef) -> None:
        """Tell the directory about a class, once a process.

        Raises:
            UsageError: A class of that name is known from elsewhere.
        """
        if self.register is None or ref.name in UNLISTED or self._announced.get(ref.name) is ref:
            return
        await self.register(ref)
        self._announced[ref.name] = ref

    async def activate(self, object_id: ObjectId, ref: ClassRef) -> None:
        """Make sure that the object has an instance."""
        await self.announce(ref)
        path = tuple((step.class_name, step.name) for step in object_id.path)
        is_family = self.home is not None and len(path) > 1 and object_id.root_id == self.home[0]
        node = self.home[1] if is_family and self.home is not None else ""
        await self.transport.activate(Activation(path=path, cls=ref, data_dir=self.data_dir, node=node))

    async def invoke(self, object_id: ObjectId, ref: ClassRef, frame: CallFrame, *, is_repeatable: bool) -> Any:
        """Send a call and return the decoded result; see the table above for what happens on the way."""
        what = f"{object_id}.{frame.method}"
        if ref.name not in UNLISTED:
            # The keeper is told about an alarm *before* the commit, from inside the commit.
            await flush_current()
        await self.announce(ref)
        self.touched.add(object_id.root_id)
        data = encode(frame)
        pause = _Pause(self.clock, object_id, what)
        while True:
            try:
                reply = decode_reply(await self.transport.call(object_id, data))
            except Absent:
                await self.activate(object_id, ref)
                continue
            except Retiring:
                await pause.wait()
                continue
            except (Died, Unreachable) as error:
                pause.died(error, is_repeatable=is_repeatable)
                await pause.wait()
                continue
            if isinstance(reply, Returned):
                return decode_value(reply.value, what=f"the result of {what}")
            if isinstance(reply, Failure):
                raise error_from(reply)
            self.transport.retired(object_id)
            await pause.wait(reply)

    async def iterate(self, object_id: ObjectId, ref: ClassRef, frame: CallFrame) -> AsyncGenerator[Any, None]:
        """Call an async generator method; its items one by one. Ends with ``ConnectionLost`` if the object dies."""
        what = f"{object_id}.{frame.method}"
        await flush_current()
        await self.announce(ref)
        self.touched.add(object_id.root_id)
        data = encode(frame)
        pause = _Pause(self.clock, object_id, what)
        has_begun = False
        while True:
            refused: Refused | None = None
            items = self.transport.stream(object_id, data)
            try:
                async for item in items:
                    reply = decode_reply(item)
                    if isinstance(reply, Returned):
                        has_begun = True
                        yield decode_value(reply.value, what=f"an item of {what}")
                    elif isinstance(reply, Failure):
                        raise error_from(reply)
                    else:
                        refused = reply
                if refused is None:
                    return
            except Absent:
                await self.activate(object_id, ref)
                continue
            except Retiring:
                await pause.wait()
                continue
            except (Died, Unreachable) as error:
                if has_begun or not (isinstance(error, Died) and error.is_intended):
                    raise ConnectionLost(f"{what}: the object's process ended in mid-stream ({error})") from None
            finally:
                await items.aclose()
            if refused is not None:
                self.transport.retired(object_id)
            await pause.wait(refused)


class _Pause:
    """The patience of one call: how often its object died, and how long it has waited for a live one."""

    def __init__(self, clock: Clock, object_id: ObjectId, what: str) -> None:
        self._clock = clock
        self._root = object_id.root_id
        self._what = what
        self._deaths = 0
        self._seconds = RETRY_SECONDS_MIN
        self._until_ms = 0

    def died(self, error: Died | Unreachable, *, is_repeatable: bool) -> None:
        """Raise unless the call may be sent again."""
        if isinstance(error, Died) and error.is_intended:
            return
        self._deaths += 1
        if not is_repeatable:
            raise ConnectionLost(
                f"{self._what}: network connection lost: the object's process ended before it answered ({error}). "
                "The call may have run; repeat it if that is harmless, or give it an idempotency key "
                "(stub.with_options(idempotency_key=...)) so that it is repeated by itself."
            ) from None
        if isinstance(error, Died) and self._deaths > DEATHS_MAX:
            raise ConnectionLost(
                f"{self._what}: network connection lost: the object's process ended {self._deaths} times during this "
                f"call ({error}). See its log for the reason: perdure logs {self._root}"
            ) from None
        if isinstance(error, Died):
            self._seconds, self._until_ms = RETRY_SECONDS_MIN, 0  # the next one gets as long as the first

    async def wait(self, refused: Refused | None = None) -> None:
        """Wait a little longer than last time; raise when the patience is at its end."""
        now = self._clock.now_ms()
        self._until_ms = self._until_ms or now + int(ACTIVATION_SECONDS_MAX * 1000)
        if now >= self._until_ms:
            why = f"it refuses calls ({refused.reason})" if refused else "no instance of it stays alive"
            raise Unavailable(f"{self._what}: {why} for {ACTIVATION_SECONDS_MAX:g} s; try again later.")
        await self._clock.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, RETRY_SECONDS_MAX)


# Call ids: unique over processes by a random prefix, within one by counting (a random id each would cost 10 us).
_PROCESS = os.urandom(9).hex()
_calls = itertools.count(1)

_caller: list[Caller] = []


def use_caller(caller: Caller | None) -> None:
    """Set the process's caller; None when it disconnects."""
    _caller[:] = [] if caller is None else [caller]


def current_caller() -> Caller:
    """The process's caller.

    Raises:
        UsageError: Neither in an object nor connected.
    """
    if not _caller:
        raise UsageError("not connected: use `async with runtime.connect() as cluster:` around the calls")
    return _caller[0]


class Handle(NamedTuple):
    """What a stub stands for: the class, the way there (None: the process's own), and its call options."""

    cls: type
    caller: Caller | None
    key: str = ""
    timeout: float | None = None


class Stub:
    """A handle to one object. Attributes are the methods of its class; awaiting their calls runs them over there."""

    __slots__ = ("object_id", "perdure_handle")

    def __init__(self, object_id: ObjectId, handle: Handle) -> None:
        self.object_id = object_id
        self.perdure_handle = handle

    def with_options(self, *, idempotency_key: str | None = None, timeout: float | None = None) -> Stub:
        """The same object with other call options.

        Args:
            idempotency_key: The call runs once under this key: repeated, also by another process, it joins the
                running call or answers from the stored result, for 24 hours. A call that died runs again.
            timeout: Seconds until the caller gives up with ``Unavailable``; the call itself goes on. A stream must
                have ended by then.

        What is not given stays as it is in this stub.
        """
        if idempotency_key is not None and not str(idempotency_key).strip():
            raise UsageError(f"idempotency_key must be text that is not blank, not {idempotency_key!r:.80}")
        if timeout is not None and not timeout > 0:
            raise UsageError(f"timeout must be seconds above 0, not {timeout!r:.80}")
        handle = self.perdure_handle
        key = handle.key if idempotency_key is None else str(idempotency_key)
        timeout = handle.timeout if timeout is None else timeout
        return Stub(self.object_id, handle._replace(key=key, timeout=timeout))

    def without_options(self) -> Stub:
        """The same object, called plainly."""
        return Stub(self.object_id, self.perdure_handle._replace(key="", timeout=None))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no {name!r}: private names are not reachable through a stub")
        cls = self.perdure_handle.cls
        found = inspect.getattr_static(cls, name, None)
        if isinstance(found, caller_side):
            return found.function.__get__(self)
        return RemoteMethod(self, name, method_of(cls, name))

    def __repr__(self) -> str:
        return f"<stub of {self.object_id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stub) and self.object_id == other.object_id

    def __hash__(self) -> int:
        return hash(self.object_id)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (_rebuilt, (tuple(self.object_id.path), self.perdure_handle.cls))


def _rebuilt(path: tuple[Step, ...], cls: type) -> Stub:
    return Stub(ObjectId(path), Handle(cls, None))


class RemoteMethod:
    """One method of one object, ready to be called."""

    __slots__ = ("_function", "_name", "_stub")

    def __init__(self, stub: Stub, name: str, function: Callable[..., Any]) -> None:
        self._stub = stub
        self._name = name
        self._function = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        stub, name = self._stub, self._name
        handle = stub.perdure_handle
        what = f"{stub.object_id}.{name}"
        signature, is_generator = _shape(self._function)
        try:
            signature.bind(None, *arguments, **named)
        except TypeError as error:
            shape = str(signature).replace("(self, ", "(").replace("(self)", "()")
            raise UsageError(f"{what} cannot be called like this: {error}. It is {name}{shape}") from None
        data = encode_value((arguments, named), what=f"the arguments of {what}")
        caller = handle.caller or current_caller()
        ref = class_ref(handle.cls)
        repeatable = is_idempotent(handle.cls, name)
        key = handle.key
        if not key and not repeatable:
            context = current_call.get()
            key = context.derive(what) if context is not None and context.key else ""
        frame = CallFrame(f"{_PROCESS}{next(_calls):x}", name, data, key)
        if is_generator:
            items = caller.iterate(stub.object_id, ref, frame)
            return items if handle.timeout is None else timed_items(items, handle.timeout, what)
        call: Any = caller.invoke(stub.object_id, ref, frame, is_repeatable=repeatable or bool(key))
        call.__qualname__ = what  # what Python says was never awaited
        return call if handle.timeout is None else timed(call, caller.clock, handle.timeout, what)


@functools.lru_cache(maxsize=4096)
def _shape(function: Callable[..., Any]) -> tuple[inspect.Signature, bool]:
    return inspect.signature(function), inspect.isasyncgenfunction(function)


async def timed(call: Awaitable[T], clock: Clock, timeout: float, what: str) -> T:
    """The result of ``call``.

    Raises:
        Unavailable: It took longer than ``timeout`` seconds.
    """
    work = asyncio.ensure_future(call)
    timer = asyncio.ensure_future(clock.sleep(timeout))
    try:
        await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise Unavailable(f"{what} did not answer within {timeout:g} s; it may still be running.")
    finally:
        timer.cancel()
        work.cancel()


async def timed_items(items: AsyncGenerator[T, None], timeout: float, what: str) -> AsyncGenerator[T, None]:
    """The items of a stream.

    Raises:
        Unavailable: It has not ended within ``timeout`` seconds.
    """
    until = asyncio.get_running_loop().time() + timeout
    try:
        while True:
            try:
                async with asyncio.timeout_at(until):
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Unavailable(f"{what} has not ended within {timeout:g} s; it may still be running.") from None
            yield item
    finally:
        await items.aclose()


def make_stub(cls: type[T], object_id: ObjectId, caller: Caller | None = None) -> T:
    """A stub, typed as the class itself."""
    class_ref(cls)
    return cast("T", Stub(object_id, Handle(cls, caller)))


def turn_key(target: object, what: str) -> str | None:
    """The id that the idempotency key of a stub, or of the call around it, gives to a turn; None without one."""
    key = target.perdure_handle.key if isinstance(target, Stub) else ""
    if key:
        return hashlib.sha256(f"{key}\x00{what}".encode()).hexdigest()[:32]
    context = current_call.get()
    return context.derive(what) if context is not None and context.key else None
