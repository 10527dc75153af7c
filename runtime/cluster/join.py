"""Joining a Ray and leaving it again, quietly.

``connect_ray`` joins the Ray it is told (an address, or RAY_ADDRESS), else the own Ray of the data directory, which it
starts if needed (``local.py``). A process has one connection: the second ``connect_ray`` counts, the last
``disconnect_ray`` leaves. A Ray that the application itself has joined before is used and never left.

Ray by itself waits 20 s and more for an address or a token that is wrong, and then blames the network. So a foreign
address is asked first, with one plain request that takes milliseconds and has a deadline.

What Ray says on the terminal is kept off it: the ``ray`` logger passes errors only, and workers' output is not sent to
the driver (agents' output comes by our own way).
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.cluster.local import NAMESPACE, RayAddress, ensure_local_ray, status
from runtime.cluster.ray_files import FileLock, LocalRay, RayFiles
from runtime.cluster.ray_rpc import Channel, RpcFailed
from runtime.errors import ClusterUnreachable, UsageError

__all__ = ["NAMESPACE", "RayAddress", "connect_ray", "disconnect_ray", "join_environment", "own_ray"]

ANSWER_SECONDS_MAX = 5.0


class _Connection:
    """The one connection of this process."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.uses = 0
        self.address: RayAddress | None = None
        self.is_ours = False
        self.lock: FileLock | None = None
        self.ray: LocalRay | None = None


_connection = _Connection()


def connect_ray(
    data_dir: Path, address: str | None = None, *, on_progress: Callable[[str], None] | None = None
) -> RayAddress:
    """Connect this process to Ray; may take seconds if Ray has to be started.

    Args:
        data_dir: Whose own Ray is meant if no address is given.
        address: ``host:port`` or ``auto``; by default RAY_ADDRESS, and without it the own Ray of ``data_dir``.
        on_progress: Gets lines that say what is being waited for.

    Raises:
        ClusterUnreachable: Nobody answers at the address, it refuses us, or an own Ray could not be started.
        UsageError: This process is already connected elsewhere, or the address is of a kind that cannot be used.
    """
    with _connection.guard:
        wanted = address or os.environ.get("RAY_ADDRESS") or None
        if _connection.address is not None:
            _check_same(_connection.address, wanted if address else None)
            _connection.uses += 1
            return _connection.address
        import ray

        if ray.is_initialized():  # by the application, or this is a process of Ray's
            found = RayAddress(address=str(ray.get_runtime_context().gcs_address))
            _check_same(found, address)
        else:
            lock = None
            if wanted is None:
                files = RayFiles(data_dir)
                lock = files.lock("connected")
                found = ensure_local_ray(data_dir, on_progress=on_progress, connected=lock)
            else:
                found = _foreign(data_dir, wanted)
            try:
                _init(ray, found)
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
            _connection.lock, _connection.is_ours = lock, True
            _connection.ray = None if lock is None else RayFiles(data_dir).read()
        _connection.address, _connection.uses = found, 1
        return found


def disconnect_ray() -> None:
    """Undo one ``connect_ray``; the last one leaves Ray, which lives on. Without effect if not connected."""
    with _connection.guard:
        if _connection.uses == 0:
            return
        _connection.uses -= 1
        if _connection.uses:
            return
        if _connection.is_ours:
            import ray

            ray.shutdown()
        if _connection.lock is not None:
            _connection.lock.release()
        _connection.address, _connection.lock, _connection.ray, _connection.is_ours = None, None, None, False


def own_ray() -> LocalRay | None:
    """The local Ray that this process has joined; None if it joined another, or none."""
    with _connection.guard:
        return _connection.ray


