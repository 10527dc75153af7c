"""Every way in which the service can fail, as an error of ours: each against a real server, with the real SDK."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused
from agents.models import Claude
from agents.models.batches import ModelCall
from agents.models.relay import ModelRelay
from tests.anthropic_server import (
    Answer,
    AnthropicServer,
    Cut,
    Raw,
    Stall,
    error_event,
    html,
    message,
    refusal,
    text,
)

from .requests import collect, request, text_of, user

pytestmark = pytest.mark.usefixtures("in_process")

WHOLE = message(text("Hello.", 3))
# Start, ping, block start, one delta.
BEGUN = 4


async def error_for(answer: Answer, **options: Any) -> Exception:
    """What Claude raises for one answer, without retries."""
    async with AnthropicServer(answer) as server:
        with pytest.raises((ModelRefused, ModelOverloaded, ModelConnectionLost)) as caught:
            await collect(Claude(base_url=server.url, retries=0, **options).stream(request(user("hi"))))
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind", "way_out"),
    [
        (400, "invalid_request_error", "the same request is refused again"),
        (401, "authentication_error", "Check the key in ANTHROPIC_API_KEY"),
        (402, "billing_error", "billing"),
        (403, "permission_error", "use another one"),
        (404, "not_found_error", "Check the model's name"),
        (413, "request_too_large", "compact the session"),
        (422, "invalid_request_error", "refused again"),
    ],
)
async def test_a_refusal_carries_the_services_words_and_a_way_out(status: int, kind: str, way_out: str) -> None:
    error = await error_for(refusal(status, kind, "words of the service."))

    assert isinstance(error, ModelRefused)
    assert error.status == status
    expected = rf"claude-sonnet-5-5 at 127.0.0.1:\d+ refuses the request \({status} {kind}\): words of the service\. "
    assert re.match(expected, error.message)
    assert way_out in error.message


async def test_a_wrong_key_is_not_repeated_even_if_the_service_repeats_it() -> None:
    async with AnthropicServer(keys=["good"]) as server:
        with pytest.raises(ModelRefused, match=r"invalid bearer token \*\*\*") as caught:
            await collect(Claude(base_url=server.url, api_key="sk-wrong").stream(request(user("hi"))))

    assert "sk-wrong" not in str(caught.value)


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (503, "x"), (529, "overloaded_error")])
async def test_too_much_to_do_is_an_overload(status: int, kind: str) -> None:
    error = await error_for(refusal(status, kind, "busy"))

    assert isinstance(error, ModelOverloaded)
    assert (error.status, error.retryable) == (status, True)


async def test_an_overload_carries_the_seconds_that_the_service_asks_for() -> None:
    error = await error_for(refusal(429, "rate_limit_error", "slow down", ("retry-after", "17")))

    assert isinstance(error, ModelOverloaded)
    assert (error.retry_after, "wait 17 s" in error.message) == (17.0, True)


@pytest.mark.parametrize(("status", "kind"), [(500, "api_error"), (502, "x"), (504, "timeout_error"), (408, "x")])
async def test_a_failing_service_is_a_lost_connection(status: int, kind: str) -> None:
    error = await error_for(refusal(status, kind, "internal"))

    assert isinstance(error, ModelConnectionLost)
    assert (error.retryable, "internal" in error.message) == (True, True)


async def test_an_error_page_is_a_lost_connection() -> None:
    assert isinstance(await error_for(html("<html>Bad gateway", status=502)), ModelConnectionLost)


async def test_an_overload_in_mid_stream_is_an_overload() -> None:
    """The SDK reports it with status 200."""
    error = await error_for(WHOLE.first(BEGUN, error_event("overloaded_error", "Overloaded")))

    assert isinstance(error, ModelOverloaded)
    assert "Overloaded" in error.message


async def test_an_error_of_the_service_in_mid_stream_is_a_lost_connection() -> None:
    assert isinstance(await error_for(WHOLE.first(BEGUN, error_event("api_error", "oops"))), ModelConnectionLost)


async def test_a_refusal_in_mid_stream_is_a_refusal() -> None:
    assert isinstance(await error_for(WHOLE.first(BEGUN, error_event("invalid_request_error", "no"))), ModelRefused)


async def test_a_connection_that_is_cut_is_lost() -> None:
    error = await error_for(WHOLE.first(BEGUN, Cut()))

    assert isinstance(error, ModelConnectionLost)
    assert "was cut" in error.message


async def test_a_silent_service_is_a_lost_connection() -> None:
    error = await error_for(WHOLE.first(BEGUN, Stall()), timeout=0.05)

    assert isinstance(error, ModelConnectionLost)
    assert "sent nothing for 0.05 s" in error.message


async def test_a_service_that_never_answers_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = Claude(base_url=f"http://127.0.0.1:{silent.getsockname()[1]}", retries=0, timeout=0.05)
        with pytest.raises(ModelConnectionLost, match=r"sent nothing for 0\.05 s"):
            await collect(model.stream(request(user("hi"))))


async def test_a_service_that_cannot_be_reached_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

    with pytest.raises(ModelConnectionLost, match=r"cannot be reached: .* Check the network and base_url"):
        await collect(Claude(base_url=url, retries=0).stream(request(user("hi"))))


async def test_a_connection_that_is_closed_before_the_answer_is_lost() -> None:
    error = await error_for(Answer((Cut(),), headers=()))

    assert isinstance(error, ModelConnectionLost)


async def test_an_answer_without_its_last_event_is_a_lost_connection() -> None:
    """The SDK takes it for a whole one."""
    error = await error_for(WHOLE.first(len(WHOLE.parts) - 1))

    assert isinstance(error, ModelConnectionLost)
    assert "before it was whole" in error.message


async def test_an_empty_stream_is_a_lost_connection() -> None:
    assert isinstance(await error_for(Answer()), ModelConnectionLost)


async def test_a_page_instead_of_a_stream_is_an_error_that_names_the_address() -> None:
    error = await error_for(html())

    assert isinstance(error, ModelConnectionLost)
    assert ("text/html instead of an event stream. Check base_url" in error.message, error.retryable) == (True, False)


async def test_an_event_that_is_no_json_is_a_lost_connection() -> None:
    error = await error_for(WHOLE.first(BEGUN, Raw(b'event: content_block_delta\ndata: {"type":\n\n')))

    assert isinstance(error, ModelConnectionLost)
    assert "no JSON" in error.message


async def test_an_event_that_is_no_text_is_a_lost_connection() -> None:
    error = await error_for(WHOLE.first(BEGUN, Raw(b"event: content_block_delta\ndata: \xff\xfe\n\n")))

    assert isinstance(error, ModelConnectionLost)
    assert "no text" in error.message


async def test_an_event_without_its_fields_is_a_lost_connection() -> None:
    error = await error_for(WHOLE.first(BEGUN, {"type": "content_block_start", "index": 1}))

    assert isinstance(error, ModelConnectionLost)
    assert "not of its protocol" in error.message


class Waits:
    """Instead of sleeping: remembers how long it was asked to."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def relayed(server: AnthropicServer, waits: Waits, *, retries: int = 2, **settings: Any) -> list[Any]:
    """The parts that a relay yields, which does not sleep."""
    asked = request(user("hi"), settings=settings)
    call = ModelCall(request=asked, model="m", api_key="k", base_url=server.url, max_tokens=9, retries=retries)
    relay = ModelRelay(sleep=waits)
    try:
        return await collect(relay.parts(call))
    finally:
        await relay.close()


