"""Stepping coroutines so that a synchronous stretch is one transaction.

A stretch is what runs between two awaits that really wait. The host does not hand a coroutine to the event loop; it
steps it, and whenever the coroutine yields (or ends) the writes of that stretch are committed before anything else
runs. So the rule of the output gate, nothing leaves before the write under it is durable, holds by construction:
a reply is made after the last stretch, and calls that we make ourselves ask ``Stretches.flush`` first. The input gate
is kept at the same place: a coroutine is stepped on only while its object is open to it.

Tasks that user code spawns are stepped the same way, through the loop's task factory.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any, Protocol, TypeVar

__all__ = [
    "Committed",
    "Stretches",
    "current_stretches",
    "flush_current",
    "install_task_factory",
    "plain_task",
    "stepped",
]

T = TypeVar("T")


class Committed(asyncio.Future[None]):
    """Resolves when the commit is done for which the object holds everything else up.

    A coroutine that awaits it goes on within the very step that ends the hold, before any other is let in.
    """


class Stretches(Protocol):
    """The host's side: knows whether a stretch has written, and ends it."""

    @property
    def is_closed(self) -> bool:
        """Whether the running coroutine must wait before it goes on."""
        ...

    def opened(self) -> Generator[Any, None, None]:
        """Wait until ``is_closed`` may have changed."""
        ...

    @property
    def is_dirty(self) -> bool:
        """Whether the present stretch has uncommitted writes, or must wait for a commit under way."""
        ...

    def end(self) -> Generator[Any, None, None]:
        """Commit the stretch; yields, a ``Committed``, only while a commit has to wait (an alarm's announcement)."""
        ...


current_stretches: contextvars.ContextVar[Stretches | None] = contextvars.ContextVar("current_stretches", default=None)


@types.coroutine
def stepped(coroutine: Coroutine[Any, Any, T], stretches: Stretches) -> Generator[Any, Any, T]:
    """Run ``coroutine`` and end the stretch each time it waits, returns or raises.

    Writes made before an exception are kept: a handler that raises does not undo what it wrote (only transactions
    do). If the commit itself fails, its error replaces the outcome and the coroutine is closed.
    """
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            while stretches.is_closed:
                try:
                    yield from stretches.opened()
                except asyncio.CancelledError as cancelled:
                    error = cancelled
            try:
                if error is None:
                    waited = coroutine.send(value)
                else:
                    thrown, error = error, None
                    waited = coroutine.throw(thrown)
            except StopIteration as stop:
                if stretches.is_dirty:
                    yield from stretches.end()
                result: T = stop.value
                return result
            except BaseException:
                if stretches.is_dirty:
                    yield from stretches.end()
                raise
            value = None
            if stretches.is_dirty:
                try:
                    yield from stretches.end()
                except asyncio.CancelledError as cancelled:
                    # As the loop does it: what the coroutine waits for is cancelled with it.
                    if waited is not None:
                        waited.cancel()
                    error = cancelled
                    continue
                if isinstance(waited, Committed):
                    continue  # it awaited just that
            try:
                value = yield waited
            except GeneratorExit:
                raise
            except BaseException as thrown_in:
                error = thrown_in
    finally:
        # It may refuse to be closed, by an await in a ``finally``; the error that closes it is the one to see.
        with contextlib.suppress(Exception):
            coroutine.close()


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Step every task that is spawned from inside an object; others run as usual. Safe to call twice."""
    if getattr(loop.get_task_factory(), "is_stepping", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        stretches = context.get(current_stretches) if context is not None else current_stretches.get()
        if stretches is None or not asyncio.iscoroutine(coroutine):
            return asyncio.Task(coroutine, loop=loop, **options)
        # The steps have no qualified name of their own; keep the user's for debuggers.
        options["name"] = options.get("name") or getattr(coroutine, "__qualname__", None)
        task = asyncio.Task(_awaited(stepped(coroutine, stretches)), loop=loop, **options)
        # Cancelled before its first step, it would be reported as never awaited.
        task.add_done_callback(lambda _: coroutine.close())
        return task

    factory.is_stepping = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)


async def _awaited(steps: Any) -> Any:  # the steps are a generator; from Python 3.12 on a task takes none
    return await steps


def plain_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of the host's own, whoever starts it: no stretch of the object, and never suspended by its gates."""
    context = contextvars.copy_context()
    context.run(current_stretches.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)


@types.coroutine
def flush_current() -> Generator[Any, None, None]:
    """The output gate: make what the running object wrote so far durable. Outside of an object, nothing happens."""
    stretches = current_stretches.get()
    if stretches is not None and stretches.is_dirty:
        yield from stretches.end()
