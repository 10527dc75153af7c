"""What goes on when the keeper dies, what is said when no Ray answers, and where an object's words go."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.keeper import KEEPER_ID
from tests.chaos.conftest import Lab, eventually
from tests.chaos.objects import Notes, Sleeper

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

# Spelt out for those that have a loop; the others run scripts.
on_the_loop = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT_SECONDS_MAX = 60


async def kill_keeper(lab: Lab) -> None:
    """Kill -9 the keeper; on return Ray has restarted it, and it answers."""
    killed = await lab.kill(KEEPER_ID)

    async def is_back() -> bool:
        return await lab.pid(KEEPER_ID) not in (None, killed)

    await eventually(is_back, f"the keeper is back after the death of {killed}")


# --- the keeper ---


@on_the_loop
async def test_an_alarm_that_was_set_before_the_keeper_died_wakes_its_sleeping_object(lab: Lab) -> None:
    # runtime D27, D28, D30
    sleeper = lab.get(Sleeper, "alarm")
    await sleeper.arm(3)
    await lab.put_to_sleep(sleeper)
    await kill_keeper(lab)

    async def is_awake() -> bool:
        return await lab.pid(sleeper.object_id) is not None

    # Nobody calls it: asking for its process wakes no object.
    await eventually(is_awake, "the keeper has woken the object for its alarm")

    async def has_rung() -> bool:
        return await sleeper.rang() == 1

    await eventually(has_rung, "the alarm handler has run")


@on_the_loop
async def test_an_alarm_that_came_due_while_the_keeper_was_dead_is_made_up_for(lab: Lab) -> None:
    # runtime D24, D30: late after a failover, never missing
    sleeper = lab.get(Sleeper, "overdue alarm")
    await sleeper.arm(0.3)
    await lab.put_to_sleep(sleeper)
    await kill_keeper(lab)

    async def has_rung() -> bool:
        return await lab.pid(sleeper.object_id) is not None and await sleeper.rang() == 1

    await eventually(has_rung, "the alarm handler has run")


@on_the_loop
async def test_an_object_with_work_is_created_again_by_a_keeper_that_was_itself_restarted(lab: Lab) -> None:
    # runtime N4, A43: the keeper asks all its questions again, from its file
    sleeper = lab.get(Sleeper, "work")
    await sleeper.work()
    await kill_keeper(lab)
    killed = await lab.kill(sleeper.object_id)

    async def is_back() -> bool:
        return await lab.pid(sleeper.object_id) not in (None, killed)

    await eventually(is_back, f"the object is back after the death of {killed}, nobody calling")


@on_the_loop
async def test_an_object_that_died_together_with_the_keeper_is_created_again(lab: Lab) -> None:
    # runtime N4, A43
    sleeper = lab.get(Sleeper, "died with the keeper")
    await sleeper.work()
    keeper = await lab.pid(KEEPER_ID)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    killed = await lab.kill(sleeper.object_id)

    async def is_back() -> bool:
        return await lab.pid(sleeper.object_id) not in (None, killed)

    await eventually(is_back, f"the object is back after the death of {killed}, nobody calling")


@on_the_loop
async def test_calls_go_on_while_the_keeper_is_dead(lab: Lab) -> None:
    # README: what survives
    sleeper = lab.get(Sleeper, "called meanwhile")
    assert await sleeper.rang() == 0
    await lab.kill(KEEPER_ID)
    assert await sleeper.rang() == 0
    await sleeper.arm(3600)
    known = {known.path[-1][1]: known for known in await lab.cluster.list_objects()}
    assert known["called meanwhile"].alarm_at_ms is not None


@on_the_loop
async def test_a_plain_call_that_is_sent_after_a_death_finds_the_next_life(lab: Lab) -> None:
    # runtime D2: it cannot have run, so it is no lost connection
    notes = lab.get(Notes, "killed while idle")
    await notes.add("one")
    await lab.kill(notes.object_id)
    await asyncio.sleep(1)  # Ray has told
    assert await notes.add("two") == 2


# --- no Ray ---


def run_script(code: str, *arguments: str, **env: str) -> tuple[int, str, str]:
    """A user's script; exit status, standard output, standard error."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PERDURE_"))}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=clean | {"PYTHONPATH": str(ROOT)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS_MAX,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


CONNECT = """
import asyncio, sys
import runtime
from runtime.errors import ClusterUnreachable
async def main():
    try:
        async with runtime.connect(data_dir=sys.argv[1]):
            print("connected")
    except ClusterUnreachable as error:
        print(error.retryable, error)
asyncio.run(main())
"""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, so that nobody else opens it, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_ray_address_where_nothing_listens_is_an_error_that_names_it_and_nothing_else_is_said(
    tmp_path: Path, closed_port: int
) -> None:
    # style 6: what happened, to what, and what to do next
    status, out, err = run_script(CONNECT, str(tmp_path / "data"), RAY_ADDRESS=f"127.0.0.1:{closed_port}")
    assert (status, err) == (0, "")
    assert out.startswith(f"True Nothing answers at 127.0.0.1:{closed_port} (from RAY_ADDRESS or address=)")
    assert "Unset RAY_ADDRESS to use a local Ray" in out


