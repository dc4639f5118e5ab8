"""After a restart nothing is started in the place of what may still run, and nothing that was counted is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

import pytest

from bftrain import BadInput, Journal, NotAvailable, Rerun, registry
from bftrain.config import LiveSettings
from bftrain.live.daemon.task_manager import LauncherPool, TaskManager
from bftrain_elastic.errors import BadJob
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, read_secret
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import (
    HERE,
    Agents,
    LiveTaskState,
    Times,
    World,
    decided,
    in_a_loop,
    live_inside,
    meet,
    open_site,
    ourselves,
    parts,
    remarks,
    site_of,
    submit,
    until,
)
from tests.helpers.timeouts import set_limits, set_timeouts

LONG = Times(reunion_s=30.0)


@in_a_loop
async def test_a_restored_backup_is_private_and_its_readers_block_no_writes(tmp_path: Path) -> None:
    world, backup = World(), tmp_path / "backup.db"
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a")
        await decided(daemon)
        path = daemon.site.journal
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(backup),))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    backup.replace(path)
    path.chmod(0o644)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        modes = {file.stat().st_mode & 0o777 for file in path.parent.glob(f"{path.name}*")}
        assert modes == {0o600}
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM entry").fetchall()
            await submit(service, "b")
            await decided(daemon)
        assert daemon.state == "running"
        assert [record.name for record in daemon.task_store.unfinished] == ["a", "b"]


@in_a_loop
async def test_no_worker_is_started_before_all_agents_are_back(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        hub = type(daemon.opened.hub)
        calls: list[str] = []
        real = {name: getattr(hub, name) for name in ("hold_workers", "open", "start_workers")}

        def noted(name: str) -> Any:  # noqa: ANN401 - a method
            def method(own: object) -> None:
                calls.append(name)
                real[name](own)

            return method

        with mock.patch.multiple(hub, **{name: noted(name) for name in real}):
            beginning = asyncio.create_task(daemon.begin())
            await until(lambda: daemon.state == "reuniting")
            world.come("n1")
            await until(lambda: daemon.node_manager.node_tracker.expected == {"n2"})
            await decided(daemon)
            assert not beginning.done()
            assert calls == ["hold_workers", "open"]
            world.come("n2")
            await beginning
        assert calls == ["hold_workers", "open", "start_workers"]


@in_a_loop
async def test_a_node_whose_pilot_is_over_is_not_waited_for(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2", "n3")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))  # n3 was taken while no daemon ran
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        assert daemon.node_manager.node_tracker.expected == {"n1", "n2"}
        world.come("n1")
        world.take("n2")
        await beginning
        await decided(daemon)
        assert (daemon.harvester.pool, world.asked("give_back")) == ({"n1"}, [])


@in_a_loop
async def test_where_agents_outlive_the_word_of_the_scheduler_they_are_waited_for(tmp_path: Path) -> None:
    world = World(agents=True)
    world.allowed = {"n1", "n2"}
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed = {"n1"}
    async with live_inside(tmp_path, world, begin=False, times=LONG) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        assert (daemon.harvester.pool, daemon.node_manager.node_tracker.expected) == ({"n1"}, {"n1", "n2"})
        world.come("n1")
        await until(lambda: daemon.node_manager.node_tracker.expected == {"n2"})
        await decided(daemon)
        assert not beginning.done(), "on n2 workers may still live, though it is not ours any more"
        world.come("n2")
        await beginning


@in_a_loop
async def test_a_pilot_whose_agent_does_not_come_back_is_given_back(tmp_path: Path) -> None:
    world = World(agents=True, agents_suffice=True)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 4)
        world.come("n1", "n2")
        await decided(daemon)
    world.allowed.update(("n1", "n2"))
    async with live_inside(tmp_path, world, begin=False, times=Times(reunion_s=0.1)) as (daemon, _, _, _):
        beginning = asyncio.create_task(daemon.begin())
        await until(lambda: daemon.state == "reuniting")
        world.come("n1")
        await beginning
        await until(lambda: world.asked("give_back"))
        assert (daemon.harvester.pool, world.asked("give_back")) == ({"n1"}, [("n2",)])


@in_a_loop
async def test_how_far_a_task_came_is_written_down_when_its_processes_change(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 1, work_samples=10_000.0)
        await decided(daemon)
        world.tell("a", "confirmed", size=1, step=0)
        for step in range(1, 81):
            world.tell("a", "report", step=step, size=1, samples=10, loss=None, total=10 * step, since=0)
        world.tell("a", "in_memory", step=79)
        world.tell("a", "on_disk", step=70)
        world.tell("a", "vacated", nodes=["n1"])
        for step in range(81, 101):  # of another process, and it is not written down
            world.tell("a", "report", step=step, size=1, samples=10, loss=None, total=10 * (step - 80), since=80)
        await decided(daemon)
        view = service.task(ourselves(), "a")
        assert (view.samples, view.step, view.in_memory_step, view.committed_step) == (1000.0, 100, 79, 70)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert service.task(ourselves(), "a").samples >= 800.0
        world.tell("a", "report", step=130, size=1, samples=10, loss=None, total=500, since=80)
        await decided(daemon)
        view = service.task(ourselves(), "a")
        assert (view.samples, view.step, view.committed_step) == (1300.0, 130, 70)
        assert sum(day.samples for day in daemon.task_manager.ledger.days) <= 1300.0
        world.tell("a", "done", step=130)
        await decided(daemon)
        assert sum(day.samples for day in daemon.task_manager.ledger.days) == 1300.0
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert sum(day.samples for day in daemon.task_manager.ledger.days) == 1300.0, "written with the end of the task"


@in_a_loop
async def test_the_epoch_rises_with_every_start_regardless_of_the_clock(tmp_path: Path) -> None:
    epochs = []
    for clock in (1000.0, 1000.2, 5000.0, 400.0):
        with mock.patch.object(time, "time", lambda clock=clock: clock):
            async with live_inside(tmp_path, World(agents=True), begin=False) as (daemon, _, _, _):
                hub = daemon.opened.hub
                assert hub is not None
                epochs.append(hub.epoch)
    assert epochs == [1000, 1001, 5000, 5001]


@in_a_loop
async def test_agents_learn_how_long_they_may_use_a_node_that_is_wanted_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path, World(agents=True), begin=False) as (daemon, _, _, _):
        hub = daemon.opened.hub
        assert hub is not None
        assert hub.settle_s == 5.0
        others = {"--grace", "--log-limit", "--copies", "--nice"}
        assert others.isdisjoint(daemon.opened.agent_order.argv), "an update replaces no waiting pilots"
    agents = Agents(grace_s=20.0, settle_s=2.0, log_mb=8.0, copies_memory="512.5", nice=7, preload=())
    async with live_inside(tmp_path, World(agents=True), begin=False, agents=agents) as (daemon, _, _, _):
        words = daemon.opened.agent_order.argv
        assert words[words.index("--grace") + 1] == "20"
        assert words[words.index("--log-limit") + 1] == "8"
        assert words[words.index("--copies") + 1] == "512.5"
        assert words[words.index("--nice") + 1] == "7"
        hub = daemon.opened.hub
        assert hub is not None
        assert hub.settle_s == 2.0


@in_a_loop
async def test_a_clock_that_was_set_back_is_remarked_once_and_run_time_follows_the_journal(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, _, _, world):
        ahead_s = time.time() + 7200.0
        with mock.patch.object(time, "time", return_value=ahead_s):
            world.lend("n1")
            await decided(daemon)
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        status = service.status()
        assert status.now_s - status.since_s < 60.0
        await until(lambda: remarks(daemon))
        await asyncio.sleep(0.05)
        assert len([text for text in remarks(daemon) if "behind the last entry of the journal" in text]) == 1


RECORDED: Final = Path(__file__).parents[2] / "data" / "running-site"
HELD: Final = json.loads((RECORDED / "held.json").read_text())
ORDERS: Final = {"spawn", "stop", "clear", "message"}


class RecordedAgent:
    """An agent that registers as it did when it was recorded; ``heard`` has what the manager sends."""

    def __init__(self, address: tuple[str, int], secret: bytes, registers: dict[str, Any]) -> None:
        self.heard: list[dict[str, Any]] = []
        self._connection = socket.create_connection(address, timeout=30)
        self._sealed = AuthenticatedStream(secret, "agent")
        self._connection.sendall(self._sealed.greeting)
        while not self._sealed.greeted:
            self.heard.extend(self._sealed.feed(self._connection.recv(65536)))
        self._connection.sendall(self._sealed.seal(registers))

    def listen(self, seconds: float) -> None:
        """Take in what comes until nothing has come for so long."""
        self._connection.settimeout(seconds)
        try:
            while data := self._connection.recv(65536):
                self.heard.extend(self._sealed.feed(data))
        except TimeoutError:
            pass

    def close(self) -> None:
        self._connection.close()


def copied(folder: Path) -> None:
    """Copy the journal, with the folders of its tasks in this one."""
    home = folder / "live"
    home.mkdir(mode=0o700)
    shutil.copy(RECORDED / "live.db", home / "live.db")
    with closing(sqlite3.connect(home / "live.db")) as connection, connection:
        connection.execute("UPDATE task SET body = replace(body, '/site', ?)", (str(folder),))
        connection.execute("DELETE FROM fact WHERE key = 'port of the hub'")


@in_a_loop
async def test_a_daemon_of_this_version_takes_it_over(tmp_path: Path) -> None:
    copied(tmp_path)
    registers = [json.loads(line) for line in (RECORDED / "agents.jsonl").read_text().splitlines()]
    world = World(agents=True)
    world.allowed = {message["node"] for message in registers}
    found: Any = registry.BUILT_IN
    local = {"scheduler": {**found["scheduler"], "local": f"{HERE}:make_scheduler"}}
    site: dict[str, Any] = {
        "scheduler": {"name": "local"},
        "launcher": "process",
        "agents": Agents(preload=(), patience_s=20.0),
        "times": Times(reunion_s=20.0),
    }
    with mock.patch.dict(found, local):
        async with live_inside(tmp_path, world, begin=False, **site) as (daemon, service, _, _):
            begins = asyncio.create_task(daemon.begin())
            await until(lambda: daemon.state == "reuniting", "it waits for agents")
            assert daemon.opened.hub is not None
            address, secret = daemon.opened.hub.address, read_secret(daemon.site.secret)
            agents = [await asyncio.to_thread(RecordedAgent, address, secret, message) for message in registers]
            await begins
            await asyncio.gather(*(asyncio.to_thread(agent.listen, 0.3) for agent in agents))
            tasks = {task.name: task for task in service.tasks(ourselves(), all=True)}
            for agent in agents:
                agent.close()
    assert daemon.state == "running"
    assert {name: sorted(task.nodes) for name, task in tasks.items()} == HELD, "0 lost"
    assert all(task.running == task.max_nodes for task in tasks.values()), "their workers are known again"
    assert [(task.preemptions, task.failures) for task in tasks.values()] == [(0, 0), (0, 0)]
    assert all(task.step > 240 for task in tasks.values()), "what they did without a daemon counts"
    orders = [message for agent in agents for message in agent.heard if message["type"] in ORDERS]
    assert orders == [], "0 restarted"
    with Journal.open(tmp_path / "live" / "live.db") as journal:
        assert list(Rerun(journal).differences()) == []


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
        assert any("cannot continue" in text for text in remarks(daemon))


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
        assert any(text == "task 'a' continues" for text in remarks(daemon))
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
async def test_tasks_that_waited_for_others_in_0_1_0_are_paused_until_their_owner_resumes_them(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "done")
        world.lend("n1")
        await decided(daemon)
        world.tell("done", "done", step=1)
        await until(lambda: daemon.harvester.unfinished == ())
        for name in ("a", "b", "c"):
            await submit(service, name)
        await decided(daemon)
    with closing(sqlite3.connect(tmp_path / "live" / "live.db")) as connection, connection:
        for name, after in (("a", "[]"), ("b", "[1]"), ("c", "[1, 2]")):
            change = "UPDATE task SET body = json_set(body, '$.after', json(?)) WHERE name = ?"
            connection.execute(change, (after, name))
    for _ in range(2):
        async with live_inside(tmp_path) as (daemon, service, _, _):
            tasks = {task.name: task for task in service.tasks(ourselves())}
            assert [name for name, task in tasks.items() if task.state == "paused"] == ["c"]
            assert "--after" in tasks["c"].reason
            assert daemon.harvester.paused == {"c"}
    async with live_inside(tmp_path) as (_, service, _, _):
        await service.resume(ourselves(), "c")
    async with live_inside(tmp_path) as (daemon, _, _, _):
        assert daemon.harvester.paused == set()


class Crowded(World):
    """Cannot add any task while ``away``; ``most`` are added at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.now, self.most, self.refusals = False, 0, 0, 0

    def add(self, task: str, job: Any) -> None:  # noqa: ANN401 - as in World
        if self.away:
            self.now += 1
            self.most = max(self.most, self.now)
            time.sleep(0.05)
            self.now -= 1
            self.refusals += 1
            raise OSError("the disk is gone")
        super().add(task, job)


