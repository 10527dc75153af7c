"""The relay: parts in batches between two processes, and an end for every request."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from agents.core.chunks import TextStart
from agents.errors import ModelConnectionLost, ModelOverloaded, ModelRefused
from agents.models import Claude
from agents.models.batches import ModelCall, Trouble, decode_batch, encode_batch, encode_call
from agents.models.model import ModelFinish
from agents.models.relay import BATCH_PARTS_MAX, ModelRelay, use_relay
from runtime.errors import ConnectionLost
from tests.anthropic_server import AnthropicServer, Cut, Stall, message, refusal, text, thinking, tool_use

from .requests import collect, request, text_of, user

pytestmark = pytest.mark.usefixtures("in_process", "relay_reset")

WHOLE = message(thinking("hmm"), text("Hello.", 3), tool_use("read", '{"a":', "1}"), stop_reason="tool_use")


class Node:
    """A node's service as the runtime would offer it, in this process."""

    def __init__(self, relay: ModelRelay | None = None, *, dies_after: int | None = None) -> None:
        self.relay = relay or ModelRelay()
        self.dies_after = dies_after
        self.calls: list[bytes] = []

    def __call__(self) -> Node:
        return self

    async def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        self.calls.append(data)
        batches = getattr(self.relay, method)(data)
        try:
            count = 0
            async for batch in batches:
                if count == self.dies_after:
                    raise ConnectionLost("the relay's process died")
                yield batch
                count += 1
        finally:
            await batches.aclose()
            await self.relay.close()


def call_to(server: AnthropicServer, **options) -> bytes:
    asked = request(user("hi"))
    return encode_call(
        ModelCall(request=asked, model="m", api_key="k", base_url=server.url, max_tokens=9, retries=0, **options)
    )


async def test_parts_through_a_relay_are_the_parts_of_this_process() -> None:
    async with AnthropicServer(WHOLE) as server:
        here = await collect(Claude(base_url=server.url).stream(request(user("hi"))))
        use_relay(Node())
        there = await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert there == here


async def test_a_factory_may_be_a_coroutine() -> None:
    async def node() -> Node:
        return Node()

    use_relay(node)
    async with AnthropicServer(WHOLE) as server:
        assert text_of(await collect(Claude(base_url=server.url).stream(request(user("hi"))))) == "Hello."


async def test_many_parts_travel_in_few_batches() -> None:
    relay = ModelRelay()
    async with AnthropicServer(message(text("x" * 1000, 1000))) as server:
        batches = [decode_batch(data) async for data in relay.stream(call_to(server))]
    await relay.close()

    assert sum(len(batch) for batch in batches) == 1003
    assert max(len(batch) for batch in batches) == BATCH_PARTS_MAX


async def test_the_first_part_does_not_wait_for_the_second() -> None:
    relay = ModelRelay()
    async with AnthropicServer(message(text("Hello.")).first(3, Stall())) as server:
        batches = relay.stream(call_to(server))
        batch = decode_batch(await asyncio.wait_for(anext(batches), 5))
        await batches.aclose()
    await relay.close()

    assert len(batch) == 1


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [(400, "x", ModelRefused), (529, "overloaded_error", ModelOverloaded), (500, "x", ModelConnectionLost)],
)
async def test_errors_keep_type_text_and_fields_on_their_way(status: int, kind: str, expected: type[Exception]) -> None:
    use_relay(Node())
    async with AnthropicServer(refusal(status, kind, "its words", ("retry-after", "50"))) as server:
        with pytest.raises(expected, match="its words") as caught:
            await collect(Claude(base_url=server.url, retries=0).stream(request(user("hi"))))

    assert getattr(caught.value, "status", status) == status
    assert getattr(caught.value, "retry_after", 50.0) == 50.0


async def test_an_error_in_mid_stream_comes_behind_the_parts_before_it() -> None:
    relay = ModelRelay()
    async with AnthropicServer(message(text("Hello.", 3)).first(5, Cut())) as server:
        parts = [part async for data in relay.stream(call_to(server)) for part in decode_batch(data)]
    await relay.close()

    assert (text_of(parts), type(parts[-1])) == ("Hell", Trouble)


async def test_a_relay_that_dies_in_mid_stream_is_a_lost_connection() -> None:
    use_relay(Node(dies_after=1))
    async with AnthropicServer(message(text("Hello.", 3)).paced(0.02)) as server:
        stream = Claude(base_url=server.url).stream(request(user("hi")))
        first = await anext(stream)
        with pytest.raises(ModelConnectionLost, match="model relay was lost while claude-sonnet-5-5 answered"):
            await collect(stream)

    assert first == TextStart("0")


