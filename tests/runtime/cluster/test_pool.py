"""Warm workers: how many are asked for, and that actors are made of them."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cluster import late_serializers, local
from runtime.cluster.pool import WarmPool, workers_to_ask_for
from runtime.cluster.ray_files import RayFiles
from runtime.cluster.ray_processes import processes_of_session
from runtime.cluster.ray_rpc import RpcFailed
from tests.runtime.cluster.scripts import run_script

# --- without Ray --------------------------------------------------------------------------------------------------


class FakeRaylet:
    """Workers that start on request and are ready at the next look."""

    def __init__(self) -> None:
        self.idle = 0
        self.starting = 0
        self.asked: list[int] = []
        self.refuses = False

    def count(self) -> tuple[int, int]:
        return self.idle, self.starting

    def prestart(self, count: int) -> None:
        if self.refuses:
            raise RpcFailed("UNIMPLEMENTED", "no such method")
        self.asked.append(count)
        self.starting += count


class CountingClock:
    """Ends the pool's loop after so many sleeps, and lets the test act at each."""

    def __init__(self, raylet: FakeRaylet, sleeps_max: int) -> None:
        self.raylet, self.sleeps, self.left = raylet, list[float](), sleeps_max

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if len(self.sleeps) == self.left:
            raise asyncio.CancelledError
        self.raylet.idle, self.raylet.starting = self.raylet.idle + self.raylet.starting, 0


@pytest.mark.parametrize(
    ("wanted", "idle", "starting", "asked"),
    [
        (4, 0, 0, 4),
        (4, 4, 0, 0),
        (4, 3, 0, 1),
        (4, 3, 1, 0),  # it is on its way
        (4, 9, 0, 0),  # others made more; nobody is sent away
        (9, 0, 0, 4),  # what goes beyond the startup concurrency is dropped silently
        (9, 2, 3, 1),
        (9, 0, 4, 0),
        (0, 0, 0, 0),
    ],
)
def test_the_pool_asks_for_what_is_missing_and_may_start_at_once(
    wanted: int, idle: int, starting: int, asked: int
) -> None:
    assert workers_to_ask_for(wanted, idle, starting) == asked


async def test_a_used_worker_is_replaced_at_the_next_look() -> None:
    raylet = FakeRaylet()
    raylet.idle = 2
    pool = WarmPool(2, raylet)
    assert await pool.top_up() == 2
    raylet.idle = 1
    assert await pool.top_up() == 1
    assert raylet.asked == [1]


async def test_a_large_pool_is_filled_in_several_requests() -> None:
    raylet = FakeRaylet()
    with pytest.raises(asyncio.CancelledError):
        await WarmPool(10, raylet).run(CountingClock(raylet, 5))
    assert raylet.asked == [4, 4, 2]


async def test_the_pool_looks_at_least_three_times_a_second() -> None:
    raylet = FakeRaylet()
    clock = CountingClock(raylet, 4)
    with pytest.raises(asyncio.CancelledError):
        await WarmPool(1, raylet).run(clock)
    assert clock.sleeps == [0.25, 0.25, 0.25, 0.25]


async def test_a_raylet_that_refuses_is_mentioned_once_and_asked_rarely(caplog: pytest.LogCaptureFixture) -> None:
    raylet = FakeRaylet()
    raylet.refuses = True
    clock = CountingClock(raylet, 3)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await WarmPool(1, raylet).run(clock)
    assert [record.getMessage() for record in caplog.records] == [
        "No warm workers, so the first call to an object takes longer: UNIMPLEMENTED no such method"
    ]
    assert clock.sleeps == [10.0, 10.0, 10.0]


async def test_a_raylet_that_refused_for_a_while_is_used_again() -> None:
    raylet = FakeRaylet()
    pool = WarmPool(1, raylet)
    raylet.refuses = True
    await pool.top_up()
    raylet.refuses = False
    await pool.top_up()
    assert raylet.asked == [1]


@pytest.fixture
def module_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.slow
def test_modules_that_raise_do_not_break_the_preload(tmp_path: Path) -> None:
    bodies = {"leaves": "raise SystemExit(1)", "stops": "raise KeyboardInterrupt", "breaks": "1 / 0", "sound": ""}
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(body)
    code = f"""
    sys.path.insert(0, {str(tmp_path)!r})
    from runtime.cluster.preload import FAILED
    answer([FAILED, "sound" in sys.modules])
    """.replace("\n    ", "\n")
    assert run_script(code, tmp_path, PERDURE_PRELOAD="leaves, stops, breaks, absent, sound") == [
        {
            "leaves": "SystemExit: 1",
            "stops": "KeyboardInterrupt: ",
            "breaks": "ZeroDivisionError: division by zero",
            "absent": "No module named 'absent'",
        },
        True,
    ]


