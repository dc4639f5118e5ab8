"""Inputs of a sweep: logs, clusters and sets of tasks, from files or generated; a process keeps the latest ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from bftrain.errors import BadValue
from bftrain.taskfiles.files import load_tasks
from bftrain.taskfiles.records import MEASURED_WORK_SAMPLES
from bftrain.values.curve import cluster_of
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.edits import with_kinds
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import load_log
from bftrain_datasets.log.log_generator import SUMMIT_IDLE_SHARE, generate_log
from bftrain_datasets.workloads import generator
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_datasets.workloads.task_generators import (
    DEFAULT_MAX_NODES,
    DEFAULT_START_COST_S,
    TaskArrivals,
    TaskShape,
    generate_mix,
    generate_trials,
)
from bftrain_replay.simulation.fixed_cluster import FixedCluster

Tasks = tuple[TaskSpec, ...]

MIX: Final = "mix"
CLUSTER_JOBS: Final = "cluster"
_MOST_KEPT: Final = 32  # inputs in memory; a sweep may generate many


class SweepLog(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """A log in a file; ``kinds`` is an optional file with node kinds."""

    path: str
    kinds: str = ""

    uses_seed = False

    def load(self, _seed: int) -> EventLog:
        """Load the log."""
        log = load_log(Path(self.path))
        return with_kinds(log, Path(self.kinds)) if self.kinds else log


class GeneratedLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="generated"):
    """A log from ``bftrain generate log``; the point's seed is the default."""

    nodes: int
    days: float
    idle_share: float = SUMMIT_IDLE_SHARE
    start_s: float = 0.0
    seed: int | None = None

    @property
    def uses_seed(self) -> bool:
        """Whether the log depends on the seed."""
        return self.seed is None

    def load(self, seed: int) -> EventLog:
        """Generate the log."""
        chosen = seed if self.seed is None else self.seed
        return generate_log(self.nodes, self.days, chosen, idle_share=self.idle_share, start_s=self.start_s)


class SweepCluster(msgspec.Struct, frozen=True, kw_only=True, tag="cluster"):
    """Nodes that never leave, in the notation of the command line: ``v100=4,k80=4``, or ``12``."""

    text: str
    until_s: float | None = None  # latest stop of a replay; rounds have a separate setting

    uses_seed = False

    @property
    def cluster(self) -> FixedCluster:
        """The nodes by kind."""
        return FixedCluster(nodes=cluster_of(self.text), until_s=self.until_s)

    def load(self, _seed: int) -> EventLog:
        """Return a log with permanently idle nodes."""
        return self.cluster.log()


@lru_cache(maxsize=1)
def _tasks_in(path: Path, _changed_ns: int) -> Tasks:
    """Load a task file; all rates share it until the file changes."""
    return load_tasks(path)


class TaskFile(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """Tasks in a file; with a ``rate`` of 2 they arrive twice as fast."""

    path: str
    rate: float = 1.0

    uses_seed = False

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < math.inf:
            raise ValueError(f"rate must be a finite number above 0, not {self.rate}")

    def load(self, _seed: int) -> Tasks:
        """Load the tasks."""
        path = Path(self.path)
        if self.rate == 1.0:
            return load_tasks(path)
        tasks = _tasks_in(path, path.stat().st_mtime_ns if path.exists() else 0)
        return tuple(msgspec.structs.replace(task, submit_s=task.submit_s / self.rate) for task in tasks)


class GeneratedTasks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="generated"):
    """Tasks from ``bftrain generate tasks``; the point's seed is the default."""

    kind: Literal["mix", "trials"] = MIX
    count: int = 100
    profile: str = ""
    work_samples: float = MEASURED_WORK_SAMPLES
    min_nodes: int = 1
    max_nodes: int = DEFAULT_MAX_NODES
    start_cost_s: float = DEFAULT_START_COST_S
    arrivals_per_hour: float | None = None
    start_s: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.profile and self.kind == MIX:
            raise ValueError("profile requires kind = 'trials': a mix uses all models")

    @property
    def uses_seed(self) -> bool:
        """Whether the tasks depend on the seed."""
        return self.seed is None and (self.kind == MIX or self.arrivals_per_hour is not None)

    def load(self, seed: int) -> Tasks:
        """Generate the tasks."""
        chosen = seed if self.seed is None else self.seed
        arrivals = TaskArrivals(start_s=self.start_s, per_hour=self.arrivals_per_hour)
        shape = TaskShape(**_shared(self, TaskShape.__struct_fields__))
        if self.kind == MIX:
            return generate_mix(self.count, chosen, arrivals=arrivals, shape=shape)
        model = self.profile or "shufflenet"
        return generate_trials(self.count, model, seed=chosen, arrivals=arrivals, shape=shape)


