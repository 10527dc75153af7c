"""The own Ray of a data directory: found, started, joined, ended."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.cluster import join, local
from runtime.cluster.ray_files import LocalRay, Process, RayFiles
from runtime.cluster.ray_processes import processes_of_session
from runtime.errors import ClusterUnreachable, UsageError
from tests.runtime.cluster.scripts import HEAD, output_of, run_script, start_script

SECONDS_MAX = 30.0

JOIN_AND_NAME = """
found = connect_ray(DATA)
answer([found.address, get(actor("plain").pid.remote())])
"""


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Wait for other processes; they tell nobody."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {SECONDS_MAX:g} s: {what}"
        time.sleep(0.02)


def ray_of(data_dir: Path) -> LocalRay:
    found = local.status(data_dir).ray
    assert found is not None
    return found


@contextlib.contextmanager
def own_ray(data_dir: Path) -> Iterator[Path]:
    """A data directory whose Ray is ended, whatever the test did to it."""
    try:
        yield data_dir
    finally:
        last = local.status(data_dir).ray
        local.end(data_dir)
        if last is not None:
            assert [process for process in [last.holder, *last.processes] if process.is_alive] == []
            assert processes_of_session(last.session_dir) == []
        shutil.rmtree(RayFiles(data_dir).temp_dir())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a running Ray that tests may join, but not end."""
    # Deeper than a unix socket's path may be.
    data_dir = tmp_path_factory.mktemp("data").joinpath(*["deep" * 10] * 4)
    with own_ray(data_dir):
        local.ensure_local_ray(data_dir)
        yield data_dir


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    with own_ray(tmp_path / "data") as folder:
        yield folder


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the name of a session, as Ray's processes do."""
    code = "print(flush=True); import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, "--session-dir=/nowhere/session_1"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def dead_process() -> Process:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = Process.of("holder", process.pid)
    process.communicate()
    return found


def write_state(data_dir: Path, holder: Process, processes: tuple[Process, ...], session_dir: str) -> None:
    files = RayFiles(data_dir)
    files.prepare()
    files.write(
        LocalRay(address="127.0.0.1:1", session_dir=session_dir, started_at_ms=0, holder=holder, processes=processes)
    )


# --- without Ray --------------------------------------------------------------------------------------------------


def test_the_status_of_a_directory_without_ray_creates_nothing(tmp_path: Path) -> None:
    assert not local.status(tmp_path / "data").is_running
    assert list(tmp_path.iterdir()) == []


def test_ending_where_nothing_runs_ends_nothing(tmp_path: Path) -> None:
    assert local.end(tmp_path / "data").processes == ()
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_read_the_token(tmp_path: Path) -> None:
    RayFiles(tmp_path).prepare()
    assert stat.S_IMODE((tmp_path / "ray" / "token").stat().st_mode) == 0o600


def test_a_second_start_keeps_the_token(tmp_path: Path) -> None:
    RayFiles(tmp_path).prepare()
    token = (tmp_path / "ray" / "token").read_text()
    RayFiles(tmp_path).prepare()
    assert (tmp_path / "ray" / "token").read_text() == token
    assert len(token) == 64


def test_sockets_lie_in_a_short_path_however_deep_the_data_directory(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["deep" * 10] * 6)
    folder = RayFiles(deep).temp_dir()
    folder.rmdir()
    assert len(str(folder)) <= 40


def test_two_data_directories_have_two_folders_for_sockets(tmp_path: Path) -> None:
    folders = {RayFiles(tmp_path / name).temp_dir() for name in "ab"}
    for folder in folders:
        folder.rmdir()
    assert len(folders) == 2


