"""Objects under random deaths, lost and doubled messages and bad disks (runtime D3, D9, D10, D24, D27, D30).

Every operation has a name and writes one row under it, so that what happened can be counted afterwards:

    a plain call       acknowledged: one row; connection lost: one row or none; never two
    a keyed call       repeated until it is acknowledged: one row, at the object and at the one that it calls
    an alarm           acknowledged: it rings at least once, and rings no more when it has rung

A seed fixes everything; a failure names it. ``OBJECT_SEEDS`` sets how many are run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runtime import Context, DurableObject, idempotent
from runtime.errors import PerdureError
from runtime.object import AlarmInfo
from runtime.testing import LocalCluster, run

SEEDS = int(os.environ.get("OBJECT_SEEDS", "5"))
NAMES = ("a", "b", "c")
CALLERS = 4
CALLS = 12
STEPS = (
    """CREATE TABLE done (op VARCHAR NOT NULL, number INTEGER NOT NULL);
    CREATE TABLE armed (op VARCHAR NOT NULL);
    CREATE TABLE rung (op VARCHAR NOT NULL)""",
)


class Account(DurableObject):
    """Writes down what it does."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        ctx.migrate("account", STEPS)

    async def add(self, op: str, pause: float = 0.0) -> int:
        """Its last stretch writes: with the answer, if the call has a key, in one commit."""
        if pause:
            await self.ctx.clock.sleep(pause)
        self._write(op)
        return self._count()

    async def move(self, op: str) -> int:
        """In a transaction that waits in the middle."""

        async def moved(transaction: Any) -> None:
            balance = int(await transaction.get("balance") or 0)
            await self.ctx.clock.sleep(0.01)
            await transaction.put("balance", balance + 1)
            await transaction.put(f"op {op}", True)

        await self.ctx.storage.transaction(moved)
        return int(await self.ctx.storage.get("balance") or 0)

    async def pass_on(self, op: str, target: str) -> int:
        """Call another object, then write down that this is done."""
        await self.ctx.get(Account, target).add(f"{op} there", 0.02)
        self._write(op)
        return self._count()

    async def arm(self, op: str, seconds: float) -> None:
        self.ctx.storage.sql.exec("INSERT INTO armed VALUES (?)", op)
        now = self.ctx.clock.now_ms() / 1000
        earlier = await self.ctx.storage.get_alarm()
        await self.ctx.storage.set_alarm(min(now + seconds, earlier or now + seconds))

    async def alarm(self, info: AlarmInfo) -> None:
        ops = [str(row["op"]) for row in self.ctx.storage.sql.exec("SELECT op FROM armed").to_list()]
        await self.ctx.clock.sleep(0.05)
        for op in ops:
            self.ctx.storage.sql.exec("INSERT INTO rung VALUES (?)", op)
            self.ctx.storage.sql.exec("DELETE FROM armed WHERE op = ?", op)

    @idempotent
    async def report(self) -> dict[str, list[str]]:
        query = self.ctx.storage.sql.exec
        found = {
            table: [str(row["op"]) for row in query(f"SELECT op FROM {table} ORDER BY op").to_list()]
            for table in ("done", "armed", "rung")
        }
        moved = await self.ctx.storage.list(prefix="op ")
        found["moved"] = [key.removeprefix("op ") for key in moved]
        found["balance"] = [str(await self.ctx.storage.get("balance") or 0)]
        return found

    def _write(self, op: str) -> None:
        self.ctx.storage.sql.exec("INSERT INTO done VALUES (?, ?)", op, self._count() + 1)

    def _count(self) -> int:
        return int(str(self.ctx.storage.sql.exec("SELECT count(*) AS n FROM done").one()["n"]))


class World:
    """What the callers know."""

    def __init__(self) -> None:
        self.plain: dict[str, bool] = {}
        self.moved: dict[str, bool] = {}
        self.keyed: list[str] = []
        self.armed: list[str] = []


