"""Anthropic's service through its SDK: one request, its parts, and its errors as ours.

This is the only module that knows the SDK, and it loads it late: importing it costs seconds and 69 MiB, which only the
process that talks to the service may pay (the relay of a node, a script, a test). The import runs in a thread, so that
the loop goes on meanwhile.

The SDK's own retries are off: it would obey a ``retry-after`` of any length, and who owns a turn must own its retries
(``agents.models.relay``). Its events are taken raw; its accumulating stream costs more than twice the time and mends
input that was cut off, without saying so.

    what happens                                          what is raised
    400, 402, 403, 404, 413, 422 and others of 4xx        ModelRefused, with the service's words
    401                                                   ModelRefused, which names ANTHROPIC_API_KEY
    429, 503, 529; overloaded or rate-limited mid-stream  ModelOverloaded, with retry_after if it was given
    500, 502, 504, 408, 409                               ModelConnectionLost
    refused, reset, no answer in time, cut, stalled       ModelConnectionLost
    a stream without its last event, broken JSON or text  ModelConnectionLost
    200, but no event stream                              ModelConnectionLost, not retryable: the address is wrong
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import urllib.parse
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from agents.core.chunks import JsonObject
from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused
from agents.models.batches import ModelCall
from agents.models.messages_api import EventReader, body_of
from agents.models.model import ModelPart
from runtime.errors import PerdureError

if TYPE_CHECKING:
    import anthropic
    import httpx2

__all__ = ["Anthropic"]

CONNECT_TIMEOUT_S = 5.0
# Clients are told apart by key and address; they share the connections, so only small objects are kept.
CLIENTS_MAX = 32
ERROR_CHARACTERS_MAX = 2_000

OVERLOADED_STATUSES = frozenset((429, 503, 529))
OVERLOADED_TYPES = frozenset(("overloaded_error", "rate_limit_error"))
FAILED_STATUSES = frozenset((408, 409))
WAYS_OUT = {
    400: "The request itself is at fault; the same request is refused again.",
    401: "Check the key in ANTHROPIC_API_KEY, or pass api_key=.",
    402: "Check the account's billing.",
    403: "The key may not use this model or feature; use another one.",
    404: "Check the model's name and base_url.",
    413: "The request is too large: send fewer or smaller files, or compact the session.",
}

# Settings of a request that the SDK takes as they are; all others reach the service in the body.
OWN_SETTINGS = frozenset(("headers", "timeout", "max_retries"))


class Anthropic:
    """The service, as one process sees it: the SDK's clients and their connections. Bound to one event loop."""

    def __init__(self) -> None:
        self._root: anthropic.AsyncAnthropic | None = None
        self._clients: OrderedDict[tuple[str, str], anthropic.AsyncAnthropic] = OrderedDict()

    async def stream(self, call: ModelCall) -> AsyncGenerator[ModelPart, None]:
        """Send one request, once, and yield its parts. Closing the generator ends the request at once.

        Raises:
            ModelRefused, ModelOverloaded, ModelConnectionLost: See the module's table.
        """
        if self._root is None:
            await asyncio.to_thread(importlib.import_module, "anthropic")
        import httpx2

        timeout = httpx2.Timeout(_timeout(call), connect=CONNECT_TIMEOUT_S)
        try:
            client = self._client(call)
            events = await client.messages.create(**arguments_of(call), stream=True, timeout=timeout)
            async with events:
                _check_type(call, events.response.headers.get("content-type", ""))
                reader = EventReader()
                async for event in events:
                    for part in _read(reader, event, call):
                        yield part
                if not reader.is_whole:
                    raise ModelConnectionLost(f"{_name(call)} ended its answer before it was whole. Ask again.")
        except foreign_errors() as error:
            raise our_error(error, call) from error

    def _client(self, call: ModelCall) -> anthropic.AsyncAnthropic:
        import anthropic

        key, root = (call.base_url, call.api_key), self._root
        client = self._clients.pop(key, None)
        if root is None:
            client = self._root = anthropic.AsyncAnthropic(
                api_key=call.api_key, base_url=call.base_url, max_retries=0, open_telemetry={"traces": False}
            )
        elif client is None:
            client = root.with_options(api_key=call.api_key, base_url=call.base_url)
        self._clients[key] = client
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return client

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        root, self._root = self._root, None
        self._clients.clear()
        if root is not None:
            await root.close()


def _read(reader: EventReader, event: Any, call: ModelCall) -> list[ModelPart]:
    try:
        return list(reader.read(event))
    except (AttributeError, TypeError, KeyError) as error:  # the SDK checks no event, so any field may be missing
        raise ModelConnectionLost(
            f"{_name(call)} sent an event that is not of its protocol ({error}). Check base_url.", retryable=False
        ) from error


