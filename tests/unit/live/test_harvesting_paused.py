"""Operators pause the harvesting as a whole: nothing of ours stays on nodes, over a restart too, until it goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bftrain import BadInput, NotAllowed
from bftrain.live.model.harvesting import Pause
from tests.helpers.live_callers import ANN, CHIEF
from tests.helpers.live_inside import World, decided, in_a_loop, live_inside, submit, until


@in_a_loop
async def test_all_nodes_are_handed_back_and_none_is_wanted_until_it_goes_on(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a")
        world.lend("n1", "n2")
        await decided(daemon)
        assert set(daemon.harvester.held["a"]) == {"n1", "n2"}
        view = await service.pause_harvesting(CHIEF, Pause())
        await decided(daemon)
        assert (view.paused, view.until_s) == (True, None)
        assert (service.status().state, service.status().pool) == ("paused", 0)
        assert world.asked("want")[-1][0] == 0
        await until(lambda: {node for nodes in world.asked("give_back") for node in nodes} == {"n1", "n2"})
        assert service.task(CHIEF, "a").state == "waiting"
        assert service.task(CHIEF, "a").preemptions == 0, "an operator wanted it, not the scheduler"
        assert "bftrain_preemptions_total 0\n" in service.metrics.text()
        happened = [one.text for one in service.watch.feed.since(0, lambda _: "a")]
        assert "n[1-2] given back: 0 nodes ours" in happened
        await service.resume_harvesting(CHIEF)
        await decided(daemon)
        assert (service.status().state, set(daemon.harvester.held["a"])) == ("running", {"n1", "n2"})
        assert world.asked("want")[-1][0] == 4


@in_a_loop
async def test_a_pause_holds_over_a_restart_and_ends_by_itself_at_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, began = World(), time.time()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a")
        world.lend("n1")
        await service.pause_harvesting(CHIEF, Pause(for_s=600))
        await decided(daemon)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        status = service.status()
        assert (status.state, status.pool) == ("paused", 0)
        assert status.paused_until_s == pytest.approx(began + 600, abs=60)
        assert world.asked("want")[-1][0] == 0
        monkeypatch.setattr("bftrain.live.run.harvesting.time.time", lambda: began + 700)
        await until(lambda: service.status().pool == 1)  # the clock ticks each second
        assert service.status().state == "running"


@in_a_loop
async def test_a_pilot_that_begins_during_a_pause_is_given_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True, agents_suffice=True)) as (daemon, service, _, world):
        await submit(service, "a")
        await service.pause_harvesting(CHIEF, Pause())
        world.come("n1")
        await until(lambda: ("n1",) in world.asked("give_back"))
        assert daemon.harvester.pool_size == 0


@in_a_loop
async def test_only_operators_pause_and_only_for_a_time_that_there_is(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        for refused in (service.pause_harvesting(ANN, Pause()), service.resume_harvesting(ANN)):
            with pytest.raises(NotAllowed):
                await refused
        assert not service.harvesting().paused
    for for_s in (0.0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(BadInput, match="for_s"):
            Pause(for_s=for_s)


@in_a_loop
async def test_how_nodes_were_handed_back_is_remembered(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True, agents_suffice=True)) as (daemon, service, _, _):
        daemon.tell({"t": 5.0, "type": "gone", "node": "n1", "noticed": True, "after_s": 0.02})
        daemon.tell({"t": 5.5, "type": "gone", "node": "n2", "noticed": False, "after_s": 0.0})
        for node in ("n2", "n1"):
            daemon.tell({"t": 6.0, "type": "agent_ended", "node": node, "after_s": 0.03})
        await decided(daemon)
        (found,) = service.harvesting().handbacks
        assert (found.node, found.time_s, found.kill_s, found.exit_s) == ("n1", 5.0, 0.02, 0.03)
