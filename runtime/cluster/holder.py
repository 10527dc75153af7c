"""The process that runs an own Ray: starts it, watches it, ends it.

A Ray that ``ray.init`` starts is a child of its script and dies with it, all agents with it. This one is started by a
process in a session of its own, which the starting script may outlive or not. It runs Ray's processes as its
children, bound to it by the kernel (on Linux: the parent-death signal; elsewhere: Ray's reaper), so that a holder
that is killed leaves no Ray behind either: what is left in ``ray.json`` is then a note about the dead.

It starts Ray through ``ray._private.node.Node``, which is what ``ray start`` calls, because ``ray start`` always
starts four processes that an own Ray does not need: the dashboard's server, its agent (``node_agent.py``
stands in), the autoscaler's monitor and the log monitor. They are two thirds of the start's time and 380 MB.
``PERDURE_RAY_DASHBOARD=1`` starts all of them.

Ray ends when it has been idle for ``idle_end`` seconds (nobody connected, no live fiber, not held by ``perdure up``),
on SIGTERM, when a process of Ray's own has died, or when the data directory is gone.

Run as ``python -P -m runtime.cluster.holder <data_dir> <idle_end> <report_fd> <lock_fd>`` by ``local.py``.
Through ``report_fd`` it tells the starter lines ``progress <text>``, ``ready`` or ``failed <reason>``; ``lock_fd``
is the taken ``holder.lock``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from runtime.cluster.pool import prestart
from runtime.cluster.ray_files import FileLock, LocalRay, Process, RayFiles
from runtime.cluster.ray_processes import end_processes, processes_of_session

__all__ = ["main"]

# Plasma holds what is passed by reference between processes; agents pass chunks of kilobytes. It is reserved, not
# used memory, but Ray's default (30 % of the machine) makes it fail in small containers.
OBJECT_STORE_BYTES = 256 * 1024 * 1024

# Workers that may start at the same time; further requests for warm ones are dropped silently by the raylet.
STARTING_WORKERS_MAX = 4

# Ray goes on to wait by itself, for 30 s.
REGISTER_SECONDS = 5.0
REGISTER_POLL_SECONDS = 0.02

FIRST_WORKERS = 2
LOOK_SECONDS = 0.5
SESSIONS_KEPT = 3
PRELOAD_MODULE = "runtime.cluster.preload"


class Report:
    """The line to the process that started the holder; it may be gone, which is no reason to stop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        if fd >= 0:
            os.set_inheritable(fd, False)

    def say(self, kind: str, text: str = "") -> None:
        """Send one line."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fd, f"{kind} {' '.join(text.split())}\n".encode())

    def close(self) -> None:
        """No more lines."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def main(arguments: list[str]) -> int:
    """Run Ray until it is no longer wanted; the process's exit status."""
    files, idle_end, report = RayFiles(Path(arguments[0])), float(arguments[1]), Report(int(arguments[2]))
    if os.fork():
        os._exit(0)  # the starter waits for this one; the holder itself belongs to nobody
    os.set_inheritable(int(arguments[3]), False)  # the lock is ours as long as this descriptor is open
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        _set_environment(files)
        node = _start(files, report)
    except BaseException as error:
        traceback.print_exc()
        report.say("failed", _reason(files, error))
        return 1
    _log("Ray is ready")
    report.say("ready")
    report.close()
    # After "ready": the script joins meanwhile, and its first two actors (the keeper is one) find warm workers.
    if not prestart(f"127.0.0.1:{node.node_manager_port}", FIRST_WORKERS):
        _log("this Ray does not start workers ahead")
    reason = _watch(files, node, idle_end, stop)
    _log(f"ending Ray: {reason}")
    _end(files, node)
    if not files.folder.is_dir():
        shutil.rmtree(node.get_temp_dir_path(), ignore_errors=True)  # nobody will look for logs of what is gone
    _log("Ray has ended")
    return 0


def _set_environment(files: RayFiles) -> None:
    # Left over from the starting script, which may itself run inside another Ray.
    for name in ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_AUTH_TOKEN", "RAY_REDIS_ADDRESS", "RAY_RAYLET_PID", "RAY_JOB_ID"):
        os.environ.pop(name, None)
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(files.token)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_preload_python_modules", PRELOAD_MODULE)
    # Ray would start one worker per CPU for the first script, whose end ends them: ours belong to no job.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", str(max(STARTING_WORKERS_MAX, os.cpu_count() or 1)))
    # Ray runs workers at niceness 15, as batch jobs are run. Objects are waited for: on two busy cores an agent that
    # was killed took 0.42 s to go on instead of 0.25 (alternating pairs of bench_kill).
    os.environ.setdefault("RAY_worker_niceness", "0")
    if not _with_dashboard():
        os.environ.setdefault("RAY_enable_metrics_collection", "0")


def _with_dashboard() -> bool:
    return os.environ.get("PERDURE_RAY_DASHBOARD", "") not in ("", "0")


