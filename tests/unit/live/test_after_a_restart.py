"""After a restart nothing is started in the place of what may still run, and all that was counted is known."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from unittest import mock

from tests.helpers.live_inside import (
    Agents,
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

LONG = Times(reunion_s=30.0)


@in_a_loop
async def test_no_worker_is_started_before_all_agents_are_back(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        hub = type(daemon.opened.hub)
        calls: list[str] = []
        real = {name: getattr(hub, name) for name in ("hold_workers", "open", "start_workers")}
        noted = {name: lambda own, name=name: (calls.append(name), real[name](own)) for name in real}
        with mock.patch.multiple(hub, **noted):
            beginning = asyncio.create_task(daemon.begin())
            await until(lambda: daemon.state == "reuniting")
            world.come("n1")
            await until(lambda: daemon.node_manager.node_tracker.expected == {"n2"})
            await decided(daemon)
            assert not beginning.done()
            assert calls == ["hold_workers", "open"]
            world.come("n2")
            await beginning
        assert calls == ["hold_workers", "open", "start_workers"]


@in_a_loop
async def test_a_node_whose_pilot_is_over_is_not_waited_for(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2", "n3")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))  # n3 was taken while no daemon ran
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        assert daemon.node_manager.node_tracker.expected == {"n1", "n2"}
        world.come("n1")
        world.take("n2")
        await beginning
        await decided(daemon)
        assert (daemon.harvester.pool, world.asked("give_back")) == ({"n1"}, [])


@in_a_loop
async def test_where_agents_outlive_the_word_of_the_scheduler_they_are_waited_for(tmp_path: Path) -> None:
    world = World(agents=True)
    world.allowed = {"n1", "n2"}
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed = {"n1"}
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        assert (daemon.harvester.pool, daemon.node_manager.node_tracker.expected) == ({"n1"}, {"n1", "n2"})
        world.come("n1")
        await until(lambda: daemon.node_manager.node_tracker.expected == {"n2"})
        await decided(daemon)
        assert not beginning.done(), "on n2 workers may still live, though it is not ours any more"
        world.come("n2")
        await beginning


@in_a_loop
async def test_a_pilot_whose_agent_does_not_come_back_is_given_back(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))
    async with live_inside(tmp_path, world, begin=False, times=Times(reunion_s=0.1)) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        world.come("n1")
        await beginning
        await until(lambda: world.asked("give_back"))
        assert (daemon.harvester.pool, world.asked("give_back")) == ({"n1"}, [("n2",)])


@in_a_loop
async def test_how_far_a_task_came_is_written_down_when_its_processes_change(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 1, work_samples=10_000.0)
        await decided(daemon)
        world.tell("a", "confirmed", size=1, step=0)
        for step in range(1, 81):
            world.tell("a", "report", step=step, size=1, samples=10, loss=None, total=10 * step, since=0)
        world.tell("a", "in_memory", step=79)
        world.tell("a", "on_disk", step=70)
        world.tell("a", "vacated", nodes=["n1"])
        for step in range(81, 101):  # of another process, and it is not written down
            world.tell("a", "report", step=step, size=1, samples=10, loss=None, total=10 * (step - 80), since=80)
        await decided(daemon)
        view = service.task(ourselves(), "a")
        assert (view.samples, view.step, view.in_memory_step, view.committed_step) == (1000.0, 100, 79, 70)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert service.task(ourselves(), "a").samples >= 800.0
        world.tell("a", "report", step=130, size=1, samples=10, loss=None, total=500, since=80)
        await decided(daemon)
        view = service.task(ourselves(), "a")
        assert (view.samples, view.step, view.committed_step) == (1300.0, 130, 70)
        assert sum(day.samples for day in daemon.task_manager.ledger.days) <= 1300.0
        world.tell("a", "done", step=130)
        await decided(daemon)
        assert sum(day.samples for day in daemon.task_manager.ledger.days) == 1300.0
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert sum(day.samples for day in daemon.task_manager.ledger.days) == 1300.0, "written with the end of the task"


@in_a_loop
async def test_the_epoch_rises_with_every_start_regardless_of_the_clock(tmp_path: Path) -> None:
    epochs = []
    for clock in (1000.0, 1000.2, 5000.0, 400.0):
        with mock.patch.object(time, "time", lambda clock=clock: clock):
            async with live_inside(tmp_path, World(agents=True), begin=False) as (daemon, _, _, _):
                hub = daemon.opened.hub
                assert hub is not None
                epochs.append(hub.epoch)
    assert epochs == [1000, 1001, 5000, 5001]


@in_a_loop
async def test_agents_learn_how_long_they_may_use_a_node_that_is_wanted_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True), begin=False) as (daemon, _, _, _):
        assert {"--grace", "--log-limit", "--nice"}.isdisjoint(daemon.opened.agent_order.argv)
        hub = daemon.opened.hub
        assert hub is not None
        assert hub.settle_s == 5.0
    agents = Agents(grace_s=20.0, settle_s=2.0, log_mb=8.0, nice=7, preload=())
    async with live_inside(tmp_path, World(agents=True), begin=False, agents=agents) as (daemon, _, _, _):
        words = daemon.opened.agent_order.argv
        assert words[words.index("--grace") + 1] == "20"
        assert words[words.index("--log-limit") + 1] == "8"
        assert words[words.index("--nice") + 1] == "7"
        hub = daemon.opened.hub
        assert hub is not None
        assert hub.settle_s == 2.0


@in_a_loop
async def test_a_clock_that_was_set_back_is_remarked_once_and_run_time_follows_the_journal(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, _, _, world):
        ahead_s = time.time() + 7200.0
        with mock.patch.object(time, "time", return_value=ahead_s):
            world.lend("n1")
            await decided(daemon)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        status = service.status()
        assert status.now_s - status.since_s < 60.0
        await until(lambda: remarks(daemon))
        await asyncio.sleep(0.05)
        assert len([text for text in remarks(daemon) if "behind the last entry of the journal" in text]) == 1
