"""The passes of a sweep: planned once for all points that need them, run by workers, and kept in ``points.jsonl``.

A point needs a replay or a run in rounds, optionally a second replay with its baseline, and on a log its references:
the ceiling and the dedicated pool. Points share passes: references depend on fewer settings than a replay, because they
have no costs, and a baseline may also be a point. A pass is identified by its inputs, and never repeated once done.
"""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Final, NamedTuple, Protocol, Self

import msgspec
import numpy as np
from msgspec.structs import replace

from bftrain import summaries
from bftrain.assembly import find_solver
from bftrain.deciding.objectives import throughput
from bftrain.errors import BadInput, BadValue, BftrainError, NotAvailable
from bftrain.files import path_in_errors
from bftrain.node_units import NODE
from bftrain.parts import absolute_name, resolve_objective
from bftrain.ports import Objective
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_replay import plugin_files
from bftrain_replay.rounds.round_engine import OVERLOAD, STALLED
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.rounds.simulation import simulate
from bftrain_replay.run.decider_counts import CEILING
from bftrain_replay.run.harvest_by_block import HarvestCurve
from bftrain_replay.run.input_warnings import odd_decisions, odd_inputs
from bftrain_replay.run.provenance import tasks_sha256, versions_with
from bftrain_replay.run.result import MeasuredTimings, ReferenceFigures, ReplaySummary
from bftrain_replay.run.task_figures import TaskFigures
from bftrain_replay.simulation.fixed_cluster import WORDS, EndReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import StudyPasses, check_parts, ideally, without_costs
from bftrain_replay.sweeping.sweep_inputs import (
    LogSource,
    SweepCluster,
    Tasks,
    TaskSource,
    forget_inputs,
    input_key,
    loaded,
)
from bftrain_replay.sweeping.sweep_spec import SweepPoint, SweepSpec

_ID_DIGITS = 16
_NO_COSTS = {"grow_cost_s": None, "shrink_cost_s": None, "start_cost_s": None, "cost_factor": 1.0}


class PassKind(StrEnum):
    """The kind of a pass."""

    REPLAY = "replay"
    YARDSTICKS = "yardsticks"  # the ceiling and the dedicated pool
    ROUNDS = "rounds"  # time shared in rounds