@in_a_loop
async def test_few_tasks_that_are_held_up_are_tried_at_the_same_time(tmp_path: Path) -> None:
    world = Crowded()
    async with live_inside(tmp_path, world) as (_, service, _, _):
        for number in range(20):
            await submit(service, f"a{number}")
    world.away = True
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        await until(lambda: world.refusals > 60)
        assert 2 < world.most <= 8
        world.away = False
        await until(lambda: daemon.task_manager.held_up == {})


@in_a_loop
async def test_many_folders_that_hang_block_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, restore_s=0.01, restore_task_s=0.01)
    world, hanging = World(), threading.Event()
    add = world.add

    def wait_and_add(task: str, job: Any) -> None:  # noqa: ANN401 - as in World
        if task == "last" or hanging.wait(30):
            add(task, job)

    names = [f"a{number}" for number in range(12)]
    async with live_inside(tmp_path, world) as (_, service, _, _):
        for name in (*names, "last"):
            await submit(service, name)
    monkeypatch.setattr(world, "add", wait_and_add)
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        await until(lambda: set(daemon.task_manager.held_up) == set(names))
        hanging.set()
        await until(lambda: daemon.task_manager.held_up == {})


def test_threads_share_one_launcher(tmp_path: Path) -> None:
    def make(*_: object) -> object:
        time.sleep(0.05)
        return object()

    pool = LauncherPool(print, None, site_of(tmp_path, World()))
    with mock.patch.object(registry, "load", return_value=make), ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(pool.launcher, ["slow"] * 4))) == 1


