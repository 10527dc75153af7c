import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.chunks import (
    Chunk,
    Finish,
    FinishStep,
    JsonObject,
    OtherChunk,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
    encode_chunk,
)
from agents.core.prompt import to_model_messages, with_nudge
from agents.core.repair import repair_transcript
from agents.core.transcript import MessageBuilder, rebuild
from agents.models.model import ToolResultBlock, ToolUseBlock
from agents.sessions.messages import UIMessage, decode_message, encode_message

WORDS = st.text("ab c", min_size=1, max_size=4)
CALLS = st.sampled_from(["c1", "c2", "c3"])

# Any chunk in any order: what a broken model, a transform or a damaged journal could make.
CHUNKS: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(TextStart, st.just("0")),
    st.builds(TextDelta, st.just("0"), WORDS),
    st.builds(TextEnd, st.just("0")),
    st.builds(ReasoningStart, st.just("1")),
    st.builds(ReasoningDelta, st.just("1"), WORDS),
    st.just(StartStep()),
    st.builds(ToolInputStart, CALLS, st.just("look")),
    st.builds(ToolInputAvailable, CALLS, st.just("look"), st.just({"q": 1})),
    st.builds(ToolInputError, CALLS, st.just("look"), st.just({}), st.just("bad")),
    st.builds(ToolOutputAvailable, CALLS, st.integers(0, 3), st.sampled_from([None, True])),
    st.builds(ToolOutputError, CALLS, st.just("no")),
    st.builds(ToolOutputDenied, CALLS),
    st.builds(
        lambda call: OtherChunk({"type": "tool-approval-request", "toolCallId": call, "approvalId": f"a-{call}"}), CALLS
    ),
    st.builds(
        lambda call, yes: OtherChunk({"type": "tool-approval-response", "approvalId": f"a-{call}", "approved": yes}),
        CALLS,
        st.booleans(),
    ),
    st.just(OtherChunk({"type": "data-note", "id": "n", "data": 1})),
    st.just(OtherChunk({"type": "from-the-future"})),
)

RANK = {
    "input-streaming": 0,
    "input-available": 1,
    "approval-requested": 2,
    "approval-responded": 3,
    "output-available": 4,
    "output-error": 4,
    "output-denied": 4,
}


def ranks(builder: MessageBuilder) -> dict[str, int]:
    return {part["toolCallId"]: RANK[part["state"]] for part in builder.parts if "toolCallId" in part}


def apply_all(builder: MessageBuilder, chunks: list[Chunk]) -> MessageBuilder:
    for chunk in chunks:
        builder.apply(chunk)
    return builder


@given(st.lists(CHUNKS, max_size=30), st.data())
def test_replaying_any_prefix_moves_no_call_back(chunks: list[Chunk], data: st.DataObject) -> None:
    # protocol B2
    builder = apply_all(MessageBuilder("m"), chunks)
    before = ranks(builder)
    for chunk in chunks[: data.draw(st.integers(0, len(chunks)))]:
        builder.apply(chunk)
        after = ranks(builder)
        assert all(after[call] >= before[call] for call in before)
        before = after


# A turn as a legal model makes it: steps of reasoning, text and calls, each call with its outcome behind the message.


@st.composite
def steps(draw: st.DrawFn) -> list[Chunk]:
    chunks: list[Chunk] = [Start("m")]
    count = draw(st.integers(1, 3))
    for step in range(count):
        chunks.append(StartStep())
        if draw(st.booleans()):
            thought = [ReasoningDelta("0", words) for words in draw(st.lists(WORDS, max_size=3))]
            signature = ReasoningDelta("0", "", {"anthropic": {"signature": "s"}})
            chunks += [ReasoningStart("0"), *thought, signature, ReasoningEnd("0")]
        words = draw(st.lists(WORDS, max_size=4))
        chunks += [TextStart("1"), *(TextDelta("1", word) for word in words), TextEnd("1")]
        calls = [f"c{step}-{index}" for index in range(draw(st.integers(0, 2)))]
        for call in calls:
            chunks += [ToolInputStart(call, "look"), ToolInputDelta(call, "{}"), ToolInputAvailable(call, "look", {})]
        chunks += [ToolOutputAvailable(call, "found") for call in draw(st.permutations(calls))]
        chunks.append(FinishStep())
    return [*chunks, Finish("stop")]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDelta))


