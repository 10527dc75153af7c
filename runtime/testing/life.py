"""One simulated process: an instance, all its tasks, and an end as sudden as SIGKILL.

A killed process runs nothing more, not even a ``finally``. A task can only be cancelled, which runs a good deal. So
every task of a simulated process is stepped by ``_steps``, which after the death never resumes the coroutine again: it
is kept, frozen, until the cluster closes. Which process a task belongs to is told by a context variable, as
``runtime.stretch`` tells which object.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import types
import weakref
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from runtime.errors import PerdureError
from runtime.host import Host
from runtime.ids import ObjectId
from runtime.stretch import current_stretches, stepped
from runtime.testing.faults import Crashed, FaultyStore
from runtime.transport import Died
from runtime.wire import Activation

__all__ = ["Life", "current_life", "install_lives"]

T = TypeVar("T")


class Life:
    """One process of the simulation.

    Attributes:
        activation: What it was made with.
        host: The instance in it; None until its first frame, as in a real process.
        store: Its open database.
    """

    def __init__(self, activation: Activation) -> None:
        self.activation = activation
        self.object_id: ObjectId = activation.object_id
        self.host: Host | None = None
        self.store: FaultyStore | None = None
        self.is_dead = False
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.frozen: list[Any] = []
        self._replies: set[asyncio.Future[Any]] = set()

    def check(self) -> None:
        """Raise ``Crashed`` if the process is dead."""
        if self.is_dead:
            raise Crashed(f"{self.object_id} is dead")

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``work`` in this process: with none of the caller's context."""
        context = contextvars.Context()
        context.run(current_life.set, self)
        return asyncio.get_running_loop().create_task(work, name=name, context=context)

    def reply(self) -> asyncio.Future[Any]:
        """A future that breaks with ``Died`` if the process ends before it has an answer."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies.add(reply)
        reply.add_done_callback(self._replies.discard)
        return reply

    async def answered(self, seconds: float) -> None:
        """Return when nobody waits for an answer any more, or after ``seconds``."""
        if self._replies:
            await asyncio.wait(self._replies, timeout=seconds)

    def end(self, reason: str, *, is_intended: bool = False) -> None:
        """Run nothing more; the files are let go, callers learn of it."""
        if self.is_dead:
            return
        self.is_dead = True
        if self.store is not None:
            with contextlib.suppress(PerdureError):
                self.store.die()
        if self.host is not None and self.host.lease is not None:
            self.host.lease.release()
        for reply in list(self._replies):
            if not reply.done():
                reply.set_exception(Died(reason, is_intended=is_intended))
                reply.exception()  # whoever still waits gets it; if nobody does, that is no news
        running = asyncio.current_task()
        for task in list(self.tasks):
            if task is not running:
                task.cancel()

    def bury(self) -> None:
        """Close what was frozen. Its ``finally`` blocks run now, with dead storage, and may fail as they like."""
        for coroutine in self.frozen:
            with contextlib.suppress(BaseException):
                coroutine.close()
        self.frozen.clear()


current_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("current_life", default=None)


def install_lives(loop: asyncio.AbstractEventLoop) -> None:
    """Make every task that a simulated process spawns end with it, and step those of its object."""

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context: contextvars.Context = options.get("context") or contextvars.copy_context()
        life, stretches = context.get(current_life), context.get(current_stretches)
        inner = coroutine
        options.setdefault("name", getattr(inner, "__qualname__", None))
        if stretches is not None:
            coroutine = stepped(coroutine, stretches)
        if life is not None:
            coroutine = _steps(coroutine, inner, life)
        task = asyncio.Task(coroutine if coroutine is inner else _awaited(coroutine), loop=loop, **options)
        if life is not None:
            life.tasks.add(task)
            task.add_done_callback(lambda _: _close_unstarted(inner))
        return task

    factory.is_stepping = True  # type: ignore[attr-defined]  # so that the runtime does not install its own
    loop.set_task_factory(factory)


async def _awaited(steps: Any) -> Any:
    """A task needs a true coroutine; ``await`` takes one that is a generator."""
    return await steps


def _close_unstarted(coroutine: Any) -> None:
    """What a task never began, because it was cancelled before, would be reported as forgotten."""
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()


@types.coroutine
def _steps(coroutine: Any, inner: Any, life: Life) -> Generator[Any, Any, Any]:
    """Run ``coroutine``, which may be ``inner`` stepped for its object, while ``life`` lasts."""
    value: Any = None
    error: BaseException | None = None
    while not life.is_dead:
        try:
            if error is None:
                waited = coroutine.send(value)
            else:
                thrown, error = error, None
                waited = coroutine.throw(thrown)
        except StopIteration as stop:
            return stop.value
        except BaseException:
            if life.is_dead:
                break  # it was in this task that the process died
            raise
        value = None
        if life.is_dead:
            break
        try:
            value = yield waited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as thrown_in:
            error = thrown_in
    life.frozen += [coroutine, inner]
    raise asyncio.CancelledError(f"the process of {life.object_id} is dead")
