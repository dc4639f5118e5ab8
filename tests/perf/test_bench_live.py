"""What a live run costs: from news to orders, nodes handed back before a solver thinks, memory for days, and rest."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bftrain import Client, Limits, NotAvailable, Run, Solution, SpeedCurve, Submission, ValueTable
from bftrain.config import LiveSettings
from bftrain.live.api.service import LiveService
from bftrain.live.daemon.daemon import LiveDaemon
from bftrain.live.model.schemas import ourselves
from bftrain.live.schedulers.base import Allowed, Taken
from bftrain_solvers.exact import solver as exact
from tests.helpers.figures import Figures
from tests.helpers.live_inside import World, decided, in_a_loop, live_inside, submit, until

pytestmark = pytest.mark.bench

CURVE = SpeedCurve(nodes=(1, 2, 4, 8, 16, 32, 64), rate=(1, 2, 3.9, 7.5, 14, 26, 50))
MANY = 4_608
EVENTS = 1_000
STORM = 100_000  # events for which memory stays flat
REST_S = 10.0


class Feed(World):
    """A scheduler that lends and takes nodes, and knows when the last order went out."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        super().__init__()
        self.nodes = [f"node{number:04}" for number in range(nodes)]
        self.ordered_s = 0.0  # the last order
        self.released_s = 0.0  # the last release
        self.released = 0  # nodes that it named
        self._dice = random.Random(seed)  # noqa: S311 - the same feed every time

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Know when it came, and forget it: this is no place to keep a hundred thousand of them."""
        self.ordered_s = time.perf_counter()
        if actions and actions[0]["action"] == "release":
            self.released_s, self.released = self.ordered_s, len(actions[0]["nodes"])

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Forget it."""

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        """Forget it."""

    def drop(self, task: str) -> None:
        """Forget it."""

    def change(self, most: int) -> None:
        """Lend or take back up to ``most`` nodes; half of all are lent on average."""
        share = len(self.allowed) / len(self.nodes)
        lend = self._dice.random() > share
        of = sorted(set(self.nodes) - self.allowed) if lend else sorted(self.allowed)
        some = tuple(self._dice.sample(of, min(len(of), self._dice.randint(1, most))))
        if lend:
            self.allowed.update(some)
            self._news = Allowed(nodes=some)
        else:
            self.allowed.difference_update(some)
            self._news = Taken(nodes=some)

    def say(self) -> float:
        """Post it; gives when."""
        begun = time.perf_counter()
        self.post(self._news)
        return begun


@dataclass
class Times:
    """Seconds of many events."""

    clock: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # of our processor time

    def add_to(self, figures: Figures, what: str) -> None:
        for name, times in (("", self.clock), (" of processor time", self.busy)):
            for share in (50, 99):
                figures.add(f"{what}: event to orders, p{share}{name}", 1e3 * float(np.percentile(times, share)), "ms")


async def follow(feed: Feed, daemon: LiveDaemon, events: int, most: int) -> Times:
    """Let things happen one after the other, each when the last one was decided."""
    times = Times()
    for _ in range(events):
        feed.change(most)
        used = time.process_time()
        begun = feed.say()
        await decided(daemon)
        times.clock.append(feed.ordered_s - begun if feed.ordered_s > begun else time.perf_counter() - begun)
        times.busy.append(time.process_time() - used)
    return times


async def fill(service: LiveService, tasks: int, largest: int) -> None:
    for number in range(tasks):
        await submit(service, f"t{number}", 1, largest, curve=CURVE, grow_cost_s=8, shrink_cost_s=4, start_cost_s=10)


