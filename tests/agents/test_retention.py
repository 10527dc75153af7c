"""How long the events and outcomes of turns are kept (recovery S1)."""

from __future__ import annotations

import pytest

from agents.errors import UnknownTurn
from agents.models import Scripted
from agents.think import Think
from runtime.testing import LocalCluster, run


class Speaker(Think):
    def get_model(self):
        return Scripted("Hello.")

    async def counts(self) -> tuple[int, int]:
        """Frames and rows in storage."""
        tables = ("cf_ai_chat_stream_chunks", "cf_ai_chat_submissions")
        found = [self.ctx.store.execute(f"SELECT count(*) FROM {table}").rows[0][0] for table in tables]
        return found[0], found[1]  # type: ignore[return-value]  # two counts


def play(tmp_path, main):
    async def started():
        async with LocalCluster(tmp_path) as cluster:
            return await main(cluster, cluster.get(Speaker, "a"))

    return run(started)


async def spoken(agent):
    """Chat once; the id of the turn."""
    async with agent.chat("hi") as events:
        async for _ in events:
            pass
    return events.request_id


def test_the_events_of_a_turn_are_kept_for_ten_minutes_after_its_end(tmp_path):
    async def main(cluster, agent):
        request_id = await spoken(agent)
        await cluster.advance(590)
        async with agent.attach(request_id) as events:
            return [event.number async for event in events]

    assert play(tmp_path, main) == [1, 2, 3, 4, 5, 6, 7]


def test_events_are_removed_by_an_alarm_with_nobody_calling(tmp_path):
    async def main(cluster, agent):
        await spoken(agent)
        await cluster.advance(11)
        assert not cluster.is_alive(agent), "the agent should be hibernating by now"
        await cluster.advance(600)
        return await agent.counts()

    assert play(tmp_path, main) == (0, 1)


def test_attaching_after_that_says_that_the_events_are_gone(tmp_path):
    async def main(cluster, agent):
        request_id = await spoken(agent)
        await cluster.advance(700)
        async with agent.attach(request_id) as events:
            with pytest.raises(UnknownTurn, match="not kept"):
                await anext(events)

    play(tmp_path, main)


def test_a_keyed_call_gets_its_stored_message_for_a_day_and_runs_anew_afterwards(tmp_path):
    async def main(cluster, agent):
        keyed = agent.with_options(idempotency_key="k")
        first = await keyed.chat("hi")
        await cluster.advance(23 * 3600)
        second = await keyed.chat("hi")
        await cluster.advance(2 * 3600)
        await agent.chat("other")  # somebody has to call: for the outcome alone no agent is woken
        await cluster.advance(1000)
        third = await keyed.chat("hi")
        return first.id, second.id, third.id

    first, second, third = play(tmp_path, main)
    assert first == second
    assert third != first


def test_an_agent_that_ended_its_turns_is_not_woken_again_and_again(tmp_path):
    async def main(cluster, agent):
        await spoken(agent)
        await cluster.advance(700)
        before = len(cluster.effects)
        await cluster.advance(24 * 3600)
        return len(cluster.effects) - before

    assert play(tmp_path, main) == 0