async def test_a_relay_that_is_gone_before_its_first_part_is_asked_for_anew() -> None:
    nodes = [Node(dies_after=0), Node()]
    use_relay(lambda: nodes.pop(0))
    async with AnthropicServer(WHOLE) as server:
        assert text_of(await collect(Claude(base_url=server.url).stream(request(user("hi"))))) == "Hello."


async def test_a_relay_that_stays_away_is_a_lost_connection() -> None:
    node = Node(dies_after=0)
    use_relay(node)
    async with AnthropicServer(WHOLE) as server:
        with pytest.raises(ModelConnectionLost, match="process died"):
            await collect(Claude(base_url=server.url).stream(request(user("hi"))))

    assert len(node.calls) == 2


async def test_batches_that_end_too_early_are_a_lost_connection() -> None:
    class Short:
        async def stream(self, method: str, data: bytes) -> AsyncIterator[bytes]:
            yield encode_batch([])

    use_relay(Short)
    with pytest.raises(ModelConnectionLost, match="before the answer was whole"):
        await collect(Claude(api_key="k").stream(request(user("hi"))))


async def test_what_the_relay_refuses_is_not_asked_twice() -> None:
    node = Node()
    use_relay(node)
    async with AnthropicServer(refusal(529, "overloaded_error", "busy")) as server:
        with pytest.raises(ModelOverloaded):
            await collect(Claude(base_url=server.url, retries=0).stream(request(user("hi"))))

    assert len(node.calls) == 1


async def test_closing_an_agents_stream_ends_the_request_at_the_service() -> None:
    use_relay(Node())
    async with AnthropicServer(message(text("Hello.", 3)).first(4, Stall())) as server:
        stream = Claude(base_url=server.url).stream(request(user("hi")))
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.wait_aborted(), 5)

    assert server.aborted == 1


async def test_an_answer_that_nobody_reads_is_ended() -> None:
    """An agent that was killed closes nothing; its tokens must not be paid for."""
    relay = ModelRelay(reader_silence=0.01)
    async with AnthropicServer(message(text("x" * 5000, 5000)).first(4000, Stall())) as server:
        batches = relay.stream(call_to(server))
        await anext(batches)
        await asyncio.wait_for(server.wait_aborted(), 5)
        rest = [part async for data in batches for part in decode_batch(data)]
    await relay.close()

    last = rest[-1]
    assert isinstance(last, Trouble)
    assert "read nothing of it for 0.01 s" in last.message


async def test_a_slow_answer_that_nobody_reads_is_ended_long_before_the_room_is_full() -> None:
    relay = ModelRelay(reader_silence=0.03)
    async with AnthropicServer(message(text("x" * 500, 500)).paced(0.005)) as server:
        batches = relay.stream(call_to(server))
        await anext(batches)
        await asyncio.wait_for(server.wait_aborted(), 5)
        rest = [part async for data in batches for part in decode_batch(data)]
    await relay.close()

    assert isinstance(rest[-1], Trouble)
    assert len(rest) < 100


async def test_a_reader_that_waits_for_a_slow_model_is_not_silent() -> None:
    relay = ModelRelay(reader_silence=0.01)
    async with AnthropicServer(message(text("abc", 3)).paced(0.03)) as server:
        parts = [part async for data in relay.stream(call_to(server)) for part in decode_batch(data)]
    await relay.close()

    assert (text_of(parts), type(parts[-1])) == ("abc", ModelFinish)


async def test_a_call_on_its_way_does_not_show_the_key_when_it_is_printed() -> None:
    call = ModelCall(request=request(user("hi")), model="m", api_key="sk-secret", base_url="http://x", max_tokens=9)

    assert "sk-secret" not in f"{call!r} {call}"


AGENT = """
import asyncio, sys
from agents.models import Claude, Offline, Scripted, default_model
from agents.models.model import ModelFinish, ModelMessage, ModelRequest, TextBlock
from agents.models.batches import encode_batch
from agents.models.relay import use_relay

class Handle:
    async def stream(self, method, data):
        yield encode_batch([ModelFinish(finish_reason="stop")])

async def turn():
    use_relay(Handle)
    user = ModelMessage(role="user", blocks=(TextBlock(text="hi"),))
    return [part async for part in Claude(api_key="k").stream(ModelRequest(system="", messages=(user,)))]

assert len(asyncio.run(turn())) == 1
default_model()
print(sorted({"anthropic", "httpx", "httpx2", "pydantic"} & sys.modules.keys()))
"""


@pytest.mark.slow
def test_an_agents_process_loads_neither_the_sdk_nor_an_http_library() -> None:
    done = subprocess.run([sys.executable, "-c", AGENT], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_batch_ends_with_what_ended_the_answer() -> None:
    finish = ModelFinish(finish_reason="stop")

    assert decode_batch(encode_batch([finish])) == [finish]
