"""A node of which the scheduler says that it takes it is left in a planned way, within the grace that there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.helpers.live_inside import (
    LiveDaemon,
    LiveService,
    World,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    submit,
    until,
)


def pilots() -> World:
    """Return a world in which nodes come with agents, and tasks leave only when the test says so."""
    return World(agents=True, agents_suffice=True, vacates=False)


async def running_on(daemon: LiveDaemon, service: LiveService, world: World, *nodes: str) -> None:
    world.come(*nodes)
    await submit(service, "a", 1, 4)
    await decided(daemon)


@in_a_loop
async def test_a_noticed_node_is_left_at_the_next_commit_and_nothing_goes_there_any_more(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (daemon, service, _, world):
        await running_on(daemon, service, world, "n1", "n2")
        world.log.clear()
        world.notice("n1", 60.0)
        await decided(daemon)
        assert daemon.harvester.pool == {"n2"}
        assert world.orders() == [{"action": "shrink", "task": "a", "nodes": ("n1",), "cause": "decided"}]
        assert service.task(ourselves(), "a").preemptions == 1
        await submit(service, "b", 1, 4)
        await decided(daemon)
        world.tell("a", "vacated", nodes=["n1"])
        await decided(daemon)
        assert all("n1" not in order["nodes"] for order in world.orders()[1:])
        assert world.asked("give_back") == [], "its agent leaves by itself"
        world.go("n1")
        await decided(daemon)
        assert all(order["action"] != "release" for order in world.orders())
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1", "n2"}, "a new pilot is a new beginning"


@in_a_loop
async def test_the_scheduler_s_part_learns_of_agents_that_were_asked_to_go(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (_, _, _, world):
        world.come("n1", "n2", "n3")
        world.notice("n1", 60.0)
        world.go("n2", noticed=True)  # where there is no grace
        world.go("n3")
        await until(lambda: world.asked("noticed"))
        assert world.asked("noticed") == ["n1", "n2"]


@in_a_loop
async def test_a_task_that_does_not_leave_within_the_grace_is_cleared_and_the_node_given_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (daemon, service, _, world):
        await running_on(daemon, service, world, "n1", "n2")
        world.log.clear()
        world.notice("n1", 0.05)
        await until(lambda: world.asked("give_back"))
        assert world.asked("give_back") == [("n1",)]
        assert {"action": "release", "nodes": ["n1"]} in world.orders()
        assert daemon.harvester.pool == {"n2"}


@in_a_loop
async def test_an_agent_that_goes_within_the_grace_ends_it(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (daemon, service, _, world):
        await running_on(daemon, service, world, "n1")
        world.notice("n1", 0.1)
        await decided(daemon)
        world.go("n1")
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1"}
        world.log.clear()
        await asyncio.sleep(0.2)
        assert (world.orders(), world.asked("give_back")) == ([], []), "the new agent has had no notice"


@in_a_loop
async def test_the_word_of_the_scheduler_does_not_cut_the_grace_short(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (daemon, service, _, world):
        await running_on(daemon, service, world, "n1", "n2")
        world.notice("n1", 60.0)
        await decided(daemon)
        world.take("n1", "n2")
        await decided(daemon)
        released = [order["nodes"] for order in world.orders() if order["action"] == "release"]
        assert released == [("n2",)]
        assert daemon.launcher_pool.lingering == {"n1"}


@in_a_loop
async def test_a_notice_of_an_agent_that_is_not_there_means_nothing(tmp_path: Path) -> None:
    async with live_inside(tmp_path, pilots()) as (daemon, _, _, world):
        world.notice("n1", 60.0)
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1"}
