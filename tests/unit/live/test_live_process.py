"""How a live run ends: in order at a signal at any time, at once at a second one, with words at a fault."""

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

from bftrain import BadInput, Journal, NotAvailable
from bftrain.errors import Fault, Interrupted
from bftrain.live.process import allow_many_connections, notify_systemd
from tests.helpers.live_inside import (
    LiveDaemon,
    LiveProcess,
    LiveService,
    TaskStore,
    Times,
    World,
    full_disk,
    in_a_loop,
    meet,
    parts,
    site_of,
    submit,
    until,
)

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

        async def besides(daemon: LiveDaemon, _: object, service: LiveService) -> None:
            self.daemon, self.service = daemon, service
            self.began.set()
            await asyncio.Event().wait()

        site = site_of(folder, world, **changes)
        live = LiveProcess(site, self.said.append, besides, ends_with_it=False)
        self.task = asyncio.create_task(self._run(live.run()))

    async def _run(self, live: Coroutine[Any, Any, None]) -> None:
        with parts():
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
        "SIGTERM: ending in order; once more to end at once",
        f"ended; all is remembered in {tmp_path}/live/live.db",
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
    assert run.said[-1].startswith("ended; all is remembered in")
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
        with pytest.raises(Interrupted, match="ended at once"):
            await run.ended()
    finally:
        hangs.set()
        mock.patch.stopall()
    assert run.said[1:] == ["SIGINT: ending in order; once more to end at once"]


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
    with pytest.raises(Fault, match="ZeroDivisionError"):
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
