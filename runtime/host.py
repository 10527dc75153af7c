"""One live instance of one object: its storage, its gates, its calls, its end. Knows no Ray.

A ``Host`` is made with an ``Activation``; the first event opens it: the lock, the database, the constructor, the
start-up, in that order and under the input gate. From then on every event runs as a stepped coroutine (see
``runtime.stretch``), so that its writes are committed before anything else runs or leaves. It ends by hibernation, by
a reset, or with its process; after the end each storage access raises, and the platform lets the process go.

What an instance is asked beside its loop (ping, watch, evict) may come from another thread; everything else runs on
the loop that opened it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from runtime.alarms import AlarmRunner
from runtime.context import Context
from runtime.control import Answer, Ended, Evict, Evicted, Ping, Pong, Progressed, Watch, decode_ask
from runtime.core.lifecycle import Busy, State, may_move, stays_awake
from runtime.errors import LockHeld, ObjectReset, PerdureError
from runtime.gates import Gates
from runtime.instance import Platform
from runtime.lease import RETRY_SECONDS, Lease, open_lease
from runtime.mailbox import MAILBOX_STEPS, Mailbox
from runtime.object import DurableObject
from runtime.options import merged_options
from runtime.storage.migrations import migrate, versions
from runtime.storage.storage import Storage, prepare
from runtime.storage.store import Store
from runtime.stretch import current_stretches, install_task_factory, plain_task, stepped
from runtime.wire import Activation, encode

__all__ = ["FIRST_CALL_SECONDS_MAX", "Host"]

T = TypeVar("T")
log = logging.getLogger("perdure")

# A process that was made for a call that never came starts by itself after this.
FIRST_CALL_SECONDS_MAX = 5.0
# An attempt to open a database costs some milliseconds.
OPEN_AGAIN_SECONDS_MAX = 0.25


class Host:
    """The live instance of one object."""

    def __init__(self, activation: Activation, cls: type[DurableObject], platform: Platform) -> None:
        self.activation = activation
        self.cls = cls
        self.id = activation.object_id
        self.platform = platform
        self.options = merged_options(cls)
        self.folder = Path(activation.data_dir) / self.id.folder
        self.state = State.CREATED
        self.alarms = AlarmRunner(self)
        self.mailbox = Mailbox(self, self.alarms)
        self.gates = Gates(self, self.alarms, self.mailbox.admit)
        self.object: DurableObject | None = None
        self.store: Store | None = None
        self.lease: Lease | None = None
        self.versions: dict[str, int] = {}
        self.leases = 0
        self.background: set[asyncio.Task[Any]] = set()
        self.spawned: set[asyncio.Task[Any]] = set()
        self.progress = 0
        self.last_event_ms = platform.clock.now_ms()
        self.end_reason = ""
        self.is_watched = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watchers: list[tuple[bool, concurrent.futures.Future[bytes]]] = []
        self._idle_task: asyncio.Task[None] | None = None
        self._has_started = False

    # Events

    async def started(self) -> None:
        """Make sure that the object has started; concurrent events share one start.

        Raises:
            PerdureError, or what the object's own start-up raised.
        """
        if self.state is State.ACTIVE:
            return
        self.check()
        starting = self._starting
        if starting is None or starting.done():
            self._move(State.STARTING)
            self.gates.input.hold()
            starting = self._starting = asyncio.create_task(self._start())
        try:
            await asyncio.shield(starting)
        finally:
            if starting.done() and self._starting is starting:
                self._starting = None

    async def control(self, data: bytes) -> bytes:
        """Answer a control frame; from any thread's loop."""
        ask = decode_ask(data)
        if isinstance(ask, Ping):
            idle = self.platform.clock.now_ms() - self.last_event_ms
            epoch = self.lease.epoch if self.lease else 0
            pong = Pong(pid=os.getpid(), state=self.state, epoch=epoch, busy=stays_awake(self._busy()), idle_ms=idle)
            return encode(pong)
        answered: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        if isinstance(ask, Watch):
            self._on_loop(self._watch, ask.has_seen_progress, answered)
        else:
            assert isinstance(ask, Evict)
            self._on_loop(self._evict, answered)
        return await asyncio.wrap_future(answered)

    # Starting

    async def _start(self) -> None:
        self.loop = asyncio.get_running_loop()
        install_task_factory(self.loop)
        current_stretches.set(self.gates)
        if self._idle_task is None:
            self._idle_task = plain_task(self._idle())
        try:
            await self._open()
            await self.gates.limited(stepped(self._made(), self.gates))
            self._move(State.ACTIVE)
            self._has_started = True
        except BaseException as error:
            self.object = None
            if self.state is State.STARTING:
                self._cancel(*self.background, *self.spawned)  # the next start-up starts its own
                self._move(State.CREATED)
                if not isinstance(error, Exception):
                    self.reset("the start-up was interrupted")
            raise
        finally:
            self.gates.release()
        self.alarms.resume()

    async def _made(self) -> None:
        self.object = self.cls(Context(self))
        await self.gates.durable()  # what the constructor wrote; migrations want a transaction of their own
        await self.object.boot()

    async def _open(self) -> None:
        if self.store is not None:
            return  # an earlier start-up failed in the object's own code: what was opened stays open
        until_ms = self.platform.clock.now_ms() + int(self.options.open_timeout * 1000)
        if self.lease is None:
            self.lease = await open_lease(self.folder, self.platform.clock, timeout=self.options.open_timeout)
        is_new = not (self.folder / "id.json").exists()
        if is_new and self.platform.keeping is not None:
            await self.platform.keeping.register(self.activation)
        store = await self._opened(until_ms)
        try:
            self.versions = versions(store)
            prepare(store, self.versions)
            migrate(store, "host", MAILBOX_STEPS, self.versions)
        except BaseException:
            store.close(checkpoint=False)
            raise
        self.store = store
        self.storage = Storage(store, self.gates)
        if is_new:
            text = msgspec.json.encode({"path": self.activation.path, "class": self.activation.cls.name})
            (self.folder / "id.json").write_bytes(text)

    async def _opened(self, until_ms: int) -> Store:
        # Who holds the database may hold nothing else: a process that is just ending, or a person with a shell.
        pause = RETRY_SECONDS
        while True:
            try:
                return self.platform.open_store(self.folder)
            except LockHeld:
                if self.platform.clock.now_ms() >= until_ms:
                    raise
            await self.platform.clock.sleep(pause)
            pause = min(pause * 2, OPEN_AGAIN_SECONDS_MAX)

    def check(self) -> None:
        """Raise ``ObjectReset`` once the instance has ended."""
        if self.state in (State.RESET, State.CLOSED, State.CLOSING):
            raise ObjectReset(f"{self.id} was reset: {self.end_reason or self.state}")

    # Being awake, and ending

    def _busy(self) -> Busy:
        """What keeps the instance awake."""
        return Busy(
            calls=self.mailbox.calls,
            streams=self.mailbox.streams,
            background=len(self.background),
            leases=self.leases,
            alarm_running=self.alarms.is_running,
            commits=int(self.gates.is_holding),
        )

    async def _idle(self) -> None:
        wait = self.options.hibernate_after
        # Also when its start-up failed: it holds the files, and nobody may ever call again.
        while self.state in (State.CREATED, State.STARTING, State.ACTIVE):
            await self.platform.clock.sleep(max(wait, 0.001))
            idle = (self.platform.clock.now_ms() - self.last_event_ms) / 1000
            if self.state is State.STARTING or stays_awake(self._busy()):
                wait = self.options.hibernate_after
            elif idle >= self.options.hibernate_after:
                self.hibernate("idle")
            else:
                wait = self.options.hibernate_after - idle

    def hibernate(self, reason: str) -> None:
        """Checkpoint, close and end; new calls are refused from here on."""
        self._move(State.CLOSING)
        self.end_reason = reason
        try:
            if self.store is not None:
                self.store.commit()  # writes that nobody waits for
                self.mailbox.forget_expired(self.store)
                self.store.close(checkpoint=True)
        except PerdureError:
            log.exception("%s: closing its storage failed; everything committed is in its log", self.id)
        self._end(State.CLOSED)

    def reset(self, reason: str) -> None:
        """End at once: memory and uncommitted writes are lost, whoever waits gets the reason (D6)."""
        if self.state in (State.RESET, State.CLOSED):
            return
        self.end_reason = reason
        log.warning("%s is reset: %s", self.id, reason)
        self._move(State.RESET)
        if self.store is not None:
            self.store.close(checkpoint=False)
        self.mailbox.fail_all()
        self._end(State.RESET)

    def _end(self, state: State) -> None:
        if self.state is not state:
            self._move(state)
        self._cancel(*self.background, *self.spawned, self._idle_task, self._starting)
        if self.lease is not None:
            self.lease.release()
        self.platform.hold_fibers(False)
        watchers, self._watchers = self._watchers, []
        # A reset leaves its watchers without an answer, and so does a life that never got to start: they see the
        # process end, and create the object again.
        for _, answered in watchers if state is State.CLOSED and self._has_started else ():
            _settle(answered, Ended())
        self.platform.on_end(self.end_reason, state is State.CLOSED)

    def _cancel(self, *tasks: asyncio.Task[Any] | None) -> None:
        for task in tasks:
            if task is not None and task is not _current_task():
                task.cancel()

    def _move(self, state: State) -> None:
        assert may_move(self.state, state), f"{self.id} cannot go from {self.state} to {state}"
        self.state = state

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        if self.loop is None:
            function(*arguments)
        else:
            self.loop.call_soon_threadsafe(function, *arguments)

    def _watch(self, has_seen: bool, answered: concurrent.futures.Future[bytes]) -> None:
        if self.progress and not has_seen:
            _settle(answered, Progressed())
        elif self.state in (State.CLOSED, State.CLOSING) and self._has_started:
            _settle(answered, Ended())
        else:
            self._watchers.append((has_seen, answered))

    def progressed(self) -> None:
        """Durable progress was made in this life."""
        self.progress += 1
        if self.progress == 1:
            waiting, self._watchers = self._watchers, []
            for has_seen, answered in waiting:
                if has_seen:
                    self._watchers.append((has_seen, answered))
                else:
                    _settle(answered, Progressed())

    def _evict(self, answered: concurrent.futures.Future[bytes]) -> None:
        busy = stays_awake(self._busy())
        if self.platform.keeping is None:
            busy = "the keeper of all others"  # nobody would create it again until somebody calls it
        if self.state is State.ACTIVE and not busy:
            _settle(answered, Evicted(is_ending=True))
            self.hibernate("evicted")
        else:
            _settle(answered, Evicted(is_ending=False, busy=busy or f"it is {self.state}"))

    async def keep_alive(self) -> HostLease:
        """See ``Context.keep_alive``."""
        self.check()
        self.leases += 1
        lease = HostLease(self)
        try:
            if self.leases == 1:
                self.platform.hold_fibers(True)
            if not self.is_watched and self.platform.keeping is not None:
                await self.platform.keeping.watch(self.activation)
                self.is_watched = True
        except BaseException:
            lease.release()
            raise
        return lease


class HostLease:
    """One reason to stay awake."""

    def __init__(self, host: Host) -> None:
        self._host: Host | None = host

    def release(self) -> None:
        """Let go; a second call does nothing."""
        host, self._host = self._host, None
        if host is not None:
            host.leases -= 1
            host.last_event_ms = host.platform.clock.now_ms()
            if host.leases == 0:
                host.platform.hold_fibers(False)


def _settle(answered: concurrent.futures.Future[bytes], answer: Answer) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # who asked has gone meanwhile
        answered.set_result(encode(answer))


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
