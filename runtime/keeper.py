"""The keeper: directory, alarm index and watch of all objects, itself a durable object.

- Directory: where classes come from, which objects exist. So an alarm can wake an agent whose script is long gone.
- Alarm index: the next alarm of each object, newest version wins. It is told before the object commits its own slot,
  so a crash in between is one spurious wake, never a missing one (runtime D30). When a time comes, the keeper calls
  the object, which answers with its slot as it then is.
- Watch: for every object with work that must go on, one question is always under way. It breaks when the process
  dies, and the object is created again at once. One that dies again without having made progress comes back after 1,
  2, 4, ... 30 s, so that a doomed turn does not buy a model call a second.

    question breaks, progress was seen (or first death)    create at once
    question breaks again, no progress since               create after 1, 2, 4, ... 30 s
    it cannot be asked, its class cannot be loaded         the same
    answer "progressed"                                    ask on; the pause starts anew from nothing
    answer "ended"                                         the watch is over, unless it was asked for again meanwhile

The keeper alone is restarted by Ray; it then asks all its questions again, from its file.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, cast
from uuid import uuid4

import msgspec

from runtime.calls import idempotent, not_callable
from runtime.classes import class_ref
from runtime.control import Ended, Progressed, Watch, decode_answer
from runtime.errors import PerdureError, UnknownObject, UsageError
from runtime.ids import ObjectId, Step
from runtime.mailbox import ALARM_METHOD
from runtime.object import DurableObject
from runtime.storage.store import Store
from runtime.stub import Caller, timed
from runtime.transport import Absent, Died, Retiring, Unreachable
from runtime.wire import Activation, CallFrame, ClassRef, encode, encode_value

__all__ = ["KEEPER_CLASS", "KEEPER_ID", "KeeperClient", "Known", "PerdureKeeper", "read_directory"]

log = logging.getLogger("perdure")

KEEPER_CLASS = "PerdureKeeper"
KEEPER_ID = ObjectId.root(KEEPER_CLASS, "keeper")
BACKOFF_SECONDS_MAX = 30.0
# An object that cannot be reached at the time of its alarm is tried again after this, doubling up to a minute.
ALARM_RETRY_SECONDS = 2.0
ALARM_RETRY_SECONDS_MAX = 60.0
# The same, for one that says that it is too early: the clocks of two machines differ by some milliseconds.
SKEW_SECONDS = 0.05
# How soon an object is asked again that lives but did not answer.
UNREACHABLE_SECONDS = 0.05
FOREVER_SECONDS = 1e9

STEPS = (
    """CREATE TABLE keeper_classes (name VARCHAR PRIMARY KEY, ref BLOB NOT NULL);
    CREATE TABLE keeper_objects (hash VARCHAR PRIMARY KEY, path BLOB NOT NULL, created_at_ms BIGINT NOT NULL);
    CREATE TABLE keeper_alarms (hash VARCHAR PRIMARY KEY, path BLOB NOT NULL, body BLOB NOT NULL);
    CREATE TABLE keeper_watches (hash VARCHAR PRIMARY KEY, path BLOB NOT NULL)""",
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the directory."""

    path: tuple[tuple[str, str], ...]
    created_at_ms: int
    alarm_at_ms: int | None = None
    is_watched: bool = False

    @property
    def object_id(self) -> ObjectId:
        """The object's address."""
        return ObjectId(tuple(Step(c, n) for c, n in self.path))


class _Alarm(msgspec.Struct, frozen=True):
    at_ms: int | None
    version: int


