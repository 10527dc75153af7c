"""Claude, as an agent sees it.

Making one is cheap and loads nothing: ``get_model`` makes one each turn. The work is done by the node's relay, or in a
script by this process (``agents.models.relay``).
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import AsyncGenerator, Mapping

from agents.core.chunks import JsonObject
from agents.errors import ModelRefused
from agents.models.batches import ModelCall
from agents.models.model import ModelPart, ModelRequest
from agents.models.relay import parts_of

__all__ = ["KEY_VARIABLE", "Claude"]

KEY_VARIABLE = "ANTHROPIC_API_KEY"
URL_VARIABLE = "ANTHROPIC_BASE_URL"
DEFAULT_URL = "https://api.anthropic.com"
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class Claude:
    """A model of Anthropic's.

    Args:
        model: Its name there.
        max_tokens: Of an answer, if the turn sets no limit.
        api_key: Instead of the variable ANTHROPIC_API_KEY of this process. A service on this machine needs none.
        base_url: Instead of the variable ANTHROPIC_BASE_URL, of any service that speaks the Messages API.
        thinking: ``"adaptive"``, a budget of tokens (at least 1,024), or the field of the API itself.
        effort: ``low``, ``medium``, ``high``, ``xhigh`` or ``max``.
        prompt_caching: Let the service keep the unchanged beginning of a conversation, which costs a tenth then.
        timeout: Seconds without a byte after which the connection counts as lost.
        retries: How often a request is sent again before its first part.
        headers: Additional headers, for example ``{"anthropic-beta": "..."}``.
        options: Additional fields of the request's body.
    """

    def __init__(
        self,
        model: str = "claude-sonnet-5-5",
        max_tokens: int = 16_000,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        thinking: str | int | JsonObject | None = None,
        effort: str | None = None,
        prompt_caching: bool = True,
        timeout: float = 60.0,
        retries: int = 2,
        headers: Mapping[str, str] | None = None,
        options: JsonObject | None = None,
    ) -> None:
        self.model_id = model
        self.base_url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        self._key = api_key or os.environ.get(KEY_VARIABLE) or ""
        self._max_tokens = max_tokens
        self._is_caching = prompt_caching
        self._timeout = timeout
        self._retries = retries
        self._headers = dict(headers or {})
        self._extra: JsonObject = dict(options or {})
        if thinking is not None:
            self._extra["thinking"] = _thinking_field(thinking)
        if effort is not None:
            self._extra["output_config"] = {**self._extra.get("output_config", {}), "effort": effort}

    def __repr__(self) -> str:
        return f"Claude({self.model_id!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield the parts of the answer. Closing the generator ends the request at the service.

        Raises:
            ModelRefused: The service refuses the request or the key, or there is no key.
            ModelOverloaded: It has too much to do, still after all retries.
            ModelConnectionLost: It cannot be reached, or the connection or the relay was lost.
        """
        parts = parts_of(self._call(request))
        try:
            async for part in parts:
                yield part
        finally:
            await parts.aclose()

    def _call(self, request: ModelRequest) -> ModelCall:
        assert request.messages, "a request needs a message (turns A7)"
        assert request.messages[-1].role == "user", "a request ends with a user message, at least a nudge (turns A9)"
        return ModelCall(
            request=request,
            model=self.model_id,
            api_key=self._key or self._stand_in_key(),
            base_url=self.base_url,
            max_tokens=self._max_tokens,
            extra=self._extra,
            headers=self._headers,
            timeout=self._timeout,
            retries=self._retries,
            is_caching=self._is_caching,
        )

    def _stand_in_key(self) -> str:
        """What stands for the key at a service of this machine, which asks for none.

        Raises:
            ModelRefused: The service is not on this machine.
        """
        if urllib.parse.urlsplit(self.base_url).hostname in LOOPBACK:
            return "none"
        raise ModelRefused(
            f"{self.model_id} at {urllib.parse.urlsplit(self.base_url).netloc} needs a key: set the variable "
            f"{KEY_VARIABLE} for the processes of the agents, pass Claude(api_key=...), or use Offline().",
            status=401,
        )


def _thinking_field(thinking: str | int | JsonObject) -> JsonObject:
    if isinstance(thinking, str):
        return {"type": thinking}
    return {"type": "enabled", "budget_tokens": thinking} if isinstance(thinking, int) else thinking