@pytest.mark.slow
def test_what_a_killed_holder_left_is_ended(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    write_state(tmp_path, dead_process(), (Process.of("raylet", stranger.pid),), "/nowhere/session_2")
    ended = local.end(tmp_path)
    assert ended.processes == (f"raylet ({stranger.pid})",)
    assert stranger.wait() == -signal.SIGTERM


@pytest.mark.slow
def test_processes_of_the_session_that_the_state_does_not_name_are_ended_too(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    write_state(tmp_path, dead_process(), (), "/nowhere/session_1")
    local.end(tmp_path)
    assert stranger.wait() == -signal.SIGTERM


@pytest.mark.slow
def test_a_later_process_with_the_pid_of_a_dead_one_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    earlier = Process(name="raylet", pid=stranger.pid, started="1")
    write_state(tmp_path, dead_process(), (earlier,), "/nowhere/session_2")
    assert local.end(tmp_path).processes == ()
    assert stranger.poll() is None


def test_a_broken_state_file_counts_as_none(tmp_path: Path) -> None:
    RayFiles(tmp_path).prepare()
    (tmp_path / "ray" / "ray.json").write_text('{"address": ')
    assert local.status(tmp_path).ray is None


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterUnreachable, match=r"The data directory .*/file/data cannot be written: Not a directory"):
        local.ensure_local_ray(tmp_path / "file" / "data")


def test_an_address_where_nothing_listens_is_named_at_once(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"Nothing answers at {address} .*Unset RAY_ADDRESS"):
            join.connect_ray(tmp_path, address)


def test_an_address_without_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match="'somewhere', which is not host:port"):
        join.connect_ray(tmp_path, "somewhere")


def test_an_address_of_ray_client_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is an address of Ray Client"):
        join.connect_ray(tmp_path, "ray://127.0.0.1:10001")


def test_leaving_without_having_joined_does_nothing() -> None:
    join.disconnect_ray()


# --- one Ray, shared ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_script_finds_the_ray_and_the_actors_of_the_first(shared: Path) -> None:
    assert run_script(JOIN_AND_NAME, shared) == run_script(JOIN_AND_NAME, shared)


@pytest.mark.slow
def test_a_killed_script_leaves_its_actors_alive(shared: Path) -> None:
    code = """
    connect_ray(DATA)
    answer(get(actor("survivor").pid.remote()))
    time.sleep(60)
    """.replace("\n    ", "\n")
    script = start_script(code, shared)
    assert script.stdout is not None
    pid = int(script.stdout.readline())
    script.send_signal(signal.SIGKILL)
    output_of(script)
    assert run_script('connect_ray(DATA)\nanswer(get(actor("survivor").pid.remote()))', shared) == pid


@pytest.mark.slow
def test_objects_get_as_much_of_the_processor_as_the_script_that_calls_them(shared: Path) -> None:
    code = """
    connect_ray(DATA)
    answer(get(actor("niceness").see.remote("import os; answer = os.nice(0)")))
    """.replace("\n    ", "\n")
    assert run_script(code, shared) == os.nice(0)


@pytest.mark.slow
def test_ray_says_nothing_on_the_terminal(shared: Path) -> None:
    code = """
    connect_ray(DATA)
    plain = actor("talker")
    get(plain.pid.remote())
    try:
        get(plain.fail.remote())
    except Exception:
        pass
    disconnect_ray()
    """.replace("\n    ", "\n")
    assert output_of(start_script(code, shared)) == (0, "", "")


