"""A task that is to run after others waits until they are done, over a restart too, and ends if one never will be."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput, BadValue, NotNow
from tests.helpers.live_callers import ANN, BOB, submission
from tests.helpers.live_inside import LiveService, World, decided, in_a_loop, live_inside, ourselves, submit, until


def state(service: LiveService, name: str) -> str:
    return service.task(ourselves(), name).state


@in_a_loop
async def test_it_gets_nodes_when_all_of_them_are_done(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", largest=1)
        await submit(service, "b", largest=1)
        view = await submit(service, "c", largest=1, after=("a", "#2"))
        assert view.waits == "it runs after #1, #2"
        world.lend("n1", "n2", "n3")
        await decided(daemon)
        assert [state(service, name) for name in "abc"] == ["running", "running", "waiting"]
        world.tell("a", "done")
        await decided(daemon)
        await until(lambda: service.task(ourselves(), "c").waits == "it runs after #2")  # the clock ticks each second
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert state(service, "c") == "waiting"
        world.tell("b", "done")
        await until(lambda: state(service, "c") == "running")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert state(service, "c") == "running", "it does not wait again after a restart"


@in_a_loop
async def test_it_is_cancelled_if_one_of_them_will_never_be_done(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await submit(service, "a")
        await submit(service, "b", after=("a",))
        await submit(service, "c", after=("b",))
        await service.cancel(ourselves(), "a")
        await until(lambda: state(service, "c") == "cancelled")
        assert service.task(ourselves(), "b").reason == "it was to run after task #1, which is cancelled"
        with pytest.raises(NotNow, match="task 'a' is cancelled already"):
            await submit(service, "d", after=("a",))


@in_a_loop
async def test_a_pause_of_its_owner_outlasts_the_waiting(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", largest=1)
        await submit(service, "b", largest=1, after=("a",))
        await service.pause(ourselves(), "b")
        await service.resume(ourselves(), "b")
        await decided(daemon)
        world.lend("n1", "n2")
        await decided(daemon)
        assert state(service, "b") == "waiting", "it still waits for the other one"
        await service.pause(ourselves(), "b")
        world.tell("a", "done")
        await until(lambda: not daemon.task_manager.after)
        assert state(service, "b") == "paused"
        await service.resume(ourselves(), "b")
        await decided(daemon)
        assert state(service, "b") == "running"


@in_a_loop
async def test_only_own_tasks_can_be_waited_for_and_done_ones_need_no_waiting(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("a", 1))
        with pytest.raises(BadInput, match="after: no task is called 'a'"):
            await service.submit(BOB, submission("b", 1, after=("a",)))
        world.lend("n1")
        await decided(daemon)
        world.tell("a", "done")
        await decided(daemon)
        await service.submit(ANN, submission("c", 1, after=("#1",)))
        await decided(daemon)
        assert service.task(ANN, "c").state == "running"
    with pytest.raises(BadValue, match="after"):
        submission("x", after=("",))