def _start(files: RayFiles, report: Report) -> Any:  # Ray's Node has no types
    report.say("progress", "importing Ray")
    # Through importlib: these are private and their annotations are wrong in places.
    node_class: Any = importlib.import_module("ray._private.node").Node
    services: Any = importlib.import_module("ray._private.services")
    parameters: Any = importlib.import_module("ray._private.parameter").RayParams

    temp_dir = files.temp_dir()
    _forget_old_sessions(temp_dir)
    whole = _with_dashboard()

    _notice_the_raylet_at_once(node_class)
    if not whole:
        _leave_out_dashboard(node_class, services)
    report.say("progress", "starting Ray's processes")
    node: Any = node_class(
        parameters(
            node_ip_address="127.0.0.1",
            node_name="127.0.0.1",
            gcs_server_port=0,
            node_manager_port=0,
            dashboard_host="127.0.0.1",
            include_dashboard=whole,
            dashboard_agent_listen_port=0,
            no_monitor=not whole,
            include_log_monitor=whole,
            temp_dir=str(temp_dir),
            object_store_memory=int(os.environ.get("PERDURE_OBJECT_STORE_BYTES", "") or OBJECT_STORE_BYTES),
        ),
        head=True,
        shutdown_at_exit=False,
        spawn_reaper=True,
    )
    files.write(
        LocalRay(
            address=node.gcs_address,
            session_dir=node.get_session_dir_path(),
            started_at_ms=time.time_ns() // 1_000_000,
            holder=Process.of("holder", os.getpid()),
            processes=tuple(Process.of(name, process.pid) for name, process in node.live_processes()),
            ray_version=importlib.metadata.version("ray"),
        )
    )
    return node


def _notice_the_raylet_at_once(node_class: Any) -> None:
    """Change Ray's start, in this process only: it looks for the raylet once a second, which is as long as it takes."""
    start_processes = node_class.start_ray_processes

    def start_ray_processes(node: Any) -> None:
        start_processes(node)
        deadline = time.monotonic() + REGISTER_SECONDS
        while (
            time.monotonic() < deadline and not node.dead_processes() and not node.get_gcs_client().get_all_node_info()
        ):
            time.sleep(REGISTER_POLL_SECONDS)

    node_class.start_ray_processes = start_ray_processes


def _leave_out_dashboard(node_class: Any, services: Any) -> None:
    """Change Ray's start, in this process only, so that it starts neither the dashboard's server nor its agent."""

    def start_api_server(node: Any, **_: object) -> None:
        node._webui_url = ""

    start_process = services.start_ray_process

    def start_ray_process(command: list[str], *arguments: Any, **options: Any) -> Any:
        return start_process(_with_own_agent(command), *arguments, **options)

    node_class.start_api_server = start_api_server
    services.start_ray_process = start_ray_process


def _with_own_agent(command: list[str]) -> list[str]:
    """The raylet's command with our agent in place of Ray's; any other command, and one we do not know, as it is."""
    flag = "--dashboard_agent_command="
    theirs = os.path.join("dashboard", "agent.py")
    ours = str(Path(__file__).with_name("node_agent.py"))
    changed: list[str] = []
    for argument in command:
        if argument.startswith(flag) and theirs in argument:
            # From the path on there are only options; before it stand the interpreter and its flags.
            options = argument[argument.index(theirs) + len(theirs) :]
            argument = f"{flag}{_quoted(sys.executable)} -I -S {_quoted(ours)}{options}"
        changed.append(argument)
    return changed


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def _forget_old_sessions(temp_dir: Path) -> None:
    sessions = sorted(path for path in temp_dir.glob("session_2*") if path.is_dir())
    for path in sessions[: -(SESSIONS_KEPT - 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _reason(files: RayFiles, error: BaseException) -> str:
    """What went wrong, with the last words of Ray's own processes, which know more than the exception."""
    said = f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        session = max(files.temp_dir().glob("session_2*"))
        for name in ("raylet.err", "gcs_server.err"):
            text = (
                (session / "logs" / name).read_text(errors="replace").strip()
                if (session / "logs" / name).exists()
                else ""
            )
            if text:
                said += f" | {name}: {text[-500:]}"
    return said


def _watch(files: RayFiles, node: Any, idle_end: float, stop: threading.Event) -> str:
    """Return why Ray has to end; when it is for idleness, with the locks held that keep others from joining."""
    locks = (files.lock("connected"), files.lock("fibers"))
    idle_since = time.monotonic()
    while not stop.wait(LOOK_SECONDS):
        died = [name for name, _ in node.dead_processes()]
        if died:
            return f"{', '.join(died)} died"
        if not files.state.exists():
            return "the data directory is gone"
        if files.held.exists() or not _take_all(locks):
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since >= idle_end:
            return f"idle for {idle_end:g} s"
        else:
            for lock in locks:
                lock.release()
    return "asked to"


def _take_all(locks: tuple[FileLock, ...]) -> bool:
    for lock in locks:
        if not lock.try_take():
            for taken in locks:
                taken.release()
            return False
    return True


def _end(files: RayFiles, node: Any) -> None:
    session = node.get_session_dir_path()
    with contextlib.suppress(Exception):  # what Ray's own way leaves alive is ended below
        node.kill_all_processes(check_alive=False, allow_graceful=True)
    end_processes(processes_of_session(session))
    with contextlib.suppress(OSError):
        files.state.unlink(missing_ok=True)


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} holder {os.getpid()}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
