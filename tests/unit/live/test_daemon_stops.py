"""What ends a live run or holds its decisions back: full disks, broken parts, signals."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bftrain import BadInput, BftrainError, Journal, NotAvailable, NotNow, Rerun, SpeedCurve
from bftrain.live.process import allow_many_connections, notify_systemd
from tests.helpers.live_inside import (
    LiveDaemon,
    LiveProcess,
    LiveService,
    TaskStore,
    Times,
    World,
    decided,
    full_disk,
    in_a_loop,
    lines_of_log,
    live_inside,
    meet,
    ourselves,
    parts,
    remarks,
    site_of,
    submit,
    until,
)

CURVE = SpeedCurve(nodes=(1, 4), rate=(10.0, 40.0))


@in_a_loop
async def test_a_journal_that_cannot_be_written_ends_the_run_and_orders_nothing_that_is_not_remembered(
    tmp_path: Path,
) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        await submit(service, "a", 1, 1)
        await decided(daemon)
        full = NotAvailable("cannot be written: database or disk is full", where="live.db")
        with full_disk(full):
            with pytest.raises(NotAvailable, match="the journal cannot be written"):
                await submit(service, "b", 1, 1)
            assert daemon.state == "broken"
            assert daemon.broken.result() is full
            assert not daemon.decision_loop.write() or daemon.task_store.due() == []
            for name in ("c", "d"):
                with pytest.raises(NotNow, match="is ending"):
                    await submit(service, name, 1, 1)
            orders = len(world.orders())
            world.lend("n3")
            world.take("n1")
            await asyncio.sleep(0.05)
            assert len(world.orders()) == orders
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert daemon.harvester.unfinished == ("a",)
        assert world.held["a"] < {"n2", "n3"}


@in_a_loop
async def test_a_journal_that_cannot_be_written_at_the_start_is_the_end_of_it(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world, begin=False) as (daemon, _, _, _):
        full = NotAvailable("cannot be written: database or disk is full", where="live.db")
        with full_disk(full):
            await daemon.begin()
        assert (daemon.state, daemon.broken.result(), daemon.ready.is_set()) == ("broken", full, False)
        assert world.asked("apply") == []


@in_a_loop
async def test_with_a_full_disk_nodes_are_handed_back_and_training_goes_on(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2", "n3")
        await submit(service, "a", 1, 2)
        await submit(service, "b", 1, 1)
        await decided(daemon)
        with full_disk():
            (taken,) = world.held["b"]
            world.take(taken)
            await until(lambda: not world.held["b"])
            assert daemon.state == "running"
            assert daemon.decision_loop.stalled is not None
            assert len(world.held["a"]) == 2, "the others go on"
            for change in (submit(service, "c"), service.pause(ourselves(), "a")):
                with pytest.raises(NotAvailable, match="no changes are possible now: cannot be written: disk is full"):
                    await change
            world.lend("n4")
            world.tell("a", "done", step=9)
            await until(lambda: daemon.harvester.unfinished == ("b",))
            await asyncio.sleep(0.05)
            assert world.held["b"] == set(), "no task is started that is not remembered"
            (said,) = [text for text in remarks(daemon) if "until the journal can be written" in text]
            assert "new tasks are rejected" in said
        await until(lambda: bool(world.held["b"]))
        assert "the journal is written again: new tasks are accepted, and tasks get nodes" in remarks(daemon)
        await submit(service, "c", 1, 1)
        await decided(daemon)
        plan = daemon.harvester.plan
        assert list(Rerun(daemon.opened.journal).differences()) == []
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.harvester.plan == plan, "all of it is written, in its order"
        assert [record.name for record in daemon.task_store.finished] == ["a"]


@in_a_loop
async def test_with_a_full_disk_a_task_can_be_cancelled(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        for name in ("a", "b", "c"):
            await submit(service, name, 1, 1)
        await decided(daemon)
        first, second, waiting = sorted("abc", key=lambda name: not world.held.get(name))
        with full_disk():
            for name in (first, second, waiting):
                with pytest.raises(NotAvailable, match=f"task '{name}' has lost its nodes, but the cancellation is"):
                    await service.cancel(ourselves(), name)
                assert not world.held.get(name), "what it writes may be what filled the disk"
                with pytest.raises(NotNow):
                    await service.cancel(ourselves(), name)
        await until(lambda: daemon.decision_loop.stalled is None)
        assert {record.state for record in daemon.task_store.finished} == {"cancelled"}
        assert list(Rerun(daemon.opened.journal).differences()) == []


@pytest.mark.parametrize("leaves", [0, 1, 2, 3])
@in_a_loop
async def test_a_decision_that_a_full_disk_kept_is_carried_out_as_far_as_its_nodes_are_still_there(
    leaves: int, tmp_path: Path
) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 4, curve=CURVE)
        await decided(daemon)
        orders = len(world.orders())
        append = Journal.append_decision
        with full_disk(what="append_decision"):
            world.lend("n2", "n3")
            await until(lambda: daemon.decision_loop.stalled is not None)
            assert world.orders()[orders:] == []
            gone = ("n1", "n2", "n3")[:leaves]
            if gone:
                world.take(*gone)
            await asyncio.sleep(0.02)
            assert world.held["a"] == ({"n1"} if not leaves else set())
        assert Journal.append_decision is append
        await until(lambda: daemon.decision_loop.stalled is None)
        await decided(daemon)
        assert world.held["a"] == {"n1", "n2", "n3"}.difference(gone)
        taking = [order["action"] for order in world.orders()[orders:] if order["action"] in {"start", "grow"}]
        assert taking == [["grow"], ["start"], ["start"], []][leaves]
        assert list(Rerun(daemon.opened.journal).differences()) == []


@in_a_loop
async def test_an_end_in_order_with_a_full_disk_does_not_say_that_all_is_remembered(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 2)
        await decided(daemon)
        with full_disk():
            await daemon.drain()
            assert "disk is full" in str(daemon.broken.result())
        assert world.asked("leave") == [None], "and all nodes are given back"


@in_a_loop
async def test_decisions_settle_for_a_while_where_that_is_asked_for(tmp_path: Path) -> None:
    async with live_inside(tmp_path, times=Times(settle_s=0.2)) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.lend("n1")
        await asyncio.sleep(0)
        assert "n1" in daemon.harvester.pool
        world.lend("n2")
        await decided(daemon)
        assert [order["nodes"] for order in world.orders() if order["action"] == "start"] == [("n1", "n2")]


@in_a_loop
async def test_what_is_decided_is_written_before_it_is_ordered_and_what_left_is_ordered_before_it_is_written(
    tmp_path: Path,
) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        await decided(daemon)
        append_decision, append_events = Journal.append_decision, Journal.append_events

        def decision(journal: Journal, *words: Any, **more: Any) -> None:  # noqa: ANN401 - handed through
            append_decision(journal, *words, **more)
            world.log.append(("decision written", None))

        def events(journal: Journal, *words: Any, **more: Any) -> None:  # noqa: ANN401 - handed through
            append_events(journal, *words, **more)
            world.log.append(("events written", None))

        with mock.patch.multiple(Journal, append_decision=decision, append_events=events):
            world.log.clear()
            world.lend("n1", "n2")
            await decided(daemon)
            assert [what for what, _ in world.log] == ["events written", "decision written", "apply"]
            world.log.clear()
            world.take("n1")
            await decided(daemon)
            assert [what for what, _ in world.log][:2] == ["apply", "events written"]


@in_a_loop
async def test_an_order_that_cannot_be_written_is_not_given(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        full = NotAvailable("cannot be written: disk is full")
        with mock.patch.object(Journal, "append_decision", side_effect=full):
            world.lend("n1", "n2")
            await until(lambda: daemon.state == "broken")
        assert world.orders() == []


@in_a_loop
async def test_an_order_that_cannot_be_given_ends_the_run_before_more_is_written(tmp_path: Path) -> None:
    """Else the journal would go on from what it does not know."""
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.lend("n1", "n2")
        await decided(daemon)
        steps = len(daemon.opened.journal)
        with mock.patch.object(daemon.launcher_pool, "carry_out", side_effect=RuntimeError("odd launcher")):
            world.take("n1")
            await until(lambda: daemon.state == "broken")
        assert "odd launcher" in str(daemon.broken.result())
        assert len(daemon.opened.journal) == steps


@in_a_loop
async def test_a_clock_that_stops_ends_the_run(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, _, _, _):
        with mock.patch.object(daemon.task_manager, "learned", side_effect=ValueError("odd speed")):
            await until(lambda: daemon.state == "broken")
        assert "the clock stopped: ValueError: odd speed" in str(daemon.broken.result())


QUICK_S = 20.0  # far below what is waited for there


class Run:
    """A live run in this process, with what it said."""

    def __init__(
        self,
        folder: Path,
        world: World,
        **changes: Any,  # noqa: ANN401 - any setting of a site
    ) -> None:
        self.said: list[str] = []
        self.began = asyncio.Event()
        self.daemon: LiveDaemon
        self.service: LiveService
        meet(world)

        async def besides(daemon: LiveDaemon, service: LiveService) -> None:
            self.daemon, self.service = daemon, service
            self.began.set()
            await asyncio.Event().wait()

        site = site_of(folder, world, **changes)
        live = LiveProcess(site, besides)
        self.task = asyncio.create_task(self._run(live.run()))

    async def _run(self, live: Coroutine[Any, Any, None]) -> None:
        with parts(), lines_of_log(self.said):
            await live

    async def ended(self) -> None:
        """Wait for its end, which has to come soon."""
        begun = time.monotonic()
        async with asyncio.timeout(30.0):
            await self.task
        assert time.monotonic() - begun < QUICK_S


def tell(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@in_a_loop
async def test_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    world = World()
    run = Run(tmp_path, world)
    await run.began.wait()
    assert run.said[0].startswith(f"running; listening on unix:{tmp_path}/live/api.sock")
    world.lend("n1")
    await submit(run.service, "a", 1, 1)
    await until(lambda: world.held.get("a"))
    tell()
    await run.ended()
    assert run.said[1:] == [
        "SIGTERM: stopping in order; repeat to stop immediately",
        f"stopped; the state is in {tmp_path}/live/live.db",
    ]
    assert world.held["a"] == set()
    assert world.asked("leave") == [None]
    assert world.asked("close") == [None]
    assert not (tmp_path / "live" / "api.sock").exists()
    with Journal.open(tmp_path / "live" / "live.db") as journal:
        assert [record.name for record in TaskStore(journal).unfinished] == ["a"]


@pytest.mark.parametrize("stage", ["before it opened", "asking", "taking tasks up", "reuniting"])
@in_a_loop
async def test_a_signal_ends_it_in_order_and_soon_while_it_still_begins(stage: str, tmp_path: Path) -> None:
    world = World(agents=stage == "reuniting", agents_suffice=True)
    first = Run(tmp_path, world)
    await first.began.wait()
    await submit(first.service, "a", 1, 1)
    if stage == "reuniting":
        world.come("n1")
    world.lend("n1")
    await until(lambda: world.held.get("a"))
    first.task.cancel()  # as if it were killed
    await asyncio.wait({first.task})
    hangs = threading.Event()
    world.log.clear()
    if stage == "asking":
        world.waits["look"] = asyncio.Event()
    if stage == "taking tasks up":
        mock.patch.object(world, "add", lambda *_: hangs.wait(60)).start()  # noqa: PT008 - it waits
    try:
        run = Run(tmp_path, world, times=Times(drain_s=60.0, reunion_s=60.0))
        await asyncio.sleep(0)
        match stage:
            case "asking":
                await until(lambda: world.asked("look"))
            case "taking tasks up":
                await until(lambda: any(one.name == "bftrain-aside" for one in threading.enumerate()))
            case "reuniting":
                await until(lambda: world.asked("apply"))
        tell()
        await run.ended()
    finally:
        hangs.set()
        mock.patch.stopall()
    assert run.said[-1].startswith("stopped; the state is in")
    assert not run.began.is_set() or stage == "before it opened", "there it may have begun just before"
    assert world.asked("leave") == [None], "nothing of ours is left at the scheduler"
    with Journal.open(tmp_path / "live" / "live.db") as journal:
        assert [record.name for record in TaskStore(journal).unfinished] == ["a"], "and nothing is forgotten"


@pytest.mark.parametrize("what", ["tasks", "scheduler", "launcher"])
@in_a_loop
async def test_a_second_signal_ends_it_at_once_during_any_wait(what: str, tmp_path: Path) -> None:
    world = World(vacates=False)
    hangs = threading.Event()
    if what == "scheduler":
        world.waits["leave"] = asyncio.Event()
    if what == "launcher":
        mock.patch.object(world, "close", lambda: hangs.wait(60)).start()  # noqa: PT008 - it waits
    try:
        run = Run(tmp_path, world, times=Times(drain_s=60.0 if what == "tasks" else 0.02))
        await run.began.wait()
        world.lend("n1")
        await submit(run.service, "a", 1, 1)
        await until(lambda: world.held.get("a"))
        tell(signal.SIGINT)
        await until(lambda: run.daemon.state == "draining")
        await asyncio.sleep(0.05)
        assert not run.task.done()
        tell(signal.SIGINT)
        with pytest.raises(BftrainError, match="exited immediately"):
            await run.ended()
    finally:
        hangs.set()
        mock.patch.stopall()
    assert run.said[1:] == ["SIGINT: stopping in order; repeat to stop immediately"]


@in_a_loop
async def test_a_full_disk_ends_it_and_leaves_alone_what_runs(tmp_path: Path) -> None:
    world = World()
    run = Run(tmp_path, world)
    await run.began.wait()
    world.lend("n1")
    await submit(run.service, "a", 1, 1)
    await until(lambda: world.held.get("a"))
    with full_disk(NotAvailable("cannot be written: disk is full")):
        world.lend("n2")
        with pytest.raises(NotAvailable, match="disk is full"):
            await run.ended()
    assert world.held["a"] == {"n1"}
    assert world.asked("leave") == world.asked("close") == []


@in_a_loop
async def test_a_mistake_of_ours_is_the_end_and_is_reported(tmp_path: Path) -> None:
    world = World()
    run = Run(tmp_path, world)
    await run.began.wait()
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    with pytest.raises(BftrainError, match="ZeroDivisionError"):
        await run.ended()
    assert world.asked("leave") == []


@in_a_loop
async def test_a_failed_start_is_reported_and_nothing_is_left_open(tmp_path: Path) -> None:
    with mock.patch.object(LiveDaemon, "begin", side_effect=BadInput("does not follow")):
        run = Run(tmp_path, World())
        with pytest.raises(BadInput, match="does not follow"):
            await run.ended()
    assert not (tmp_path / "live" / "api.sock").exists()
    run = Run(tmp_path, World())
    await run.began.wait()
    tell()
    await run.ended()


def test_systemd_is_notified_if_it_started_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(path))
        ear.settimeout(5.0)
        for address, heard in ((str(path), b"READY=1"), ("", None), ("relative", None), (f"{path}x", None)):
            monkeypatch.setenv("NOTIFY_SOCKET", address)
            notify_systemd("READY=1")
            if heard is not None:
                assert ear.recv(100) == heard
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(f"\0bftrain-test-{os.getpid()}")
        ear.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@bftrain-test-{os.getpid()}")
        notify_systemd("STOPPING=1")
        assert ear.recv(100) == b"STOPPING=1"


def test_more_agents_may_connect_than_the_usual_limit_of_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1] - 1), before[1]))
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(before[1], 1 << 17), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
