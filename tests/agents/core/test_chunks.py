import msgspec
import pytest

from agents.core.chunks import (
    Chunk,
    Finish,
    OtherChunk,
    Start,
    TextDelta,
    ToolInputAvailable,
    ToolOutputAvailable,
    decode_chunk,
    encode_chunk,
)


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        (Start("m"), b'{"type":"start","messageId":"m"}'),
        (TextDelta("0", "hi"), b'{"type":"text-delta","id":"0","delta":"hi"}'),
        (
            ToolInputAvailable("c", "look", {"q": 1}),
            b'{"type":"tool-input-available","toolCallId":"c","toolName":"look","input":{"q":1}}',
        ),
        (ToolOutputAvailable("c", None), b'{"type":"tool-output-available","toolCallId":"c","output":null}'),
        (Finish("stop"), b'{"type":"finish","finishReason":"stop"}'),
        (OtherChunk({"type": "data-x", "data": 1}), b'{"type":"data-x","data":1}'),
    ],
)
def test_a_chunk_has_the_json_of_the_protocol(chunk: Chunk, text: bytes) -> None:
    # protocol section 2
    assert encode_chunk(chunk) == text
    assert decode_chunk(text) == chunk


@pytest.mark.parametrize(
    "text", [b'{"type":"from-the-future","x":[1]}', b'{"type":"text-delta","id":"0"}', b'{"x":1}', b"{}"]
)
def test_a_chunk_of_an_unknown_kind_goes_through_unchanged(text: bytes) -> None:
    assert encode_chunk(decode_chunk(text)) == text


@pytest.mark.parametrize("text", [b"[]", b"null", b"{", b""])
def test_what_is_no_object_is_no_chunk(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_chunk(text)


def test_unknown_chunks_are_compared_by_their_content() -> None:
    one, same, other = OtherChunk({"type": "x"}), OtherChunk({"type": "x"}), OtherChunk({"type": "y"})
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert repr(one) == "OtherChunk({'type': 'x'})"
