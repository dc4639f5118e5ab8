"""Replays by the compiled core and by the Harvester alone, and random ones to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from bftrain import (
    Action,
    BftrainError,
    Decision,
    Event,
    EventLog,
    Harvester,
    NodeState,
    ReplaySettings,
    SpeedCurve,
    TaskSpec,
    build_harvester,
)
from bftrain_replay.simulation import engine
from bftrain_replay.simulation.rules import DecisionDelay, rules_of
from bftrain_replay.simulation.run_records import AllocationRecorder
from tests.helpers.transitions import log_from_transitions

NAMES = ("n{0}", "n{1}/gpu{2}", "r{1}n{2:03d}", "n{3}{1}")  # the last ones have equal positions in pairs


def node_names(form: str, count: int, in_one: int = 2) -> list[str]:
    """Return node names of a form; ``in_one`` nodes share a host, rack or position."""
    return [form.format(number, number // in_one, number % in_one, "0" * (number % in_one)) for number in range(count)]


class NamedAlone:
    """Hides from the engine that a Harvester decides."""

    uses_work_left = chooses_batches = False

    def __init__(self, harvester: Harvester) -> None:
        self._harvester = harvester

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        return self._harvester.absorb(*events)

    def decide(self, time_s: float) -> Decision:
        return self._harvester.decide(time_s)


def outcome(log: EventLog, specs: Sequence[TaskSpec], given_settings: ReplaySettings, *, compiled: bool) -> list[Any]:
    """Return all that a replay finds, or its error."""
    harvester, recorded = build_harvester(given_settings), AllocationRecorder(log.node_names)
    rules = rules_of(given_settings, log.times - log.start_s)
    try:
        done = engine.run(
            log,
            specs,
            harvester if compiled else NamedAlone(harvester),
            rules=rules,
            decision_delay=DecisionDelay.of(given_settings),
            allocations=recorded,
        )
    except BftrainError as error:
        return [str(error)]
    table, ledger = recorded.rows().table(), done.ledger
    times = ("done_samples", "node_s", "lost_samples", "lost_node_s", "first_start_s", "finish_s", "waited_s")
    counts = ("starts", "rescales", "preemptions", "waits", "wasted_starts")
    return [
        *done.decisions.rows(),
        done.decisions.notes,
        done.decisions.decided_by,
        (table.tasks, table.task.tolist(), table.node.tolist(), table.from_s.tolist(), table.to_s.tolist()),
        [[getattr(task, name, None) for name in (*times, *counts)] for task in done.tasks],
        done.harvest.samples.tolist(),
        (ledger.times_s.tolist(), ledger.pool.tolist(), ledger.used.tolist(), str(ledger.unused)),
    ]


def storm(seed: int) -> tuple[EventLog, list[TaskSpec], ReplaySettings]:
    """Return a log with many changes, tasks and settings."""
    rng = np.random.default_rng(seed)
    form, count = NAMES[seed % len(NAMES)], int(rng.integers(30, 400))
    names = node_names(form, count, 2 if form == NAMES[-1] else 8)
    changes, time_s = [], 0.0
    for _ in range(int(rng.integers(50, 400))):
        time_s += float(rng.choice([0.0, 1.0, 10.0, rng.exponential(60.0)]))
        start, many = int(rng.integers(count)), int(rng.integers(1, count // 4))
        state = NodeState(int(rng.choice([NodeState.BUSY, NodeState.IDLE, NodeState.IDLE, NodeState.DOWN])))
        changes += [(time_s, node, state) for node in names[start : start + many]]
    log = log_from_transitions(changes, node_names=names, begin_s=0.0, end_s=time_s + 100.0)
    shapes = [_shape(rng) for _ in range(int(rng.integers(1, 12)))]
    specs = [
        replace(
            shapes[int(rng.integers(len(shapes)))],
            name=f"t{number}",
            work_samples=1.0 + float(rng.exponential(30_000.0)),
            submit_s=float(rng.choice([0.0, rng.random() * time_s])),
        )
        for number in range(int(rng.integers(5, 150)))
    ]
    rules: tuple[dict[str, Any], ...] = (
        {},
        {"decision_latency_s": 7.0, "min_interval_s": 25.0},
        {"semantics": "published", "placement": "neighbours"},
        {"speed_error": 0.2},
    )
    objective = str(rng.choice(["throughput", "speedup", "weighted"]))
    most = int(rng.integers(1, 40))
    return log, specs, ReplaySettings(max_tasks=most, objective=objective, **rules[int(rng.integers(len(rules)))])


def _shape(rng: np.random.Generator) -> TaskSpec:
    nodes = np.unique(rng.integers(1, 64, size=5))
    rate = np.cumsum(rng.random(nodes.size)) * 50.0
    smallest = int(rng.integers(1, 6))
    return TaskSpec(
        name="shape",
        curve=SpeedCurve(nodes=tuple(nodes.tolist()), rate=tuple(rate.tolist())),
        min_nodes=smallest,
        max_nodes=smallest + int(rng.integers(60)),
        grow_cost_s=float(rng.choice([0.0, 5.0, 18.0])),
        shrink_cost_s=float(rng.choice([0.0, 5.0, 12.0])),
        start_cost_s=float(rng.choice([0.0, 30.0])),
        weight=float(rng.choice([1.0, 2.0])),
    )