@pytest.mark.parametrize(("method", "trouble"), [("begin", None), ("finish", BadJob("has no script"))])
@in_a_loop
async def test_a_task_whose_restart_fails_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, trouble: Exception | None
) -> None:
    world = Troubled()
    await _a_and_b(tmp_path, world)
    world.trouble = trouble
    monkeypatch.setattr(TaskManager, method, mock.Mock(side_effect=ZeroDivisionError("odd")))
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert "the restart of task 'a' stopped: ZeroDivisionError: odd" in str(await daemon.broken)
        assert daemon.task_manager.held_up == {}


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
    set_timeouts(monkeypatch, restore_s=0.01, restore_task_s=0.01)
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
    set_timeouts(monkeypatch, file_system_s=0.05)
    world = Troubled()
    hanging = world.trouble = threading.Event()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        with pytest.raises(NotAvailable, match="does not respond within"):
            await submit(service, "a", 1, 1)
        assert daemon.task_store.unfinished == ()
        set_timeouts(monkeypatch, file_system_s=30.0)
        await submit(service, "b", 1, 1)
        hanging.set()
        await until(lambda: world.asked("drop") == ["a"], "and what came of it later is undone")
        await submit(service, "a", 1, 1)
        assert daemon.harvester.unfinished == ("b", "a")


PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal of two live runs with other settings, in one file, with snapshots in it."""
    folder = tmp_path_factory.mktemp("whole")

    async def two_runs() -> None:
        world = World()
        for run in range(2):
            async with live_inside(folder, world, deciding=LiveSettings(max_tasks=10 + run)) as (daemon, service, _, _):
                for number in range(3):
                    await submit(service, f"t{run}{number}")
                    world.lend(f"n{number}", f"m{run}{number}")
                    await decided(daemon)
                world.take("n1")
                if run:
                    world.tell("t00", "done", step=4)
                await decided(daemon)

    with pytest.MonkeyPatch.context() as patched:
        set_limits(patched, snapshot_steps=4)
        asyncio.run(two_runs())
    path = folder / "live" / "live.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """Return a copy to damage, where a live run would look for it."""
    (tmp_path / "live").mkdir(mode=0o700)
    return shutil.copy(whole, tmp_path / "live" / "live.db")


def begins(path: Path) -> None:
    """Begin a live run on a journal, as far as reading it."""
    folder, world = path.parent.parent, World()
    meet(world)
    with parts():
        open_site(site_of(folder, world, deciding=LiveSettings(max_tasks=11)), lambda _: None).close()


def refused(bftrain: CommandLine, path: Path) -> set[str]:
    """Run all that reads a journal, and hold it to exit codes; return what refused it."""
    folder, found = path.parent, set[str]()
    for words in (("show", path), ("show", path, "--json"), ("plan", path), ("verify", path),
                  ("export", path, "-o", folder / "log.npz")):  # fmt: skip
        ended = bftrain("journal", *words)
        assert ended.code in {0, 3}, ended.err
        found |= {str(words[0])} if ended.code else set()
    try:
        begins(path)
    except BadInput:
        found.add("live")
    return found


SPOILS = (
    "UPDATE entry SET body = CAST(x'7bff7d' AS TEXT) WHERE number = 7",
    "UPDATE entry SET kind = 'event' WHERE kind = 'decision'",
    "UPDATE entry SET step = step + 1 WHERE number > 7",
    "DELETE FROM about WHERE key = 'settings'",
    "UPDATE standing SET body = '{}'",
    "UPDATE task SET state = 'lost' WHERE number = 2",
)


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_was_changed_in_a_journal_is_refused_in_words(spoil: str, path: Path, bftrain: CommandLine) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(spoil)
    assert refused(bftrain, path)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_damaged_in_the_file_is_refused_in_words(seed: int, path: Path, bftrain: CommandLine) -> None:
    random, content = Random(seed), bytearray(path.read_bytes())  # noqa: S311 - it keeps no secret
    begin = PAGE * random.randrange(len(content) // PAGE)
    match seed % 4:
        case 0:
            content[begin : begin + PAGE] = bytes(PAGE)
        case 1:
            content[begin : begin + PAGE] = random.randbytes(PAGE)
        case 2:
            del content[begin:]
        case 3:
            for _ in range(40):
                content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content)
    refused(bftrain, path)