async def test_an_overload_before_the_first_part_is_tried_again() -> None:
    waits = Waits()
    busy = refusal(529, "overloaded_error", "busy")
    async with AnthropicServer(busy, busy, WHOLE) as server:
        assert text_of(await relayed(server, waits)) == "Hello."

    first, second = waits.seconds
    assert 0.375 <= first <= 0.5
    assert 0.75 <= second <= 1.0


async def test_tries_end_after_as_many_as_were_allowed() -> None:
    async with AnthropicServer(refusal(529, "overloaded_error", "busy")) as server:
        with pytest.raises(ModelOverloaded):
            await relayed(server, Waits(), retries=2)

        assert len(server.requests) == 3


async def test_a_turn_may_set_the_number_of_retries() -> None:
    """Turns L5."""
    async with AnthropicServer(refusal(500, "api_error", "oops")) as server:
        with pytest.raises(ModelConnectionLost):
            await relayed(server, Waits(), max_retries=0)

        assert len(server.requests) == 1


async def test_the_seconds_that_the_service_asks_for_are_obeyed() -> None:
    waits = Waits()
    async with AnthropicServer(refusal(429, "rate_limit_error", "slow", ("retry-after", "7")), WHOLE) as server:
        await relayed(server, waits)

    assert waits.seconds == [7.0]


async def test_a_wait_that_is_too_long_is_left_to_the_turn() -> None:
    """The SDK would sit there for as long as it is told."""
    waits = Waits()
    async with AnthropicServer(refusal(429, "rate_limit_error", "slow", ("retry-after", "3600")), WHOLE) as server:
        with pytest.raises(ModelOverloaded):
            await relayed(server, waits)

    assert waits.seconds == []


@pytest.mark.parametrize("answer", [refusal(400, "invalid_request_error", "no"), html()], ids=["refused", "a page"])
async def test_what_would_fail_again_is_not_tried_again(answer: Answer) -> None:
    async with AnthropicServer(answer) as server:
        with pytest.raises((ModelRefused, ModelConnectionLost)):
            await relayed(server, Waits())

        assert len(server.requests) == 1


async def test_nothing_is_tried_again_once_a_part_was_seen() -> None:
    async with AnthropicServer(WHOLE.first(BEGUN, Cut()), WHOLE) as server:
        with pytest.raises(ModelConnectionLost):
            await relayed(server, Waits())

        assert len(server.requests) == 1


async def test_a_cut_before_the_first_part_is_tried_again() -> None:
    async with AnthropicServer(WHOLE.first(2, Cut()), WHOLE) as server:
        assert text_of(await relayed(server, Waits())) == "Hello."