async def disturb(cluster: LocalCluster, chance: random.Random) -> None:
    """Kill, lose, double and fill disks, for as long as the callers call."""
    while True:
        await asyncio.sleep(chance.uniform(0.01, 0.2))
        target: Any = cluster.keeper if chance.random() < 0.2 else cluster.get(Account, chance.choice(NAMES))
        match chance.randrange(8):
            case 0:
                cluster.lose(target, part=chance.choice(["call", "reply"]))
            case 1:
                cluster.double(target)
            case 2:
                cluster.disk_full(target)
                await asyncio.sleep(chance.uniform(0.01, 0.1))
                cluster.disk_full(target, False)
            case 3:
                cluster.slow_disk(target, chance.choice([0.0, 0.0, 0.01]))
            case 4:
                cluster.kill(target)
            case 5:
                await cluster.evict(target)
            case _:
                cluster.crash_at(chance.randint(1, 10))


async def repeat(stub: Any, method: str, *arguments: object) -> Any:
    """As a careful caller does it: under one key, until there is an answer."""
    while True:
        try:
            return await getattr(stub.with_options(idempotency_key=f"{arguments[0]}"), method)(*arguments)
        except PerdureError:
            await asyncio.sleep(0.5)


async def call(cluster: LocalCluster, world: World, chance: random.Random, op: str) -> None:
    name = chance.choice(NAMES)
    account: Any = cluster.get(Account, name)
    match chance.randrange(6):
        case 0 | 1:
            try:
                await account.add(op, chance.choice([0.0, 0.05]))
                world.plain[op] = True
            except PerdureError:
                world.plain[op] = False
        case 2:
            try:
                await account.move(op)
                world.moved[op] = True
            except PerdureError:
                world.moved[op] = False
        case 3:
            await repeat(account, "add", op, 0.05)
            world.keyed.append(op)
        case 4:
            other = chance.choice([one for one in NAMES if one != name])
            await repeat(account, "pass_on", op, other)
            world.keyed += [op, f"{op} there"]
        case _:
            await repeat(account, "arm", op, chance.uniform(0, 5))
            world.armed.append(op)


async def callers(cluster: LocalCluster, world: World, seed: int) -> None:
    async def caller(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        for count in range(CALLS):
            await call(cluster, world, chance, f"{number}.{count}")
            await asyncio.sleep(chance.uniform(0, 0.1))

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_happened_once_and_alarms_ring_whatever_dies(tmp_path: Path, seed: int) -> None:
    world = World()

    async def main() -> tuple[list[dict[str, list[str]]], list[str]]:
        async with LocalCluster(tmp_path, seed=seed, delay=0.003) as cluster:
            storm = asyncio.ensure_future(disturb(cluster, random.Random(seed)))
            await callers(cluster, world, seed)
            storm.cancel()
            for target in (cluster.keeper, *(cluster.get(Account, name) for name in NAMES)):
                cluster.slow_disk(target, 0.0)
                cluster.disk_full(target, False)
            await cluster.advance(600)
            awake = [name for name in NAMES if cluster.is_alive(cluster.get(Account, name))]
            return [await cluster.get(Account, name).report() for name in NAMES], awake

    reports, awake = run(main)
    done = Counter(op for report in reports for op in report["done"])
    moved = Counter(op for report in reports for op in report["moved"])
    rung = {op for report in reports for op in report["rung"]}
    assert {op: done[op] for op in world.keyed if done[op] != 1} == {}
    assert {
        op: done[op] for op, is_known in world.plain.items() if done[op] not in ((1,) if is_known else (0, 1))
    } == {}
    assert [op for op, is_known in world.moved.items() if is_known and not moved[op]] == []
    assert [int(report["balance"][0]) for report in reports] == [len(report["moved"]) for report in reports]
    assert [op for op in world.armed if op not in rung] == []
    assert [report["armed"] for report in reports] == [[], [], []]
    assert awake == []
