"""Turns: under fair objectives a task that got nodes keeps them for its start and a turn. All times are virtual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bftrain import (
    Action,
    Event,
    NodesJoined,
    Settings,
    SpeedCurve,
    Start,
    Stop,
    TaskFinished,
    TaskMeasured,
    TaskSpec,
    TaskSubmitted,
    build_harvester,
)

TICK_S = 0.1
LONG_S = 12.0  # of imports
GUESS = SpeedCurve(nodes=(1,), rate=(1.0,))


@dataclass
class Process:
    """What a launcher knows of a task; it makes a step each tick once its imports are over."""

    since_s: float | None = None
    steps: int = 0
    starts: int = 0
    stops: int = 0
    steps_at_start: int = 0
    wasted: int = 0
    known: bool = False


class Site:
    """Eight nodes, one Harvester, and its tasks on a virtual clock."""

    def __init__(self, objective: str, solver: str = "exact", **more: float) -> None:
        self.harvester = build_harvester(Settings(objective=objective, solver=solver, **more))
        self.tasks: dict[str, Process] = {}
        self.now_s = 0.0
        self.shared_s = 0.0
        self.handle(NodesJoined(time_s=0.0, nodes=tuple(f"n{number}" for number in range(8))))

    def submit(self, number: int, users: str = "a") -> None:
        for place in range(number):
            name = f"t{place:02d}"
            self.tasks[name] = Process()
            spec = TaskSpec(name=name, max_nodes=1, curve=GUESS, user=users[place % len(users)])
            self.handle(TaskSubmitted(time_s=self.now_s, spec=spec))

    def handle(self, *events: Event) -> None:
        at_once = self.harvester.absorb(*events)
        self.carry_out(at_once + self.harvester.decide(self.now_s).actions)
        if not all(isinstance(event, TaskMeasured) for event in events):
            self.shared_s = self.now_s

    def carry_out(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Start):
                process = self.tasks[action.task]
                process.since_s, process.steps_at_start = self.now_s, process.steps
                process.starts += 1
            elif isinstance(action, Stop):
                process = self.tasks[action.task]
                process.since_s = None
                process.stops += 1
                process.wasted += process.steps == process.steps_at_start

    def run(self, until_s: float, each: Callable[[str, Process], None]) -> None:
        """Let time pass; nodes are shared again as by the clock of a live run."""
        while self.now_s < until_s:
            self.now_s = round(self.now_s + TICK_S, 6)
            for name, process in list(self.tasks.items()):
                if process.since_s is not None:
                    each(name, process)
            if self.now_s - self.shared_s >= 20.0 and self.harvester.first_turn_due(self.now_s):
                self.shared_s = self.now_s
                self.handle()

    def import_and_step(self, _name: str, process: Process) -> None:
        """Import, then make a step each tick."""
        assert process.since_s is not None
        process.steps += self.now_s - process.since_s >= LONG_S

    def train(self, name: str, process: Process) -> None:
        """Import, then step; speed and start cost become known, and are measured a bit differently each time."""
        assert process.since_s is not None
        if self.now_s - process.since_s < LONG_S:
            return
        process.steps += 1
        assert process.steps >= 100 or max(other.stops for other in self.tasks.values()) < 2, "moved twice before that"
        if process.steps in {10, 60, 110}:
            rate = (10.0 + 0.1 * int(name[1:]) * (process.steps > 50),)
            curve = SpeedCurve(nodes=(1,), rate=rate)
            self.handle(TaskMeasured(time_s=self.now_s, task=name, curve=curve, start_cost_s=LONG_S))


@pytest.mark.parametrize("objective", ["hierarchical", "max-min", "max-min-plain", "water-filling"])
def test_all_tasks_make_their_first_steps_before_any_is_moved_twice(objective: str) -> None:
    site = Site(objective)
    site.submit(13)
    site.run(75.0, site.train)
    assert min(process.steps for process in site.tasks.values()) >= 100
    assert sum(process.starts for process in site.tasks.values()) == 13
    assert not any(process.wasted for process in site.tasks.values())


@pytest.mark.parametrize(
    ("objective", "solver"),
    [("finish-time", "exact"), ("max-min-now", "exact"), ("makespan", "exact"), ("makespan", "highs")],
)
def test_tasks_that_are_equally_badly_off_without_nodes_do_not_change_places(objective: str, solver: str) -> None:
    site = Site(objective, solver)
    site.submit(13)
    site.run(40.0, site.train)
    assert sum(process.starts for process in site.tasks.values()) == 8


@pytest.mark.parametrize("objective", ["hierarchical", "max-min", "throughput"])
def test_each_of_forty_short_commands_starts_once(objective: str) -> None:
    site, settle_s = Site(objective), 5.0  # until an exit code of 0 is believed
    site.submit(40)

    def command(name: str, process: Process) -> None:
        if process.since_s is not None and site.now_s - process.since_s >= 2.0 + settle_s:
            process.since_s = None
            site.handle(TaskFinished(time_s=site.now_s, task=name))

    site.run(60.0, command)
    assert not site.harvester.unfinished
    assert [process.starts for process in site.tasks.values()] == [1] * 40


def test_turns_alternate_where_events_come_all_the_time() -> None:
    site = Site("max-min")
    site.submit(13)
    for events in range(50):
        site.run(10.0 * (events + 1), site.train)
        site.handle()
    steps = [process.steps for process in site.tasks.values()]
    assert min(steps) > 0.7 * max(steps), "all had their share"
    assert sum(process.starts for process in site.tasks.values()) < 50
    assert not any(process.wasted for process in site.tasks.values())


@pytest.mark.parametrize("gap_s", [30.0])
def test_users_share_an_hour_at_least_as_fairly_as_without_turns(gap_s: float) -> None:
    """Seven, four and two tasks of three users; other events come after every ``gap_s``."""
    unfair, steps = [], []
    for turn_s in (0.0, 20.0):
        site = Site("hierarchical", turn_s=turn_s)
        site.submit(13, users="aabaabcaabbac")
        for event in range(int(1200.0 / gap_s)):
            site.run(gap_s * (event + 1), site.import_and_step)
            site.handle()
        of_users = Counter[str]()
        for name, process in site.tasks.items():
            of_users[site.harvester.spec(name).user] += process.steps
        unfair.append(1.0 - min(of_users.values()) / max(of_users.values()))
        steps.append(sum(of_users.values()))
    assert unfair[1] <= max(unfair[0], 0.05)
    assert steps[1] > steps[0]


def test_without_turns_nodes_are_shared_at_every_event() -> None:
    site = Site("max-min", turn_s=0.0)
    site.submit(9)
    for seconds in (1.0, 2.0, 3.0):
        site.now_s = seconds
        site.handle(TaskMeasured(time_s=seconds, task="t00", start_cost_s=seconds))
    assert sum(process.stops for process in site.tasks.values()) == 3


def test_measurements_alone_start_and_stop_no_task_also_after_a_restart() -> None:
    site = Site("max-min")
    site.submit(9)
    site.now_s = 100.0
    assert not site.harvester.absorb(TaskMeasured(time_s=100.0, task="t00", start_cost_s=1.0))
    again = build_harvester(Settings(objective="max-min"))
    again.restore(site.harvester.snapshot)
    assert again.snapshot == site.harvester.snapshot
    for harvester in (site.harvester, again):
        assert not harvester.decide(100.0).actions
        assert {type(action) for action in harvester.decide(100.0).actions} == {Start, Stop}, "the next one may"
