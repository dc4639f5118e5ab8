"""Nodes in and out: by the scheduler's word, by agents, by operators; and what a scheduler does that misbehaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.helpers.live_inside import (
    Allowed,
    Remark,
    Taken,
    Times,
    World,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    remarks,
    submit,
    until,
)
from tests.helpers.live_limits import set_limits


@in_a_loop
async def test_with_agents_a_node_is_ours_when_both_say_so(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True)) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == set()
        world.lend("n1", "n2")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1"}
        world.come("n2")
        await decided(daemon)
        assert world.held["a"] == {"n1", "n2"}
        assert len(world.asked("hint")) == 2
        world.go("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n2"}
        assert [view.state for view in service.nodes(ourselves())] == ["used"]


@in_a_loop
async def test_gpus_of_one_node_go_to_one_task_and_are_drained_together(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True, agents_suffice=True)) as (daemon, service, _, world):
        world.come("g1/gpu0", "g2/gpu1", "g1/gpu3", "g2/gpu0", "g2/gpu3", "g3/gpu0")
        await submit(service, "two", 2, 2)
        await submit(service, "three", 3, 3)
        await decided(daemon)
        assert world.held == {"two": {"g1/gpu0", "g1/gpu3"}, "three": {"g2/gpu0", "g2/gpu1", "g2/gpu3"}}
        found = await service.drain(ourselves(), ["g1"])
        await decided(daemon)
        assert daemon.harvester.pool == {"g2/gpu0", "g2/gpu1", "g2/gpu3", "g3/gpu0"}
        assert [(one.name, one.state) for one in found] == [("g1", "drained")]
        states = {view.name: view.state for view in service.nodes(ourselves())}
        assert states["g1/gpu0"] in {"drained", "draining"}
        await service.drain(ourselves(), ["g1"], end=True)
        await decided(daemon)
        assert world.held["two"] == {"g1/gpu0", "g1/gpu3"}


@in_a_loop
async def test_a_pilot_is_proof_enough_and_a_node_that_was_taken_is_ours_again_with_a_new_one(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True, agents_suffice=True)) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1", "n2"}
        world.post(Taken(nodes=("n1",)))
        await decided(daemon)
        assert daemon.harvester.pool == {"n2"}
        world.go("n1")
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1", "n2"}


@in_a_loop
async def test_a_scheduler_that_cannot_be_asked_at_the_start_leaves_agents_the_time_to_come_back(
    tmp_path: Path,
) -> None:
    world = World(agents=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.lend("n1")
        world.come("n1")
        await decided(daemon)
    world.breaks["look"] = ConnectionError("not reachable")
    async with live_inside(tmp_path, world, times=Times(reunion_s=0.02)) as (daemon, _, _, _):
        assert any(
            "scheduler 'inside' cannot be asked: ConnectionError: not reachable" in text for text in remarks(daemon)
        )
        assert daemon.harvester.pool == set(), "what is in doubt is not ours"
        world.post(Allowed(nodes=("n1",), until_s=9.0))
        world.come("n1")
        await decided(daemon)
        assert daemon.harvester.pool == {"n1"}
        assert daemon.node_manager.node_tracker.until_s == {"n1": 9.0}
        world.post(Allowed(nodes=("n1",)))
        assert daemon.node_manager.node_tracker.until_s == {}


@in_a_loop
async def test_news_that_come_while_the_scheduler_is_asked_are_newer_than_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, look_patience_s=30.0)
    world = World()
    world.allowed = {"n1", "n2"}
    world.waits["look"] = asyncio.Event()
    async with live_inside(tmp_path, world, begin=False) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: world.asked("look"))
        world.post(Taken(nodes=("n1",)))
        world.post(Allowed(nodes=("n3",)))
        world.post(Remark(text="something else"))
        world.waits["look"].set()
        await beginning
        assert daemon.harvester.pool == {"n2", "n3"}
        assert any("something else" in text for text in remarks(daemon))


@in_a_loop
async def test_a_scheduler_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, look_patience_s=0.02)
    world = World()
    world.waits["look"] = asyncio.Event()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert any("cannot be asked: TimeoutError" in text for text in remarks(daemon))
        await submit(service, "a", 1, 1)
        world.lend("n1")
        await decided(daemon)
        assert world.held["a"] == {"n1"}


@in_a_loop
async def test_a_scheduler_that_breaks_is_run_again(tmp_path: Path) -> None:
    world = World()
    world.breaks["run"] = RuntimeError("lost my way")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await until(lambda: any("scheduler 'inside': RuntimeError: lost my way" in text for text in remarks(daemon)))
        del world.breaks["run"]
        await until(lambda: world.listening, "it listens again")
        await submit(service, "a", 1, 1)
        world.lend("n1")
        await decided(daemon)
        assert world.held["a"] == {"n1"}


@in_a_loop
async def test_the_scheduler_is_asked_now_and_then_in_case_that_news_got_lost(tmp_path: Path) -> None:
    async with live_inside(tmp_path, times=Times(look_s=0.01)) as (daemon, _, _, world):
        world.allowed = {"n1", "n2"}
        await until(lambda: daemon.harvester.pool == {"n1", "n2"})
        world.breaks["look"] = RuntimeError("away")
        await until(lambda: any("RuntimeError: away" in text for text in remarks(daemon)))
        world.allowed = {"n2"}
        del world.breaks["look"]
        await until(lambda: daemon.harvester.pool == {"n2"})
