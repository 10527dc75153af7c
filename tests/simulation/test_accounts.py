"""Objects under random deaths, lost and doubled messages, bad disks, hibernation (runtime D3, D9, D10, D17, D24-D27).

Callers outside of the objects note what they were told, and every operation writes a row under its own name, so what
happened can be counted afterwards:

    a plain call     begun at most once; answered: one row; lost: one row or none
    a keyed call     repeated until it is answered, by two callers at a time: one row, and one answer for both; the
                     same for the call that it makes itself, whose key is derived
    idempotent       answered: a row at least
    a transaction    all of it or nothing, and no lost update, also where a conflict is an answer
    an alarm         set and acknowledged, it rings; when it has rung, never again
    an instance      writes its rows in one go: no other writes among them

What a keyed call writes before it waits is written again when it dies while it waits: only the last writes are one
commit with the key. So the calls here write last.

A seed fixes everything; a failure names it. ``OBJECT_SEEDS`` sets how many are run, ``OBJECT_SEEDS_FROM`` the first.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections import Counter
from collections.abc import Awaitable
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from runtime import Context, DurableObject, ObjectId, idempotent
from runtime.errors import PerdureError, Unavailable, UsageError
from runtime.keeper import KEEPER_ID
from runtime.object import AlarmInfo
from runtime.testing import LocalCluster, run

FIRST = int(os.environ.get("OBJECT_SEEDS_FROM", "0"))
SEEDS = int(os.environ.get("OBJECT_SEEDS", "8"))
NAMES = ("a", "b", "c")
CALLERS = 4
CALLS = 7
# A caller that gets no answer in this many tries never gets one.
TRIES_MAX = 60
STEPS = (
    """CREATE SEQUENCE rows;
    CREATE TABLE done (number BIGINT DEFAULT nextval('rows'), op VARCHAR NOT NULL, instance VARCHAR NOT NULL);
    CREATE TABLE armed (op VARCHAR NOT NULL);
    CREATE TABLE rung (op VARCHAR NOT NULL)""",
)


class World:
    """What outsiders know: one for all processes of a run, so no death takes it away."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.rings = 0
        self.plain: dict[str, bool] = {}
        self.moved: dict[str, bool] = {}
        self.keyed: dict[str, set[int]] = {}
        self.touched: list[str] = []
        self.armed: list[str] = []


world = World()


class Account(DurableObject):
    """Writes down what it does."""

    options: ClassVar[dict[str, object]] = {"hibernate_after": 0.3}

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        ctx.migrate("account", STEPS)
        self.instance = uuid4().hex

    async def add(self, op: str, pause: float = 0.0) -> int:
        world.begun[op] += 1
        await self.ctx.clock.sleep(pause)
        return self._write(op)

    @idempotent
    async def touch(self, op: str) -> int:
        return self._write(op)

    async def pass_on(self, op: str, target: str) -> int:
        """Call another object, then write down that this is done."""
        world.begun[op] += 1
        await self.ctx.get(Account, target).add(f"{op} there", 0.02)
        return self._write(op)

    async def hold(self, op: str) -> int:
        """Stay awake and watched for a while."""
        world.begun[op] += 1
        lease = await self.ctx.keep_alive()
        try:
            await self.ctx.clock.sleep(0.4)
            return self._write(op)
        finally:
            lease.release()

    async def move(self, op: str) -> None:
        """In a transaction that waits in the middle."""

        async def moved(transaction: Any) -> None:
            balance = await transaction.get("balance") or 0
            await self.ctx.clock.sleep(0.01)
            await transaction.put("balance", balance + 1)
            await transaction.put(f"moved {op}", True)

        await self.ctx.storage.transaction(moved)

    async def arm(self, op: str, seconds: float) -> int:
        at = self.ctx.clock.now_ms() / 1000 + seconds
        earlier = await self.ctx.storage.get_alarm()
        self.ctx.storage.sql.exec("INSERT INTO armed VALUES (?)", op)
        await self.ctx.storage.set_alarm(at if earlier is None else min(at, earlier))
        return 0

    async def alarm(self, info: AlarmInfo) -> None:
        world.rings += 1
        ops = [str(row["op"]) for row in self.ctx.storage.sql.exec("SELECT DISTINCT op FROM armed").to_list()]
        await self.ctx.clock.sleep(0.05)
        if ops and hash_of(ops[0]) % 3 > info.retry_count:
            raise ValueError("not yet")
        for op in ops:
            self.ctx.storage.sql.exec("INSERT INTO rung VALUES (?)", op)
            self.ctx.storage.sql.exec("DELETE FROM armed WHERE op = ?", op)

    @idempotent
    async def rows(self) -> list[tuple[str, str]]:
        query = "SELECT op, instance FROM done ORDER BY number"
        return [(str(row["op"]), str(row["instance"])) for row in self.ctx.storage.sql.exec(query).to_list()]

    @idempotent
    async def alarms(self) -> tuple[list[str], list[str]]:
        armed, rung = (
            [str(row["op"]) for row in self.ctx.storage.sql.exec(f"SELECT op FROM {table}").to_list()]
            for table in ("armed", "rung")
        )
        return armed, rung

    @idempotent
    async def moves(self) -> tuple[int, list[str]]:
        found = await self.ctx.storage.list(prefix="moved ")
        balance: Any = await self.ctx.storage.get("balance") or 0
        return balance, [key.removeprefix("moved ") for key in found]

    def _write(self, op: str) -> int:
        self.ctx.storage.sql.exec("INSERT INTO done (op, instance) VALUES (?, ?)", op, self.instance)
        return int(str(self.ctx.storage.sql.exec("SELECT count(*) AS n FROM done").one()["n"]))