class PerdureKeeper(DurableObject):
    """See the module. All methods are idempotent and durable on return."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": FOREVER_SECONDS, "open_timeout": 10.0}

    @not_callable
    async def boot(self) -> None:
        """Load the index and ask all questions again."""
        self.ctx.migrate("keeper", STEPS)
        self._watching: dict[str, asyncio.Task[Any]] = {}
        self._asked_again: set[str] = set()
        self._alarms: dict[str, tuple[ObjectId, _Alarm]] = {}
        self._firing: set[str] = set()
        self._not_before: dict[str, tuple[int, float]] = {}
        self._changed = asyncio.Event()
        for found, path, body in self.ctx.store.execute("SELECT hash, path, body FROM keeper_alarms").rows:
            alarm = msgspec.msgpack.decode(cast("bytes", body), type=_Alarm)
            self._alarms[str(found)] = (_id(path), alarm)
        for (path,) in self.ctx.store.execute("SELECT path FROM keeper_watches").rows:
            self._start_watch(_id(path))
        self.ctx.spawn(self._run_alarms(), "alarms")

    @property
    def _caller(self) -> Caller:
        return self.ctx.caller

    # Directory

    @idempotent
    async def register_class(self, ref: ClassRef) -> None:
        """See ``Keeping.register_class``."""
        rows = self.ctx.store.execute("SELECT ref FROM keeper_classes WHERE name = ?", (ref.name,)).rows
        if rows:
            known = msgspec.msgpack.decode(cast("bytes", rows[0][0]), type=ClassRef)
            if _home(known) != _home(ref):
                raise UsageError(
                    f"there are two classes named {ref.name!r} in one data directory: {_home(known)} and {_home(ref)}. "
                    "Objects are addressed by class name: rename one of them, or use another data_dir."
                )
            if known == ref:
                return
            self.ctx.store.execute("UPDATE keeper_classes SET ref = ? WHERE name = ?", (encode(ref), ref.name))
        else:
            self.ctx.store.execute("INSERT INTO keeper_classes VALUES (?, ?)", (ref.name, encode(ref)))
        await self.ctx.storage.sync()

    @idempotent
    async def register(self, activation: Activation) -> None:
        """See ``Keeping.register``."""
        object_id = activation.object_id
        if not self.ctx.store.execute("SELECT 1 FROM keeper_objects WHERE hash = ?", (object_id.hash,)).rows:
            row = (object_id.hash, encode(activation.path), self.ctx.clock.now_ms())
            self.ctx.store.execute("INSERT INTO keeper_objects VALUES (?, ?, ?)", row)
            await self.ctx.storage.sync()

    @idempotent
    async def list_objects(self) -> list[Known]:
        """All objects of the directory, oldest first."""
        return read_directory(self.ctx.store)

    @idempotent
    async def find_class(self, name: str) -> ClassRef:
        """Where a class comes from.

        Raises:
            UnknownObject: No object of such a class was ever called here; names the known classes.
        """
        return self._class(name)

    def _class(self, name: str) -> ClassRef:
        rows = self.ctx.store.execute("SELECT ref FROM keeper_classes WHERE name = ?", (name,)).rows
        if not rows:
            names = self.ctx.store.execute("SELECT name FROM keeper_classes ORDER BY name").rows
            known = ", ".join(str(row[0]) for row in names) or "none yet"
            raise UnknownObject(
                f"the directory knows no class {name!r}; it knows {known}. Give the file too: app.py:{name}/name"
            )
        return msgspec.msgpack.decode(cast("bytes", rows[0][0]), type=ClassRef)

    # Alarms

    @idempotent
    async def set_alarm(self, activation: Activation, at_ms: int | None, version: int) -> None:
        """See ``Keeping.set_alarm``."""
        self._set(activation.object_id, _Alarm(at_ms, version))
        await self.ctx.storage.sync()

    def _set(self, object_id: ObjectId, alarm: _Alarm) -> None:
        """Note what an object has announced, unless something newer is known."""
        known = self._alarms.get(object_id.hash)
        if known is None or known[1].version <= alarm.version:
            self._put(object_id, alarm)

    def _put(self, object_id: ObjectId, alarm: _Alarm) -> None:
        known = self._alarms.get(object_id.hash)
        self._not_before.pop(object_id.hash, None)  # it can be reached
        if known is not None and known[1] == alarm:
            return
        self._alarms[object_id.hash] = (object_id, alarm)
        body = encode(alarm)
        store = self.ctx.store
        if store.execute("UPDATE keeper_alarms SET body = ? WHERE hash = ?", (body, object_id.hash)).changed == 0:
            store.execute("INSERT INTO keeper_alarms VALUES (?, ?, ?)", (object_id.hash, _path(object_id), body))
        self._changed.set()

    async def _run_alarms(self) -> None:
        while True:
            self._changed.clear()
            now = self.ctx.clock.now_ms()
            next_ms: int | None = None
            for key, (object_id, alarm) in list(self._alarms.items()):
                if alarm.at_ms is None or key in self._firing:
                    continue
                at_ms = max(alarm.at_ms, self._not_before.get(key, (0, 0.0))[0])
                if at_ms <= now:
                    self._firing.add(key)
                    self.ctx.spawn(self._fire(key, object_id), f"alarm of {object_id}")
                else:
                    next_ms = at_ms if next_ms is None else min(next_ms, at_ms)
            timer = asyncio.ensure_future(self._until(next_ms))
            woken = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    async def _until(self, at_ms: int | None) -> None:
        seconds = FOREVER_SECONDS if at_ms is None else max(at_ms - self.ctx.clock.now_ms(), 1) / 1000
        await self.ctx.clock.sleep(seconds)

    async def _fire(self, key: str, object_id: ObjectId) -> None:
        asked = self._alarms[key][1]
        try:
            frame = CallFrame(uuid4().hex, ALARM_METHOD, encode_value(((), {}), what="nothing"))
            ref = self._class(object_id.class_name)
            # Not repeated by the stub: a handler that ends its process would run again within milliseconds.
            answer = _Alarm(*await self._caller.invoke(object_id, ref, frame, is_repeatable=False))
            if answer == asked:
                self._later(key, SKEW_SECONDS)
            elif self._alarms[key][1] is asked:
                # Nothing newer was told meanwhile, so this is the slot, also if its version is lower: then the
                # object died before the commit of what it had announced.
                self._put(object_id, answer)
            else:
                self._set(object_id, answer)
        except PerdureError as error:
            pause = self._later(key, ALARM_RETRY_SECONDS)
            log.warning("the alarm of %s could not be delivered, next try in %g s: %s", object_id, pause, error)
        finally:
            self._firing.discard(key)
            self._changed.set()

    def _later(self, key: str, first: float) -> float:
        """Put off the next try of an alarm, longer each time; the seconds until then."""
        pause = min(self._not_before.get(key, (0, first / 2))[1] * 2, ALARM_RETRY_SECONDS_MAX)
        self._not_before[key] = (self.ctx.clock.now_ms() + int(pause * 1000), pause)
        return pause

    # Watch

    @idempotent
    async def watch(self, activation: Activation) -> None:
        """See ``Keeping.watch``."""
        object_id = activation.object_id
        self._asked_again.add(object_id.hash)
        if not self.ctx.store.execute("SELECT 1 FROM keeper_watches WHERE hash = ?", (object_id.hash,)).rows:
            row = (object_id.hash, encode(activation.path))
            self.ctx.store.execute("INSERT INTO keeper_watches VALUES (?, ?)", row)
            await self.ctx.storage.sync()
        self._start_watch(object_id)

    def _start_watch(self, object_id: ObjectId) -> None:
        running = self._watching.get(object_id.hash)
        if running is None or running.done():
            self._watching[object_id.hash] = self.ctx.spawn(self._watch(object_id), f"watch of {object_id}")

    async def _watch(self, object_id: ObjectId) -> None:
        has_seen, deaths = False, 0
        while True:
            self._asked_again.discard(object_id.hash)
            try:
                answer = decode_answer(await self._caller.transport.control(object_id, encode(Watch(has_seen))))
            except (Retiring, Unreachable):
                await self.ctx.clock.sleep(UNREACHABLE_SECONDS)
                continue
            except (Absent, Died, PerdureError) as error:
                if isinstance(error, PerdureError):
                    log.warning("%s cannot be watched: %s", object_id, error)
                has_seen, deaths = False, deaths + 1
                if deaths > 1:
                    await self.ctx.clock.sleep(min(2.0 ** (deaths - 2), BACKOFF_SECONDS_MAX))
                await self._wake(object_id)
                continue
            if isinstance(answer, Progressed):
                has_seen, deaths = True, 0
            elif isinstance(answer, Ended):
                if object_id.hash not in self._asked_again:
                    break
                # Its successor asked, while this answer was on its way.
                has_seen, deaths = False, 0
                self._caller.transport.retired(object_id)
        self._watching.pop(object_id.hash, None)
        self.ctx.store.execute("DELETE FROM keeper_watches WHERE hash = ?", (object_id.hash,))

    async def _wake(self, object_id: ObjectId) -> None:
        """Create the object and let it start; whatever goes wrong shows as its next death."""
        try:
            ref = self._class(object_id.class_name)
            await self._caller.activate(object_id, ref)
            frame = CallFrame(uuid4().hex, "perdure_started", encode_value(((), {}), what="nothing"))
            self.ctx.spawn(self._start(object_id, ref, frame), f"wake of {object_id}")
        except PerdureError as error:
            log.warning("%s could not be created again: %s", object_id, error)

    async def _start(self, object_id: ObjectId, ref: ClassRef, frame: CallFrame) -> None:
        try:
            await self._caller.transport.call(object_id, encode(frame))
        except (Absent, Died, Retiring, Unreachable):
            return  # the watch sees it too, and acts
        except PerdureError as error:
            log.warning("%s did not start: %s", object_id, error)


def read_directory(store: Store) -> list[Known]:
    """All objects of the directory, oldest first, from the keeper's database.

    Raises:
        SqlError: The keeper never started: there are no such tables.
    """
    query = """SELECT o.path, o.created_at_ms, a.body, w.hash IS NOT NULL FROM keeper_objects o
        LEFT JOIN keeper_alarms a ON a.hash = o.hash LEFT JOIN keeper_watches w ON w.hash = o.hash
        ORDER BY o.created_at_ms, o.hash"""
    return [
        Known(
            path=tuple(_id(path).path),
            created_at_ms=cast("int", created),
            alarm_at_ms=msgspec.msgpack.decode(cast("bytes", alarm), type=_Alarm).at_ms if alarm else None,
            is_watched=bool(is_watched),
        )
        for path, created, alarm, is_watched in store.execute(query).rows
    ]


def _path(object_id: ObjectId) -> bytes:
    return encode(tuple((step.class_name, step.name) for step in object_id.path))


def _id(path: object) -> ObjectId:
    steps = msgspec.msgpack.decode(cast("bytes", path), type=tuple[tuple[str, str], ...])
    return ObjectId(tuple(Step(c, n) for c, n in steps))


def _home(ref: ClassRef) -> str:
    if ref.module == "__main__":
        return f"{ref.qualname} of the script {ref.origin}"
    return f"{ref.module}.{ref.qualname} in {ref.import_root}"


class KeeperClient:
    """``Keeping`` over a stub's means: repeated by itself until the keeper has answered."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._ref = class_ref(PerdureKeeper)

    async def register_class(self, ref: ClassRef) -> None:
        """See ``Keeping.register_class``."""
        await self.ask("register_class", ref)

    async def register(self, activation: Activation) -> None:
        """See ``Keeping.register``."""
        await self.ask("register", _slim(activation))

    async def watch(self, activation: Activation) -> None:
        """See ``Keeping.watch``."""
        await self.ask("watch", _slim(activation))

    async def set_alarm(self, activation: Activation, at_ms: int | None, version: int, *, timeout: float) -> None:
        """See ``Keeping.set_alarm``."""
        call = self.ask("set_alarm", _slim(activation), at_ms, version)
        await timed(call, self._caller.clock, timeout, "the keeper's set_alarm")

    async def ask(self, method: str, *arguments: object) -> Any:
        """Call one of the keeper's methods."""
        data = encode_value((arguments, {}), what=f"the arguments of the keeper's {method}")
        frame = CallFrame(uuid4().hex, method, data)
        return await self._caller.invoke(KEEPER_ID, self._ref, frame, is_repeatable=True)


def _slim(activation: Activation) -> Activation:
    """Without the pickled class, which the directory has already."""
    return msgspec.structs.replace(activation, cls=msgspec.structs.replace(activation.cls, pickled=b""))
