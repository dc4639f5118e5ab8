"""Metrics of a live run in Prometheus' text format 0.0.4; they name no user, task or node."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bftrain.deciding.harvester import Harvester
from bftrain.live.daemon.decision_loop import DecisionLoop
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.task_manager import TaskManager
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.model.schemas import RUN_STATES, state_of
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.schedulers.base import Scheduler
from bftrain.values.actions import Action, Cause, Release, Shrink, Stop
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskFailed, TaskFinished
from bftrain.version import __version__

# Otherwise each histogram adds a series with its creation time
disable_created_metrics()  # type: ignore[no-untyped-call]

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
_CHANGES: Final = ("start", "grow", "shrink", "stop")
_ENDS: Final = ("done", "failed", "cancelled")
_PREEMPTED: Final = frozenset({Cause.PREEMPTED, Cause.BELOW_MINIMUM})
_USED: Final = {
    "bftrain_usage_node_seconds_total": "Node-time of tasks, over all runs on this state.",
    "bftrain_usage_gpu_seconds_total": "GPU-time of tasks, over all runs, by the site's GPU numbers.",
    "bftrain_usage_samples_total": "Samples, over all runs.",
    "bftrain_usage_joules_total": "Energy of the tasks' nodes, over all runs, by the site's watts.",
}
# From unnoticeable times to the limit of solvers; 20 ms and 100 ms are promised
_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def counter(name: str, about: str, value: float) -> Metric:
    """Return a counter: its value only grows; its name has the suffix ``_total``."""
    return CounterMetricFamily(name, about, value=value)


def gauge(name: str, about: str, value: float) -> Metric:
    """Return a gauge: a value that rises and falls."""
    return GaugeMetricFamily(name, about, value=value)


def by(label: str, name: str, about: str, values: Mapping[str, float]) -> Metric:
    """Return a metric with one series per label value; a counter if its name has the suffix ``_total``."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class LiveMetrics(Collector):
    """Counts events of a live run; the other metrics are read off the daemon when they are asked for."""

    def __init__(
        self,
        site: SiteSettings,
        harvester: Harvester,
        store: TaskStore,
        loop: DecisionLoop,
        tasks: TaskManager,
        nodes: NodeManager,
        scheduler: Scheduler,
        state: Callable[[], str],
    ) -> None:
        self._site, self._harvester, self._store, self._loop = site, harvester, store, loop
        self._tasks, self._nodes, self._scheduler, self._state = tasks, nodes, scheduler, state
        self._events = Counter(dict.fromkeys((_tag(kind) for kind in get_args(Event)), 0))
        self._moved = Counter(joined=0, left=0)
        self._changes = Counter(dict.fromkeys(_CHANGES, 0))
        self._ended = Counter(dict.fromkeys(_ENDS, 0))
        self._decisions = Counter(solver=0, fallback=0)
        self._answers: Counter[str] = Counter()
        self._preemptions = 0
        self._taken: set[str] = set()  # nodes, since the last decision
        self._failures = 0
        self._samples = 0.0
        self._seen: dict[str, float] = {}  # samples of unfinished tasks that are counted
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._solving = Histogram(
            "bftrain_solve_seconds", "Duration of decisions.", buckets=_BOUNDS_S, registry=self._registry
        )
        self._latency = Histogram(
            "bftrain_event_to_orders_seconds",
            "Time from an event to the orders of its decision; leaving nodes are handed back earlier.",
            buckets=_BOUNDS_S,
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        self._asked_at: float | None = None  # start of the current wait for a decision
        self.idle_s = self._used_s = 0.0  # node-seconds
        self._sizes = (0, 0)  # our nodes, and nodes with tasks
        self._sized_at = time.monotonic()
        self._size()
        self._since_s = tasks.now

    def answered(self, status: int) -> None:
        """Count an answer of the API by its HTTP status."""
        self._answers[str(status)] += 1

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    def describe(self) -> Iterable[Metric]:
        """Return no metrics: registration of this collector does not need them."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics except histograms and process metrics."""
        self._size()
        yield from self._now()
        yield from self._so_far()

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        """Count events, a decision or a message."""
        match what:
            case "events":
                self._happened(value)
            case "decision":
                self._decided(value)
            case "message" if value["type"] == "report":
                track = self._tasks.tracks.get(value["task"])
                if track is not None:
                    samples = track.progress.harvested
                    self._samples += samples - self._seen.get(value["task"], track.record.progress.harvested)
                    self._seen[value["task"]] = samples

    def _happened(self, events: Sequence[Event]) -> None:
        self._size()
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        for event in events:
            self._events[_tag(type(event))] += 1
            match event:
                case NodesJoined():
                    self._moved["joined"] += len(event.nodes)
                case NodesLeft():
                    self._moved["left"] += len(event.nodes)
                    self._taken |= self._nodes.preempted(event.nodes)
                case TaskFinished():
                    self._over(event.task, "done")
                case TaskCancelled():
                    self._over(event.task, "cancelled")
                case TaskFailed():
                    self._failures += 1
                    if event.task not in self._harvester.unfinished:
                        self._over(event.task, "failed")

    def _decided(self, decision: Decision) -> None:
        self._size()
        if self._asked_at is not None:
            self._latency.observe(time.monotonic() - self._asked_at)
            self._asked_at = None
        self._solving.observe(decision.solve_s)
        self._decisions["fallback" if decision.fallback else "solver"] += 1
        self._changes.update(_tag(type(action)) for action in decision.actions if not isinstance(action, Release))
        self._preemptions += sum(
            isinstance(action, Shrink | Stop)
            and action.cause in _PREEMPTED
            and not self._taken.isdisjoint(action.nodes)
            for action in decision.at_once
        )
        self._taken.clear()

    def _over(self, task: str, state: str) -> None:
        self._ended[state] += 1
        self._seen.pop(task, None)

    def _size(self) -> None:
        """Add the node-seconds since the last change of sizes."""
        now, harvester = time.monotonic(), self._harvester
        passed, (idle, used) = now - self._sized_at, self._sizes
        self.idle_s += idle * passed
        self._used_s += used * passed
        self._sizes, self._sized_at = (harvester.pool_size, sum(map(len, harvester.held.values()))), now

    def _now(self) -> Iterator[Metric]:
        site = self._site
        about = {
            "version": __version__,
            "scheduler": site.scheduler_name,
            "solver": site.deciding.solver,
            "objective": str(site.deciding.objective),
        }
        build = GaugeMetricFamily("bftrain_build_info", "Version and set-up.", labels=[*about])
        build.add_metric([*about.values()], 1)
        yield build
        shown = self._state()
        states = {state: float(state == shown) for state in RUN_STATES}
        yield by("state", "bftrain_state", "1 for the present state of the live run.", states)
        yield gauge("bftrain_start_time_seconds", "Start of the live run, since 1970.", self._since_s)
        pool, used = self._sizes
        yield gauge("bftrain_pool_nodes", "Idle nodes available to tasks.", pool)
        yield gauge("bftrain_used_nodes", "Nodes allocated to tasks.", used)
        yield gauge("bftrain_drained_nodes", "Nodes that must not be used.", len(self._store.drained))
        yield gauge("bftrain_agents", "Nodes with an agent.", len(self._nodes.node_tracker.present))
        held = self._harvester.held
        tasks = Counter({"running": 0, "waiting": 0, "paused": 0})
        tasks.update(state_of(record, len(held.get(record.name, ()))) for record in self._store.unfinished)
        yield by("state", "bftrain_tasks", "Unfinished tasks.", tasks)
        now = self._tasks.now
        speed = sum(track.speed(now) for track in self._tasks.tracks.values())
        yield gauge("bftrain_speed_samples_per_second", "Total reported speed of all tasks.", speed)
        yield gauge("bftrain_journal_steps", "Entries of the journal.", self._loop.steps)
        yield gauge("bftrain_journal_bytes", "Size of the journal on disk.", _size_of(site.journal))
        if self._loop.last_decision is not None:
            value, at_s = self._loop.last_decision.value, self._loop.last_decision.time_s
            yield gauge("bftrain_decision_value", "Value of the last decision under the objective.", value)
            yield gauge("bftrain_last_decision_timestamp_seconds", "Time of the last decision, since 1970.", at_s)
        pilots = self._scheduler.facts().pilots
        if pilots is not None:
            yield by("state", "bftrain_pilots", "Pilot jobs at the scheduler.", pilots)

    def _so_far(self) -> Iterator[Metric]:
        yield counter("bftrain_idle_node_seconds_total", "Node-time available to tasks.", self.idle_s)
        yield counter("bftrain_used_node_seconds_total", "Node-time allocated to tasks: the harvest.", self._used_s)
        yield counter("bftrain_samples_total", "Samples of steps done for the first time.", self._samples)
        yield counter("bftrain_nodes_joined_total", "Nodes that became available.", self._moved["joined"])
        yield counter("bftrain_nodes_left_total", "Nodes that were taken or given back.", self._moved["left"])
        yield by("event", "bftrain_events_total", "Events.", self._events)
        yield by("answer", "bftrain_decisions_total", "Decisions, by solver or fallback.", self._decisions)
        yield by("change", "bftrain_rescales_total", "Decided changes of tasks.", self._changes)
        yield counter(
            "bftrain_preemptions_total", "Times that a task lost nodes to the main scheduler.", self._preemptions
        )
        yield by("state", "bftrain_tasks_ended_total", "Finished tasks.", self._ended)
        yield counter("bftrain_task_failures_total", "Failures of task processes.", self._failures)
        yield by("code", "bftrain_api_answers_total", "Answers of the API, by status.", self._answers)
        yield from self._used()

    def _used(self) -> Iterator[Metric]:
        """Yield the ledger's hours, which survive restarts."""
        used = self._tasks.ledger.by_user
        for place, (name, about) in enumerate(_USED.items()):
            if self._site.api.metrics_by_user:
                yield by("user", name, about, {user: sums[place] for user, sums in used.items()})
            else:
                yield counter(name, about, sum(sums[place] for sums in used.values()))


def _tag(kind: type[Event | Action]) -> str:
    return str(kind.__struct_config__.tag)


def _size_of(path: Path) -> float:
    """Return the size of a database in bytes, including SQLite's write-ahead log."""
    total = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return float(total)