def hash_of(op: str) -> int:
    """The same in every process, unlike ``hash``."""
    return sum(op.encode())


async def disturb(cluster: LocalCluster, chance: random.Random) -> None:
    """Kill, lose, double, evict and fill disks, for as long as the callers call."""
    while True:
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        name = chance.choice((*NAMES, "keeper"))
        target = KEEPER_ID if name == "keeper" else ObjectId.root("Account", name)
        match chance.randrange(8):
            case 0:
                cluster.lose(target, part=chance.choice(["call", "reply"]))
            case 1:
                cluster.double(target)
            case 2 if name != "keeper":
                cluster.disk_full(target)
                await asyncio.sleep(chance.uniform(0.01, 0.1))
                cluster.disk_full(target, False)
            case 3:
                cluster.slow_disk(target, chance.choice([0.0, 0.0, 0.01]))
            case 4:
                cluster.kill(target)
            case 5 if name != "keeper":
                await cluster.evict(target)
            case _:
                cluster.crash_at(chance.randint(1, 10))


async def answered(call: Awaitable[Any]) -> bool:
    """Whether a call was answered; a caller's mistake is the test's."""
    try:
        await call
    except UsageError:
        raise
    except PerdureError:
        return False
    return True


async def repeated(stub: Any, method: str, op: str, *arguments: object) -> int:
    """As a careful caller does it: under one key, until there is an answer."""
    for _ in range(TRIES_MAX):
        try:
            return await getattr(stub.with_options(idempotency_key=op), method)(op, *arguments)
        except Unavailable:
            await asyncio.sleep(0.2)
    raise AssertionError(f"{stub}.{method} {op} got no answer in {TRIES_MAX} tries")


async def operate(cluster: LocalCluster, chance: random.Random, op: str) -> None:
    name, other = chance.sample(NAMES, 2)
    account: Any = cluster.get(Account, name)
    match chance.randrange(8):
        case 0 | 1:
            world.plain[op] = await answered(account.add(op, chance.choice([0.0, 0.05, 0.4])))
        case 2:
            there = f"{op} there"
            world.plain[op] = world.plain[there] = await answered(account.pass_on(op, other))
        case 3:
            world.plain[op] = await answered(account.hold(op))
        case 4:
            world.moved[op] = await answered(account.move(op))
        case 5:
            if await answered(account.touch(op)):
                world.touched.append(op)
        case 6:
            call = ("pass_on", op, other) if chance.random() < 0.6 else ("add", op, 0.05)
            later = asyncio.sleep(chance.uniform(0, 0.1))
            first, second = (
                asyncio.ensure_future(repeated(account, *call)),
                asyncio.ensure_future(after(later, account, call)),
            )
            world.keyed[op] = {await first, await second}
            if call[0] == "pass_on":
                world.keyed[f"{op} there"] = {0}
        case _:
            await repeated(account, "arm", op, chance.uniform(-1, 5))
            world.armed.append(op)


async def after(pause: Awaitable[None], stub: Any, call: tuple[Any, ...]) -> int:
    """The second caller under one key."""
    await pause
    return await repeated(stub, *call)