@pytest.mark.parametrize(
    ("nodes", "tasks", "most", "limit_s", "busy_s"),
    [(8, 3, 2, 0.020, 0.002), (MANY, 100, 100, 0.100, 0.0025)],
    ids=["eight", "many"],
)
@in_a_loop
async def test_from_an_event_to_the_orders(
    nodes: int, tasks: int, most: int, limit_s: float, busy_s: float, tmp_path: Path, figures: Figures
) -> None:
    feed = Feed(nodes)
    async with live_inside(tmp_path, feed, deciding=LiveSettings(max_tasks=tasks)) as (daemon, service, _, _):
        await fill(service, tasks, min(nodes, 64))
        feed.lend(*feed.nodes[: nodes // 2])
        await decided(daemon)
        times = await follow(feed, daemon, EVENTS, most)
        times.add_to(figures, f"{nodes:,} nodes, {tasks} tasks")
        assert np.percentile(times.clock, 99) < limit_s
        assert np.percentile(times.busy, 50) < busy_s, "0.94 ms was measured of many on an idle machine"


@in_a_loop
async def test_a_thousand_nodes_are_handed_back_before_a_solver_starts(tmp_path: Path, figures: Figures) -> None:
    feed = Feed(MANY)
    began: list[float] = []
    go_on = threading.Event()
    solve = exact.solve

    def slowly(table: ValueTable, limits: Limits) -> Solution:
        began.append(time.perf_counter())
        assert go_on.wait(60)
        return solve(table, limits)

    async with live_inside(tmp_path, feed, deciding=LiveSettings(max_tasks=100)) as (daemon, service, _, _):
        await fill(service, 100, 64)
        feed.lend(*feed.nodes)
        await decided(daemon)
        with mock.patch.object(type(exact), "solve", lambda _, table, limits: slowly(table, limits)):
            for number, when in enumerate(["no solver thinks", "a solver thinks"]):
                taken = time.perf_counter()
                feed.take(*feed.nodes[1_000 * number : 1_000 * (number + 1)])
                await until(lambda taken=taken: feed.released_s > taken)
                assert feed.released == 1_000
                figures.add(f"1,000 nodes leave while {when}: until released", 1e3 * (feed.released_s - taken), "ms")
                if not number:
                    await until(lambda: began)
                    assert began[0] > feed.released_s, "handed back before the solver starts"
            assert len(began) == 1, "and the second thousand while it thinks"
            go_on.set()
            await decided(daemon)
        assert feed.released_s - taken < 0.100, "a few milliseconds on an otherwise idle machine"


@in_a_loop
async def test_memory_stays_flat(tmp_path: Path, figures: Figures) -> None:
    feed = Feed(16)
    async with live_inside(tmp_path, feed, deciding=LiveSettings(max_tasks=6)) as (daemon, service, _, _):
        await fill(service, 3, 8)
        feed.lend(*feed.nodes[:8])
        events, number, half_mb = 0, 0, 0.0

        def count(what: str, value: object) -> None:
            nonlocal events
            events += len(value) if what == "events" and isinstance(value, tuple) else 0

        daemon.observers.append(count)
        while events < STORM:
            number += 1
            await something_of_everything(feed, service, number)
            await decided(daemon)
            if not half_mb and events >= STORM // 2:
                gc.collect()
                half_mb = resident_mb()
        gc.collect()
        figures.add(f"resident memory after {STORM // 2:,} events", half_mb, "MB")
        figures.add(f"resident memory after {STORM:,} events", resident_mb(), "MB")
        assert resident_mb() - half_mb < 3.0, "what is remembered of the past has filled up by then"


async def something_of_everything(feed: Feed, service: LiveService, number: int) -> None:
    """Let nodes come and go, and a task live from its submission to one of its ends."""
    name = f"s{number}"
    await submit(service, name, 1, 8, curve=CURVE)
    for _ in range(25):
        for _ in range(2):
            feed.change(1)
            feed.say()
        await asyncio.sleep(0)  # and so the node manager looks at two of them together
    feed.tell(name, "starting", nodes=["n"])
    feed.tell(name, "confirmed", size=1 + number % 8, step=0)
    for step in range(1, 8):
        feed.tell(name, "report", step=step, size=1 + number % 8, samples=10, loss=1.0)
    feed.tell("t0", "report", step=number, size=1 + number % 3, samples=10, loss=1 / number)
    feed.tell("t1", "note", text=f"note {number}")
    match number % 4:
        case 0:
            feed.tell(name, "done", step=7)
        case 1:
            for _ in range(3):
                feed.tell(name, "failed", reason=f"it broke\n{number}" * 50)
        case 2:
            await service.cancel(ourselves(), name)
        case _:
            await service.pause(ourselves(), name)
            await service.resume(ourselves(), name)
            feed.tell(name, "done", step=7)
    service.status()
    await asyncio.sleep(0)


def resident_mb() -> float:
    """Return the memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@in_a_loop
async def test_a_large_pool_at_rest_costs_next_to_nothing(tmp_path: Path, figures: Figures) -> None:
    feed = Feed(MANY)
    async with live_inside(tmp_path, feed, deciding=LiveSettings(max_tasks=100)) as (daemon, service, _, _):
        await fill(service, 100, 64)
        feed.lend(*feed.nodes)
        await decided(daemon)
        used, begun = time.process_time(), time.monotonic()
        await asyncio.sleep(REST_S)
        share = (time.process_time() - used) / (time.monotonic() - begun)
    figures.add(f"{MANY:,} nodes, 100 tasks that run: processor at rest", 100 * share, "%")
    assert share < 0.01


def test_the_daemon_at_rest_with_agents_costs_next_to_nothing(tmp_path: Path, figures: Figures) -> None:
    """The command itself, with what it waits for: agents of four slots, its socket, its timetable, a task that runs."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    site = tmp_path / "site.toml"
    site.write_text(f'state = "{home}"\n[scheduler]\nname = "local"\nnodes = 4\n[agents]\npreload = []\n')
    live = subprocess.Popen([sys.executable, "-m", "bftrain", "live", "--config", str(site)])
    client = Client(str(home / "api.sock"))
    try:
        answers(client)
        run = Run(argv=("/bin/sleep", "600"))
        client.submit(Submission(run=run, launcher="process", min_nodes=4, max_nodes=4, curve=CURVE, name="sleeper"))
        wait_until(lambda: client.task("sleeper").size == 4)
        time.sleep(2.0)
        used, begun = seconds_used(live.pid), time.monotonic()
        time.sleep(REST_S)
        share = (seconds_used(live.pid) - used) / (time.monotonic() - begun)
        assert client.task("sleeper").size == 4, "it runs still"
    finally:
        live.terminate()
        assert live.wait(60) == 0
    figures.add("the command with 4 agents and a task: processor at rest", 100 * share, "%")
    assert share < 0.01


def answers(client: Client) -> None:
    """Wait until a live run answers."""

    def there() -> bool:
        with suppress(NotAvailable):
            return client.status().state == "running"
        return False

    wait_until(there)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def seconds_used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
