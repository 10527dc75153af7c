"""What is on disk when: a turn over a journal that is late (recovery T2, T5, X1; turns C2)."""

from __future__ import annotations

from typing import Any, cast

from agents.models import Scripted
from agents.think import Think
from agents.tools import tool
from runtime.testing import run
from tests.agents.direct import DirectContext, LateJournal

# What the model and the tools found on disk.
found: dict[str, Any] = {}


class Direct(Think):
    def get_model(self):
        return Watching(self)

    @tool
    async def look(self) -> str:
        """Look into the journal."""
        found["at tool"] = journal(self)
        self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS notes (text VARCHAR)")
        self.ctx.storage.sql.exec("INSERT INTO notes VALUES ('x')")
        cast("LateJournal", self.ctx.store).log.append("tool wrote")
        return "looked"


class Watching:
    """A scripted model that looks into the journal when it is asked."""

    model_id = "watching"

    def __init__(self, agent):
        self._agent = agent
        self._script = Scripted([Scripted.call("look", call_id="c1"), Scripted.text("ab", chunk_size=1)])

    async def stream(self, request):
        key = f"at model {sum(name.startswith('at model') for name in found)}"
        found[key] = journal(self._agent)
        found[f"dirty {key}"] = self._agent.ctx.store.is_open_transaction
        async for part in self._script.stream(request):
            yield part


def journal(agent):
    """All that is on disk of the stream."""
    rows = agent.ctx.store.execute("SELECT frame FROM cf_ai_chat_stream_chunks ORDER BY number").rows
    return b"".join(frame for (frame,) in rows).decode()


def play(tmp_path, seconds=0.005):
    """One turn over a journal that is so late; its events' numbers and its outcome."""
    found.clear()

    async def main():
        context = DirectContext(tmp_path, seconds)
        agent = Direct(context)
        await agent.boot()
        numbers = []
        async with agent.chat("go") as events:
            async for event in events:
                numbers.append(event.number)
        found["messages"] = await agent.get_messages()
        found["all"] = journal(agent)
        found["log"] = list(context.store.log)
        context.close()
        return numbers, events.outcome

    return run(main)


def test_a_tool_runs_only_when_its_call_is_on_disk(tmp_path):
    # recovery X1: or a death would leave no trace of a call that had effects
    play(tmp_path)
    assert '"tool-input-available","toolCallId":"c1"' in found["at tool"]


def test_the_model_is_asked_again_only_when_the_outcome_is_on_disk(tmp_path):
    # recovery T5, X2: or a death would repeat the call
    play(tmp_path)
    assert '"tool-output-available","toolCallId":"c1"' in found["at model 1"]


def test_message_fiber_and_stream_are_on_disk_before_the_model_is_asked(tmp_path):
    # recovery T1, T2
    play(tmp_path)
    assert found["dirty at model 0"] is False


def test_what_a_tool_wrote_is_on_disk_before_its_outcome(tmp_path):
    # recovery T5: a recorded outcome has its effects
    play(tmp_path, seconds=0)
    log = found["log"][found["log"].index("tool wrote") :]
    assert log[:3] == ["tool wrote", "commit", "append"]


def test_the_end_is_shown_behind_the_last_event(tmp_path):
    # turns C2
    numbers, outcome = play(tmp_path)
    assert outcome == "done"
    assert numbers == list(range(1, len(numbers) + 1))
    assert found["all"].endswith('{"type":"finish-step"},{"type":"finish","finishReason":"stop"}]')
    assert len(numbers) == found["all"].count('"type":')


def test_the_message_is_stored_behind_all_of_its_chunks(tmp_path):
    # recovery T2: chunks, then the assistant message
    play(tmp_path)
    assert found["log"][-2:] == ["append", "commit"]
