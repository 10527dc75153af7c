"""What the benchmarks share: their command line, percentiles, and the JSON line that ends each of them."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runtime.cluster.local import end

__all__ = ["fresh_data", "options", "p50", "p95", "report", "say"]


def options(description: str) -> argparse.ArgumentParser:
    """The parser that every benchmark begins with."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples: shows that it works, not how fast")
    parser.add_argument("--seed", type=int, default=1, help="seed of whatever is random (default 1)")
    return parser


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    """The 95th percentile, by rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def fresh_data(name: str) -> Iterator[Path]:
    """A data directory of its own, whose local Ray is ended afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"perdure-{name}-"))
    try:
        yield folder
    finally:
        end(folder)
        shutil.rmtree(folder, ignore_errors=True)


def report(figures: dict[str, object], *, seed: int) -> None:
    """Print the result as the last line: one JSON object with machine, versions and seed."""
    versions = {name: importlib.metadata.version(name) for name in ("ray", "duckdb", "msgspec")}
    machine = {"cpus": os.cpu_count(), "arch": platform.machine(), "python": platform.python_version()}
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({**rounded, "seed": seed, "machine": machine, "versions": versions}), flush=True)
