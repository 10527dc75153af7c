"""Plain requests to Ray's own processes, for what its Python interface cannot ask.

Two uses: whether a Ray answers at an address (``join.py``), and warm workers (``pool.py``). Both are internal
interfaces of Ray, so both callers treat every failure as "this Ray cannot do that".
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["Channel", "RpcFailed"]


class RpcFailed(Exception):
    """The request was not answered; ``code`` is the name of gRPC's status."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code} {details}".strip())
        self.code, self.details = code, details


class Channel:
    """A connection to one of Ray's processes, with the token of this process if it has one.

    The messages are Ray's generated protobuf classes, which have no types; whence Any.
    """

    def __init__(self, address: str, messages: str) -> None:
        """Nothing is sent yet.

        Args:
            address: ``host:port``.
            messages: The module below ``ray.core.generated`` with the service's messages.
        """
        self._grpc: Any = importlib.import_module("grpc")
        self._messages: Any = importlib.import_module(f"ray.core.generated.{messages}")
        self._channel: Any = self._grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])

    def call(self, service: str, method: str, *, timeout: float, **fields: Any) -> Any:
        """Send one request and wait for its answer, for at most ``timeout`` seconds.

        Raises:
            RpcFailed: No answer, or a refusal.
        """
        request, reply = getattr(self._messages, f"{method}Request"), getattr(self._messages, f"{method}Reply")
        send = self._channel.unary_unary(
            f"/ray.rpc.{service}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            return send(request(**fields), timeout=timeout, metadata=_metadata())
        except self._grpc.RpcError as error:
            raise RpcFailed(error.code().name, str(error.details() or "")) from error

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _metadata() -> list[tuple[str, str]]:
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return []
    raylet: Any = importlib.import_module("ray._raylet")
    loader = raylet.AuthenticationTokenLoader.instance()
    if not loader.has_token(ignore_auth_mode=True):
        return []
    return [("authorization", f"Bearer {loader.get_raw_token(ignore_auth_mode=True)}")]
