"""Under fair objectives no task loses all its nodes in its turn, unless one that is worse off by a turn gets them."""

from __future__ import annotations

import random

import pytest

from bftrain import (
    Event,
    Grow,
    NodesJoined,
    NodesLeft,
    Settings,
    SpeedCurve,
    Start,
    Stop,
    TaskCancelled,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    build_harvester,
)

TURN_S, START_S = 20.0, 5.0
NODES = [f"n{number}" for number in range(9)]
CURVE = SpeedCurve(nodes=(1, 2, 3), rate=(10.0, 18.0, 24.0))


class Storm:
    """Random events; ``done`` and ``since`` are kept here again, from the actions alone."""

    def __init__(self, objective: str, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - the same events every time
        self.harvester = build_harvester(Settings(objective=objective, turn_s=TURN_S))
        self.objective = objective
        self.now_s, self.tasks = 0.0, 0
        self.done: dict[str, float] = {}
        self.since: dict[str, float] = {}
        self.paused: set[str] = set()

    def event(self) -> Event:
        core, dice, now = self.harvester, self.dice, self.now_s
        there, gone = sorted(core.pool), sorted(set(NODES) - core.pool)
        tasks = list(core.unfinished)
        match dice.choice(["join", "leave", "submit", "submit", "end", "pause", "measure", "measure", "measure"]):
            case "join" if gone:
                return NodesJoined(time_s=now, nodes=(dice.choice(gone),))
            case "leave" if len(there) > 3:
                return NodesLeft(time_s=now, nodes=(dice.choice(there),))
            case "end" if len(tasks) > 6:
                kind = dice.choice([TaskFinished, TaskCancelled])
                return kind(time_s=now, task=dice.choice(tasks))
            case "pause" if tasks:
                task = dice.choice(tasks)
                self.paused ^= {task}
                return (TaskPaused if task in self.paused else TaskResumed)(time_s=now, task=task)
            case "measure" if tasks:
                return TaskMeasured(time_s=now, task=dice.choice(tasks), grow_cost_s=dice.random())
        self.tasks += 1
        spec = TaskSpec(name=f"t{self.tasks}", max_nodes=3, curve=CURVE, start_cost_s=START_S, submit_s=now)
        return TaskSubmitted(time_s=now, spec=spec)

    def step(self) -> None:
        passed_s = self.dice.choice([0.1, 1.0, 5.0, 30.0])
        for task, nodes in self.harvester.held.items():
            self.done[task] = self.done.get(task, 0.0) + passed_s * CURVE.speed(len(nodes))
        self.now_s += passed_s
        event = self.event()
        self.harvester.absorb(event)
        before = dict(self.harvester.held)
        decision = self.harvester.decide(self.now_s)
        stopped = [action.task for action in decision.actions if isinstance(action, Stop)]
        winners = {action.task for action in decision.actions if isinstance(action, Start | Grow)}
        if isinstance(event, TaskMeasured):
            assert set(before) == set(self.harvester.held), "measurements alone start and stop no task"
        for task in stopped:
            self.check(task, len(before[task]), winners)
        self.since |= dict.fromkeys(self.harvester.held.keys() - before.keys(), self.now_s)

    def check(self, task: str, size: int, winners: set[str]) -> None:
        turn_s = TURN_S + 2.0 * START_S
        if self.objective == "finish-time":  # without nodes all are equally badly off
            assert self.now_s - self.since[task] >= turn_s
        else:
            least = min(self.done.get(other, 0.0) for other in winners)
            assert least < self.done[task] - turn_s * CURVE.speed(size) + 1e-6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", ["max-min", "water-filling", "hierarchical", "finish-time"])
def test_turns_hold_in_storms(objective: str, seed: int) -> None:
    storm = Storm(objective, seed)
    storm.harvester.handle(NodesJoined(time_s=0.0, nodes=tuple(NODES[:6])))
    for _ in range(150):
        storm.step()
