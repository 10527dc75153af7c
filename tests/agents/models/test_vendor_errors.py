"""Every error of the vendor's SDK and of its HTTP library becomes one of ours (style 6)."""

from __future__ import annotations

import inspect
from typing import Any

import anthropic
import httpx2
import pytest

from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused
from agents.models.anthropic import foreign_errors, our_error
from agents.models.batches import ModelCall
from runtime.errors import PerdureError
from tests.agents.models.requests import request, user

CALL = ModelCall(request=request(user("hi")), model="m", api_key="sk-secret", base_url="http://service", max_tokens=9)
REQUEST = httpx2.Request("POST", "http://service/v1/messages")
# An answer that refuses, by what the caller should do about it.
OF_STATUS: dict[int, type[PerdureError]] = {
    **dict.fromkeys((400, 401, 402, 403, 404, 413, 422), ModelRefused),
    **dict.fromkeys((429, 503, 529), ModelOverloaded),
    **dict.fromkeys((408, 409, 500, 502, 504), ModelConnectionLost),
}


def exceptions_of(module: Any) -> list[type[Exception]]:
    classes = [found for found in vars(module).values() if inspect.isclass(found) and issubclass(found, Exception)]
    return sorted(set(classes), key=lambda cls: cls.__name__)


def made(cls: type[Exception], status: int = 400) -> Exception:
    """As the library raises it, with the key in its words."""
    words = "sk-secret is wrong"
    parameters = inspect.signature(cls.__init__).parameters
    known: dict[str, Any] = {
        "request": REQUEST,
        "response": httpx2.Response(status, request=REQUEST),
        "body": {"error": {"type": "", "message": words}},
        "message": words,
    }
    if "args" in parameters:
        return cls(words)
    return cls(**{name: value for name, value in known.items() if name in parameters})


@pytest.mark.parametrize("cls", [*exceptions_of(anthropic), *exceptions_of(httpx2)], ids=lambda cls: cls.__name__)
def test_an_error_becomes_one_of_ours_that_names_the_model_and_not_the_key(cls: type[Exception]) -> None:
    assert issubclass(cls, foreign_errors()), "nobody catches it"
    ours = our_error(made(cls), CALL)
    assert isinstance(ours, ModelRefused | ModelOverloaded | ModelConnectionLost)
    assert "m " in f"{ours} "
    assert "sk-secret" not in str(ours)


@pytest.mark.parametrize("status", sorted(OF_STATUS))
def test_a_status_says_whether_to_ask_again(status: int) -> None:
    assert type(our_error(made(anthropic.APIStatusError, status), CALL)) is OF_STATUS[status]


@pytest.mark.parametrize(
    "cls", [httpx2.ReadTimeout, httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.StreamClosed]
)
def test_a_connection_that_breaks_is_worth_another_try(cls: type[Exception]) -> None:
    assert type(our_error(made(cls), CALL)) is ModelConnectionLost


@pytest.mark.parametrize("cls", [httpx2.InvalidURL, httpx2.UnsupportedProtocol])
def test_an_address_that_is_none_is_not_tried_again(cls: type[Exception]) -> None:
    ours = our_error(made(cls), CALL)
    assert type(ours) is ModelRefused
    assert "base_url" in str(ours)