def join_environment(found: RayAddress) -> None:
    """Set the variables that joining needs, for this process and its children, whether Ray is imported yet or not."""
    # Ray prefers a token in the environment to one in a file.
    is_in_the_way = "RAY_AUTH_TOKEN_PATH" in found.env and os.environ.pop("RAY_AUTH_TOKEN", None) is not None
    if not is_in_the_way and all(os.environ.get(name) == value for name, value in found.env.items()):
        return
    os.environ.update(found.env)
    # Ray reads both once, when it is imported.
    raylet: Any = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _check_same(joined: RayAddress, wanted: str | None) -> None:
    if wanted is not None and wanted not in (joined.address, "auto"):
        raise UsageError(
            f"This process is connected to the Ray at {joined.address}, so it cannot join {wanted} as well. "
            "Leave the first one, or use another process."
        )


def _init(ray: Any, found: RayAddress) -> None:  # Ray's own types are incomplete
    join_environment(found)
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    try:
        # Else Ray turns 127.0.0.1 into the machine's address in the network, where an own Ray does not listen.
        constants.ENABLE_RAY_CLUSTER = before and not found.address.startswith("127.0.0.1:")
        ray.init(
            address=found.address,
            namespace=found.namespace,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except Exception as error:
        raise ClusterUnreachable(
            f"The Ray at {found.address} could not be joined: {' '.join(str(error).split())[:500]}"
        ) from error
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _foreign(data_dir: Path, address: str) -> RayAddress:
    """The Ray at an address that somebody gave us, once it has answered."""
    if address.startswith("ray://"):
        raise UsageError(
            f"{address} is an address of Ray Client, which cannot stream. Run the script on a machine of the cluster "
            "and give the address of the head node, for example 10.0.0.1:6379."
        )
    if address == "local":
        raise UsageError(
            "the address 'local' would start a Ray that ends with this script, and all agents with it: leave it out, "
            "or unset RAY_ADDRESS, to use the local Ray of the data directory."
        )
    if address == "auto":
        address = _running()
    own = status(data_dir)
    env: dict[str, str] = {}
    if own.ray is not None and own.ray.address == address and "RAY_AUTH_MODE" not in os.environ:
        env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(RayFiles(data_dir).token)}
    found = RayAddress(address=address, env=env)
    join_environment(found)
    _ask(address)
    return found


def _running() -> str:
    """The Ray that runs on this machine, as `ray start` has noted it."""
    services: Any = importlib.import_module("ray._private.services")
    addresses = sorted(services.find_gcs_addresses())
    if not addresses:
        raise ClusterUnreachable(
            "RAY_ADDRESS or address= is 'auto', but no Ray runs on this machine: start one (`ray start --head`), give "
            "the address of one that runs elsewhere, or unset RAY_ADDRESS to use a local Ray of the data directory."
        )
    if len(addresses) > 1:
        raise UsageError(
            "RAY_ADDRESS or address= is 'auto', but several Rays run on this machine: "
            f"give one of {', '.join(addresses)}."
        )
    return str(addresses[0])


def _ask(address: str) -> None:
    """Return if a Ray that lets us in answers at the address.

    Raises:
        ClusterUnreachable: It does not; within 5 s.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ClusterUnreachable(
            f"RAY_ADDRESS or address= is {address!r}, which is not host:port, for example 10.0.0.1:6379.",
            retryable=False,
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS_MAX).close()
    except OSError as error:
        raise ClusterUnreachable(
            f"Nothing answers at {address} (from RAY_ADDRESS or address=): {error.strerror or error}. Is that Ray "
            "running? Unset RAY_ADDRESS to use a local Ray of the data directory."
        ) from error
    channel = Channel(address, "gcs_service_pb2")
    try:
        channel.call("NodeInfoGcsService", "GetClusterId", timeout=ANSWER_SECONDS_MAX)
    except RpcFailed as error:
        if error.code == "UNAUTHENTICATED":
            raise ClusterUnreachable(
                f"The Ray at {address} does not let this process in: {error.details or 'wrong or missing token'}. It "
                "was started with token authentication: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH or "
                "RAY_AUTH_TOKEN to its token.",
                retryable=False,
            ) from error
        raise ClusterUnreachable(
            f"What answers at {address} (from RAY_ADDRESS or address=) is not the control service of a Ray: {error}. "
            "The port is that of `ray start --head --port` (6379), not the dashboard's or a client server's."
        ) from error
    finally:
        channel.close()
