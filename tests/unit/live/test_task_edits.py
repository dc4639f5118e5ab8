"""Owners change tasks that hold no nodes: what is decided next, what is kept, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import BadInput, BadValue, NotAllowed, NotFound, NotNow, Rerun, SpeedCurve
from bftrain.live.model.task_edit import TaskEdit
from bftrain_replay.journal_events import recorded
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import Api, World, decided, in_a_loop, live_inside

FLAT = SpeedCurve(nodes=(1, 8), rate=(1.0, 8.0))


@in_a_loop
async def test_a_waiting_task_is_changed_and_stays_so_over_a_restart_and_in_a_rerun(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await service.submit(ANN, submission("a", 8))
        changes = TaskEdit(min_nodes=2, max_nodes=3, weight=0.5, deadline_s=4e9, campaign="hpo")
        view = await service.edit(ANN, "a", changes)
        assert (view.min_nodes, view.max_nodes, view.weight, view.deadline_s) == (2, 3, 0.5, 4e9)
        assert (await service.edit(ANN, "a", TaskEdit(deadline_s=0.0))).deadline_s is None
        await service.submit(ANN, submission("b", 8))
        world.lend("n1")
        await decided(daemon)
        assert set(daemon.harvester.held) == {"b"}  # one node is too few for a by now
        await service.cancel(ANN, "b")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n2", "n3", "n4", "n5")
        await decided(daemon)
        assert len(daemon.harvester.held["a"]) == 3
        assert service.task(ANN, "a").campaign == "hpo"
        assert list(Rerun(daemon.opened.journal).differences()) == []
        assert [(one.name, one.max_nodes) for one in recorded(daemon.opened.journal).tasks] == [("a", 8), ("b", 8)]


@in_a_loop
async def test_a_task_gets_another_name_and_keeps_its_number_its_place_and_what_is_known_of_it(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        for name in "abc":
            await service.submit(ANN, submission(name, 2, curve=FLAT))
        await service.submit(ANN, replace(submission("d", 2, curve=FLAT), after=("a",)))
        world.lend("n1", "n2")
        await decided(daemon)
        assert set(daemon.harvester.held) == {"a"}
        before = service.task(ANN, "b")
        view = await service.edit(ANN, "b", TaskEdit(name="better", weight=0.5))
        assert (view.name, view.number, view.weight, view.folder) == ("better", before.number, 0.5, before.folder)
        assert daemon.harvester.unfinished == ("a", "better", "c", "d")
        assert [one.name for one in service.tasks(ANN, over=False)] == ["a", "better", "c", "d"]
        assert ("drop", "b") in world.log
        await service.edit(ANN, "d", TaskEdit(name="after-a"))
        with pytest.raises(NotFound):
            service.task(ANN, "b")
        with pytest.raises(NotNow, match="is called 'c' already"):
            await service.edit(ANN, "better", TaskEdit(name="c"))
        with pytest.raises(NotNow, match="holds nodes"):
            await service.edit(ANN, "a", TaskEdit(name="z"))
        await service.submit(ANN, submission("b", 2, curve=FLAT))  # the name is free again
        world.tell("a", "done", step=1)
        await decided(daemon)
        assert set(daemon.harvester.held) == {"better"}, "it was the next"
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert (service.task(ANN, "better").state, service.task(ANN, "after-a").state) == ("running", "waiting")
        assert set(daemon.harvester.held) == {"better"}
        assert list(Rerun(daemon.opened.journal).differences()) == []
        journal = recorded(daemon.opened.journal)
        assert journal.names == ("a", "better", "c", "after-a", "b")
        assert [one.name for one in journal.tasks] == ["a", "b", "c", "d", "b-2"]


@in_a_loop
async def test_names_by_user_keep_their_ending(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=Api(names_by_user=True)) as (_, service, _, _):
        await service.submit(BOB, submission("a", 2))
        assert (await service.edit(BOB, "a", TaskEdit(name="b"))).name == "b@bob"
        assert (await service.edit(CHIEF, "b@bob", TaskEdit(name="c"))).name == "c@bob"


@in_a_loop
async def test_a_running_task_is_paused_first(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("a", 2, curve=FLAT))
        world.lend("n1", "n2", "n3")
        await decided(daemon)
        with pytest.raises(NotNow, match="holds nodes"):
            await service.edit(ANN, "a", TaskEdit(max_nodes=3))
        await service.pause(ANN, "a")
        await service.edit(ANN, "a", TaskEdit(max_nodes=3))
        await service.resume(ANN, "a")
        await decided(daemon)
        assert len(daemon.harvester.held["a"]) == 3


@in_a_loop
async def test_who_may_change_what(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await service.submit(ANN, submission("a", 2))
        with pytest.raises(NotFound):
            await service.edit(BOB, "a", TaskEdit(max_nodes=1))
        with pytest.raises(NotAllowed, match="is more than"):
            await service.edit(ANN, "a", TaskEdit(weight=5.0))
        assert (await service.edit(CHIEF, "a", TaskEdit(weight=5.0))).weight == 5.0
        assert (
            await service.edit(ANN, "a", TaskEdit(weight=5.0, max_nodes=4))
        ).max_nodes == 4  # as an operator gave it
        with pytest.raises(BadInput, match="below min_nodes"):
            await service.edit(ANN, "a", TaskEdit(min_nodes=5))
        await service.cancel(ANN, "a")
        with pytest.raises(NotNow, match="cancelled already"):
            await service.edit(ANN, "a", TaskEdit(max_nodes=1))


@pytest.mark.parametrize("given", [{}, {"max_nodes": 0}, {"min_nodes": 2_000_000}, {"name": ""}, {"name": "a/b"}])
def test_changes_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        TaskEdit(**given)
