"""Stepping coroutines so that a synchronous stretch is one transaction.

A stretch is what runs between two awaits that really wait. The host does not hand a coroutine to the event loop; it
steps it, and whenever the coroutine yields (or ends) the writes of that stretch are committed before anything else
runs. So the rule of the output gate, nothing leaves before the write under it is durable, holds by construction:
a reply is made after the last stretch, and calls that we make ourselves ask ``Stretches.flush`` first.

Tasks that user code spawns are stepped the same way, through the loop's task factory.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any, Protocol, TypeVar

__all__ = ["Stretches", "current_stretches", "flush_current", "install_task_factory", "stepped"]

T = TypeVar("T")


class Stretches(Protocol):
    """The host's side: knows whether a stretch has written, and ends it."""

    @property
    def is_dirty(self) -> bool:
        """Whether the present stretch has uncommitted writes, or must wait for a commit under way."""
        ...

    def end(self) -> Generator[Any, None, None]:
        """Commit the stretch; yields only while a commit has to wait (an alarm's announcement)."""
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
            try:
                if stretches.is_dirty:
                    yield from stretches.end()
                value = yield waited
            except GeneratorExit:
                raise
            except BaseException as thrown_in:
                error = thrown_in
    finally:
        coroutine.close()


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Step every task that is spawned from inside an object; others run as usual. Safe to call twice."""
    if getattr(loop.get_task_factory(), "is_stepping", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        stretches = context.get(current_stretches) if context is not None else current_stretches.get()
        if stretches is not None and asyncio.iscoroutine(coroutine):
            name = getattr(coroutine, "__qualname__", "task")
            coroutine = stepped(coroutine, stretches)
            # A generator-based coroutine has no qualified name of its own; keep the user's for debuggers.
            options.setdefault("name", options.pop("name", None) or name)
        return asyncio.Task(coroutine, loop=loop, **options)

    factory.is_stepping = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)


@types.coroutine
def flush_current() -> Generator[Any, None, None]:
    """The output gate: make what the running object wrote so far durable. Outside of an object, nothing happens."""
    stretches = current_stretches.get()
    if stretches is not None and stretches.is_dirty:
        yield from stretches.end()
