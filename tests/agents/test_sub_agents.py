"""Sub-agents (subagents S1-S4, S7, S8): what a parent knows of its children, and they of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents import Agent
from agents.subagents import SubAgentRow
from runtime import ObjectId
from runtime.errors import PerdureError, RemoteError
from runtime.testing import LocalCluster, run

# How often each child's start-up ran, and how many of its next ones raise.
starts: Counter[str] = Counter()
failing: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    starts.clear()
    failing.clear()


class Child(Agent):
    """Holds one value; its start-up raises as often as ``failing`` says."""

    initial_state: Any = "child"

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.name_in_constructor = self.name

    async def on_start(self) -> None:
        starts[self.name] += 1
        await asyncio.sleep(1)
        if failing[self.name]:
            failing[self.name] -= 1
            raise ValueError("no luck today")

    async def put(self, value: object) -> None:
        await self.ctx.storage.put("value", value)

    async def value(self) -> object:
        return await self.ctx.storage.get("value")

    async def names(self) -> tuple[str, str]:
        return self.name_in_constructor, self.name

    async def change_state(self, state: object) -> None:
        self.set_state(state)

    async def get_state(self) -> object:
        return self.state

    async def paths(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        def pairs(steps: Any) -> list[tuple[str, str]]:
            return [(step.class_name, step.name) for step in steps]

        return pairs(self.parent_path), pairs(self.self_path)


class Parent(Child):
    """Makes children and says what it knows of them. A child of its own class makes it a grandparent."""

    async def open(self, name: str) -> None:
        await self.sub_agent(Child, name)

    async def open_both(self, name: str) -> list[str]:
        """Twice at once; the types of what was raised."""
        ends = await asyncio.gather(*(self.sub_agent(Child, name) for _ in range(2)), return_exceptions=True)
        return [type(end).__name__ for end in ends]

    async def open_as(self, class_name: str, name: str) -> str:
        """Try a class; the error's type and text, or the child's own name."""
        try:
            child: Any = await self.sub_agent(CLASSES[class_name], name)
        except PerdureError as error:
            return f"{type(error).__name__}: {error}"
        return (await child.names())[1]

    async def put_in(self, name: str, value: object) -> None:
        await (await self.sub_agent(Child, name)).put(value)

    async def get_from(self, name: str) -> object:
        return await (await self.sub_agent(Child, name)).value()

    async def put_below(self, middle: str, name: str, value: object) -> None:
        await (await self.sub_agent(Parent, middle)).put_in(name, value)

    async def get_below(self, middle: str, name: str) -> object:
        return await (await self.sub_agent(Parent, middle)).get_from(name)

    async def has(self, cls: str, name: str) -> tuple[bool, bool]:
        return self.has_sub_agent(CLASSES[cls], name), self.has_sub_agent(cls, name)

    async def listed(self, cls: str | None = None) -> list[SubAgentRow]:
        return self.list_sub_agents(cls)

    async def listed_by_class(self, cls: str) -> list[SubAgentRow]:
        return self.list_sub_agents(CLASSES[cls])


class Grandchild(Child):
    """Looks for its parent."""

    async def parent_says(self, cls: str) -> str:
        try:
            parent: Any = await self.parent_agent(CLASSES[cls])
        except PerdureError as error:
            return f"{type(error).__name__}: {error}"
        return await parent.hello()


class Middle(Child):
    async def hello(self) -> str:
        return f"middle {self.name}"

    async def grandchild_says(self, cls: str) -> str:
        return await (await self.sub_agent(Grandchild, "grandchild")).parent_says(cls)


class Top(Child):
    async def hello(self) -> str:
        return f"top {self.name}"

    async def grandchild_says(self, cls: str) -> str:
        return await (await self.sub_agent(Middle, "m")).grandchild_says(cls)

    async def child_says(self, cls: str) -> str:
        return await (await self.sub_agent(Grandchild, "g")).parent_says(cls)

    async def paths_below(self) -> list[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
        below = await self.sub_agent(Middle, "m")
        return [await self.paths(), await below.paths()]


class Sub(Agent):
    pass


class SUB(Agent):
    pass


class Sub_(Agent):  # the trailing dash of its URL form is dropped
    pass


class Plain:
    pass


def child_of(parent: str, name: str) -> ObjectId:
    """The address of a child of a root."""
    return ObjectId.root("Parent", parent).child("Child", name)


CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (Child, Parent, Middle, Top, Grandchild, Sub, SUB, Sub_, Plain)}


async def test_a_child_is_started_by_the_getter_once_and_stays_the_same(cluster: LocalCluster) -> None:
    # subagents S1
    parent = cluster.get(Parent, "p")
    await parent.open("c")
    assert starts["c"] == 1
    await parent.put_in("c", 7)
    assert await parent.get_from("c") == 7
    assert starts["c"] == 1


async def test_a_child_knows_its_own_name_in_the_constructor(cluster: LocalCluster) -> None:
    # subagents S1
    await cluster.get(Parent, "p").open("the/child")
    child = cluster.stub(Child, child_of("p", "the/child"))
    assert await child.names() == ("the/child", "the/child")


async def test_a_child_has_storage_and_state_of_its_own(cluster: LocalCluster) -> None:
    # subagents S1
    parent = cluster.get(Parent, "p")
    await parent.put("the parent's")
    await parent.change_state("the parent's")
    await parent.put_in("c", "the child's")
    child = cluster.stub(Child, child_of("p", "c"))
    assert (await parent.value(), await parent.get_from("c")) == ("the parent's", "the child's")
    assert (await parent.get_state(), await child.get_state()) == ("the parent's", "child")


async def test_what_a_child_stored_outlives_it_and_its_parent(cluster: LocalCluster) -> None:
    # subagents S1
    parent = cluster.get(Parent, "p")
    await parent.put_in("c", 7)
    cluster.kill(child_of("p", "c"))
    cluster.kill(parent)
    assert await parent.get_from("c") == 7


@pytest.mark.parametrize("class_name", ["Sub", "SUB", "Sub_"])
async def test_a_class_that_a_url_could_not_tell_from_the_marker_is_refused(
    cluster: LocalCluster, class_name: str
) -> None:
    # subagents S2
    parent = cluster.get(Parent, "p")
    answer = await parent.open_as(class_name, "x")
    assert answer.startswith("UsageError")
    assert "reserved" in answer
    assert await parent.listed() == []


async def test_a_class_of_no_agents_is_not_found(cluster: LocalCluster) -> None:
    # subagents S2
    answer = await cluster.get(Parent, "p").open_as("Plain", "x")
    assert answer.startswith("UsageError")
    assert "not found" in answer


@pytest.mark.parametrize("name", ["", "a\x00b", "\ud800", "x" * 1025])
async def test_a_name_that_is_no_address_is_refused(cluster: LocalCluster, name: str) -> None:
    # subagents S2
    parent = cluster.get(Parent, "p")
    assert (await parent.open_as("Child", name)).startswith("InvalidId")
    assert await parent.listed() == []


@pytest.mark.parametrize("name", ["a/b", "50%", "wild_card", "../..", "ü"])
async def test_names_may_hold_what_paths_and_patterns_mean_something_by(cluster: LocalCluster, name: str) -> None:
    # subagents S2
    assert await cluster.get(Parent, "p").open_as("Child", name) == name


async def test_two_classes_may_use_one_name(cluster: LocalCluster) -> None:
    # subagents S2
    parent = cluster.get(Parent, "p")
    await parent.open_as("Child", "same")
    await parent.open_as("Grandchild", "same")
    assert [(row.class_name, row.name) for row in await parent.listed()] == [
        ("Child", "same"),
        ("Grandchild", "same"),
    ]


async def test_one_name_under_two_parents_is_two_agents(cluster: LocalCluster) -> None:
    # subagents S3
    one, two = cluster.get(Parent, "one"), cluster.get(Parent, "two")
    await one.put_in("c", 1)
    await two.put_in("c", 2)
    assert (await one.get_from("c"), await two.get_from("c")) == (1, 2)


async def test_one_name_at_two_depths_is_two_agents(cluster: LocalCluster) -> None:
    # subagents S3
    top = cluster.get(Parent, "top")
    await top.put_in("c", 1)
    await top.put_below("middle", "c", 2)
    await top.put_below("other", "c", 3)
    assert (await top.get_from("c"), await top.get_below("middle", "c"), await top.get_below("other", "c")) == (1, 2, 3)


@pytest.mark.slow
def test_no_child_exists_whose_parent_does_not_list_it(tmp_path: Path) -> None:
    # subagents S4: the row is durable before the child's start-up, wherever the parent dies
    async def opened(folder: Path, crash_after: int | None) -> tuple[list[str], list[str], list[Any]]:
        async with LocalCluster(folder) as cluster:
            parent = cluster.get(Parent, "p")
            await parent.names()
            begin = len(cluster.effects)
            if crash_after is not None:
                cluster.crash_at(crash_after)
            await asyncio.gather(parent.open("c"), return_exceptions=True)
            effects = cluster.effects[begin:]
            known = await cluster.keeper.list_objects()
            children = [item.object_id.name for item in known if len(item.path) > 1]
            return children, [row.name for row in await parent.listed()], effects

    _, _, effects = run(lambda: opened(tmp_path / "whole", None))
    own = [number for number, effect in enumerate(effects, 1) if effect.source == "Parent/p"]
    assert len(own) >= 3
    for number in own:
        children, listed, _ = run(lambda number=number: opened(tmp_path / str(number), number))  # type: ignore[misc]
        assert set(children) <= set(listed), f"the parent died after effect {number}"


async def test_a_new_child_that_does_not_start_is_not_listed(cluster: LocalCluster) -> None:
    # subagents S4
    parent = cluster.get(Parent, "p")
    failing["c"] = 1
    with pytest.raises(RemoteError, match="no luck today"):
        await parent.open("c")
    assert await parent.listed() == []


async def test_a_known_child_that_does_not_start_stays_listed(cluster: LocalCluster) -> None:
    # subagents S4
    parent = cluster.get(Parent, "p")
    await parent.open("c")
    cluster.kill(child_of("p", "c"))
    failing["c"] = 1
    with pytest.raises(RemoteError, match="no luck today"):
        await parent.open("c")
    assert [row.name for row in await parent.listed()] == ["c"]


async def test_a_child_that_one_of_two_callers_got_is_listed(cluster: LocalCluster) -> None:
    # subagents S4: the first start-up fails, a second caller at the same time tries it again
    parent = cluster.get(Parent, "p")
    failing["c"] = 1
    assert sorted(await parent.open_both("c")) == ["RemoteError", "Stub"]
    assert [row.name for row in await parent.listed()] == ["c"]


async def test_two_callers_at_once_make_one_row(cluster: LocalCluster) -> None:
    # subagents S4
    parent = cluster.get(Parent, "p")
    assert await parent.open_both("c") == ["Stub", "Stub"]
    assert [row.name for row in await parent.listed()] == ["c"]
    assert starts["c"] == 1


async def test_children_are_listed_oldest_first_and_by_class(cluster: LocalCluster) -> None:
    # subagents S4, in seconds as runtime N5
    parent = cluster.get(Parent, "p")
    await parent.open("z")
    await parent.open_as("Grandchild", "g")
    await parent.open("a")
    rows = await parent.listed()
    assert [(row.class_name, row.name) for row in rows] == [("Child", "z"), ("Grandchild", "g"), ("Child", "a")]
    assert [round(row.created_at - rows[0].created_at) for row in rows] == [0, 1, 2]
    assert abs(rows[0].created_at - cluster.clock.now_ms() / 1000) < 60
    assert [row.name for row in await parent.listed("Child")] == ["z", "a"]
    assert [row.name for row in await parent.listed_by_class("Child")] == ["z", "a"]


async def test_a_child_is_known_by_class_or_by_its_name(cluster: LocalCluster) -> None:
    # subagents S4
    parent = cluster.get(Parent, "p")
    await parent.open("c")
    assert await parent.has("Child", "c") == (True, True)
    assert await parent.has("Child", "d") == (False, False)
    assert await parent.has("Grandchild", "c") == (False, False)


async def test_a_path_goes_from_the_root_to_the_agent(cluster: LocalCluster) -> None:
    # subagents S7
    assert await cluster.get(Top, "t").paths_below() == [
        ([], [("Top", "t")]),
        ([("Top", "t")], [("Top", "t"), ("Middle", "m")]),
    ]


async def test_a_path_outlives_the_instance(cluster: LocalCluster) -> None:
    # subagents S7
    top = cluster.get(Top, "t")
    before = await top.paths_below()
    cluster.kill(ObjectId.root("Top", "t").child("Middle", "m"))
    cluster.kill(top)
    assert await top.paths_below() == before


async def test_the_parent_is_the_direct_one_also_if_it_has_one_itself(cluster: LocalCluster) -> None:
    # subagents S8
    assert await cluster.get(Top, "t").grandchild_says("Middle") == "middle m"


async def test_a_parent_of_another_class_is_refused_naming_both(cluster: LocalCluster) -> None:
    # subagents S8
    answer = await cluster.get(Top, "t").grandchild_says("Top")
    assert answer.startswith("UsageError")
    assert "a Middle, not a Top" in answer


async def test_a_root_has_no_parent(cluster: LocalCluster) -> None:
    # subagents S8
    answer = await cluster.get(Grandchild, "root").parent_says("Top")
    assert answer.startswith("UsageError")
    assert "not a facet" in answer
