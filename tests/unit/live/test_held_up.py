"""Tasks that cannot go on after a restart: refused ones have failed, others are held up and tried again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bftrain import NotAvailable, Rerun
from bftrain_elastic.errors import BadJob
from tests.helpers.live_inside import (
    LiveTaskState,
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


class Troubled(World):
    """Has trouble with task "a": what is raised when it is added, or what is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Exception | threading.Event | None = None

    def add(self, task: str, job: Any) -> None:  # noqa: ANN401 - as in World
        if task == "a" and isinstance(self.trouble, Exception):
            raise self.trouble
        if task == "a" and self.trouble is not None:
            assert self.trouble.wait(30)
        super().add(task, job)


async def _a_and_b(folder: Path, world: Troubled) -> None:
    async with live_inside(folder, world) as (daemon, service, _, _):
        for name in ("a", "b"):
            await submit(service, name, 1, 1)
        world.lend("n1", "n2")
        await decided(daemon)
        assert set(daemon.harvester.held) == {"a", "b"}
    world.log.clear()


@in_a_loop
async def test_a_task_whose_job_is_refused_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    world = Troubled()
    await _a_and_b(tmp_path, world)
    world.trouble = BadJob("has no script")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        found = service.task(ourselves(), "a")
        assert (found.state, "has no script" in found.reason) == ("failed", True)
        assert daemon.harvester.unfinished == ("b",)
        assert any("cannot go on" in text for text in remarks(daemon))


TROUBLES = [OSError("the disk is gone"), ZeroDivisionError("odd")]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: type(trouble).__name__)
@in_a_loop
async def test_a_task_that_cannot_be_run_for_now_waits_and_goes_on_when_it_can(
    tmp_path: Path, trouble: Exception
) -> None:
    world = Troubled()
    await _a_and_b(tmp_path, world)
    world.trouble = trouble
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert (service.task(ourselves(), "a").state, service.task(ourselves(), "b").state) == ("waiting", "running")
        assert set(daemon.harvester.held) == {"b"}, "it holds nothing"
        assert daemon.task_store.find("a").state is LiveTaskState.SUBMITTED  # type: ignore[union-attr]  # it is there
        await asyncio.sleep(0.1)
        assert len([text for text in remarks(daemon) if str(trouble) in text]) == 1, "it is said once"
        world.trouble = None
        await until(lambda: set(daemon.harvester.held) == {"a", "b"})
        assert service.task(ourselves(), "a").state == "running"
        assert any(text == "task 'a' goes on" for text in remarks(daemon))
        assert daemon.task_manager.held_up == {}
        assert list(Rerun(daemon.opened.journal).differences()) == []


@in_a_loop
async def test_a_task_that_is_held_up_is_taken_up_by_the_next_start_and_obeys_its_owner_meanwhile(
    tmp_path: Path,
) -> None:
    world = Troubled()
    await _a_and_b(tmp_path, world)
    world.trouble = OSError("the disk is gone")
    for _ in range(2):
        async with live_inside(tmp_path, world) as (daemon, service, _, _):
            await service.pause(ourselves(), "a")
            assert service.task(ourselves(), "a").state == "paused"
            await service.resume(ourselves(), "a")
            await decided(daemon)
            assert (service.task(ourselves(), "a").state, daemon.harvester.paused) == ("waiting", {"a"})
    world.trouble = None
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        await decided(daemon)
        assert set(daemon.harvester.held) == {"a", "b"}
    world.trouble = OSError("the disk is gone")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await service.cancel(ourselves(), "a")
        assert daemon.task_manager.held_up == {}
        assert service.task(ourselves(), "a").state == "cancelled"


@in_a_loop
async def test_a_task_that_is_refused_when_it_is_tried_again_has_failed(tmp_path: Path) -> None:
    world = Troubled()
    await _a_and_b(tmp_path, world)
    world.trouble = OSError("the disk is gone")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.trouble = BadJob("has no script")
        await until(lambda: daemon.harvester.unfinished == ("b",))
        assert service.task(ourselves(), "a").state == "failed"


@pytest.mark.parametrize("cancelled", [False, True])
@in_a_loop
async def test_a_folder_that_hangs_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cancelled: bool
) -> None:
    set_limits(monkeypatch, first_tasks_s=0.01, one_task_s=0.01)
    world = Troubled()
    await _a_and_b(tmp_path, world)
    hanging = world.trouble = threading.Event()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert set(daemon.harvester.held) == {"b"}
        assert "does not answer" in daemon.task_manager.held_up["a"]
        threads = threading.active_count()
        await submit(service, "c", 1, 1)
        await asyncio.sleep(0.1)
        assert threading.active_count() <= threads, "it is asked once"
        if cancelled:
            await service.cancel(ourselves(), "a")
        hanging.set()
        if cancelled:
            await until(lambda: "add" in [what for what, task in world.log if task == "a"])
            await until(lambda: [what for what, task in world.log if task == "a"][-1] == "drop")
        else:
            await until(lambda: "a" not in daemon.harvester.paused)
            assert service.task(ourselves(), "a").state in {"waiting", "running"}


@in_a_loop
async def test_a_folder_that_hangs_is_no_end_to_submitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, folder_patience_s=0.05)
    world = Troubled()
    hanging = world.trouble = threading.Event()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        with pytest.raises(NotAvailable, match="does not come back within"):
            await submit(service, "a", 1, 1)
        assert daemon.task_store.unfinished == ()
        set_limits(monkeypatch, folder_patience_s=30.0)
        await submit(service, "b", 1, 1)
        hanging.set()
        await until(lambda: world.asked("drop") == ["a"], "and what came of it later is undone")
        await submit(service, "a", 1, 1)
        assert daemon.harvester.unfinished == ("b", "a")