@pytest.mark.slow
def test_ray_says_nothing_on_a_real_terminal_either(shared: Path) -> None:
    ours, theirs = pty.openpty()
    code = HEAD + 'connect_ray(DATA)\nget(actor("talker").pid.remote())\ndisconnect_ray()\nprint("end")'
    env = {"PYTHONPATH": os.getcwd(), "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    subprocess.run([sys.executable, "-c", code, str(shared)], env=env, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 65536)
    os.close(ours)
    assert said == b"end\r\n"


@pytest.mark.slow
def test_ray_listens_on_loopback_only(shared: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address of ours would be used
        except OSError:
            pytest.skip("this machine has no network")
        outside = probe.getsockname()[0]
    port = int(ray_of(shared).address.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((outside, port), timeout=5)


@pytest.mark.slow
def test_a_process_without_the_token_is_refused_at_once_and_told_why(shared: Path, tmp_path: Path) -> None:
    code = """
    try:
        connect_ray(DATA)
    except Exception as error:
        answer([type(error).__name__, str(error), error.retryable])
    """.replace("\n    ", "\n")
    name, message, is_retryable = run_script(code, tmp_path, RAY_ADDRESS=ray_of(shared).address)
    assert (name, is_retryable) == ("ClusterUnreachable", False)
    assert "does not let this process in" in message
    assert "set RAY_AUTH_MODE=token" in message


@pytest.mark.slow
def test_ray_address_is_joined_instead_of_starting_one(shared: Path, tmp_path: Path) -> None:
    found = local.ensure_local_ray(shared)
    assert run_script(JOIN_AND_NAME, tmp_path, RAY_ADDRESS=found.address, **found.env)[0] == found.address
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ray_address_of_the_own_ray_needs_no_token_in_the_environment(shared: Path) -> None:
    address = ray_of(shared).address
    assert run_script(JOIN_AND_NAME, shared, RAY_ADDRESS=address)[0] == address


@pytest.mark.slow
def test_a_ray_that_the_application_joined_is_used_and_not_left(shared: Path) -> None:
    code = """
    first = connect_ray(DATA)
    join = sys.modules["runtime.cluster.join"]
    join._connection = join._Connection()  # as if the application had joined by itself
    second = connect_ray(DATA)
    disconnect_ray()
    import ray
    answer([first.address == second.address, ray.is_initialized()])
    """.replace("\n    ", "\n")
    assert run_script(code, shared) == [True, True]


@pytest.mark.slow
def test_the_last_of_two_disconnects_leaves(shared: Path) -> None:
    code = """
    import ray
    connect_ray(DATA), connect_ray(DATA)
    disconnect_ray()
    once = ray.is_initialized()
    disconnect_ray()
    answer([once, ray.is_initialized()])
    """.replace("\n    ", "\n")
    assert run_script(code, shared) == [True, False]


@pytest.mark.slow
def test_a_process_that_is_connected_cannot_join_another_ray(shared: Path) -> None:
    code = """
    connect_ray(DATA)
    try:
        connect_ray(DATA, "10.0.0.1:6379")
    except Exception as error:
        answer(type(error).__name__)
    """.replace("\n    ", "\n")
    assert run_script(code, shared) == "UsageError"


# --- a Ray for each test ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_scripts_that_start_at_once_share_one_ray(data_dir: Path) -> None:
    scripts = [start_script("answer(connect_ray(DATA).address)", data_dir) for _ in range(2)]
    answers = [output_of(script) for script in scripts]
    assert answers[0] == answers[1]
    assert answers[0][1] == f'"{ray_of(data_dir).address}"\n'


@pytest.mark.slow
def test_a_start_whose_script_is_killed_is_finished_for_the_next_one(data_dir: Path) -> None:
    code = """
    import signal
    from runtime.cluster import local
    local._follow = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    connect_ray(DATA)
    """.replace("\n    ", "\n")
    assert output_of(start_script(code, data_dir))[0] == -signal.SIGKILL
    local.ensure_local_ray(data_dir)
    assert (data_dir / "ray" / "holder.log").read_text().count("Ray is ready") == 1


@pytest.mark.slow
def test_a_start_whose_script_was_killed_can_be_ended(data_dir: Path) -> None:
    code = """
    import signal
    from runtime.cluster import local
    local._follow = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    connect_ray(DATA)
    """.replace("\n    ", "\n")
    output_of(start_script(code, data_dir))
    assert "holder" in local.end(data_dir).processes[0]
    assert not RayFiles(data_dir).is_holder_alive


@pytest.mark.slow
def test_ending_one_ray_leaves_that_of_another_data_directory(shared: Path, data_dir: Path) -> None:
    other = ray_of(shared)
    local.ensure_local_ray(data_dir)
    mine = ray_of(data_dir)
    ended = local.end(data_dir)
    assert {f"{process.name} ({process.pid})" for process in [mine.holder, *mine.processes]} <= set(ended.processes)
    assert not mine.holder.is_alive
    assert not local.status(data_dir).is_running
    assert other.is_alive


@pytest.mark.slow
def test_a_killed_holder_takes_its_ray_along_and_the_next_script_starts_another(data_dir: Path) -> None:
    local.ensure_local_ray(data_dir)
    first = ray_of(data_dir)
    first.holder.signal(signal.SIGKILL)
    eventually(lambda: not first.holder.is_alive, "the holder is gone")
    address = local.ensure_local_ray(data_dir).address
    assert address == ray_of(data_dir).address
    assert ray_of(data_dir).holder.pid != first.holder.pid
    assert [process for process in first.processes if process.is_alive] == []
    assert processes_of_session(first.session_dir) == []


@pytest.mark.slow
def test_a_ray_whose_raylet_died_is_replaced(data_dir: Path) -> None:
    local.ensure_local_ray(data_dir)
    first = ray_of(data_dir)
    next(process for process in first.processes if process.name == "raylet").signal(signal.SIGKILL)
    eventually(lambda: not first.is_alive, "the raylet is gone")
    local.ensure_local_ray(data_dir)
    assert ray_of(data_dir).is_alive
    assert processes_of_session(first.session_dir) == []


@pytest.mark.slow
def test_ray_ends_once_nobody_has_needed_it_for_the_idle_time(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_IDLE_END", "0")
    local.ensure_local_ray(data_dir)
    last = ray_of(data_dir)
    eventually(lambda: not last.holder.is_alive, "the idle Ray has ended")
    assert local.status(data_dir).ray is None


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["connected", "fibers"])
def test_ray_stays_while_somebody_is_connected_or_a_fiber_lives(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setenv("PERDURE_IDLE_END", "0")
    files = RayFiles(data_dir)
    files.prepare()
    mine = files.lock(lock)
    assert mine.try_take(shared=True)
    local.ensure_local_ray(data_dir)
    last = ray_of(data_dir)
    time.sleep(1.5)  # three looks of the holder; that nothing happens has no event to wait for
    assert last.is_alive
    mine.release()
    eventually(lambda: not last.holder.is_alive, "the Ray has ended after the lock was given back")


@pytest.mark.slow
def test_a_held_ray_stays_until_it_is_ended(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_IDLE_END", "0")
    local.hold(data_dir)
    last = ray_of(data_dir)
    time.sleep(1.5)  # as above
    assert last.is_alive
    assert local.status(data_dir).is_held
    local.end(data_dir)
    assert not local.status(data_dir).is_held


@pytest.mark.slow
def test_ray_ends_when_its_data_directory_is_removed_and_leaves_no_logs(data_dir: Path) -> None:
    local.ensure_local_ray(data_dir)
    last = ray_of(data_dir)
    shutil.rmtree(data_dir)
    eventually(lambda: not last.holder.is_alive, "the Ray without a data directory has ended")
    assert processes_of_session(last.session_dir) == []
    assert not Path(last.session_dir).parent.exists()


@pytest.mark.slow
def test_a_start_that_fails_names_the_reason_and_the_log(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_OBJECT_STORE_BYTES", "1")
    with pytest.raises(
        ClusterUnreachable, match=r"(?i)at least .*MB|object store.* Its log is .*holder\.log"
    ) as raised:
        local.ensure_local_ray(data_dir)
    assert str(data_dir / "ray" / "holder.log") in str(raised.value)


@pytest.mark.slow
def test_the_start_tells_what_it_does(data_dir: Path) -> None:
    said: list[str] = []
    local.ensure_local_ray(data_dir, on_progress=said.append)
    assert said[0] == "starting a local Ray (about 3 s; it stays for later scripts)"
    assert said[-1].startswith("the local Ray is ready (")
    said.clear()
    local.ensure_local_ray(data_dir, on_progress=said.append)
    assert said == []