class ClusterTasks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cluster"):
    """Jobs of a shared cluster as ``bftrain generate tasks --kind cluster`` makes them, with the same options.

    ``gangs`` and ``deadlines`` are texts as on the command line, so a sweep can vary them: ``"1:0.7,8:0.3"`` is the
    share of jobs by number of nodes, ``"1.5,4"`` the multiples of the ideal duration. ``speeds`` is a throughput table
    in Gavel's form; ``kinds`` are the node kinds to use from it, comma-separated.
    """

    kind: Literal["cluster"] = "cluster"
    count: int = 100
    gangs: str = ""
    long_share: float = generator.LONG_SHARE
    high_share: float = 0.0
    high_weight: float = generator.HIGH_WEIGHT
    deadlines: str = ""
    burst_share: float = 0.0
    burst_size: int = 10
    users: int = 0
    elastic: bool = False
    start_cost_s: float = DEFAULT_START_COST_S
    speeds: str = ""
    kinds: str = ""
    arrivals_per_hour: float | None = None
    start_s: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.kinds and not self.speeds:
            raise ValueError("kinds requires speeds: the bundled models were measured on a single kind")

    @property
    def uses_seed(self) -> bool:
        """Whether the tasks depend on the seed."""
        return self.seed is None

    def load(self, seed: int) -> Tasks:
        """Generate the tasks."""
        given = _shared(self, generator.ClusterShape.__dataclass_fields__)
        gangs = _gangs(self.gangs) if self.gangs else generator.GANGS
        shape = generator.ClusterShape(**{**given, "gangs": gangs, "deadlines": _multiples(self.deadlines)})
        arrivals = TaskArrivals(start_s=self.start_s, per_hour=self.arrivals_per_hour)
        chosen = seed if self.seed is None else self.seed
        return generator.generate_cluster(self.count, chosen, models=self._models(), arrivals=arrivals, shape=shape)

    def _models(self) -> tuple[generator.MeasuredModel, ...]:
        if not self.speeds:
            return generator.bundled_models()
        table = load_speed_table(Path(self.speeds))
        kinds = table.all_kinds(tuple(kind.strip() for kind in self.kinds.split(",") if kind))
        return generator.models_of(table, kinds)


def _shared(source: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a source that have one of these names."""
    return {name: getattr(source, name) for name in names if name in source.__struct_fields__}


def _gangs(text: str) -> dict[int, float]:
    try:
        return {int(size): float(share) for size, share in (part.split(":") for part in text.split(","))}
    except ValueError as error:
        raise BadValue(f"is {text!r}", where="ClusterTasks.gangs", fix="write 1:0.7,2:0.1,4:0.2") from error


def _multiples(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if text)
    except ValueError as error:
        raise BadValue(f"is {text!r}", where="ClusterTasks.deadlines", fix="write 1.2,2,10") from error


LogSource = SweepLog | GeneratedLog | SweepCluster
TaskSource = TaskFile | GeneratedTasks | ClusterTasks


def input_key(source: LogSource | TaskSource, seed: int) -> tuple[LogSource | TaskSource, int]:
    """Return the identity of an input: its source, and the seed if it matters (else 0)."""
    return source, seed if source.uses_seed else 0


@lru_cache(maxsize=_MOST_KEPT)
def _loaded(source: LogSource | TaskSource, seed: int) -> EventLog | Tasks:
    return source.load(seed)


def loaded(source: LogSource | TaskSource, seed: int) -> Any:  # noqa: ANN401 - a log, or tasks
    """Return the log or the tasks, from memory if possible; ``forget_inputs()`` empties it."""
    return _loaded(*input_key(source, seed))


forget_inputs = _loaded.cache_clear  # files may change between sweeps