def rest_of(chunks: list[Chunk], crash: int) -> list[Chunk]:
    """What a continuation streams: the remaining chunks, with the block that was open begun again."""
    opened: list[Chunk] = [Start(), StartStep()]
    for chunk in chunks[:crash]:
        if isinstance(chunk, TextStart | ReasoningStart):
            opened = [Start(), StartStep(), chunk]
        elif isinstance(chunk, TextEnd | ReasoningEnd):
            opened = [Start(), StartStep()]
    return [*opened, *chunks[crash:]]


@given(steps(), st.data())
def test_a_turn_cut_anywhere_and_continued_has_the_same_text(chunks: list[Chunk], data: st.DataObject) -> None:
    # recovery T6, T7, P1: the stored parts are kept, the continuation's chunks stand behind them
    crash = data.draw(st.integers(1, len(chunks)))
    before = rebuild([], [encode_chunk(chunk) for chunk in chunks[:crash]], message_id="m")
    before.finish()
    stored = decode_message(encode_message(before.message()))
    after = rebuild(
        stored.parts,
        [encode_chunk(chunk) for chunk in rest_of(chunks, crash)],
        message_id=stored.id,
        is_continuation=True,
    )
    after.finish()
    assert "".join(part["text"] for part in after.message().parts if part["type"] == "text") == text_of(chunks)
    assert after.message_id == "m"


@given(steps(), st.data())
def test_a_rebuild_equals_the_message_that_was_streamed(chunks: list[Chunk], data: st.DataObject) -> None:
    # recovery T6
    cut = data.draw(st.integers(0, len(chunks)))
    live = apply_all(MessageBuilder("m"), chunks[:cut])
    assert rebuild([], [encode_chunk(chunk) for chunk in chunks[:cut]], message_id="m").message() == live.message()


def check_prompt(parts: list[JsonObject]) -> None:
    messages = [UIMessage("u", "user", [{"type": "text", "text": "hi"}]), UIMessage("m", "assistant", parts)]
    prompt = with_nudge(to_model_messages(repair_transcript(messages)[0]))
    assert prompt[-1].role == "user"
    used: list[str] = []
    for index, message in enumerate(prompt):
        assert message.blocks
        uses = [block.tool_call_id for block in message.blocks if isinstance(block, ToolUseBlock)]
        behind = prompt[index + 1].blocks if index + 1 < len(prompt) else ()
        results = [block.tool_call_id for block in behind if isinstance(block, ToolResultBlock)]
        assert uses == (results if message.role == "assistant" else [])
        used += uses
    assert len(used) == len(set(used))


@given(steps(), st.data())
def test_a_turn_cut_anywhere_makes_a_prompt_that_a_vendor_takes(chunks: list[Chunk], data: st.DataObject) -> None:
    # turns A6, A9; FR-03: each use with its result right behind it, and never the assistant last
    check_prompt(apply_all(MessageBuilder("m"), chunks[: data.draw(st.integers(0, len(chunks)))]).parts)


@given(st.lists(CHUNKS, max_size=30))
def test_any_chunks_at_all_make_a_prompt_that_a_vendor_takes(chunks: list[Chunk]) -> None:
    # FR-01
    check_prompt(apply_all(MessageBuilder("m"), chunks).parts)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1, max_size=5), JSON, max_size=2), JSON)
def test_a_message_survives_its_codec(extra: JsonObject, data: object) -> None:
    text = msgspec.json.encode({**extra, "id": "m", "role": "user", "parts": [{"type": "data-x", "data": data}]})
    assert msgspec.json.decode(encode_message(decode_message(text))) == msgspec.json.decode(text)
