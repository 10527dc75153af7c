"""``LocalCluster``: many objects in one process, in virtual time, with faults where a test wants them.

    from runtime.testing import LocalCluster, run

    async def main():
        async with LocalCluster(tmp_path) as cluster:
            counter = cluster.get(Counter, "a")
            await counter.add(1)
            cluster.kill(counter)                 # as SIGKILL
            assert await counter.value() == 1     # a new instance, from the same file
            await cluster.advance(3600)           # an hour, in no time

    run(main)

Everything but the network and the clock is real: hosts, keeper, gates, database files and their locks. The messages
between objects are function calls; a process is a ``Life``. The same seed gives the same run, effect by effect, and
the number of an effect is a place to crash at:

    async with LocalCluster(tmp_path, seed=7) as cluster:
        cluster.crash_at(12)                      # after the 12th effect, its instance dies
        ...
    cluster.effects                               # what there was to crash at
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from runtime.alarms import ANNOUNCE_SECONDS
from runtime.classes import load_class
from runtime.clock import Clock, SystemClock
from runtime.control import Ask, Evict, Evicted, Ping, Pong, decode_answer
from runtime.errors import UsageError
from runtime.host import FIRST_CALL_SECONDS_MAX, Host
from runtime.ids import ObjectId
from runtime.instance import Platform
from runtime.keeper import KEEPER_ID, KeeperClient, PerdureKeeper
from runtime.mailbox import ALARM_METHOD
from runtime.storage.alarm import read_slot, write_slot
from runtime.storage.duckdb import open_store
from runtime.stub import Caller, Stub, make_stub, use_caller
from runtime.testing.clock import VirtualClock, VirtualLoop
from runtime.testing.faults import Crashed, Disk, Effect, EffectKind, Faults, FaultyStore
from runtime.testing.life import Life, current_life, install_lives
from runtime.testing.transport import LocalTransport
from runtime.transport import Absent, Died
from runtime.wire import Activation, CallFrame, encode, encode_value

__all__ = ["LocalCluster"]

T = TypeVar("T")

# A process that ends by intent still sends the answers it has; what is not done by then will not be.
ENDING_SECONDS = 0.1


class LocalCluster:
    """Objects of one data directory, simulated.

    Args:
        data_dir: Where their files are; another cluster on the same directory finds what this one left.
        seed: Decides whatever is left to chance: the delays of messages.
        delay: The most seconds that a message takes.

    Attributes:
        effects: What instances did that others can see, in order; see ``runtime.testing.faults``.
        clock: Its time; virtual on a ``VirtualLoop``.
    """

    def __init__(self, data_dir: str | os.PathLike[str], *, seed: int = 0, delay: float = 0.0) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.seed = seed
        self._faults = Faults()
        self._disks: dict[ObjectId, Disk] = {}
        self._lives: dict[ObjectId, Life] = {}
        self._graves: list[Life] = []
        self._ending: set[asyncio.Task[Any]] = set()
        self._transport = LocalTransport(
            self._lives,
            self._faults,
            make=self._made,
            host_of=self._host,
            crash=self._crash,
            randomness=random.Random(seed),
            delay=delay,
        )
        self.clock: Clock = SystemClock()

    @property
    def effects(self) -> list[Effect]:
        """Every effect so far."""
        return self._faults.effects

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            self.clock = loop.clock
        install_lives(loop)
        self._caller, self._keeping = self._connection()
        use_caller(self._caller)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"LocalCluster(seed={self.seed}), after {len(self.effects)} effects")
        use_caller(None)
        for life in (*self._lives.values(), *self._graves):
            life.end("the cluster was closed")
            self._graves.append(life)
        self._lives.clear()
        for task in self._ending:
            task.cancel()
        await asyncio.sleep(0)
        for life in self._graves:
            life.bury()

    # Objects

    def get(self, cls: type[T], name: str) -> T:
        """A stub of a root object, typed as its class. Nothing starts until its first call."""
        return make_stub(cls, ObjectId.root(getattr(cls, "__name__", str(cls)), name), self._caller)

    def stub(self, cls: type[T], object_id: ObjectId) -> T:
        """A stub of any object, sub-agents too."""
        return make_stub(cls, object_id, self._caller)

    @property
    def keeper(self) -> PerdureKeeper:
        """The keeper: an object like others, with the directory and the alarms in it; it may be killed."""
        return make_stub(PerdureKeeper, KEEPER_ID, self._caller)

    async def ping(self, target: object) -> Pong | None:
        """The state of the live instance; None if there is none."""
        answer = await self._ask(target, Ping())
        assert answer is None or isinstance(answer, Pong)
        return answer

    def is_alive(self, target: object) -> bool:
        """Whether the object has a process."""
        return _id_of(target) in self._lives

    # Time and ends

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due by then."""
        if not isinstance(self.clock, VirtualClock):
            raise UsageError("the clock is the machine's: run the test with runtime.testing.run to move it")
        await self.clock.advance(seconds)

    def kill(self, target: object) -> bool:
        """End the object's process as SIGKILL does; False if it has none.

        Nothing more of it runs and nothing more is written; callers see the death. Called from inside the object, it
        does not return.
        """
        life = self._lives.get(_id_of(target))
        if life is None:
            return False
        self._crash(life)
        return True

    async def evict(self, target: object) -> Evicted | None:
        """Hibernate the instance now unless something keeps it awake; None if there is none."""
        answer = await self._ask(target, Evict())
        assert answer is None or isinstance(answer, Evicted)
        return answer

    async def fire_alarm(self, target: object) -> bool:
        """Run the object's alarm now, whenever it is due; False if none is set. Returns when the handler has ended."""
        object_id = _id_of(target)
        life = self._lives.get(object_id)
        if life is None or life.host is None or life.store is None:
            await self._frame(object_id, "perdure_started")
            life = self._lives[object_id]
        assert life.store is not None
        slot = read_slot(life.store)
        if slot.at_ms is None:
            return False
        write_slot(life.store, msgspec.structs.replace(slot, at_ms=self.clock.now_ms()))
        life.store.commit()
        at_ms, version = await self._frame(object_id, ALARM_METHOD)
        await self._keeping.set_alarm(life.activation, at_ms, version, timeout=ANNOUNCE_SECONDS)
        return True

    # Faults

    def crash_at(self, count: int) -> None:
        """Kill the instance that makes the ``count``-th effect from now, right after it; 1 is the next."""
        self._faults.crash_at(count)

    def lose(self, target: object, *, part: str = "call", times: int = 1) -> None:
        """Lose the next messages to an object: the ``call``, which then never ran, or its ``reply``."""
        if part not in ("call", "reply"):
            raise UsageError(f"part is 'call' or 'reply', not {part!r}")
        self._faults.spoil(str(_id_of(target)), "call lost" if part == "call" else "reply lost", times)

    def double(self, target: object, *, times: int = 1) -> None:
        """Deliver the next messages to an object twice."""
        self._faults.spoil(str(_id_of(target)), "doubled", times)

    def disk_full(self, target: object, is_full: bool = True) -> None:
        """Let every commit of an object fail, until it is called with False."""
        self._disk(_id_of(target)).is_full = is_full

    def slow_disk(self, target: object, seconds: float) -> None:
        """Let every commit and append of an object take so long; 0 heals the disk."""
        self._disk(_id_of(target)).seconds_a_write = seconds

    # Processes

    def _disk(self, object_id: ObjectId) -> Disk:
        return self._disks.setdefault(object_id, Disk())

    def _connection(self) -> tuple[Caller, KeeperClient]:
        caller = Caller(self._transport, self.clock, str(self.data_dir))
        keeping = KeeperClient(caller)
        caller.register = keeping.register_class
        return caller, keeping

    def _made(self, activation: Activation) -> Life:
        life = Life(activation)
        life.start(self._started_late(life), f"late start of {life.object_id}")
        return life

    async def _started_late(self, life: Life) -> None:
        """As in a real process: it starts also if the call for which it was made never comes."""
        await self.clock.sleep(FIRST_CALL_SECONDS_MAX)
        if life.host is None or life.host.loop is None:
            with contextlib.suppress(Exception):  # the watch, or the next call, tries again
                await self._host(life).started()

    def _host(self, life: Life) -> Host:
        """The instance in a process; made at its first frame."""
        if life.host is None:
            cls = load_class(life.activation.cls)
            caller, keeping = self._connection()
            is_keeper = life.object_id == KEEPER_ID
            if is_keeper:
                caller.register = None
            platform = Platform(
                clock=self.clock,
                caller=caller,
                keeping=None if is_keeper else keeping,
                open_store=lambda folder: self._opened(life, folder),
                on_end=lambda reason, was_idle: self._ended(life, reason, was_idle=was_idle),
            )
            life.host = Host(life.activation, cls, platform)
        return life.host

    def _opened(self, life: Life, folder: Path) -> FaultyStore:
        life.check()

        def effect(kind: EffectKind, detail: str) -> None:
            self._transport.effect(life, kind, detail)

        sleep = self.clock.jump if isinstance(self.clock, VirtualClock) else lambda seconds: None
        store = open_store(folder, inline=True)
        life.store = FaultyStore(store, self._disk(life.object_id), effect=effect, check=life.check, sleep=sleep)
        return life.store

    def _crash(self, life: Life) -> None:
        """End a process; raises ``Crashed`` if it is the running one."""
        self._gone(life)
        life.end("its process ended")
        if life.object_id == KEEPER_ID:
            self._restart_keeper(life.activation)
        if current_life.get() is life:
            raise Crashed(f"{life.object_id} died after effect {len(self.effects)}")

    def _restart_keeper(self, activation: Activation) -> None:
        """What Ray does for the keeper alone."""
        if KEEPER_ID in self._lives:
            return
        life = self._lives[KEEPER_ID] = Life(activation)
        life.start(self._started(life), "the keeper starts again")

    async def _started(self, life: Life) -> None:
        await self._host(life).started()

    def _ended(self, life: Life, reason: str, *, was_idle: bool) -> None:
        """An instance has ended by itself: it answers whom it can, then its process goes."""
        if life.is_dead:
            return
        self._gone(life)
        self._background(self._last_answers(life, reason, was_idle=was_idle))

    async def _last_answers(self, life: Life, reason: str, *, was_idle: bool) -> None:
        await life.answered(ENDING_SECONDS)
        life.end(reason, is_intended=was_idle)
        if life.object_id == KEEPER_ID and not was_idle:
            self._restart_keeper(life.activation)

    def _gone(self, life: Life) -> None:
        if self._lives.get(life.object_id) is life:
            del self._lives[life.object_id]
            self._graves.append(life)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        """Work of the simulation itself: in no process."""
        task = asyncio.Task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _ask(self, target: object, question: Ask) -> Any:
        try:
            return decode_answer(await self._transport.control(_id_of(target), encode(question)))
        except (Absent, Died):
            return None

    async def _frame(self, object_id: ObjectId, method: str) -> Any:
        known = self._lives.get(object_id)
        ref = known.activation.cls if known else (await self.keeper.find_class(object_id.class_name))
        frame = CallFrame(os.urandom(8).hex(), method, encode_value(((), {}), what="nothing"))
        return await self._caller.invoke(object_id, ref, frame, is_repeatable=True)


def _id_of(target: object) -> ObjectId:
    if isinstance(target, ObjectId):
        return target
    if isinstance(target, Stub):
        return target.object_id
    raise UsageError(f"this takes a stub or an ObjectId, not {type(target).__name__}")
