"""Services of a node: one actor for each node and name, hosting a plain class of another package.

A service is nothing durable: it has no storage and no address of its own, and when it dies it is created again by
whoever needs it next. The model relay is one.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from runtime.cluster.local import NAMESPACE
from runtime.cluster.transport import BACKPRESSURE_BATCHES, CONCURRENCY_MAX, ray_error
from runtime.errors import ConnectionLost
from runtime.transport import Died, Unreachable

__all__ = ["NodeService", "node_service"]


class ServiceActor:
    """Hosts one plain object; its async generator methods take bytes and yield bytes."""

    def __init__(self, module: str, qualname: str) -> None:
        self._home = (module, qualname)
        self._service: Any = None

    async def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """The items of one of the service's generator methods."""
        if self._service is None:
            found: Any = importlib.import_module(self._home[0])
            for part in self._home[1].split("."):
                found = getattr(found, part)
            self._service = found()
        items = getattr(self._service, method)(data)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()


class NodeService:
    """A handle to the service of this node; it outlives the service's process."""

    def __init__(self, cls: type, name: str) -> None:
        self._cls = cls
        self._name = name
        self._handle: Any = None

    async def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """Call a generator method; closing the iterator closes the generator at the service.

        Raises:
            ConnectionLost: The service's process ended, before or during the call.
        """
        handle = self._handle or self._made()
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": BACKPRESSURE_BATCHES}
        items = handle.stream.options(**options).remote(method, data)
        is_over = False
        try:
            async for reference in items:
                yield await reference
            is_over = True
        except Exception as error:
            is_over = True
            ours = ray_error(error, f"the service {self._name!r}")
            if isinstance(ours, Died | Unreachable):
                self._handle = None
                raise ConnectionLost(f"network connection lost: the service {self._name!r} ended: {ours}") from None
            raise ours from None
        finally:
            if not is_over:
                ray.cancel(items)

    def _made(self) -> Any:
        node = ray.get_runtime_context().get_node_id()
        actor: Any = ray.remote(ServiceActor)
        self._handle = actor.options(
            name=f"service-{self._name}-{node[:12]}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_concurrency=CONCURRENCY_MAX,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._cls.__module__, self._cls.__qualname__)
        return self._handle


def node_service(cls: type, name: str) -> NodeService:
    """The service ``name`` of this node, hosting an instance of ``cls``; started by its first use."""
    return NodeService(cls, name)