class MadeFrom(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs that identify a pass; files by the SHA-256 of their content."""

    kind: PassKind
    log: str
    tasks: str
    objective_file: str  # SHA-256 of all plug-in files: objectives, admissions, metrics and policies; "" without any
    settings: dict[str, object]  # tables by their SHA-256
    versions: dict[str, str]

    @property
    def id(self) -> str:
        """A hash of these inputs."""
        return hashlib.sha256(wire.encode(self)).hexdigest()[:_ID_DIGITS]


class PassInputs(msgspec.Struct, frozen=True):
    """The log and the tasks of a pass, with the SHA-256 of their contents."""

    log: LogSource
    log_sha256: str
    log_origin: str  # SHA-256 of the log's provenance, including its doubtful parts
    tasks: TaskSource
    tasks_sha256: str

    def make_pass(
        self,
        kind: PassKind,
        settings: ReplaySettings | RoundSettings,
        words: str,
        *,
        folder: Path | None = None,
        tasks_sha256: str = "",
        edges_s: tuple[float, ...] = (),
    ) -> SweepPass:
        """Return the pass with these inputs; plug-in files and tables in the settings are relative to ``folder``.

        ``tasks_sha256`` is the hash of the part of the tasks that matters (default: all).
        """
        anywhere = plugin_files.from_anywhere(settings, folder)
        made_from = MadeFrom(
            kind=kind,
            log=self.log_sha256,
            tasks=tasks_sha256 or self.tasks_sha256,
            objective_file=plugin_files.sha256(anywhere),
            settings={**wire.plain(settings), **plugin_files.tables_sha256(anywhere)},
            versions=versions_here(solver_of(settings)),
        )
        own = msgspec.structs.asdict(self)
        return SweepPass(id=made_from.id, words=words, how=anywhere, edges_s=edges_s, made_from=made_from, **own)


class SweepPass(PassInputs, frozen=True, kw_only=True):
    """One pass, as sent to a worker. ``words`` describe the first point that needs it."""

    id: str
    words: str
    how: ReplaySettings | RoundSettings  # settings with absolute paths of plug-in files and tables
    edges_s: tuple[float, ...] = ()  # harvest intervals, in seconds since the start of the replayed part
    made_from: MadeFrom

    @property
    def seed(self) -> int:
        """The seed of random inputs."""
        return self.how.seed


class PointNeeds(NamedTuple):
    """The ids of the passes of a point; "" for passes that it does not need."""

    replay: str
    baseline: str
    yardsticks: str

    @property
    def all(self) -> tuple[str, ...]:
        """The ids that are not empty."""
        return tuple(filter(None, self))

    @property
    def id(self) -> str:
        """A hash of the ids."""
        return hashlib.sha256(" ".join(self).encode()).hexdigest()[:_ID_DIGITS]


class SweepPlan(NamedTuple):
    """The plan of a sweep: the needs of each point, and the passes by their ids."""

    needs: tuple[PointNeeds, ...]
    passes: dict[str, SweepPass]


def planned(spec: SweepSpec, points: Sequence[SweepPoint]) -> SweepPlan:
    """Plan the passes: load or generate every input once, and hash its content."""
    planner = _Planner(spec)
    forget_inputs()
    needs = tuple(map(planner.needs, points))
    forget_inputs()
    # Passes with the same inputs are consecutive, because workers keep few inputs in memory
    inputs = {key: number for number, key in enumerate(dict.fromkeys(map(_inputs_of, planner.passes.values())))}
    ordered = sorted(planner.passes.values(), key=lambda job: inputs[_inputs_of(job)])
    return SweepPlan(needs, {job.id: job for job in ordered})


def _inputs_of(job: SweepPass) -> tuple[str, str]:
    return job.log_sha256, job.tasks_sha256


class _Contents(NamedTuple):
    """The number of tasks in a set, and their hashes with and without costs."""

    tasks: int
    sha256: str
    free_sha256: str


class _Planner:
    """Collects the passes of all points, and hashes each input once."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._logs: dict[Hashable, tuple[str, str]] = {}  # hashes of content and provenance
        self._tasks: dict[Hashable, _Contents] = {}
        self._objectives: dict[str, Objective] = {}
        self.passes: dict[str, SweepPass] = {}

    def needs(self, point: SweepPoint) -> PointNeeds:
        """Return the ids of a point's passes, which are added to ``passes``."""
        settings = point.settings
        if isinstance(settings, RoundSettings):
            contents = self._contents(point.tasks_of(self._spec), settings.seed, point)
            try:
                settings.check_measured(contents.tasks)
            except BadValue as error:
                raise self._spec.wrong(error.what, "measure", error.fix) from error
            return PointNeeds(self._need(PassKind.ROUNDS, point, settings), "", "")
        replay = self._need(PassKind.REPLAY, point, settings)
        baseline = yardsticks = ""
        if point.baseline:
            baseline = self._need(PassKind.REPLAY, point, replace(settings, solver=point.baseline))
        if self._spec.yardsticks and not point.cluster:
            name = settings.objective
            if name not in self._objectives:  # resolving a file runs it
                self._objectives[name] = throughput  # a missing objective is reported by the replay itself
                with suppress(BftrainError):
                    self._objectives[name] = resolve_objective(absolute_name(name, self._spec.document.folder))
            ideal = ideally(settings, self._objectives[name])
            yardsticks = self._need(PassKind.YARDSTICKS, point, replace(ideal, **_NO_COSTS))
        return PointNeeds(replay, baseline, yardsticks)

    def _need(self, kind: PassKind, point: SweepPoint, settings: ReplaySettings | RoundSettings) -> str:
        log, tasks = point.nodes_of(self._spec), point.tasks_of(self._spec)
        seed = settings.seed
        key = input_key(log, seed)
        if key not in self._logs:
            with self._named("log", "logs", point.log):
                content: EventLog = loaded(log, seed)
                self._logs[key] = content.sha256, origin_sha256(content)
        contents = self._contents(tasks, seed, point)
        inputs = PassInputs(log, *self._logs[key], tasks, contents.sha256)
        counted = contents.free_sha256 if kind is PassKind.YARDSTICKS else ""
        found = inputs.make_pass(kind, settings, point.words, folder=self._spec.document.folder, tasks_sha256=counted)
        return self.passes.setdefault(found.id, found).id

    def _contents(self, source: TaskSource, seed: int, point: SweepPoint) -> _Contents:
        key = input_key(source, seed)
        if key not in self._tasks:
            with self._named("tasks", "task_sets", point.tasks):
                tasks: Tasks = loaded(source, seed)
            self._tasks[key] = _Contents(len(tasks), tasks_sha256(tasks), tasks_sha256(without_costs(tasks)))
        return self._tasks[key]

    @contextmanager
    def _named(self, option: str, sets: str, name: str) -> Iterator[None]:
        """Add the key in the sweep file to an error about an input that cannot be generated."""
        try:
            yield
        except BadValue as error:
            document = self._spec.document
            place = (sets, name) if name in document.data.get(sets, {}) else self._spec.place_of(option)
            field = (error.where or "").rpartition(".")[2]
            raise document.wrong(f"{field} {error.what}", *place, fix=error.fix) from error


def origin_sha256(log: EventLog) -> str:
    """Return the SHA-256 of a log's provenance."""
    return hashlib.sha256(wire.encode(log.provenance)).hexdigest()


def solver_of(settings: ReplaySettings | RoundSettings) -> str:
    """Return the solver's name; rounds have none."""
    return "" if isinstance(settings, RoundSettings) else settings.solver


@cache
def versions_here(solver: str) -> dict[str, str]:
    """Return the versions that figures depend on; a solver that is not installed has the version ""."""
    if not solver:
        return summaries.versions()
    try:
        return versions_with(solver)
    except BftrainError:
        return {**summaries.versions(), f"solver {solver}": ""}


FORMAT: Final = "bftrain sweep 1"
POINTS: Final = "points.jsonl"
_BEGIN_AGAIN: Final = "move the file away to start over"


class PassStatus(StrEnum):
    """The status of a finished pass."""

    DONE = "done"
    FAILED = "failed"


class InRounds(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a run in rounds, figures of its measured tasks, and measured times."""

    figures: RoundSummary
    tasks: TaskFigures
    wall_s: float
    shares_wall_s: float


class PassOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a pass: the figures of a replay, of rounds or of references, or the ``reason`` of a failure.

    ``ended`` is the stop reason of a replay on a cluster.
    """

    id: str
    status: PassStatus
    reason: str = ""
    figures: ReplaySummary | None = None
    timings: MeasuredTimings | None = None
    ended: str = ""
    rounds: InRounds | None = None
    yardsticks: ReferenceFigures | None = None
    warnings: tuple[str, ...] = ()
    doubtful_share: float | None = None  # fraction of the log's idle node-time
    log_source: str = ""  # "records", "counts" or "simulated"
    unit: str = NODE  # counted resource
    harvest_node_h: tuple[float, ...] = ()  # harvest between the edges of the pass
    wall_s: float
    made_from: MadeFrom


class _Heading(msgspec.Struct, frozen=True, kw_only=True):
    format: str


class OutcomeFile:
    """The outcomes in the file ``points.jsonl`` of a folder, which :class:`ResultFolder` locks.

    Use it in a ``with`` block. An error before the first outcome leaves no file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / POINTS
        self._file: IO[bytes] | None = None
        self.known: dict[str, PassOutcome] = {}

    def __enter__(self) -> Self:
        file = self._file = self._path.open("a+b")
        try:
            file.seek(0)
            self.known, whole = _read_outcomes(file, self._path)
            file.truncate(whole)
            if whole == 0:
                self._append(wire.encode(_Heading(format=FORMAT)))
        except BaseException:
            file.close()
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if error is not None and not self.known:
            self._path.unlink(missing_ok=True)

    def add(self, outcome: PassOutcome) -> None:
        """Add the outcome of a pass, and append it to the file."""
        self.known[outcome.id] = outcome
        self._append(wire.encode(outcome))

    def _append(self, line: bytes) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker: only used inside the block
        with path_in_errors(self._path):
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def known_in(folder: Path) -> dict[str, PassOutcome]:
    """Return the outcomes in a folder; works while a sweep runs in it."""
    path = folder / POINTS
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return _read_outcomes(file, path)[0]


def _read_outcomes(lines: Iterable[bytes], path: Path) -> tuple[dict[str, PassOutcome], int]:
    """Return the outcomes in complete lines, and their length in bytes; the last line may be cut off."""
    known: dict[str, PassOutcome] = {}
    whole = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        where = f"{path}:{number}"
        if number == 1:
            found = wire.decode(line, _Heading, where=where, fix=_BEGIN_AGAIN).format
            if found != FORMAT:
                raise BadInput(f"is of the format {found!r}, not '{FORMAT}'", where=where, fix=_BEGIN_AGAIN)
        else:
            outcome = wire.decode(line, PassOutcome, where=where, fix=_BEGIN_AGAIN)
            known[outcome.id] = outcome
        whole += len(line)
    return known, whole


# Called with the finished fraction of a pass; False stops it
PassWatch = Callable[[float], bool]

_CEILING_SHARE: Final = 0.9  # the ceiling's fraction of the time for both references: the dedicated pool has few events
_CUT_SHORT: Final = {
    OVERLOAD: "the queue grows without bound: waiting work exceeds --set max-backlog while tasks arrive",
    EndReason.STANDSTILL: WORDS[EndReason.STANDSTILL],
    STALLED: "tasks wait, none runs, and no event can change that",
}
_NOT_DONE: Final = (
    "some tasks did not finish: completion times, slowdown and rho cover only the other tasks, and may be low"
)


# Called with the finished fraction of each running pass, by its ID
Tell = Callable[[Mapping[str, float]], None]
Stopping = Callable[[], bool]


class PassExecutor(Protocol):
    """Runs passes: in local processes, on a Dask cluster, or from a cache."""

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes, ``tell`` the progress, and yield each outcome when ready.

        Once ``stopping()``, stop the running passes and return. If a local worker dies, its pass fails.
        """


class PassStopped(Exception):
    """The pass is no longer wanted."""


def work(job: SweepPass, watch: PassWatch, log: EventLog | None = None, tasks: Tasks | None = None) -> PassOutcome:
    """Run a pass with these inputs (default: from its sources); the outcome contains any error but ``PassStopped``."""
    begun = perf_counter()

    def go_on(share: float) -> bool:
        if not watch(min(share, 1.0)):
            raise PassStopped
        return True

    try:
        log = loaded(job.log, job.seed) if log is None else log
        tasks = loaded(job.tasks, job.seed) if tasks is None else tasks
        return _worked(job, log, tasks, go_on, begun)
    except PassStopped:
        raise
    except BftrainError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a solver or an objective may raise anything
        (place,) = traceback.extract_tb(error.__traceback__)[-1:]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    # Plug-ins and tables are named as in the sweep file: the error text is then the same on every machine
    own = "policy" if isinstance(job.how, RoundSettings) else "objective"
    reason = reason.replace(getattr(job.how, own), str(job.made_from.settings[own]))
    for _, path in plugin_files.tables(job.how):
        reason = reason.replace(str(path), path.name)
    return failed(job, reason, perf_counter() - begun)


def failed(job: SweepPass, reason: str, wall_s: float = 0.0) -> PassOutcome:
    """Return the outcome of a pass that failed."""
    return PassOutcome(id=job.id, status=PassStatus.FAILED, reason=reason, wall_s=wall_s, made_from=job.made_from)


def _done(job: SweepPass, wall_s: float, warnings: tuple[str, ...], **found: Any) -> PassOutcome:  # noqa: ANN401 - its fields
    return PassOutcome(
        id=job.id, status=PassStatus.DONE, warnings=warnings, wall_s=wall_s, made_from=job.made_from, **found
    )


def _worked(job: SweepPass, log: EventLog, tasks: Tasks, go_on: PassWatch, begun: float) -> PassOutcome:
    _check_same(job, log, tasks)
    settings, cluster = job.how, job.log.cluster if isinstance(job.log, SweepCluster) else None
    if isinstance(settings, RoundSettings):
        return _in_rounds(job, settings, log, tasks, go_on)
    if cluster is not None:
        cluster.check(tasks)

    def going(name: str, simulated_s: float, _decisions: int) -> bool:
        share = simulated_s / span_s
        if job.made_from.kind is PassKind.YARDSTICKS:
            share = _CEILING_SHARE * share if name == CEILING else _CEILING_SHARE + (1.0 - _CEILING_SHARE) * share
        return go_on(share)

    passes = StudyPasses(log, tasks, check_parts(settings), going, fixed=cluster is not None)
    span_s = (passes.part.span_s or 1.0) if cluster is None else _expected_s(tasks, cluster.until_s)
    if cluster is not None:
        return _replayed(job, passes, settings, cluster.log, begun)
    if job.made_from.kind is PassKind.YARDSTICKS:
        ceiling, dedicated = passes.ceiling(), passes.dedicated()
        odd = tuple(odd_decisions({passes.ceiling_words: ceiling}))
        return _done(job, perf_counter() - begun, odd, yardsticks=passes.yardsticks(ceiling, dedicated))
    doubts = doubts_of(passes.part)
    found = _replayed(job, passes, settings, lambda _: passes.part, begun)
    warnings = (*found.warnings, *doubts.caveats)
    return replace(found, doubtful_share=doubts.share, log_source=doubts.source, unit=doubts.unit, warnings=warnings)


def _replayed(
    job: SweepPass, passes: StudyPasses, settings: ReplaySettings, part: Callable[[float], EventLog], begun: float
) -> PassOutcome:
    """Run the main replay; ``part`` returns the replayed log, from the simulated time on a cluster."""
    result = passes.replay()
    assert result is not None  # noqa: S101 - for the type checker: a stopped pass raises PassStopped
    for error in result.own_metrics.broken:  # fails the pass: --retry-failed measures it again
        raise error
    ended = "" if result.ended is None else str(result.ended)
    figures = result.summary()
    left = figures.tasks - figures.tasks_finished if ended else 0  # unfinished tasks are normal on a log
    odd = odd_inputs(part(result.simulated_s), passes.tasks, settings.racks)
    of_decisions = odd_decisions({settings.solver: result})
    warnings = (*odd, *of_decisions, *_partial(ended, left), *_at_point(job, result.own_metrics.notes))
    harvest = HarvestCurve(result).harvest_node_h(np.array(job.edges_s)).tolist() if job.edges_s else ()
    found = {"figures": figures, "timings": result.timings(), "ended": ended, "harvest_node_h": tuple(harvest)}
    return _done(job, perf_counter() - begun, warnings, **found)


def _in_rounds(job: SweepPass, settings: RoundSettings, log: EventLog, tasks: Tasks, go_on: PassWatch) -> PassOutcome:
    cluster = job.log.cluster.nodes if isinstance(job.log, SweepCluster) else None
    span_s = settings.until_s or (log.span_s or 1.0 if cluster is None else _expected_s(tasks, None))
    source = log if cluster is None else cluster
    done = simulate(source, tasks, settings, watch=lambda simulated_s, _: go_on(simulated_s / span_s))
    for error in done.own_metrics.broken:
        raise error
    left = done.summary.measured - done.summary.measured_finished
    warnings = (*done.remarks, *_partial(done.ended, left), *_at_point(job, done.own_metrics.notes))
    rounds = InRounds(
        figures=done.summary, tasks=done.task_figures, wall_s=done.wall_s, shares_wall_s=done.shares_wall_s
    )
    return _done(job, done.wall_s, warnings, rounds=rounds)


def _at_point(job: SweepPass, notes: Iterable[str]) -> Iterator[str]:
    """Add the point to notes on the numbers of its metrics."""
    return (f"{note} (at {job.words})" for note in notes)


def _expected_s(tasks: Sequence[TaskSpec], until_s: float | None) -> float:
    """Return the expected simulated time on a cluster: ``until_s``, or until the last arrival."""
    return until_s or max((task.submit_s for task in tasks), default=0.0) or 1.0


def _partial(ended: str, left: int) -> tuple[str, ...]:
    """Return a remark on partial figures, if the run stopped early or with ``left`` tasks unfinished."""
    if ended in _CUT_SHORT:
        return (f"ended early: {_CUT_SHORT[ended]}",)
    return (_NOT_DONE,) if left else ()


def _check_same(job: SweepPass, log: EventLog, tasks: Tasks) -> None:
    """Raise if an input, a file in the settings or a version differs from the planned one."""
    made_from = job.made_from
    if log.sha256 != job.log_sha256:
        raise BadInput("has changed since the sweep started", where=f"log of {job.words}")
    if tasks_sha256(tasks) != job.tasks_sha256:
        raise BadInput("have changed since the sweep started", where=f"tasks of {job.words}")
    _check_files(job)
    solver = solver_of(job.how)
    if solver:
        find_solver(solver)  # an unknown solver has no version to compare below: raise here
    here = versions_with(solver) if solver else versions_here(solver)
    for name, version in made_from.versions.items():
        if version and here[name] != version:
            raise NotAvailable(
                f"this worker has {name} {here[name]}, but the sweep started with {version}",
                fix="install the same versions everywhere: figures may depend on them",
            )


def _check_files(job: SweepPass) -> None:
    made_from = job.made_from
    if made_from.objective_file:
        files = list(plugin_files.files(job.how))
        for file in files:
            if not file.is_file():
                fix = "put it where every worker sees it under the same name"
                raise NotAvailable("is not on this machine", where=str(file), fix=fix)
        if plugin_files.sha256(job.how) != made_from.objective_file:
            raise BadInput("has changed since the sweep started", where=", ".join(map(str, files)))
    for name, sha256 in plugin_files.tables_sha256(job.how).items():
        if sha256 != made_from.settings[name]:
            raise BadInput("has changed since the sweep started", where=getattr(job.how, name))
