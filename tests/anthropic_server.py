"""A service that speaks Anthropic's Messages API over a real socket, and misbehaves as told.

It is what the vendor's SDK is tested against, and what benchmarks count model calls with from outside. Each request is
answered with the next of its answers (the last one again when they run out), or by a function of the request's body:

    async with AnthropicServer(message(text("Hello."))) as server:
        model = Claude(base_url=server.url)

    python -m tests.anthropic_server --record calls.jsonl       serves one text for ever, and prints its URL

An ``Answer`` is what goes over the wire: a status and headers, then events and *actions* (``Pause``, ``Hold``,
``Stall``, ``Cut``) in their order. Like the vendor, the server refuses requests that break its rules (``fault_of``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Json = dict[str, Any]

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}


@dataclasses.dataclass(frozen=True)
class Pause:
    """Wait before what follows."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Hold:
    """Wait until somebody sets the event."""

    released: asyncio.Event


@dataclasses.dataclass(frozen=True)
class Stall:
    """Send nothing more, and keep the connection open until the client closes it."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """Close the connection in the middle of the body."""


@dataclasses.dataclass(frozen=True)
class Raw:
    """Bytes as they are."""

    data: bytes


Part = Json | Pause | Hold | Stall | Cut | Raw


@dataclasses.dataclass(frozen=True)
class Answer:
    """One response: its events, or with another status its body."""

    parts: tuple[Part, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)

    def first(self, events: int, *then: Part) -> Answer:
        """The first so many events, then something else."""
        return dataclasses.replace(self, parts=(*self.parts[:events], *then))

    def paced(self, seconds: float) -> Answer:
        """The same with a wait before each event."""
        return dataclasses.replace(self, parts=tuple(p for part in self.parts for p in (Pause(seconds), part)))


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A request as it came."""

    body: Json
    headers: dict[str, str]
    at: float


Block = tuple[Json, tuple[Json, ...]]


