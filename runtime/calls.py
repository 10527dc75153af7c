"""How methods are marked and found, and the call that running code serves."""

from __future__ import annotations

import contextvars
import functools
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from runtime.errors import UnknownMethod

__all__ = [
    "CallContext",
    "caller_side",
    "current_call",
    "idempotent",
    "is_idempotent",
    "method_of",
    "not_callable",
]

F = TypeVar("F", bound=Callable[..., Any])


class CallContext:
    """The call that the running code serves; ``key`` is its idempotency key, if it has one.

    The key of a context tells the object and the method too: keys made from it must differ where calls do that were
    given the same key.
    """

    __slots__ = ("_counts", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self._counts: Counter[str] = Counter()

    def derive(self, what: str) -> str:
        """A key for the next call of ``what`` made from inside this one; equal again when this call is repeated.

        Counted for each target by itself: calls to different targets may come in another order the next time, as
        parallel ones do.
        """
        self._counts[what] += 1
        text = f"{self.key}\x00{self._counts[what]}\x00{what}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


current_call: contextvars.ContextVar[CallContext | None] = contextvars.ContextVar("current_call", default=None)


def idempotent(function: F) -> F:
    """Declare that a method may run twice: a stub repeats its call when the object died in the middle of it."""
    function.__perdure_idempotent__ = True  # type: ignore[attr-defined]
    return function


def not_callable(function: F) -> F:
    """Declare that a method is a hook, which no stub reaches."""
    function.__perdure_hook__ = True  # type: ignore[attr-defined]
    return function


class caller_side:  # a decorator, used like property
    """A method that runs where it is called: ``self`` is the stub there, or the object itself inside of it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        return self.function if instance is None else self.function.__get__(instance)


@functools.lru_cache(maxsize=4096)
def is_idempotent(cls: type, method: str) -> bool:
    """Whether the method is declared to be repeatable."""
    return getattr(getattr(cls, method, None), "__perdure_idempotent__", False)


def _is_hook(cls: type, method: str) -> bool:
    # An override stays a hook, although its author did not say so again.
    definitions = [vars(base)[method] for base in cls.__mro__ if method in vars(base)]
    return any(getattr(definition, "__perdure_hook__", False) for definition in definitions)


@functools.lru_cache(maxsize=4096)
def method_of(cls: type, method: str) -> Callable[..., Any]:
    """The remotely callable function of that name.

    Raises:
        UnknownMethod: No such method, a private one, a hook, or something that is no method.
    """
    found = inspect.getattr_static(cls, method, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if method.startswith("_") or found is None:
        near = [name for name in dir(cls) if not name.startswith("_") and name[:3] == method[:3]]
        hint = f" Did you mean {' or '.join(near[:3])}?" if near and not method.startswith("_") else ""
        raise UnknownMethod(f"{cls.__name__} has no public method {method!r}.{hint}")
    if not inspect.isfunction(found) or _is_hook(cls, method):
        raise UnknownMethod(f"{cls.__name__}.{method} cannot be called from outside: it is no method or a hook.")
    return found
