"""Metrics of a live run in Prometheus' text format 0.0.4.

They name no task or node, and users and campaigns only with ``metrics_by_user`` of ``[api]``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.startup import LiveResources
from bftrain.live.daemon.task_manager import TaskManager
from bftrain.live.model.schemas import RUN_STATES, StatusView
from bftrain.values.actions import Action, Cause, Release, Shrink, Stop
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskFailed, TaskFinished, TaskMeasured

# Otherwise each histogram adds a series with its creation time
disable_created_metrics()  # type: ignore[no-untyped-call]

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
_CHANGES: Final = ("start", "grow", "shrink", "stop")
_ENDS: Final = ("done", "failed", "cancelled")
_PREEMPTED: Final = frozenset({Cause.PREEMPTED, Cause.BELOW_MINIMUM})
_USED: Final = {
    "bftrain_usage_node_seconds_total": "Node-time of tasks, over all runs, across restarts.",
    "bftrain_usage_gpu_seconds_total": "GPU-time of tasks, over all runs, by the site's GPU numbers.",
    "bftrain_usage_samples_total": "Samples, over all runs.",
    "bftrain_usage_joules_total": "Energy of the tasks' nodes, over all runs, by the site's watts.",
}
_LONG_S: Final = (60.0, 300.0, 900.0, 1800.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
_SLOWDOWNS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
# From unnoticeable times to the default deadline of solvers
_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _by(label: str, name: str, about: str, values: Mapping[str, float]) -> Metric:
    """Return a metric with one series per label value; a counter if its name has the suffix ``_total``."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class LiveMetrics(Collector):
    """Counts events of a live run; all other metrics come from its status when they are requested."""

    def __init__(
        self, opened: LiveResources, tasks: TaskManager, nodes: NodeManager, status: Callable[[], StatusView]
    ) -> None:
        self._site, self._harvester, self._scheduler = opened.site, opened.harvester, opened.scheduler
        self._store = opened.task_store
        self._tasks, self._nodes, self._status = tasks, nodes, status
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._joined = self._counter("nodes_joined", "Nodes that became available.")
        self._left = self._counter("nodes_left", "Nodes that were preempted or returned.")
        self._samples = self._counter("samples", "Samples of steps done for the first time.")
        self._preemptions = self._counter("preemptions", "Times that a task lost nodes to the main scheduler.")
        self._failures = self._counter("task_failures", "Failures of task processes.")
        self._answers = self._counter("api_answers", "Answers of the API, by status.", "code")
        self._events = self._counter("events", "Events.", "event", *map(_tag, get_args(Event)))
        self._changes = self._counter("rescales", "Decided changes of tasks.", "change", *_CHANGES)
        self._ended = self._counter("tasks_ended", "Finished tasks.", "state", *_ENDS)
        self._decisions = self._counter(
            "decisions", "Decisions, by solver or fallback.", "answer", "solver", "fallback"
        )
        self._solving = self._histogram("solve_seconds", "Duration of decisions.", _BOUNDS_S)
        latency = "Time from an event to the orders of its decision; leaving nodes are handed back earlier."
        self._latency = self._histogram("event_to_orders_seconds", latency, _BOUNDS_S)
        self._completion = self._histogram("completion_seconds", "Submission to completion.", _LONG_S)
        slowdown = "Completion time divided by the time at full speed, of tasks with known work."
        self._slowdown = self._histogram("slowdown", slowdown, _SLOWDOWNS)
        start_up = "Duration of start-ups: the overhead of a preemption."
        self._start_up = self._histogram("start_up_seconds", start_up, _BOUNDS_S, "campaign")
        ProcessCollector(registry=self._registry)
        self._taken: set[str] = set()  # nodes, since the last decision
        self._seen: dict[str, float] = {}  # samples of unfinished tasks that are counted
        self._asked_at: float | None = None  # start of the current wait for a decision
        self.idle_s = self._used_s = 0.0  # node-seconds
        self._sizes = (0, 0)  # our nodes, and nodes with tasks
        self._sized_at = time.monotonic()
        self._size()

    def _counter(self, name: str, about: str, label: str = "", *values: str) -> Counter:
        """Return a counter with one series for each of ``values``."""
        counter = Counter(f"bftrain_{name}", about, [label] if label else [], registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"bftrain_{name}", about, labels, buckets=buckets, registry=self._registry)

    def answered(self, status: int) -> None:
        """Count an answer of the API by its HTTP status."""
        self._answers.labels(status).inc()

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    def describe(self) -> Iterable[Metric]:
        """Return no metrics: registration of this collector does not need them."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics that are computed on request: the current state and sums of usage."""
        self._size()
        yield from self._current()
        yield from self._usage()

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        """Count events, a decision or a message."""
        match what:
            case "events":
                self._count_events(value)
            case "decision":
                self._count_decision(value)
            case "message" if value["type"] == "report":
                track = self._tasks.tracks.get(value["task"])
                if track is not None:
                    samples = track.progress.harvested
                    before = self._seen.get(value["task"], track.record.progress.harvested)
                    self._samples.inc(max(0.0, samples - before))  # a counter never decreases
                    self._seen[value["task"]] = samples

    def _count_events(self, events: Sequence[Event]) -> None:
        self._size()
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        for event in events:
            self._events.labels(_tag(type(event))).inc()
            match event:
                case NodesJoined():
                    self._joined.inc(len(event.nodes))
                case NodesLeft():
                    self._left.inc(len(event.nodes))
                    self._taken |= self._nodes.preempted(event.nodes)
                case TaskFinished():
                    self._finished(event)
                    self._over(event.task, "done")
                case TaskMeasured(start_cost_s=start_cost_s) if start_cost_s is not None:
                    named = self._site.api.metrics_by_user and event.task in self._tasks.tracks
                    campaign = self._tasks.tracks[event.task].record.spec.campaign if named else ""
                    self._start_up.labels(campaign).observe(start_cost_s)
                case TaskCancelled():
                    self._over(event.task, "cancelled")
                case TaskFailed():
                    self._failures.inc()
                    if event.task not in self._harvester.unfinished:
                        self._over(event.task, "failed")

    def _count_decision(self, decision: Decision) -> None:
        self._size()
        if self._asked_at is not None:
            self._latency.observe(time.monotonic() - self._asked_at)
            self._asked_at = None
        self._solving.observe(decision.solve_s)
        self._decisions.labels("fallback" if decision.fallback else "solver").inc()
        for action in decision.actions:
            if not isinstance(action, Release):
                self._changes.labels(_tag(type(action))).inc()
        for action in decision.at_once:
            if isinstance(action, Shrink | Stop) and action.cause in _PREEMPTED:
                self._preemptions.inc(not self._taken.isdisjoint(action.nodes))
        self._taken.clear()

    def _finished(self, event: TaskFinished) -> None:
        if (record := self._store.find(event.task)) is None:
            return
        spec, took_s = record.spec, event.time_s - record.submitted_s
        self._completion.observe(took_s)
        speed = max(curve.speed(spec.max_nodes) for curve in (spec.curves or {"": spec.curve}).values())
        if spec.work_samples is not None and speed > 0.0:
            self._slowdown.observe(took_s * speed / spec.work_samples)

    def _over(self, task: str, state: str) -> None:
        self._ended.labels(state).inc()
        self._seen.pop(task, None)

    def _size(self) -> None:
        """Add the node-seconds since the last change of sizes."""
        now, harvester = time.monotonic(), self._harvester
        passed, (idle, used) = now - self._sized_at, self._sizes
        self.idle_s += idle * passed
        self._used_s += used * passed
        self._sizes, self._sized_at = (harvester.pool_size, sum(map(len, harvester.held.values()))), now

    def _current(self) -> Iterator[Metric]:
        now = self._status()
        about = {"version": now.version, "scheduler": now.scheduler, "solver": now.solver, "objective": now.objective}
        build = GaugeMetricFamily("bftrain_build_info", "Version and set-up.", labels=[*about])
        build.add_metric([*about.values()], 1)
        yield build
        states = {state: float(state == now.state) for state in RUN_STATES}
        yield _by("state", "bftrain_state", "1 for the current state of the live run.", states)
        yield _gauge("bftrain_start_time_seconds", "Start of the live run, since 1970.", now.since_s)
        yield _gauge("bftrain_pool_nodes", "Idle nodes available to tasks.", now.pool)
        yield _gauge("bftrain_used_nodes", "Nodes allocated to tasks.", now.used)
        yield _gauge("bftrain_drained_nodes", "Nodes that must not be used.", now.drained)
        yield _gauge("bftrain_agents", "Nodes with an agent.", now.agents)
        tasks = {"running": now.running, "waiting": now.waiting, "paused": now.paused}
        yield _by("state", "bftrain_tasks", "Unfinished tasks.", tasks)
        yield _gauge("bftrain_speed_samples_per_second", "Total reported speed of all tasks.", now.speed)
        yield _gauge("bftrain_journal_steps", "Entries of the journal.", now.steps)
        yield _gauge("bftrain_journal_bytes", "Size of the journal on disk.", _size_of(self._site.journal))
        if now.decision is not None:
            value, at_s = now.decision.value, now.decision.time_s
            yield _gauge("bftrain_decision_value", "Value of the last decision under the objective.", value)
            yield _gauge("bftrain_last_decision_timestamp_seconds", "Time of the last decision, since 1970.", at_s)
        pilots = self._scheduler.facts().pilots
        if pilots is not None:
            yield _by("state", "bftrain_pilots", "Pilot jobs at the scheduler.", pilots)

    def _usage(self) -> Iterator[Metric]:
        """Yield node-time of this run, and the ledger's hours, which survive restarts."""
        yield CounterMetricFamily("bftrain_idle_node_seconds", "Node-time available to tasks.", value=self.idle_s)
        yield CounterMetricFamily(
            "bftrain_used_node_seconds", "Node-time allocated to tasks: the harvest.", value=self._used_s
        )
        used = self._tasks.ledger.by_user
        for place, (name, about) in enumerate(_USED.items()):
            if self._site.api.metrics_by_user:
                yield _by("user", name, about, {user: sums[place] for user, sums in used.items()})
            else:
                yield CounterMetricFamily(name, about, value=sum(sums[place] for sums in used.values()))


def _tag(kind: type[Event | Action]) -> str:
    return str(kind.__struct_config__.tag)


def _size_of(path: Path) -> float:
    """Return the size of a database in bytes, including SQLite's write-ahead log."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return float(sum(file.stat().st_size for file in files if file.exists()))
