"""Environments that a site offers, those that tasks bring along, and what reaches the launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import Run, UnknownName
from bftrain.live.model.environment import Environment
from tests.helpers.live_callers import submission
from tests.helpers.live_inside import World, in_a_loop, live_inside, ourselves

SITE = {"torch": Environment(setup=("module load cuda",), python="/t/python"), "image": Environment(prefix=("a", "i"))}
FIELDS = {"setup", "prefix", "python"}


@in_a_loop
async def test_launchers_receive_what_there_is_of_it_and_a_lost_one_holds_the_task_up(tmp_path: Path) -> None:
    world, run = World(), Run(argv=("x.py",), environment="torch", setup=("b",))
    async with live_inside(tmp_path, world, environments=SITE) as (_, service, _, _):
        await service.submit(ourselves(), submission("plain"))
        await service.submit(ourselves(), submission("own", run=run))
        image = Run(argv=("x.py",), environment="image", prefix=("nice",), python="/own/python")
        await service.submit(ourselves(), submission("image", run=image))
        job = world.jobs["image"]
        assert (job.get("setup", ()), job["prefix"], job["python"]) == ((), ("nice",), "/own/python")
        assert not FIELDS & world.jobs["plain"].keys(), "launchers of others do not know of it"
        shown = {name: world.jobs["own"][name] for name in FIELDS & world.jobs["own"].keys()}
        assert shown == {"setup": ("module load cuda", "b"), "python": "/t/python"}
        with pytest.raises(UnknownName, match="environment"):
            await service.submit(ourselves(), submission("odd", run=Run(argv=("x",), environment="touch")))
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert "no environment is called 'torch'" in daemon.task_manager.held_up["own"]
        assert "plain" not in daemon.task_manager.held_up
