"""What callers may ask of a live run: users, operators, tokens."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import time
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import BadConfig, BadInput, NotAllowed, NotFound, NotNow
from bftrain.config import LiveSettings
from bftrain.live.api.server import ApiToken
from bftrain.live.model.schemas import caller_at_socket
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import (
    LOGGER,
    Caller,
    LiveService,
    Pause,
    World,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    submit,
    until,
    wire,
)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@in_a_loop
async def test_users_see_their_own_tasks_and_operators_all(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        await service.submit(ANN, submission("a"))
        await service.submit(BOB, submission("b"))
        assert [task.name for task in service.tasks(ANN, all=False)] == ["a"]
        assert [task.name for task in service.tasks(BOB, all=True)] == ["b"]
        assert [(task.name, task.user) for task in service.tasks(CHIEF, all=False)] == [("a", "ann"), ("b", "bob")]


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
            return await service.log(caller, name, "n1.0.log", offset=0)
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
async def test_remarks_go_to_operators_alone(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await service.submit(ANN, submission("a"))
        world.lend("n1")
        await decided(daemon)
        world.tell("a", "failed", reason="cannot read /home/ann/secrets")
        world.tell("a", "note", text="it saves often")
        LOGGER.warning("the controller does not answer")
        LOGGER.warning("internal error at x:1: KeyError: 'a'")
        await decided(daemon)
        last = daemon.decision_loop.last_decision
        assert last is not None
        daemon.decision_loop.last_decision = replace(last, fallback="objective 'mine' broke on task 'a'")

        def heard(caller: Caller) -> set[str]:
            status = service.status(caller)
            assert status.decision is not None
            return {*(one.text for one in status.remarks), status.decision.fallback}

        everything = heard(CHIEF)
        assert len(everything) >= 5
        assert heard(BOB) == heard(ANN) == {"the solver gave none"}


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
        assert [task.state for task in service.tasks(ourselves(), all=True)] == ["cancelled"]
        assert service.tasks(ourselves(), all=False) == ()
        assert service.status().over == 1


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
            assert await service.log(ANN, "a", "n1.0.log", offset=offset) == piece
        for name in ("link", "nothing", "../000001-a/logs/n1.0.log", "..", ".", "", "a\0b", "x" * 300):
            with pytest.raises(NotFound, match="no log file"):
                await service.log(ANN, "a", name, offset=0)
        for name in ("pipe", "folder"):
            with pytest.raises(BadInput, match="not a plain file"):
                await service.log(ANN, "a", name, offset=0)


@in_a_loop
async def test_before_it_is_ready_it_tells_but_changes_nothing(tmp_path: Path) -> None:
    async with live_inside(tmp_path, begin=False) as (daemon, service, _, _):
        assert service.status().state == "starting"
        assert service.tasks(ANN, all=True) == ()
        handed_in = service.submit(ANN, submission("a"))
        waiting = asyncio.create_task(handed_in)
        await asyncio.sleep(0)
        assert not waiting.done()
        await daemon.begin()
        assert (await waiting).name == "a"


@in_a_loop
async def test_a_task_says_why_it_waits(tmp_path: Path) -> None:
    async with live_inside(tmp_path, deciding=LiveSettings(max_tasks=2)) as (daemon, service, _, world):

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
        assert waits("late") == "it is paused: bftrain task resume late"
        await service.submit(CHIEF, submission("k", 2))
        world.breaks["add"] = OSError("no such file system")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert "it cannot be run now, and is tried again" in service.task(CHIEF, "k").waits


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = caller_at_socket(ours, ())
    assert caller == ourselves()
    assert (caller.uid, caller.operator) == (os.getuid(), True)


@pytest.mark.parametrize(
    ("uid", "operators", "operator"),
    [(os.getuid(), (), True), (0, (), True), (3_999_999, (), False), (3_999_999, ("3999999", "x"), True)],
)
def test_operators_are_we_root_and_users_that_the_site_names(
    uid: int, operators: tuple[str, ...], *, operator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: struct.pack("3i", 1, uid, 1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert caller_at_socket(ours, operators).operator is operator


def test_a_token_is_made_private_and_is_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "token"
    before = os.umask(0)
    try:
        made = ApiToken(path)
    finally:
        os.umask(before)
    text = path.read_text().strip()
    assert len(text) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert made.admits(f"Bearer {text}")
    assert ApiToken(path).admits(f"Bearer {text}")


def test_only_the_token_admits(tmp_path: Path) -> None:
    token = ApiToken(tmp_path / "token")
    text = (tmp_path / "token").read_text().strip()
    assert token.admits(f"Bearer {text}")
    assert token.admits(f"bearer   {text} ")
    for given in (
        "",
        "Bearer",
        f"Basic {text}",
        text,
        f"Bearer {text}x",
        f"Bearer {text[:-1]}",
        "Bearer é",
        "Bearer \ud800",
    ):
        assert not token.admits(given)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_that_others_know_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token"
    ApiToken(path)
    path.chmod(mode)
    with pytest.raises(BadConfig, match="chmod 600"):
        ApiToken(path)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_token_that_cannot_be_read_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if kind == "folder":
        path.mkdir()
    else:
        ApiToken(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    with pytest.raises(BadConfig, match=r"cannot be read.* or remove this file; bftrain live makes a new one"):
        ApiToken(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    ApiToken(path)
    os.chown(path, 65534, 65534)
    with pytest.raises(BadConfig, match="belongs to another user"):
        ApiToken(path)


@pytest.mark.parametrize("text", ["", "short", "é" * 40, "a\tb" * 20])
def test_what_is_no_token_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(BadConfig, match="not a token of at least 32 characters"):
        ApiToken(path)


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
        assert "bftrain_preemptions_total 0.0\n" in service.metrics.text()
        happened = [one.text for one in service.watch.feed.since(0, lambda _: "a")]
        assert "n[1-2] given back: 0 nodes available" in happened
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
        monkeypatch.setattr("time.time", lambda: began + 700)
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
            wire.convert({"for_s": for_s}, Pause)


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
