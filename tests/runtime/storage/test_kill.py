"""SIGKILL at any moment: nothing acknowledged is lost, nothing is stored by halves (runtime D6, D9, D10, D12)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from runtime.storage.duckdb import Database, open_store, prewarm
from tests.runtime.storage.process import start

KILLS = 20
SEED = 20_260_101
LINES_MAX = 60
SECONDS_MAX = 0.005

# One stretch writes three tables; the journal always has some appends of three rows each in flight; a checkpoint comes
# every few commits, so that some kills hit one. A line is printed only for what is durable.
LIFE = """
from collections import deque
store = open_store(folder)
for table in ("cf_left (id INTEGER PRIMARY KEY)", "cf_right (id INTEGER)", "cf_log (id INTEGER, part INTEGER)"):
    store.execute(f"CREATE TABLE IF NOT EXISTS {table}")
store.execute("CREATE TABLE IF NOT EXISTS cf_last (one INTEGER PRIMARY KEY, id INTEGER)")
store.execute("INSERT INTO cf_last SELECT 1, 0 WHERE NOT EXISTS (FROM cf_last)")
store.commit()
first = store.execute("SELECT 1 + max(id) FROM (SELECT id FROM cf_last UNION ALL SELECT id FROM cf_log)").rows[0][0]
print("first", first)
in_flight = deque()
for number in range(first, first + 100_000):
    in_flight.append((number, store.append("cf_log", [(number, part) for part in range(3)])))
    store.execute("INSERT INTO cf_left VALUES (?)", (number,))
    store.execute("UPDATE cf_last SET id = ? WHERE one = 1", (number,))
    store.execute("INSERT INTO cf_right VALUES (?)", (number,))
    store.commit()
    print("stretch", number)
    while in_flight and (in_flight[0][1].done() or len(in_flight) > 8):
        appended, done = in_flight.popleft()
        done.result()
        print("journal", appended)
    if number % 5 == 0:
        store.checkpoint()
"""


def live_and_die(folder: Path, rng: random.Random) -> list[tuple[str, int]]:
    """What a process acknowledged before it was killed."""
    process = start(LIFE, folder)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(rng.randint(1, LINES_MAX))]
    time.sleep(rng.uniform(0, SECONDS_MAX))  # a moment of its own choosing: between any two instructions
    process.kill()
    whole = "".join(lines) + process.stdout.read()
    process.communicate(timeout=30)
    # A line cut short by the kill was not seen by anybody.
    return [(line.split()[0], int(line.split()[1])) for line in whole.splitlines(keepends=True) if line.endswith("\n")]


def numbers(store: Database, query: str) -> list[int]:
    return [int(str(row[0])) for row in store.execute(query).rows]


@pytest.mark.slow
def test_kills_lose_nothing_acknowledged_and_leave_no_half(folder: Path) -> None:
    rng = random.Random(SEED)
    acknowledged: dict[str, set[int]] = {"stretch": set(), "journal": set()}
    for kill in range(KILLS):
        lines = live_and_die(folder, rng)
        if not lines:
            continue
        (_, first), *acks = lines
        for kind, number in acks:
            acknowledged[kind].add(number)
        prewarm()
        store = open_store(folder)
        left, right = set(numbers(store, "SELECT id FROM cf_left")), set(numbers(store, "SELECT id FROM cf_right"))
        (last,) = numbers(store, "SELECT id FROM cf_last")
        log = numbers(store, "SELECT DISTINCT id FROM cf_log ORDER BY id")
        halves = numbers(store, "SELECT id FROM cf_log GROUP BY id HAVING count(*) <> 3 OR count(DISTINCT part) <> 3")
        store.close(checkpoint=False)
        where = f"seed {SEED}, kill {kill}"
        assert left == right, where
        assert last == max(left, default=0), where
        assert acknowledged["stretch"] <= left, where
        assert acknowledged["journal"] <= set(log), where
        assert halves == [], where
        of_this_life = [number for number in log if number >= first]
        assert of_this_life == list(range(first, first + len(of_this_life))), where
    assert len(acknowledged["stretch"]) > KILLS, "the lives were too short to say anything"
    assert len(acknowledged["journal"]) > KILLS, "the lives were too short to say anything"
