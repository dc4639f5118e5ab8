"""Passes: what has to be replayed for a sweep, each thing once however many points need it.

A point needs a replay, or a run in rounds; perhaps a second replay with its baseline; and on a log its yardsticks, the
ceiling and the dedicated pool.
Yardsticks depend on fewer settings than a replay, since nothing costs anything in them, and a baseline may be a point
of its own. What a pass is made from is its identity: a pass that is done need not be done again.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from bftrain.deciding.objectives import throughput
from bftrain.errors import BadValue, BftrainError
from bftrain.parts.objectives import from_anywhere, resolve_objective
from bftrain.ports import Objective
from bftrain.values import wire
from bftrain_replay import plugin_files
from bftrain_replay.provenance import tasks_sha256, versions_with
from bftrain_replay.reference.ceiling_and_dedicated import EXACT, ideally, without_costs
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.sweeping.sweep_inputs import InputCache, LogSource, TaskSource
from bftrain_replay.sweeping.sweep_options import LOG, MEASURE, TASKS
from bftrain_replay.sweeping.sweep_spec import LOGS, TASK_SETS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from bftrain_replay.sweeping.sweep_grid import SweepPoint
    from bftrain_replay.sweeping.sweep_spec import SweepSpec

_ID_DIGITS = 16
_NO_COSTS = {"grow_cost_s": None, "shrink_cost_s": None, "start_cost_s": None, "cost_factor": 1.0}


class RunKind(StrEnum):
    """What is replayed."""

    REPLAY = "replay"
    YARDSTICKS = "yardsticks"  # the ceiling and the dedicated pool
    ROUNDS = "rounds"  # time shared in rounds


class MadeFrom(msgspec.Struct, frozen=True, kw_only=True):
    """All that a pass depends on; contents by their SHA-256, in any file."""

    kind: RunKind
    log: str
    tasks: str
    objective_file: str  # if the objective is a file's; those of an admission, metrics or a policy count too
    settings: dict[str, object]
    versions: dict[str, str]

    @property
    def id(self) -> str:
        """A name for all of it."""
        return hashlib.sha256(wire.encode(self)).hexdigest()[:_ID_DIGITS]


class SweepPass(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work, as it is handed to a worker. ``words`` say which point asked for it first."""

    id: str
    words: str
    log: LogSource
    tasks: TaskSource
    log_sha256: str
    tasks_sha256: str
    settings: ReplaySettings | None = None  # the file of an objective by a name that holds in every folder
    rounds: RoundSettings | None = None  # the same of a policy, where time is shared in rounds
    made_from: MadeFrom

    @property
    def how(self) -> ReplaySettings | RoundSettings:
        """The settings that there are."""
        found = self.settings or self.rounds
        assert found is not None  # noqa: S101 - for the type checker: every plan gives one of them
        return found

    @property
    def seed(self) -> int:
        """What random inputs are made from."""
        return self.how.seed

    @property
    def kind(self) -> RunKind:
        """What is replayed."""
        return self.made_from.kind


