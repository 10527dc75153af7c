"""What does a durable write cost, and how fast does the journal take chunks?

Measures the store alone, without Ray and without a host:

- ``stash_p50_us``: a synchronous stash, which is an UPDATE of one existing row and its commit through our Store.
- ``duckdb_commit_p50_us``: the yardstick, the same UPDATE committed on a bare DuckDB connection with the same settings
  on a file of its own. Both are done in pairs, in alternating order, with the same pause before each, since a process
  that idles between commits is up to three times slower than one in a tight loop.
- ``stash_ratio``: the median of stash over the median of the yardstick.
- ``chunks_per_s``: frames of 64 packed chunks through ``Store.append`` with 16 in flight, in chunks a second.

Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import duckdb
import msgspec

from runtime.storage.duckdb import SETTINGS, open_store
from runtime.storage.store import Store

CHUNKS_A_FRAME = 64
FRAMES_IN_FLIGHT = 16
VALUE_BYTES = 200

TABLE = "CREATE TABLE cf_stash (id VARCHAR PRIMARY KEY, value BLOB)"
FILL = "INSERT INTO cf_stash VALUES (?, ?)"
UPDATE = "UPDATE cf_stash SET value = ? WHERE id = ?"
JOURNAL = "CREATE TABLE cf_journal (seq BIGINT, frame BLOB)"


def bare_connection(folder: Path) -> duckdb.DuckDBPyConnection:
    """What one would write by hand: a connection to the file, with the settings that our store has."""
    connection = duckdb.connect(folder / "bare.duckdb")
    connection.execute("SET memory_limit = '64MB'")
    for setting in SETTINGS:
        connection.execute(setting)
    connection.execute(TABLE)
    connection.execute(FILL, ["fiber", bytes(VALUE_BYTES)])
    connection.execute("CHECKPOINT")
    return connection


def our_store(folder: Path) -> Store:
    """A store with the same row, and a table for the journal."""
    store = open_store(folder)
    store.execute(TABLE)
    store.execute(JOURNAL)
    store.execute(FILL, ("fiber", bytes(VALUE_BYTES)))
    store.commit()
    return store


def measure_stash(folder: Path, *, pairs: int, pause: float, rng: random.Random) -> tuple[list[float], list[float]]:
    """Microseconds of each stash and of each bare commit."""
    bare, store = bare_connection(folder), our_store(folder / "ours")

    def commit_bare(value: bytes) -> None:
        bare.execute(UPDATE, [value, "fiber"]).fetchall()

    def stash(value: bytes) -> None:
        store.execute(UPDATE, (value, "fiber"))
        store.commit()

    taken: dict[str, list[float]] = {"stash": [], "bare": []}
    warm_up = max(20, pairs // 10)
    for number in range(warm_up + pairs):
        order = [("stash", stash), ("bare", commit_bare)]
        rng.shuffle(order)
        value = rng.randbytes(VALUE_BYTES)
        for name, write in order:
            time.sleep(pause)
            begin = time.perf_counter()
            write(value)
            if number >= warm_up:
                taken[name].append((time.perf_counter() - begin) * 1e6)
    store.close(checkpoint=False)
    bare.close()
    return taken["stash"], taken["bare"]


def measure_chunks(folder: Path, *, frames: int) -> float:
    """Chunks a second through the journal."""
    store = our_store(folder / "journal")
    chunk = {"type": "text-delta", "id": "0", "delta": "word "}
    frame = msgspec.msgpack.encode([chunk] * CHUNKS_A_FRAME)
    in_flight: deque[Future[None]] = deque()

    def run(count: int) -> None:
        for seq in range(count):
            if len(in_flight) == FRAMES_IN_FLIGHT:
                in_flight.popleft().result()
            in_flight.append(store.append("cf_journal", [(seq, frame)]))
        while in_flight:
            in_flight.popleft().result()

    run(frames // 10)
    begin = time.perf_counter()
    run(frames)
    seconds = time.perf_counter() - begin
    store.close(checkpoint=False)
    return frames * CHUNKS_A_FRAME / seconds


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: says that it runs, not how fast")
    parser.add_argument("--pairs", type=int, default=1_000, help="pairs of stash and bare commit (default: 1000)")
    parser.add_argument("--pause-ms", type=float, default=3.0, help="pause before each write (default: 3)")
    parser.add_argument("--frames", type=int, default=8_000, help="frames for the journal (default: 8000)")
    parser.add_argument("--seed", type=int, default=1, help="for the order and the values (default: 1)")
    arguments = parser.parse_args()
    pairs, frames = arguments.pairs, arguments.frames
    if arguments.quick:
        pairs, frames = max(1, pairs // 10), max(10, frames // 10)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        folder = Path(name)
        print(f"stash against bare commit, {pairs} pairs ...", file=sys.stderr)
        stash, bare = measure_stash(
            folder, pairs=pairs, pause=arguments.pause_ms / 1000, rng=random.Random(arguments.seed)
        )
        print(f"journal, {frames} frames of {CHUNKS_A_FRAME} chunks ...", file=sys.stderr)
        chunks = measure_chunks(folder, frames=frames)
    result = {
        "stash_p50_us": round(statistics.median(stash), 1),
        "duckdb_commit_p50_us": round(statistics.median(bare), 1),
        "stash_ratio": round(statistics.median(stash) / statistics.median(bare), 3),
        "chunks_per_s": round(chunks),
        "pairs": pairs,
        "frames": frames,
        "pause_ms": arguments.pause_ms,
        "seed": arguments.seed,
        "machine": {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), "duckdb": duckdb.__version__},
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
