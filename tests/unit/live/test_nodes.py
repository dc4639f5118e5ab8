"""Nodes that join, are taken by the scheduler, with or without notice, or are given back as planned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.helpers.live_inside import (
    Allowed,
    LiveDaemon,
    LiveService,
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
from tests.helpers.timeouts import set_timeouts


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
    set_timeouts(monkeypatch, first_look_s=30.0)
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
    set_timeouts(monkeypatch, first_look_s=0.02)
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


async def _two_on_four(daemon: LiveDaemon, service: LiveService, world: World) -> None:
    world.lend("n1", "n2", "n3", "n4")
    await submit(service, "a", 1, 2)
    await submit(service, "b", 1, 2)
    await decided(daemon)


async def _given_back(daemon: LiveDaemon, world: World, node: str) -> None:
    await until(lambda: world.asked("give_back"))
    assert (world.asked("give_back"), daemon.launcher_pool.lingering) == ([(node,)], set())


@in_a_loop
async def test_a_drained_node_is_left_gently_and_then_given_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        mine = sorted(world.held["a"])
        world.log.clear()
        views = await service.drain(ourselves(), [mine[0], "n9"])
        assert [(view.name, view.state) for view in views] == [(mine[0], "draining"), ("n9", "drained")]
        order = world.orders()[0]
        assert (order["action"], order["nodes"], order["cause"]) == ("shrink", (mine[0],), "decided")
        assert [one for one in world.orders() if one["action"] == "release"] == [], "it is not killed"
        assert world.asked("give_back") == []
        assert world.asked("want")[-1] == (4, {mine[0], "n9"})
        world.tell("a", "vacated", nodes=[mine[0]])
        await until(lambda: world.asked("give_back"))
        assert world.asked("give_back") == [(mine[0],)]
        await decided(daemon)
        assert [view.state for view in service.nodes(ourselves()) if view.name == mine[0]] == ["drained"]
        views = await service.drain(ourselves(), [mine[0], "n9"], end=True)
        await decided(daemon)
        assert mine[0] in daemon.harvester.pool
        assert daemon.task_store.drained == set()
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.node_manager.node_tracker.drained == set()


@in_a_loop
async def test_a_drained_node_on_which_nothing_runs_is_given_back_at_once_and_a_restart_remembers(
    tmp_path: Path,
) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        world.lend("n1", "n2")
        await decided(daemon)
        world.breaks["give_back"] = RuntimeError("not now")
        await service.drain(ourselves(), ["n1"])
        await until(lambda: any("RuntimeError: not now" in text for text in remarks(daemon)))
        assert world.asked("give_back") == [("n1",)]
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        await until(lambda: daemon.harvester.pool == {"n2"}, "the other one is used")


@in_a_loop
async def test_a_node_that_is_taken_while_it_drains_is_cleared_at_once(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        node = min(world.held["a"])
        await service.drain(ourselves(), [node])
        assert daemon.launcher_pool.lingering == {node}
        world.log.clear()
        world.take(node)
        assert world.orders() == [{"action": "release", "nodes": [node]}]
        assert daemon.launcher_pool.lingering == set()


@in_a_loop
async def test_a_node_that_is_wanted_again_while_it_drains_is_kept(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        node = min(world.held["a"])
        await service.drain(ourselves(), [node])
        await service.drain(ourselves(), [node], end=True)
        await decided(daemon)
        assert (daemon.launcher_pool.lingering, daemon.node_manager.vacating) == (set(), set())
        world.tell("a", "vacated", nodes=[node])
        await asyncio.sleep(0.01)
        assert world.asked("give_back") == []


@in_a_loop
async def test_nodes_are_given_back_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world, times=Times(idle_s=0.02)) as (daemon, service, _, _):
        await submit(service, "a", 1, 1)
        world.come("n1")
        await decided(daemon)
        await asyncio.sleep(0.05)
        assert world.asked("give_back") == []
        world.tell("a", "done", step=1)
        await until(lambda: world.asked("give_back") == [("n1",)])


@in_a_loop
async def test_a_node_that_a_task_does_not_give_up_in_time_is_cleared_and_given_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False), times=Times(drain_s=0.1)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        node = min(world.held["a"])
        await service.drain(ourselves(), [node])
        assert world.asked("give_back") == []
        await _given_back(daemon, world, node)
        assert {"action": "release", "nodes": [node]} in world.orders()


@in_a_loop
async def test_nodes_of_a_task_that_is_cancelled_while_it_leaves_are_given_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False), times=Times(drain_s=600.0)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        node = min(world.held["a"])
        await service.drain(ourselves(), [node])
        await asyncio.sleep(0.03)
        assert (daemon.launcher_pool.lingering, world.asked("give_back")) == ({node}, [])
        await service.cancel(ourselves(), "a")
        await _given_back(daemon, world, node)


@in_a_loop
async def test_drained_nodes_are_given_back_until_their_agents_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeouts(monkeypatch, sweep_s=0.02)
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.come("n1", "n2")
        await decided(daemon)
        world.breaks["give_back"] = RuntimeError("not now")
        await service.drain(ourselves(), ["n1", "n3"])
        await until(lambda: len(world.asked("give_back")) >= 3, "and again")
        world.go("n1")
        await decided(daemon)
        await asyncio.sleep(0.06)  # a release may be under way
        world.breaks.clear()
        world.log.clear()
        await asyncio.sleep(0.06)
        assert world.asked("give_back") == [], "nothing is left to be given back"
        world.waits["give_back"] = asyncio.Event()
        world.come("n3")
        await until(lambda: world.asked("give_back"), "a pilot that waited begins on a drained node")
        await asyncio.sleep(0.06)
        assert world.asked("give_back") == [("n3",)], "not again while the scheduler is busy with it"
        world.log.clear()
    world.waits.clear()
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        world.come("n2", "n3")
        await until(lambda: ("n3",) in world.asked("give_back"), "after a kill as well")
        await until(lambda: daemon.harvester.pool == {"n2"})


@in_a_loop
async def test_an_end_in_order_lets_tasks_put_themselves_in_order(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(vacates=False)) as (daemon, service, _, world):
        await _two_on_four(daemon, service, world)
        held = {task: sorted(nodes) for task, nodes in world.held.items()}
        world.log.clear()
        draining = asyncio.create_task(daemon.drain())
        await until(lambda: daemon.launcher_pool.lingering)
        assert daemon.state == "draining"
        assert {(one["action"], one["task"], one["cause"]) for one in world.orders()} == {
            ("stop", "a", "decided"),
            ("stop", "b", "decided"),
        }
        assert world.asked("leave") == []
        for task, nodes in held.items():
            world.tell(task, "vacated", nodes=nodes)
        await draining
        assert [what for what, _ in world.log if what in {"leave", "close"}] == ["leave", "close"]
        world.lend("n9")
        daemon.want()
        assert daemon.harvester.pool == set(), "and nothing is begun any more"


@in_a_loop
async def test_an_end_in_order_does_not_wait_for_ever(tmp_path: Path) -> None:
    world = World(vacates=False)
    world.breaks["leave"] = RuntimeError("cannot")
    async with live_inside(tmp_path, world, times=Times(drain_s=0.02)) as (daemon, service, _, _):
        await _two_on_four(daemon, service, world)
        world.log.clear()
        await daemon.drain()
        kinds = [one["action"] for one in world.orders()]
        assert kinds[-1] == "release", "what does not go in time is cleared"
        assert any("scheduler 'inside': RuntimeError: cannot" in text for text in remarks(daemon))
        assert world.asked("close"), "and launchers end what they started all the same"
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.harvester.unfinished == ("a", "b"), "tasks are there again when it is back"


@in_a_loop
async def test_an_agent_that_calls_its_node_with_a_domain_is_remarked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeouts(monkeypatch, sweep_s=0.0)
    async with live_inside(tmp_path, World(agents=True)) as (daemon, _, _, world):
        world.lend("n1", "n2", "n3")
        world.come("n1.cluster.example.org", "n2.cluster.example.org", "n3", "m1.cluster.example.org")
        said = "the scheduler calls a node 'n1' and its agent 'n1.cluster.example.org', so it is not used: start agents"
        await until(lambda: any(one.text.startswith(said) for one in daemon.notices.latest))
        await until(lambda: daemon.harvester.pool == {"n3"})
        await asyncio.sleep(0.03)
        assert [one.times for one in daemon.notices.latest if one.text.startswith("the scheduler calls")] == [1]


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
