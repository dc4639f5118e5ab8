"""What callers may ask of a live run: their own tasks and no others, and what is refused in which words."""

from __future__ import annotations

import asyncio
import os
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import BadInput, NotAllowed, NotFound, NotNow, Settings
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import Caller, LiveService, decided, in_a_loop, live_inside, ourselves, submit


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@in_a_loop
async def test_users_see_their_own_tasks_and_operators_all(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await service.submit(ANN, submission("a"))
        await service.submit(BOB, submission("b"))
        assert [task.name for task in service.tasks(ANN, over=False)] == ["a"]
        assert [task.name for task in service.tasks(BOB, over=True)] == ["b"]
        assert [(task.name, task.user) for task in service.tasks(CHIEF, over=False)] == [("a", "ann"), ("b", "bob")]


@in_a_loop
async def test_no_user_touches_the_task_of_another_nor_learns_that_it_is_there(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await service.submit(ANN, submission("a"))
        for how, (called, nobodys) in product(
            ("task", "logs", "log", "pause", "resume", "cancel"), (("a", "x"), ("#1", "#9"))
        ):
            with pytest.raises(NotFound) as theirs:
                await _do(service, how, BOB, called)
            with pytest.raises(NotFound) as not_there:
                await _do(service, how, BOB, nobodys)
            assert str(theirs.value).replace(f"'{called}'", "") == str(not_there.value).replace(f"'{nobodys}'", "")
            assert service.task(ANN, "a").state == "waiting"
            await _do(service, "task", CHIEF, called)
        for how in ("task", "logs", "pause", "resume", "cancel"):
            await _do(service, how, ANN, "a")
        for name in ("", "#", "#0", "#-1", "#99", "#" + "9" * 5000, "a" * 5000, "é", "a/b"):
            with pytest.raises(NotFound):
                service.task(CHIEF, name)


async def _do(service: LiveService, how: str, caller: Caller, name: str) -> object:
    match how:
        case "task":
            return service.task(caller, name)
        case "log":
            return await service.log(caller, name, "n1.0.log", 0)
    return await getattr(service, how)(caller, name)


@in_a_loop
async def test_of_nodes_only_the_names_of_your_own_tasks_are_shown(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("a", 1))
        await service.submit(BOB, submission("b", 1))
        world.lend("n1", "n2", "n3")
        await decided(daemon)
        assert sorted(view.task for view in service.nodes(ANN)) == ["", "", "a"]
        assert sorted(view.task for view in service.nodes(CHIEF)) == ["", "a", "b"]
        assert sorted(view.state for view in service.nodes(ANN)) == ["free", "used", "used"]


@in_a_loop
async def test_how_things_stand_names_no_task_and_no_user_of_tasks(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("secretly", campaign="hidden"))
        world.lend("n1", "n2")
        await decided(daemon)
        status = service.status()
        assert (status.pool, status.used, status.running, status.waiting) == (2, 2, 1, 0)
        assert status.decision is not None
        for word in ("secretly", "hidden", "ann"):
            assert word not in repr(status)


@in_a_loop
async def test_what_is_remarked_of_a_task_goes_to_its_owner_alone(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("a"))
        world.lend("n1")
        await decided(daemon)
        world.tell("a", "failed", reason="cannot read /home/ann/secrets")
        world.tell("a", "note", text="it saves often")
        daemon.remark("the controller does not answer")
        daemon.remark("a fault of ours at x:1: KeyError: 'a'")
        await decided(daemon)
        assert daemon.last_decision is not None
        daemon.last_decision = replace(daemon.last_decision, fallback="objective 'mine' broke on task 'a'")

        def heard(caller: Caller) -> set[str]:
            status = service.status(caller)
            assert status.decision is not None
            return {*(one.text for one in status.remarks), status.decision.fallback}

        everything = heard(CHIEF)
        assert len(everything) >= 5
        assert heard(BOB) == {"the controller does not answer", "the solver gave none"}
        assert heard(ANN) == everything - {"a fault of ours at x:1: KeyError: 'a'"}
        await service.cancel(ANN, "a")
        await service.submit(BOB, submission("a"))
        assert heard(BOB) & everything == {"the controller does not answer"}, "it was another one's"


@in_a_loop
async def test_a_task_pauses_resumes_and_ends_and_both_can_be_said_twice(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a")
        world.lend("n1")
        await decided(daemon)
        assert service.task(ourselves(), "a").state == "running"
        for _ in range(2):
            assert (await service.pause(ourselves(), "a")).state == "paused"
        await decided(daemon)
        assert service.task(ourselves(), "a").nodes == ()
        for _ in range(2):
            assert (await service.resume(ourselves(), "a")).state in {"waiting", "running"}
        await decided(daemon)
        assert service.task(ourselves(), "a").nodes == ("n1",)
        assert (await service.cancel(ourselves(), "a")).state == "cancelled"
        for change in (service.cancel, service.pause, service.resume):
            with pytest.raises(NotNow, match="is cancelled already"):
                await change(ourselves(), "a")
        assert [task.state for task in service.tasks(ourselves(), over=True)] == ["cancelled"]
        assert service.tasks(ourselves(), over=False) == ()
        assert service.status().over == 1


@in_a_loop
async def test_a_name_is_free_again_when_its_task_is_over(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await submit(service, "a")
        await service.cancel(ourselves(), "a")
        again = await submit(service, "a")
        assert (again.number, service.task(ourselves(), "a").number) == (2, 2)
        assert service.task(ourselves(), "#1").state == "cancelled"


@in_a_loop
async def test_only_operators_drain(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, _):
        for end in (False, True):
            with pytest.raises(NotAllowed, match="'ann' is no operator"):
                await service.drain(ANN, ["n1"], end=end)
        assert daemon.task_store.drained == frozenset()


@in_a_loop
async def test_logs_are_read_in_pieces(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, _):
        await service.submit(ANN, submission("a"))
        assert await service.logs(ANN, "a") == ()
        record = daemon.task_store.get("a")
        assert record is not None
        folder = made(Path(record.run.folder, "logs"))
        (folder / "n1.0.log").write_bytes(b"0123456789")
        (folder / "n2.0.log").write_bytes(b"")
        (folder / "folder").mkdir()
        (folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(folder / "pipe")
        assert [(file.name, file.size) for file in await service.logs(ANN, "a")] == [("n1.0.log", 10), ("n2.0.log", 0)]
        pieces = {0: b"0123456789", 4: b"456789", 10: b"", 99: b"", -3: b"789", -99: b"0123456789"}
        for offset, piece in pieces.items():
            assert await service.log(ANN, "a", "n1.0.log", offset) == piece
        for name in ("link", "nothing", "../000001-a/logs/n1.0.log", "..", ".", "", "a\0b", "x" * 300):
            with pytest.raises(NotFound, match="no log file"):
                await service.log(ANN, "a", name, 0)
        for name in ("pipe", "folder"):
            with pytest.raises(BadInput, match="no plain file"):
                await service.log(ANN, "a", name, 0)


@in_a_loop
async def test_before_it_is_ready_it_tells_but_changes_nothing(tmp_path: Path) -> None:
    async with live_inside(tmp_path, begin=False) as (daemon, service, _, _):
        assert service.status().state == "starting"
        assert service.tasks(ANN, over=True) == ()
        handed_in = service.submit(ANN, submission("a"))
        waiting = asyncio.create_task(handed_in)
        await asyncio.sleep(0)
        assert not waiting.done()
        await daemon.begin()
        assert (await waiting).name == "a"


@in_a_loop
async def test_a_task_says_why_it_waits(tmp_path: Path) -> None:
    async with live_inside(tmp_path, deciding=Settings(max_tasks=2)) as (daemon, service, _, world):

        def waits(name: str) -> str:
            return service.task(CHIEF, name).waits

        for name, smallest in (("a", 1), ("big", 4), ("late", 1)):
            await submit(service, name, smallest, 4)
        await decided(daemon)
        assert waits("a") == "no node is idle now that the live run may use"
        world.lend("n1")
        await decided(daemon)
        assert waits("a") == ""
        assert waits("big") == "it needs 4 nodes, and the live run has 1 now"
        assert waits("late").startswith("2 other tasks compete before it, by admission first-come with max_tasks = 2")
        await service.cancel(CHIEF, "big")
        await decided(daemon)
        assert waits("late") == "1 node went to 1 other task by objective throughput"
        await service.pause(CHIEF, "late")
        assert waits("late") == "it is paused: bftrain resume late"
        await service.submit(CHIEF, submission("k", 2))
        world.breaks["add"] = OSError("no such file system")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert "it cannot be run now, and is tried again" in service.task(CHIEF, "k").waits