def text(whole: str, chunks: int = 1) -> Block:
    size = -(-len(whole) // chunks) or 1
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    return {"type": "text", "text": ""}, tuple({"type": "text_delta", "text": piece} for piece in pieces)


def tool_use(name: str, *fragments: str, call_id: str = "toolu_1") -> Block:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block, tuple({"type": "input_json_delta", "partial_json": fragment} for fragment in fragments)


def thinking(whole: str, signature: str = "sig") -> Block:
    deltas = ({"type": "thinking_delta", "thinking": whole}, {"type": "signature_delta", "signature": signature})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def redacted(data: str) -> Block:
    return {"type": "redacted_thinking", "data": data}, ()


def message(*blocks: Block, stop_reason: str = "end_turn", usage: Json | None = None, model: str = "claude") -> Answer:
    """A whole answer: message_start, a ping, the blocks, message_delta, message_stop."""
    return Answer(tuple(_events(blocks, stop_reason, {**USAGE, **(usage or {})}, model)))


def _events(blocks: Sequence[Block], stop_reason: str, usage: Json, model: str) -> Iterator[Json]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    start = {**head, "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def error_event(kind: str, words: str) -> Json:
    """An error in the middle of a stream."""
    return {"type": "error", "error": {"type": kind, "message": words}}


def refusal(status: int, kind: str, words: str, *headers: tuple[str, str]) -> Answer:
    """An error instead of a stream."""
    body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
    return Answer((Raw(json.dumps(body).encode()),), status, (("content-type", "application/json"), *headers))


def html(words: str = "<html>It works!</html>", status: int = 200) -> Answer:
    """What a server that is something else answers."""
    return Answer((Raw(words.encode()),), status, (("content-type", "text/html"),))


def fault_of(body: Json) -> str:
    """What the vendor refuses in a request; empty if nothing."""
    messages = body.get("messages") or []
    if not messages or messages[0]["role"] != "user":
        return "messages: the first message must use the user role"
    if messages[-1]["role"] == "assistant":
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    open_calls: set[str] = set()
    for at, each in enumerate(messages):
        content = each["content"] if isinstance(each["content"], list) else [{"type": "text", "text": each["content"]}]
        answered = {block["tool_use_id"] for block in content if block["type"] == "tool_result"}
        if answered != open_calls:
            return f"messages.{at}: tool_use ids without tool_result or the reverse: {sorted(answered ^ open_calls)}"
        open_calls = {block["id"] for block in content if block["type"] == "tool_use"}
        if any(block["type"] == "text" and not block["text"].strip() for block in content):
            return f"messages.{at}: text content blocks must contain non-whitespace text"
        if any(block["type"] == "tool_use" and not isinstance(block["input"], dict) for block in content):
            return f"messages.{at}: tool_use.input: Input should be a valid dictionary"
    return ""


class AnthropicServer:
    """The service. ``requests`` holds what came, ``aborted`` counts answers that the client did not wait for.

    Args:
        answers: One for each request, or one function of the request's body.
        keys: The keys that are taken; any if there are none.
        record: Each request is appended to this file as a line of JSON: time, and the number of messages.
        port: To listen on; 0 takes a free one.
    """

    def __init__(
        self,
        *answers: Answer | Callable[[Json], Answer],
        keys: Sequence[str] = (),
        record: Path | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Recorded] = []
        self.aborted = 0
        self._answers = answers or (message(text("Hello.")),)
        self._keys = keys
        self._record = record
        self._port = port
        self._request_seen = asyncio.Event()
        self._abort_seen = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> AnthropicServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def wait_requested(self) -> None:
        """Return when the first request has come."""
        await self._request_seen.wait()

    async def wait_aborted(self) -> None:
        """Return when a client has closed a connection before its answer was whole."""
        await self._abort_seen.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: the one that asyncio would make complains on standard error when it is cancelled.
        task = asyncio.ensure_future(self._connected(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False if the connection is done with."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        lines = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        self._note(Recorded(body, headers, time.time()))
        sending = asyncio.ensure_future(self._send(self._answer_for(body, headers), writer))
        watching = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() or sending.exception() is not None:
                self.aborted += 1
                self._abort_seen.set()
                return False
            return sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    def _note(self, request: Recorded) -> None:
        self.requests.append(request)
        self._request_seen.set()
        if self._record is not None:
            line = {"time": request.at, "messages": len(request.body.get("messages", ()))}
            with self._record.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _answer_for(self, body: Json, headers: dict[str, str]) -> Answer:
        key = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        if self._keys and key not in self._keys:
            return refusal(401, "authentication_error", f"invalid bearer token {key}")
        fault = fault_of(body)
        if fault:
            return refusal(400, "invalid_request_error", fault)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        return answer if isinstance(answer, Answer) else answer(body)

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        """Send an answer; False if the connection must be closed behind it."""
        lines = [f"HTTP/1.1 {answer.status} X", "transfer-encoding: chunked"]
        lines.extend(f"{name}: {value}" for name, value in answer.headers)
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for part in answer.parts:
            match part:
                case Pause():
                    await writer.drain()
                    await asyncio.sleep(part.seconds)
                case Hold():
                    await writer.drain()
                    await part.released.wait()
                case Stall():
                    await writer.drain()
                    await asyncio.Event().wait()
                case Cut():
                    await writer.drain()
                    return False
                case Raw():
                    _write_chunk(writer, part.data)
                case _:
                    _write_chunk(writer, f"event: {part['type']}\ndata: {json.dumps(part)}\n\n".encode())
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _serve(record: Path | None, port: int, chunks: int, pace: float) -> None:
    answer = message(text("All is well. " * chunks, chunks)).paced(pace)
    async with AnthropicServer(answer, record=record, port=port) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve Anthropic's Messages API on loopback.")
    parser.add_argument("--record", type=Path, help="append a line for each request to this file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=100, help="chunks of the answer")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds before each event")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.record, options.port, options.chunks, options.pace))


if __name__ == "__main__":
    main()