def test_a_ray_address_where_something_else_listens_is_an_error_that_names_it_and_nothing_else_is_said(
    tmp_path: Path, silent_port: int
) -> None:
    # style 6
    status, out, err = run_script(CONNECT, str(tmp_path / "data"), RAY_ADDRESS=f"127.0.0.1:{silent_port}")
    assert (status, err) == (0, "")
    assert f"What answers at 127.0.0.1:{silent_port} (from RAY_ADDRESS or address=) is not the control service" in out


def test_a_ray_address_that_is_none_is_an_error_that_shows_the_form(tmp_path: Path) -> None:
    # style 6
    status, out, err = run_script(CONNECT, str(tmp_path / "data"), RAY_ADDRESS="nowhere")
    assert (status, err) == (0, "")
    assert out.startswith("False RAY_ADDRESS or address= is 'nowhere', which is not host:port, for example")


def test_an_uncaught_error_of_connecting_is_the_last_line_of_the_script(tmp_path: Path, closed_port: int) -> None:
    # style 6
    code = (
        "import asyncio, sys, runtime\nasync def main():\n    async with runtime.connect(data_dir=sys.argv[1]): pass\n"
    )
    status, out, err = run_script(
        code + "asyncio.run(main())", str(tmp_path / "data"), RAY_ADDRESS=f"127.0.0.1:{closed_port}"
    )
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith(
        f"runtime.errors.ClusterUnreachable: Nothing answers at 127.0.0.1:{closed_port}"
    )
    assert "gcs_client" not in err
    assert "Failed to connect to GCS" not in err


def test_auto_where_no_ray_runs_and_an_address_that_starts_one_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    # style 6
    nothing = "import ray._private.services as found\nfound._cached_find_gcs_addresses = lambda: set()\n"
    nothing += "found._cached_find_gcs_addresses.cache_clear = lambda: None\n"
    status, out, err = run_script(nothing + CONNECT, str(tmp_path / "data"), RAY_ADDRESS="auto")
    assert (status, err) == (0, "")
    assert "'auto', but no Ray runs on this machine" in out
    status, _, err = run_script(CONNECT, str(tmp_path / "data"), RAY_ADDRESS="local")
    assert status == 1
    assert "the address 'local' would start a Ray that ends with this script" in err.splitlines()[-1]


ENDS = """
import asyncio, sys
from pathlib import Path
import runtime
from runtime.cluster import end
from runtime.errors import PerdureError
from tests.chaos.objects import Notes
async def main():
    async with runtime.connect(data_dir=sys.argv[1], show_logs=False) as cluster:
        notes = cluster.get(Notes, "n")
        await notes.add("kept")
        await asyncio.to_thread(end, Path(sys.argv[1]))
        try:
            await asyncio.wait_for(notes.lines(), 30)
        except PerdureError as error:
            print(type(error).__name__, error)
    try:
        await notes.lines()
    except PerdureError as error:
        print(type(error).__name__, error)
    async with runtime.connect(data_dir=sys.argv[1], show_logs=False) as cluster:
        print(await cluster.get(Notes, "n").lines())
    end(Path(sys.argv[1]))
asyncio.run(main())
"""


def test_a_ray_that_ends_under_a_script_is_an_error_within_seconds_and_the_next_connection_goes_on(
    tmp_path: Path,
) -> None:
    # Ray itself says nothing for a minute and then ends the script
    status, out, _ = run_script(ENDS, str(tmp_path / "data"))
    assert status == 0
    gone = f"ClusterUnreachable the local Ray of {tmp_path / 'data'} has ended"
    assert [line[: len(gone)] for line in out.splitlines()[:2]] == [gone] * 2
    assert out.splitlines()[2:] == ["['kept']"]


STUB_KEPT = """
import asyncio, sys
import runtime
from tests.chaos.objects import Notes
async def main():
    async with runtime.connect(data_dir=sys.argv[1], show_logs=False) as cluster:
        notes = cluster.get(Notes, "n")
        await notes.add("kept")
    await notes.lines()
asyncio.run(main())
"""


def test_a_stub_behind_its_connection_says_so_and_starts_nothing(ray_data: Path) -> None:
    # style 6
    status, _, err = run_script(STUB_KEPT, str(ray_data))
    assert status == 1
    assert "UsageError: the connection is closed: use stubs inside of their" in err.splitlines()[-1]
    assert "Started a local Ray" not in err


# --- words ---

SPEAK = """
import asyncio, sys
import runtime
from tests.chaos.objects import Speaker
async def main():
    async with runtime.connect(data_dir=sys.argv[1], show_logs=sys.argv[2] == "shown") as cluster:
        await cluster.get(Speaker, sys.argv[2]).speak()
asyncio.run(main())
"""


def test_what_an_object_prints_and_logs_is_on_the_scripts_standard_error_under_its_name(ray_data: Path) -> None:
    # `connect(show_logs=True)`, the default: standard output stays the script's own
    status, out, err = run_script(SPEAK, str(ray_data), "shown")
    assert (status, out) == (0, "")
    assert err.splitlines() == [
        "(Speaker/shown) said by print",
        "(Speaker/shown) WARNING speaker: said by a log",
    ]


def test_nothing_is_shown_of_an_object_to_a_script_that_does_not_want_it(ray_data: Path) -> None:
    # `connect(show_logs=False)`
    assert run_script(SPEAK, str(ray_data), "hidden") == (0, "", "")