def test_a_function_waits_for_the_import_of_its_module(module_named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (module_named / "package").mkdir()
    (module_named / "package" / "__init__.py").write_text("")
    (module_named / "package" / "part.py").write_text("value = 1")
    seen: list[int] = []
    finder = late_serializers.WhenImported()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    finder.call("package.part", lambda: seen.append(sys.modules["package"].part.value))
    __import__("package")
    assert seen == []
    __import__("package.part")
    assert seen == [1]


def test_a_function_for_a_module_that_is_there_is_called_at_once() -> None:
    seen: list[int] = []
    late_serializers.WhenImported().call("sys", lambda: seen.append(1))
    assert seen == [1]


def test_a_function_that_raises_does_not_break_the_import(
    module_named: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (module_named / "watched.py").write_text("value = 1")
    finder = late_serializers.WhenImported()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    finder.call("watched", lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    assert __import__("watched").value == 1
    assert "did not learn about watched" in capsys.readouterr().err


# --- one Ray, shared ----------------------------------------------------------------------------------------------

# Fills the pool, then answers with what the rest of the script makes of it.
FILL = """
import asyncio
from runtime.cluster.pool import ThisRaylet, WarmPool, _children, _raylet_pid

def pids():
    return {p for p in _children(_raylet_pid()) if Path(f"/proc/{p}/cmdline").read_bytes().startswith(b"ray::IDLE")}

def fill(count):
    deadline = time.monotonic() + 60
    pool = WarmPool(count)
    while asyncio.run(pool.top_up()) < count:
        assert time.monotonic() < deadline, f"{len(pids())} of {count} workers after 60 s"
        time.sleep(0.02)
    return pids()

connect_ray(DATA)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data_dir = tmp_path_factory.mktemp("data")
    try:
        local.ensure_local_ray(data_dir)
        yield data_dir
    finally:
        last = local.status(data_dir).ray
        local.end(data_dir)
        assert last is not None
        assert processes_of_session(last.session_dir) == []
        shutil.rmtree(RayFiles(data_dir).temp_dir())


@pytest.mark.slow
def test_an_actor_is_made_of_a_warm_worker(shared: Path) -> None:
    warm, used = run_script(FILL + 'warm = fill(2)\nanswer([list(warm), get(actor("warm").pid.remote())])', shared)
    assert used in warm


@pytest.mark.slow
def test_warm_workers_outlive_the_script_that_asked_for_them(shared: Path) -> None:
    first = run_script(FILL + "answer(list(fill(3)))", shared)
    # A worker of an ended job is gone within a second; that these stay has no event to wait for.
    second = run_script(FILL + "time.sleep(1.5)\nanswer(list(pids()))", shared)
    assert set(first) <= set(second)


@pytest.mark.slow
def test_workers_of_a_job_do_not_count_as_warm(shared: Path) -> None:
    code = """
    import ray
    fill(2)
    @ray.remote(num_cpus=0)
    def task():
        time.sleep(0.5)
        return os.getpid()
    fill(2)
    get([task.remote() for _ in range(8)])  # more than there are warm ones: Ray starts some for this job
    idle = pids()
    jobless = [p for p in idle if b"RAY_JOB_ID=ffffffff" in Path(f"/proc/{p}/environ").read_bytes()]
    answer([ThisRaylet().count()[0], len(jobless), len(idle) > len(jobless)])
    """.replace("\n    ", "\n")
    counted, jobless, has_workers_of_a_job = run_script(FILL + code, shared)
    assert has_workers_of_a_job
    assert counted == jobless


@pytest.mark.slow
def test_an_actor_can_keep_the_pool(shared: Path) -> None:
    inside = """
    import asyncio, time
    from runtime.cluster.pool import WarmPool
    pool, deadline = WarmPool(2), time.monotonic() + 60
    while (answer := asyncio.run(pool.top_up())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    """.replace("\n    ", "\n")
    code = f'connect_ray(DATA)\nanswer(get(actor("keeper").see.remote({inside!r})))'
    assert run_script(code, shared) >= 2


@pytest.mark.slow
def test_looking_at_the_workers_takes_less_than_a_fiftieth_of_the_time(shared: Path) -> None:
    code = """
    fill(3)
    raylet = ThisRaylet()
    raylet.count()
    began = time.process_time()
    for _ in range(100):
        raylet.count()
    answer((time.process_time() - began) / 100)
    """.replace("\n    ", "\n")
    assert run_script(FILL + code, shared) < 0.25 / 50


@pytest.mark.slow
def test_a_warm_worker_has_what_objects_need_and_not_what_only_ray_wants(shared: Path) -> None:
    code = 'answer(get(actor("seer").see.remote("""\n'
    code += "import sys\n"
    code += "names = ('duckdb', 'msgspec', 'runtime.host', 'pydantic', 'starlette', 'anthropic', 'httpx')\n"
    code += "answer = [name for name in names if name in sys.modules]\n"
    code += '""")))'
    assert run_script("connect_ray(DATA)\n" + code, shared) == ["duckdb", "msgspec", "runtime.host"]


@pytest.mark.slow
def test_the_preload_of_a_worker_missed_nothing(shared: Path) -> None:
    code = "connect_ray(DATA)\n"
    code += 'answer(get(actor("seer").see.remote("from runtime.cluster.preload import FAILED; answer = FAILED")))'
    assert run_script(code, shared) == {}


@pytest.mark.slow
def test_the_serializer_learns_about_a_package_when_it_is_imported(shared: Path) -> None:
    code = """
    connect_ray(DATA)
    answer(get(actor("learner").see.remote('''
    import ray.cloudpickle as pickle
    def known():
        return sorted(c.__module__ + "." + c.__qualname__ for c in pickle.CloudPickler.dispatch
                      if c.__module__.startswith(("pydantic", "starlette")))
    before = known()
    import pydantic, starlette.datastructures, pydantic.v1
    answer = [before, known()]
    ''')))
    """.replace("\n    ", "\n")
    assert run_script(code, shared) == [[], ["pydantic.v1.fields.ModelField", "starlette.datastructures.State"]]
