"""Owners change tasks that hold no nodes: what is decided next, what is kept, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bftrain.errors import BadInput, BadValue
from bftrain.live.model.schemas import NotAllowed, NotFound, NotNow
from bftrain.live.model.task_edit import TaskEdit
from bftrain.rerun import Rerun
from bftrain.values.curve import SpeedCurve
from bftrain_replay.resume.journal_events import recorded
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import World, decided, in_a_loop, live_inside

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("given", [{}, {"max_nodes": 0}, {"min_nodes": 2_000_000}])
def test_changes_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        TaskEdit(**given)
