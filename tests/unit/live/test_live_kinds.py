"""Nodes of several kinds in a live run: what joins has its kind, tasks run where their curves say, people see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput, SpeedCurve
from bftrain.live.model.resource_views import KindView
from bftrain_replay.journal_events import recorded
from tests.helpers.live_inside import World, decided, in_a_loop, live_inside, ourselves, remarks, submit

KINDS = {"v100": ("v[1-2]",), "k80": "k1,k2"}
FAST = SpeedCurve(nodes=(1, 2), rate=(10.0, 19.0))
SLOW = SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))


@in_a_loop
async def test_a_task_runs_on_nodes_of_the_kinds_that_it_has_curves_for(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, curves={"v100": FAST})
        world.lend("k1", "k2")
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 2}
        assert world.held.get("picky", set()) == set()
        world.lend("v1", "v2")
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 2, "v100": 2}
        assert world.held["picky"] == {"v1", "v2"}
        await submit(service, "any", 1, 2)
        await decided(daemon)
        assert world.held["any"] == {"k1", "k2"}
        assert remarks(daemon) == []


@in_a_loop
async def test_a_task_moves_to_a_faster_kind_when_that_is_idle(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, world):
        await submit(service, "both", 1, 2, curves={"k80": SLOW, "v100": FAST}, work_samples=1e9)
        world.lend("k1", "k2")
        await decided(daemon)
        assert world.held["both"] == {"k1", "k2"}
        world.lend("v1", "v2")
        await decided(daemon)
        assert world.held["both"] == {"v1", "v2"}


@in_a_loop
async def test_people_see_of_which_kind_nodes_are(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, world):
        await submit(service, "a", 1, 1, curves={"v100": FAST})
        world.lend("v1", "v2", "k1")
        await decided(daemon)
        assert {view.name: view.kind for view in service.nodes(ourselves())} == {
            "v1": "v100",
            "v2": "v100",
            "k1": "k80",
        }
        status = service.status()
        assert dict(status.kinds) == {"v100": KindView(pool=2, used=1), "k80": KindView(pool=1, used=0)}
        (drained,) = await service.drain(ourselves(), ["k2"])
        assert (drained.name, drained.kind) == ("k2", "k80")


@in_a_loop
async def test_a_node_without_a_kind_gives_a_warning_and_is_not_for_tasks_that_name_kinds(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, curve=FAST, curves={"v100": SLOW})
        world.lend("x1", "x2")
        await decided(daemon)
        assert "node 'x1' and 1 others: [kinds] names no kind" in remarks(daemon)
        assert world.held.get("picky", set()) == set()
        await submit(service, "knows", 1, 1, curves={"other": FAST})
        await submit(service, "any", 1, 1)
        world.lend("v1")
        await decided(daemon)
        assert world.held["picky"] == {"v1"}
        assert world.held["knows"] | world.held["any"] == {"x1", "x2"}
        assert dict(daemon.harvester.pools) == {"other": 2, "v100": 1}
        assert dict(service.status().kinds)["other"] == KindView(pool=2, used=2)
        assert {view.name: view.kind for view in service.nodes(ourselves())}["x1"] == "other"
        recording = recorded(daemon.opened.journal)
        assert recording.log.kind_of == {"v1": "v100", "x1": "other", "x2": "other"}
        assert dict(recording.tasks[0].curves) == {"v100": SLOW}


@in_a_loop
async def test_without_kinds_all_nodes_are_alike(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        with pytest.raises(BadInput, match="names no kinds"):
            await submit(service, "picky", 1, 2, curves={"v100": FAST})
        await submit(service, "a", 1, 2)
        world.lend("n1", "n2")
        await decided(daemon)
        assert world.held["a"] == {"n1", "n2"}
        assert (dict(daemon.harvester.pools), dict(service.status().kinds), remarks(daemon)) == ({}, {}, [])


@in_a_loop
async def test_kinds_that_changed_while_it_was_down_hold_from_the_start(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world, kinds=KINDS) as (daemon, service, _, _):
        await submit(service, "picky", 1, 4, curves={"v100": FAST})
        world.lend("v1", "v2", "k1")
        await decided(daemon)
        assert world.held["picky"] == {"v1", "v2"}
    async with live_inside(tmp_path, world, kinds={"v100": "v1,k1", "k80": "v2,k2"}) as (daemon, _, _, _):
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 1, "v100": 2}
        assert world.held["picky"] == {"v1", "k1"}
        assert remarks(daemon) == []


@in_a_loop
async def test_tasks_for_kinds_that_are_gone_since_are_named_at_the_start(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (_, service, _, world):
        await submit(service, "picky", 1, 4, curves={"v100": FAST})
        await submit(service, "any", 1, 4)
    for kinds, words in (({"k80": "k[1-2]"}, "runs on v100 only; there are 2 k80"), ({}, "names no kinds")):
        async with live_inside(tmp_path, world, kinds=kinds) as (_, service, _, _):
            (remark,) = [one.text for one in service.status().remarks]
            assert ("'picky'" in remark, words in remark) == (True, True), remark


@in_a_loop
async def test_a_task_that_no_kind_of_node_can_ever_hold_is_refused(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, _):
        for smallest, kind in ((1, "tpu"), (3, "v100")):
            with pytest.raises(BadInput, match=f"runs on {kind} only; there are 2 v100, 2 k80") as refused:
                await submit(service, "a", smallest, 4, curves={kind: FAST})
            assert refused.value.where == "curves"
        assert daemon.harvester.unfinished == ()


@in_a_loop
async def test_a_task_whose_speed_is_unknown_runs_on_the_kinds_that_it_names(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, kinds=("v100",))
        for kinds, message in ((("p100",), "runs on p100 only"), (("v100", ""), "empty name")):
            with pytest.raises(BadInput, match=message):
                await submit(service, "odd", 1, 2, kinds=kinds)
        world.lend("k1", "v1")
        await decided(daemon)
        assert world.held["picky"] == {"v1"}
        spec = daemon.harvester.spec("picky")
        assert spec.curves == {"v100": spec.curve}