class PointNeeds(NamedTuple):
    """The passes that a point is made of, by their ids; empty where it needs none."""

    replay: str
    baseline: str
    yardsticks: str

    @property
    def all(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(filter(None, self))

    @property
    def id(self) -> str:
        """A name for all of them."""
        return hashlib.sha256(" ".join(self).encode()).hexdigest()[:_ID_DIGITS]


class SweepPlan(NamedTuple):
    """What is to be done for a sweep: what each point needs, and the passes by their ids."""

    needs: tuple[PointNeeds, ...]
    passes: dict[str, SweepPass]


def planned(spec: SweepSpec, points: Sequence[SweepPoint]) -> SweepPlan:
    """Find out what must be replayed; loads or generates every input once, to know what is in it."""
    planner = _Planner(spec)
    needs = tuple(map(planner.needs, points))
    # Those with the same inputs one after the other: a worker keeps what it has loaded for a while only
    inputs = {key: number for number, key in enumerate(dict.fromkeys(map(_inputs_of, planner.passes.values())))}
    ordered = sorted(planner.passes.values(), key=lambda job: inputs[_inputs_of(job)])
    return SweepPlan(needs, {job.id: job for job in ordered})


def _inputs_of(job: SweepPass) -> tuple[str, str]:
    return job.log_sha256, job.tasks_sha256


class _Contents(NamedTuple):
    """How many tasks a point has, what is in them, and in the same without costs."""

    tasks: int
    sha256: str
    free_sha256: str


class _Metric(NamedTuple):
    """An objective: by a name that holds in every folder, the SHA-256 of its file, and what it is."""

    name: str
    objective: Objective | None  # none if it cannot be had here; the replay will say why


class _Planner:
    """Knows every input by its content."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._inputs = InputCache()
        self._logs: dict[Hashable, str] = {}
        self._tasks: dict[Hashable, _Contents] = {}
        self._metrics: dict[str, _Metric] = {}
        self.passes: dict[str, SweepPass] = {}

    def needs(self, point: SweepPoint) -> PointNeeds:
        """Say what a point is made of."""
        settings = point.settings
        if isinstance(settings, RoundSettings):
            self._check_measured(point, settings)
            return PointNeeds(self._need(RunKind.ROUNDS, point, settings), "", "")
        metric = self._metric(settings.objective)
        replay = self._need(RunKind.REPLAY, point, settings)
        baseline = yardsticks = ""
        if point.baseline:
            baseline = self._need(RunKind.REPLAY, point, replace(settings, solver=point.baseline))
        if self._spec.yardsticks and not point.cluster:
            ideal = ideally(settings, metric.objective or throughput)
            yardsticks = self._need(RunKind.YARDSTICKS, point, replace(ideal, **_NO_COSTS))
        return PointNeeds(replay, baseline, yardsticks)

    def _need(self, kind: RunKind, point: SweepPoint, settings: ReplaySettings | RoundSettings) -> str:
        log, tasks = point.nodes_of(self._spec), self._spec.tasks(point.tasks, point.changes)
        seed = settings.seed
        log_sha256, contents = self._log_sha256(log, seed, point), self._contents(tasks, seed, point)
        anywhere = plugin_files.from_anywhere(settings, self._spec.document.folder)
        made_from = MadeFrom(
            kind=kind,
            log=log_sha256,
            tasks=contents.free_sha256 if kind is RunKind.YARDSTICKS else contents.sha256,
            objective_file=plugin_files.sha256(anywhere),
            settings=wire.plain(settings),
            versions=versions_here(solver_of(settings)),
        )
        found = made_from.id
        if found not in self.passes:
            self.passes[found] = SweepPass(
                id=found,
                words=point.words,
                log=log,
                tasks=tasks,
                log_sha256=log_sha256,
                tasks_sha256=contents.sha256,
                settings=anywhere if isinstance(anywhere, ReplaySettings) else None,
                rounds=anywhere if isinstance(anywhere, RoundSettings) else None,
                made_from=made_from,
            )
        return found

    def _metric(self, name: str) -> _Metric:
        if name not in self._metrics:
            anywhere = from_anywhere(name, self._spec.document.folder)
            try:
                objective = resolve_objective(anywhere)
            except BftrainError:
                objective = None
            self._metrics[name] = _Metric(anywhere, objective)
        return self._metrics[name]

    def _log_sha256(self, source: LogSource, seed: int, point: SweepPoint) -> str:
        key = source, seed if source.uses_seed else None
        if key not in self._logs:
            with self._named(LOG, LOGS, point.log):
                self._logs[key] = self._inputs.log(source, seed).sha256
        return self._logs[key]

    def _contents(self, source: TaskSource, seed: int, point: SweepPoint) -> _Contents:
        key = source, seed if source.uses_seed else None
        if key not in self._tasks:
            with self._named(TASKS, TASK_SETS, point.tasks):
                tasks = self._inputs.tasks(source, seed)
            self._tasks[key] = _Contents(len(tasks), tasks_sha256(tasks), tasks_sha256(without_costs(tasks)))
        return self._tasks[key]

    def _check_measured(self, point: SweepPoint, settings: RoundSettings) -> None:
        contents = self._contents(self._spec.tasks(point.tasks, point.changes), settings.seed, point)
        try:
            settings.check_measured(contents.tasks)
        except BadValue as error:
            raise self._spec.document.wrong(error.what, *self._spec.place_of(MEASURE), fix=error.fix) from error

    @contextmanager
    def _named(self, option: str, sets: str, name: str) -> Iterator[None]:
        """Let a complaint about what cannot be generated name the place in the sweep file."""
        try:
            yield
        except BadValue as error:
            document = self._spec.document
            place = (sets, name) if name in document.data.get(sets, {}) else self._spec.place_of(option)
            field = (error.where or "").rpartition(".")[2]
            raise document.wrong(f"{field} {error.what}", *place, fix=error.fix) from error


def solver_of(settings: ReplaySettings | RoundSettings) -> str:
    """Return the solver's name; rounds have none."""
    return "" if isinstance(settings, RoundSettings) else settings.solver


@cache
def versions_here(solver: str) -> dict[str, str]:
    """Give the versions of what figures depend on; without that of a solver that cannot run here, or is not asked."""
    try:
        if solver:
            return versions_with(solver)
    except BftrainError:
        pass
    others = versions_with(EXACT)
    del others[f"solver {EXACT}"]
    return {**others, f"solver {solver}": ""} if solver else others