def _timeout(call: ModelCall) -> float:
    return float(call.request.settings.get("timeout") or call.timeout)


def arguments_of(call: ModelCall) -> JsonObject:
    """What the SDK is called with; the SDK takes no sampling settings, so they go through its ``extra_body``.

    Of ``provider_options`` the entry ``anthropic`` holds fields of the service's own body.
    """
    request = call.request
    settings = {key: value for key, value in request.settings.items() if key not in OWN_SETTINGS}
    options = request.provider_options.get("anthropic", {})
    headers = {**call.headers, **request.settings.get("headers", {})}
    return {
        "model": call.model,
        **body_of(request, max_tokens=call.max_tokens, is_caching=call.is_caching),
        "extra_body": {**call.extra, **settings, **options},
        "extra_headers": headers,
    }


def _name(call: ModelCall) -> str:
    return f"{call.model} at {urllib.parse.urlsplit(call.base_url).netloc or call.base_url}"


def _check_type(call: ModelCall, content_type: str) -> None:
    if not content_type.startswith("text/event-stream"):
        raise ModelConnectionLost(
            f"{_name(call)} answered with {content_type or 'no content type'} instead of an event stream. "
            "Check base_url: something else than a model may live there.",
            retryable=False,
        )


def foreign_errors() -> tuple[type[Exception], ...]:
    """All that a request can raise that is not ours."""
    import anthropic
    import httpx2

    own = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.CookieConflict, httpx2.StreamError)
    return (anthropic.AnthropicError, *own, ValueError)


def our_error(error: Exception, call: ModelCall) -> PerdureError:
    """The error of ``agents.errors`` for one of the SDK, of its HTTP library, or of broken JSON."""
    import anthropic
    import httpx2

    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, call)
    if isinstance(error, anthropic.APITimeoutError | httpx2.ReadTimeout):
        return ModelConnectionLost(
            f"{_name(call)} sent nothing for {_timeout(call):g} s. Ask again, or raise timeout=."
        )
    if isinstance(error, anthropic.APIConnectionError):
        cause = _shown(str(error.__cause__ or error), call)
        return ModelConnectionLost(f"{_name(call)} cannot be reached: {cause}. Check the network and base_url.")
    if isinstance(error, json.JSONDecodeError):
        return ModelConnectionLost(f"{_name(call)} sent an event that is no JSON: {error}. Ask again.")
    if isinstance(error, UnicodeDecodeError):
        return ModelConnectionLost(f"{_name(call)} sent an event that is no text: {error}. Ask again.")
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return ModelRefused(f"{_name(call)} has no usable address: {_shown(str(error), call)}. Check base_url.")
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
        return ModelConnectionLost(f"The connection to {_name(call)} was cut: {_shown(str(error), call)}. Ask again.")
    return ModelRefused(f"The request to {_name(call)} could not be made: {_shown(str(error), call)}")


def _of_status(error: anthropic.APIStatusError, call: ModelCall) -> PerdureError:
    """An error that the service put in words. In mid-stream the status is 200, so its type decides too."""
    status, kind = error.status_code, error.type or ""
    told = _shown(error.api_message or error.message, call)
    if status in OVERLOADED_STATUSES or kind in OVERLOADED_TYPES:
        retry_after = _retry_after(error.response)
        wait = f" It asks to wait {retry_after:g} s." if retry_after else ""
        message = f"{_name(call)} has too much to do ({status} {kind}): {told}.{wait} Ask again later."
        return ModelOverloaded(message, status=status, retry_after=retry_after)
    if status >= 500 or status in FAILED_STATUSES or (status < 400 and kind in ("api_error", "timeout_error", "")):
        return ModelConnectionLost(f"{_name(call)} failed ({status} {kind}): {told}. Ask again.")
    way_out = WAYS_OUT.get(status, WAYS_OUT[400])
    return ModelRefused(f"{_name(call)} refuses the request ({status} {kind}): {told}. {way_out}", status=status)


def _retry_after(response: httpx2.Response) -> float:
    with contextlib.suppress(ValueError):
        return max(0.0, float(response.headers.get("retry-after", "")))
    return 0.0


def _shown(text: str, call: ModelCall) -> str:
    """A text of the other side, short and without the key, which it may repeat."""
    text = text.replace(call.api_key, "***") if call.api_key else text
    return text[:ERROR_CHARACTERS_MAX].rstrip(". \n")
