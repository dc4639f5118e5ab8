"""A live run from start to end: what happens becomes orders, and launchers receive what they need."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from bftrain import (
    BatchScaling,
    Journal,
    Limits,
    Rerun,
    Run,
    Solution,
    SpeedCurve,
    TaskMeasured,
    UnknownName,
    ValueTable,
    registry,
)
from bftrain.config import LiveSettings
from bftrain.live.log import LineFormatter, writes_to_journald
from bftrain_elastic.wire.authenticated_stream import read_secret
from tests.helpers.live_callers import submission
from tests.helpers.live_inside import (
    Agents,
    Environment,
    LiveDaemon,
    LiveService,
    LiveTaskState,
    TaskStore,
    Times,
    World,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    remarks,
    submit,
    until,
)
from tests.helpers.scripted_agents import Agent
from tests.helpers.timeouts import set_timeouts

CURVE = SpeedCurve(nodes=(1, 4), rate=(10.0, 40.0))


@in_a_loop
async def test_the_batch_of_a_decision_is_handed_to_the_launcher_before_the_order(tmp_path: Path) -> None:
    batch = BatchScaling(initial=50, noise_scale=400.0, largest=1000)
    async with live_inside(tmp_path, deciding=LiveSettings(objective="goodput")) as (daemon, service, _, world):
        await submit(service, "a", 1, 2, curve=SpeedCurve(nodes=(1, 2), rate=(100.0, 160.0)), batch=batch)
        await submit(service, "b", 1, 1, batch=batch)  # its speed is a guess, and so would be its batch
        world.lend("n1", "n2", "n3")
        await until(lambda: len(world.held) == 2, "both run")
        assert set(world.asked("batch")) == {("a", 100)}  # the exchange is as long as computing 25: sqrt(400 * 25)
        said = [what for what, value in world.log if what == "batch" or (what == "apply" and value)]
        assert said[0] == "batch"
        for step in range(1, 9):
            world.tell("a", "report", step=step, size=2, samples=100, loss=None, total=100 * step, since=0)
        assert daemon.harvester.spec("a").curve.rate == (100.0, 160.0), "speeds at other batches are not its curve"


def max_min(share_s: float, objective: str = "max-min", turn_s: float = 20.0) -> dict[str, Any]:
    return {
        "times": Times(reunion_s=5.0, share_s=share_s),
        "deciding": LiveSettings(objective=objective, turn_s=turn_s),
    }


@in_a_loop
async def test_a_task_that_waits_has_its_turn_though_nothing_happens(tmp_path: Path) -> None:
    async with live_inside(tmp_path, **max_min(0.05, turn_s=0.01)) as (_, service, _, world):
        await submit(service, "a", 1, 1, curve=CURVE)
        await submit(service, "b", 1, 1, curve=CURVE)
        world.lend("n1")
        await until(lambda: world.held.get("a") == {"n1"}, "the first one has the node")
        await until(lambda: world.held.get("b") == {"n1"}, "the other one has it after a while")
        await until(lambda: world.held.get("a") == {"n1"}, "they take turns")


@in_a_loop
async def test_starts_without_a_step_are_reported(tmp_path: Path) -> None:
    said: list[str] = []
    async with live_inside(tmp_path, said=said) as (daemon, service, _, world):
        await submit(service, "a", 1, 1, curve=CURVE)
        for _ in range(3):
            world.tell("a", "starting", nodes=["n1"])
        await decided(daemon)
        assert any("task 'a' started 3 times without a step" in line for line in said)
        assert service.task(ourselves(), "a").reason == "started 3 times without a step"


@in_a_loop
async def test_nodes_are_used_and_handed_back(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        assert daemon.state == "running"
        seen: list[str] = []
        daemon.observers.append(lambda what, _: seen.append(what))
        await submit(service, "a", 2, 4)
        world.lend("n1", "n2", "n3")
        await decided(daemon)
        assert world.held == {"a": {"n1", "n2", "n3"}}
        world.take("n1", "n2")
        await decided(daemon)
        assert world.orders()[-2:] == [
            {"action": "release", "nodes": ("n1", "n2")},
            {"action": "stop", "task": "a", "nodes": ("n1", "n2", "n3"), "cause": "below_minimum"},
        ]
        assert {"events", "decision"} <= set(seen)
        assert world.asked("want")[-1] == (4, frozenset())
        task = service.task(ourselves(), "a")
        assert (task.state, task.preemptions, task.nodes) == ("waiting", 1, ())
        assert daemon.decision_loop.last_decision is not None
        assert daemon.decision_loop.last_decision.number >= 2


@in_a_loop
async def test_nodes_that_are_given_up_are_no_preemption_and_announced_ones_are(tmp_path: Path) -> None:
    def preemptions(service: LiveService) -> tuple[int, str]:
        (line,) = [one for one in service.metrics.text().splitlines() if one.startswith("bftrain_preemptions_total")]
        return service.task(ourselves(), "a").preemptions, line.split()[1]

    async with live_inside(tmp_path, World(agents=True, agents_suffice=True)) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        for node in ("n1", "n2", "n3"):
            world.come(node)
        await decided(daemon)
        await service.drain(ourselves(), ["n1"])
        await decided(daemon)
        assert preemptions(service) == (0, "0.0")
        daemon.tell({"t": 1.0, "type": "notice", "node": "n2", "grace_s": 60.0})
        await decided(daemon)
        assert set(daemon.harvester.held["a"]) == {"n3"}
        assert preemptions(service) == (1, "1.0")
        await daemon.drain()
        assert service.task(ourselves(), "a").preemptions == 1, "the end of the live run is none"


@in_a_loop
async def test_a_task_lives_from_its_submission_to_its_end(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        world.lend("n1", "n2")
        await submit(service, "a", 1, 2, work_samples=100.0, curve=CURVE)
        await decided(daemon)
        world.tell("a", "starting", nodes=["n1", "n2"])
        world.tell("a", "confirmed", size=2, step=0)
        for step in range(1, 4):
            world.tell("a", "report", step=step, size=2, samples=10, loss=1 / step)
        world.tell("a", "note", text="it says something")
        world.tell("unknown", "report", step=1, size=1, samples=1, loss=None)
        await decided(daemon)
        task = service.task(ourselves(), "a")
        assert (task.state, task.running, task.step, task.samples, task.loss) == ("running", 2, 3, 30.0, 1 / 3)
        assert "task 'a': it says something" in remarks(daemon)
        world.tell("a", "done", step=3)
        await decided(daemon)
        task = service.task(ourselves(), "#1")
        assert (task.state, task.samples) == ("done", 30.0)
        assert task.reason == "finished after 30 of 100 samples"
        assert "task 'a' finished after 30 of 100 samples" in remarks(daemon)
        assert (task.rescales, task.preemptions) == (0, 0), "to be done is no loss of nodes"
        assert world.asked("drop") == ["a"]
        assert world.asked("want")[-1] == (0, frozenset())
        assert daemon.task_manager.ledger.days[0].samples == 30.0


@in_a_loop
async def test_a_task_that_fails_gets_other_tries_and_is_then_given_up(tmp_path: Path) -> None:
    async with live_inside(tmp_path, deciding=LiveSettings(max_failures=2)) as (daemon, service, _, world):
        world.lend("n1")
        await submit(service, "a", 1, 1)
        await decided(daemon)
        world.tell("a", "failed", reason="no room\nmore words")
        await decided(daemon)
        task = service.task(ourselves(), "a")
        assert (task.state, task.failures, task.reason) == ("running", 1, "no room\nmore words")
        assert [order["action"] for order in world.orders() if order["nodes"]] == ["start", "stop", "start"]
        world.tell("a", "failed", reason="again")
        await decided(daemon)
        task = service.task(ourselves(), "#1")
        assert (task.state, task.failures, task.reason, task.ended_s is None) == ("failed", 2, "again", False)
        assert "task 'a' failed: no room" in remarks(daemon)
        world.tell("a", "failed", reason="too late")
        await decided(daemon)
        assert world.asked("drop") == ["a"]


@in_a_loop
async def test_what_is_measured_changes_decisions_and_narrows_unmeasured_tasks(tmp_path: Path) -> None:
    class Narrowing(World):
        def narrow(self, task: str, size: int | None) -> None:
            self.log.append(("narrow", (task, size)))

    async with live_inside(tmp_path, Narrowing()) as (daemon, service, _, world):
        world.lend("n1", "n2", "n3", "n4")
        await submit(service, "a", 1, 4)
        await decided(daemon)
        assert world.asked("narrow") == [], "first it shows what it does with all that it was given"
        begun = time.time()
        world.tell("a", "confirmed", size=4, step=0)
        for step in range(1, 401):
            world.tell("a", "report", t=begun + step / 10, step=step, size=4, samples=20.0, loss=None)
        await until(lambda: world.asked("narrow"), "it is measured")
        assert world.asked("narrow")[-1] == ("a", 2), "then with half of it"
        await decided(daemon)
        assert service.task(ourselves(), "a").speeds == pytest.approx({4: 200.0}, rel=0.05)
        curve = daemon.harvester.spec("a").curve
        assert dict(zip(curve.nodes, curve.rate, strict=True))[4] == pytest.approx(200.0, rel=0.05)


@in_a_loop
async def test_progress_is_written_while_a_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, write_s=0.01)
    async with live_inside(tmp_path) as (daemon, service, _, world):
        world.lend("n1")
        await submit(service, "a", 1, 1)
        await decided(daemon)
        world.tell("a", "report", step=7, size=1, samples=70, loss=None)
        path = tmp_path / "live" / "live.db"

        def written() -> int:
            with Journal.open(path) as journal:
                return TaskStore(journal).unfinished[0].progress.step

        await until(lambda: written() == 7)


@in_a_loop
async def test_objectives_that_use_work_left_receive_it(tmp_path: Path) -> None:
    deciding = LiveSettings(objective="deadline")
    async with live_inside(tmp_path, deciding=deciding) as (daemon, service, _, world):
        world.lend("n1")
        await submit(service, "a", 1, 1, work_samples=100.0, curve=CURVE, deadline_s=time.time() + 60)
        await decided(daemon)
        world.tell("a", "report", step=1, size=1, samples=40, loss=None)
        await decided(daemon)
        world.lend("n2")
        await decided(daemon)
        events = [event for step in daemon.opened.journal.steps() for event in step.events]
        assert [event.work_left_samples for event in events if isinstance(event, TaskMeasured)][-1] == 60.0


exact: Any = registry.load("solver", "exact")


class Hanging:
    """Solves as exact does, once it is let."""

    def __init__(self) -> None:
        self.let = threading.Semaphore(0)
        self.asked = 0

    def __call__(self, _: object, table: ValueTable, limits: Limits) -> Solution:
        self.asked += 1
        assert self.let.acquire(timeout=60)
        return self.solve(table, limits)

    solve: Callable[[ValueTable, Limits], Solution] = staticmethod(exact.solve)


@in_a_loop
async def test_a_solver_that_hangs_is_left_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, solver_overtime_s=0.02)
    hanging = Hanging()
    async with live_inside(tmp_path, deciding=LiveSettings(solver_deadline_s=0.01)) as (daemon, service, _, world):
        with mock.patch.object(type(exact), "solve", lambda *words: hanging(*words)):  # noqa: PLW0108 - a method
            world.lend("n1")
            await submit(service, "a", 1, 1)
            await until(lambda: world.held.get("a"))
            assert hanging.asked == 1
            assert daemon.decision_loop.last_decision is not None
            assert "greedy" in daemon.decision_loop.last_decision.fallback
            assert any("'exact' hangs" in text for text in remarks(daemon))
            hanging.let.release(100)
            world.take("n1")
            await decided(daemon)
            world.lend("n2")
            await decided(daemon)
            assert world.held["a"] == {"n2"}
        assert list(Rerun(daemon.opened.journal).differences()) == []


@pytest.mark.parametrize("storm", [1, 3])
@in_a_loop
async def test_departures_are_handed_back_while_a_solver_thinks_and_outdated_answers_are_dropped(
    storm: int, tmp_path: Path
) -> None:
    hanging = Hanging()
    async with live_inside(tmp_path) as (daemon, service, _, world):
        world.lend(*(f"n{number}" for number in range(8)))
        with mock.patch.object(type(exact), "solve", lambda *words: hanging(*words)):  # noqa: PLW0108 - a method
            await submit(service, "a", 1, 8, curve=SpeedCurve(nodes=(1, 8), rate=(1.0, 8.0)))
            for number in range(storm):
                await until(lambda number=number: hanging.asked == number + 1)
                world.lend(f"new{number}")
                assert f"new{number}" not in daemon.harvester.pool, "who joins can wait"
                world.take(f"n{number}")
                release = {"action": "release", "nodes": (f"n{number}",)}
                await until(lambda release=release: release in world.orders(), "who leaves cannot")
                assert f"new{number}" in daemon.harvester.pool
                hanging.let.release()
                await until(lambda number=number: hanging.asked > number + 1 or world.held)
            hanging.let.release(100)
            await decided(daemon)
        decisions = [step.decision for step in daemon.opened.journal.steps() if step.decision is not None]
        fallbacks = [decision.fallback for decision in decisions if decision.fallback]
        assert len(fallbacks) == (storm == 3), "after three outdated answers the fallback decides"
        starts = [order for order in world.orders() if order["action"] == "start" and order["nodes"]]
        assert [len(order["nodes"]) for order in starts] == [8]
        assert not {f"n{number}" for number in range(storm)} & set(starts[0]["nodes"])
        assert list(Rerun(daemon.opened.journal).differences()) == []


@in_a_loop
async def test_no_decision_is_made_when_a_metric_breaks_and_departures_are_handed_back(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def metric(task, sizes):\n"
        "    if task.name == 'bad':\n"
        "        raise ValueError('no idea')\n"
        "    return sizes * 1.0\n"
    )
    deciding = LiveSettings(objective=f"{tmp_path}/mine.py:metric")
    async with live_inside(tmp_path, deciding=deciding) as (daemon, service, _, world):
        world.lend("n1", "n2")
        await submit(service, "good", 1, 1)
        await decided(daemon)
        assert len(world.held["good"]) == 1
        await submit(service, "bad", 1, 1)
        await decided(daemon)
        assert any(text.startswith("no decision: ") and "no idea" in text for text in remarks(daemon))
        mine = next(iter(world.held["good"]))
        world.take(mine)
        await decided(daemon)
        assert world.held["good"] == set()
        await service.cancel(ourselves(), "bad")
        await decided(daemon)
        assert len(world.held["good"]) == 1


@in_a_loop
async def test_a_restart_tells_launchers_what_each_task_holds_and_goes_on(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2", "n3")
        await submit(service, "a", 1, 2)
        await submit(service, "b", 2, 2)
        await submit(service, "p", 1, 1)
        await service.pause(ourselves(), "p")
        await decided(daemon)
        held = {task: set(nodes) for task, nodes in daemon.harvester.held.items()}
    world.allowed.discard("n1")  # while no daemon ran
    world.allowed.add("n4")
    world.log.clear()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        assert sorted(world.asked("add")) == ["a", "b", "p"]
        first = next(actions for actions in world.asked("apply") if actions)
        assert {order["action"] for order in first} <= {"release", "stop", "shrink"}, "what was taken goes first"
        assert first[0] == {"action": "release", "nodes": ("n1",)}
        orders = world.asked("apply")[1]
        assert {order["task"] for order in orders} == {"a", "b", "p"}, "and each task receives the nodes that it holds"
        for order in orders:
            record = held.get(order["task"], set())
            assert set(order["nodes"]) in (record - {"n1"}, set())
        await decided(daemon)
        assert daemon.harvester.pool == {"n2", "n3", "n4"}
        assert daemon.harvester.paused == {"p"}
        assert list(Rerun(daemon.opened.journal).differences()) == []


@in_a_loop
async def test_what_lies_between_a_wish_and_its_event_is_made_up_for(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        for name in ("a", "b", "c"):
            await submit(service, name, 1, 1)
        await service.pause(ourselves(), "b")
        await decided(daemon)
        task_store = daemon.task_store  # wishes are written before their events, so a kill leaves this
        record = {name: task_store.get(name) for name in "abc"}
        assert record["a"] is not None
        assert record["b"] is not None
        task_store.change(replace(record["a"], state=LiveTaskState.PAUSED))
        task_store.change(replace(record["b"], state=LiveTaskState.SUBMITTED))
        task_store.add(replace(record["a"], number=9, name="d", spec=replace(record["a"].spec, name="d")))
        task_store.write()
        daemon.opened.journal.change(("DELETE FROM task WHERE name = 'c'", ()))
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert set(daemon.harvester.unfinished) == {"a", "b", "d"}, "what to run for c is unknown"
        assert daemon.harvester.paused == {"a"}


@in_a_loop
async def test_agents_whose_workers_only_the_daemon_can_end_hear_that_its_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(agents=True)
    monkeypatch.setattr(world, "keep_workers_s", 0.0, raising=False)
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        hub = daemon.opened.hub
        assert hub is not None
        agent = await asyncio.to_thread(Agent, hub, "n1", secret=read_secret(daemon.site.secret))
        assert (await asyncio.to_thread(agent.hear, "welcome"))["silence_s"] == 3.0
        for _ in range(3):
            await asyncio.to_thread(agent.hear, "alive")
        agent.hear_all()
        assert agent.hears_nothing(), "this very call keeps the loop from going on"
        agent.close()


@in_a_loop
async def test_agents_that_stay_name_the_kinds_of_their_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(agents=True, agents_suffice=True)
    monkeypatch.setattr(world, "agents_stay", True, raising=False)
    agents = Agents(patience_s=0.01)

    async def comes(daemon: LiveDaemon, node: str, kind: str) -> Agent:
        hub = daemon.opened.hub
        assert hub is not None
        secret = read_secret(daemon.site.secret)
        agent = await asyncio.to_thread(Agent, hub, node, secret=secret, kind=kind)
        await until(lambda: node in daemon.harvester.pool and daemon.harvester.kind_of(node) == kind)
        return agent

    async with live_inside(tmp_path, world, kinds={"named": "n2"}, agents=agents) as (daemon, service, _, _):
        first, second = await comes(daemon, "n1", "v100"), await comes(daemon, "n3", "k80")
        assert set(service.status().kinds) == {"named", "v100", "k80"}
        hub = daemon.opened.hub
        assert hub is not None
        odd = await asyncio.to_thread(Agent, hub, "n2", secret=read_secret(daemon.site.secret), kind="a100")
        await until(lambda: "n2" in daemon.harvester.pool)
        assert daemon.harvester.kind_of("n2") == "named", "settings have priority"
        first.close()
        await until(lambda: "n1" not in daemon.harvester.pool)
        again = await comes(daemon, "n1", "h100")
        third = await comes(daemon, "n3", "t4")  # before the manager has noticed that the former agent is gone
        for agent in (second, odd, again, third):
            agent.close()
    async with live_inside(tmp_path, world, agents=agents) as (daemon, _, _, _):
        kinds = daemon.node_manager.kinds
        assert [kinds.of(node) for node in ("n1", "n3")] == ["h100", "t4"], "known before any agent comes"


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


def lines(*how: Any, **more: Any) -> list[str]:  # noqa: ANN401 - how it is formatted
    found = []
    for level, text in ((logging.INFO, "running"), (logging.WARNING, "the disk\nis full")):
        record = logging.LogRecord("bftrain.live", level, "", 0, "%s", (text,), None)
        record.created = 1_795_628_733.25
        found.append(LineFormatter(*how, **more).format(record))
    return found


def test_each_line_has_its_time_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lines()
    assert first.endswith(" info: running")
    assert second.partition(" warning: ")[2] == "the disk\n    is full", "no line of a text looks like one of the log"
    found = [json.loads(line) for line in lines("json")]
    assert found == [
        {"time": "2026-11-25T17:45:33.250Z", "level": "info", "text": "running"},
        {"time": "2026-11-25T17:45:33.250Z", "level": "warning", "text": "the disk\nis full"},
    ]
    assert lines(for_journald=True) == ["<6>running", "<4>the disk\n<4>is full"]
    odd = logging.LogRecord("bftrain.live", logging.INFO, "", 0, "a\x1b[2Jb\rc\td\x85e", None, None)
    for form in ("text", "demo"):
        words = LineFormatter(form).format(odd)
        assert words.endswith("a\ufffd[2Jb\n    c\td\n    e"), "terminals obey nothing that a task prints"
    about = os.fstat(1)
    monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino}")
    assert writes_to_journald(1)
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not writes_to_journald(1)