async def simulate(data_dir: Path, seed: int) -> dict[str, Any]:
    """The whole run; what is stored in the end."""
    async with LocalCluster(data_dir, seed=seed, delay=0.003) as cluster:

        async def caller(number: int) -> None:
            chance = random.Random(f"{seed} {number}")
            for count in range(CALLS):
                await operate(cluster, chance, f"{number}.{count}")
                await asyncio.sleep(chance.uniform(0, 0.1))

        storm = asyncio.ensure_future(disturb(cluster, random.Random(seed)))
        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
        storm.cancel()
        accounts = [cluster.get(Account, name) for name in NAMES]
        for target in (KEEPER_ID, *accounts):
            cluster.slow_disk(target, 0.0)
            cluster.disk_full(target, False)
        await cluster.advance(600)
        rings = world.rings
        await cluster.advance(86_400)
        awake = [name for name, account in zip(NAMES, accounts, strict=True) if cluster.is_alive(account)]
        return {
            "late rings": world.rings - rings,
            "awake": awake,
            "known": [known for known in await cluster.keeper.list_objects() if known.alarm_at_ms or known.is_watched],
            "rows": [await account.rows() for account in accounts],
            "alarms": [await account.alarms() for account in accounts],
            "moves": [await account.moves() for account in accounts],
        }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_was_answered_happened_once_and_all_is_quiet_in_the_end_whatever_dies(tmp_path: Path, seed: int) -> None:
    global world
    world = World()
    found = run(lambda: simulate(tmp_path, seed), seed=seed)
    done = Counter(op for rows in found["rows"] for op, _ in rows)
    # Plain calls: never twice, and there if it was answered.
    assert {op: world.begun[op] for op in world.plain if world.begun[op] > 1} == {}
    assert {op: done[op] for op, is_known in world.plain.items() if done[op] > 1 or (is_known and not done[op])} == {}
    # Keyed calls: once, with one answer for all who asked.
    assert {op: done[op] for op in world.keyed if done[op] != 1} == {}
    assert {op: told for op, told in world.keyed.items() if len(told) != 1} == {}
    assert [op for op in world.touched if not done[op]] == []
    # Transactions.
    moved = Counter(op for _, moves in found["moves"] for op in moves)
    assert [op for op, is_known in world.moved.items() if is_known and not moved[op]] == []
    assert [balance for balance, _ in found["moves"]] == [len(moves) for _, moves in found["moves"]]
    # Alarms.
    rung = {op for _, rings in found["alarms"] for op in rings}
    assert [op for op in world.armed if op not in rung] == []
    assert [armed for armed, _ in found["alarms"]] == [[], [], []]
    assert found["late rings"] == 0
    # One writer at a time: an instance that was succeeded writes no more.
    for rows in found["rows"]:
        writers = [instance for instance, _ in groupby(instance for _, instance in rows)]
        assert len(writers) == len(set(writers))
    assert (found["awake"], found["known"]) == ([], [])


async def crashed_after(data_dir: Path, count: int) -> tuple[bool, dict[str, list[str]]]:
    """One keyed call between objects and one alarm, with a death after an effect; whether there was so late a one."""
    async with LocalCluster(data_dir) as cluster:
        cluster.crash_at(count)
        account: Any = cluster.get(Account, "a")
        await repeated(account, "pass_on", "sent", "b")
        await repeated(account, "arm", "ring", 0.1)
        await cluster.advance(600)
        accounts = (cluster.get(Account, "a"), cluster.get(Account, "b"))
        found = {"awake": [str(one) for one in accounts if cluster.is_alive(one)]}
        is_over = len(cluster.effects) < count  # nobody died
        found["done"] = [op for one in accounts for op, _ in await one.rows()]
        found["armed"], found["rung"] = await account.alarms()
        return is_over, found


@pytest.mark.slow
def test_a_keyed_call_between_objects_and_an_alarm_happen_once_whichever_effect_is_the_last(tmp_path: Path) -> None:
    wanted = {"awake": [], "done": ["sent", "sent there"], "armed": [], "rung": ["ring"]}
    for count in range(1, 200):
        is_over, found = run(functools.partial(crashed_after, tmp_path / f"{count}", count))
        assert (count, found) == (count, wanted)
        if is_over:
            return
    raise AssertionError("there is no end of effects")
