"""Study: one log and one set of tasks, replayed with its references and, if wanted, a baseline.

The references are the same log without costs (the ceiling), and the same node-time as a dedicated pool.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from bftrain.assembly import build_harvester
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, BrokenPlugin, Fault, UsageError
from bftrain.node_units import words_of
from bftrain.parts import measured_if_possible, metrics_of, resolve_objective
from bftrain.ports import Objective
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import IdleDoubts, doubts_of
from bftrain_datasets.log.measures import idle_node_s_by_kind
from bftrain_datasets.log.provenance import LogProvenance
from bftrain_replay.run import headline
from bftrain_replay.run.decider_counts import CEILING
from bftrain_replay.run.headline import HarvestHeadline, headline_of
from bftrain_replay.run.input_warnings import odd_decisions, odd_inputs, odd_settings
from bftrain_replay.run.result import ReferenceFigures, ReplayResult, result_of
from bftrain_replay.run.variations import AdviceRow, SensitivityRow, gaining
from bftrain_replay.simulation import progress_kept
from bftrain_replay.simulation.engine import KeepGoing, run
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster, idle_log, never_held
from bftrain_replay.simulation.progress_kept import TASK
from bftrain_replay.simulation.replay_settings import NO, PUBLISHED, ReplaySettings
from bftrain_replay.simulation.rules import DecisionDelay, as_replayed, placed_in, rules_of
from bftrain_replay.simulation.run_records import AllocationRecorder
from bftrain_replay.simulation.timeline import LogSelection, saturating_workload, select
from bftrain_replay.study.forked_pass import ParallelPasses, may_fork, usable_cpus
from bftrain_replay.study.harvest_bound import enough_tasks, harvest_bound

EXACT: Final = "exact"  # exact solver without dependencies on other packages


def without_costs(tasks: Iterable[TaskSpec]) -> tuple[TaskSpec, ...]:
    """Return the same tasks with free rescaling, starts and preemptions."""
    return tuple(replace(spec, grow_cost_s=0.0, shrink_cost_s=0.0, start_cost_s=0.0) for spec in tasks)


def ideally(settings: ReplaySettings, objective: Objective) -> ReplaySettings:
    """Return the same settings with instant and optimal decisions and without losses.

    Replays with different solvers therefore share the same references. Only a coupled objective keeps its solver,
    because that solver supports it. With free rescaling, the horizon only scales the values of an objective that
    sees one task at a time, and changes no decision: replays with different horizons then also share their references.
    """
    solver = settings.solver if hasattr(objective, "couple") else EXACT
    plain = not hasattr(objective, "recast") and not hasattr(objective, "couple")
    return replace(
        settings,
        solver=solver,
        solver_gap=0.0,
        horizon_s=AUTO if plain else settings.horizon_s,
        turn_s=0.0,
        decision_latency_s=0.0,
        min_interval_s=0.0,
        progress=None if settings.semantics == PUBLISHED else TASK,
        speed_error=0.0,
        profiled=0.0,
        learning=NO,
        metrics="",
    )


def dedicated_nodes(log: EventLog) -> int:
    """Return the number of permanent nodes with the log's idle node-time, to the nearest whole node."""
    return round(log.idle_node_s / log.span_s) if log.span_s > 0 else 0


def dedicated_by_kind(log: EventLog) -> dict[str, int]:
    """Divide the dedicated nodes over the kinds by idle node-time, with the largest remainders rounded up."""
    count = dedicated_nodes(log)
    idle_s = idle_node_s_by_kind(log)
    whole_s = math.fsum(idle_s.values())
    parts = {kind: count * seconds / whole_s if whole_s else 0.0 for kind, seconds in idle_s.items()}
    found = {kind: math.floor(part) for kind, part in parts.items()}
    left = count - sum(found.values()) if whole_s else 0
    for kind in sorted(parts, key=lambda kind: found[kind] - parts[kind])[:left]:  # stable: ties go to the first kind
        found[kind] += 1
    return found


def dedicated_log(log: EventLog) -> EventLog | None:
    """Return a log of the same span with the dedicated nodes always idle, or ``None`` without such nodes."""
    count = dedicated_nodes(log)
    if count == 0:
        return None
    names = tuple(f"dedicated-{number}" for number in range(count))
    return idle_log(names, dedicated_by_kind(log), log.span_s, LogProvenance(made_by="dedicated pool"))


class ReplayParts(msgspec.Struct, frozen=True):
    """The settings of a study and the parts that they name.

    ``harvesters`` are the solver's and the baseline's, by solver; each serves one replay.
    """

    settings: ReplaySettings
    baseline: str
    objective: Objective
    harvesters: dict[str, Harvester]


def check_parts(settings: Settings, baseline: str = "", objective: Objective | None = None) -> ReplayParts:
    """Find every part that a study needs; raise if one is missing or wrong."""
    if baseline == settings.solver:
        raise UsageError(f"the baseline '{baseline}' is the solver itself", fix="name another solver")
    objective = objective or resolve_objective(settings.objective)
    settings = ReplaySettings.of(settings)
    metrics_of(settings.metrics)
    solvers = filter(None, (settings.solver, baseline))
    built = {each: build_harvester(replace(settings, solver=each), objective=objective) for each in solvers}
    return ReplayParts(settings, baseline, objective, built)


def check_kinds(log: EventLog, tasks: Sequence[TaskSpec]) -> None:
    """Raise for tasks that exceed every node kind even if all its nodes were idle together."""
    unfit = never_held(tasks, Counter(log.kind_of.values())) if log.kind_names else ""
    if unfit:
        fix = "omit them, give them a curve for a kind of the log, or lower min_nodes"
        raise BadInput(f"no kind of node in the log can ever hold {unfit}", where="tasks", fix=fix)


def check_cluster(settings: ReplaySettings) -> None:
    """Raise for settings that have no meaning with permanent nodes."""
    usual = ReplaySettings()
    for name in ("semantics", "events", "window", "nodes", "skip_events"):
        if getattr(settings, name) != getattr(usual, name):
            raise UsageError("is for logs: on a cluster nodes never leave", where=name, fix="omit it")


# Called with the name of a replay, its simulated seconds and its number of decisions; False stops the study
Watch = Callable[[str, float, int], bool]

DEDICATED: Final = "dedicated pool"
MIN_EVENTS_TO_FORK: Final = 1000  # replaying these takes a third of a second, and a fork 20 ms


def with_auto_cap(log: EventLog, settings: ReplaySettings, tasks: Sequence[TaskSpec] | None) -> ReplaySettings:
    """Return the settings with the cap on competing tasks that :func:`enough_tasks` finds.

    Without ``tasks``, the cap is computed for trials that never end.
    """
    part = select(log, settings).log
    if tasks is None:
        most = replace(settings, max_tasks=max(int(part.pool_sizes().max(initial=1)), settings.max_tasks))
        tasks = [replace(spec, work_samples=None) for spec in saturating_workload(log, most).tasks]
    return replace(settings, max_tasks=enough_tasks(part, tasks, settings.max_tasks))


class StudyPasses:
    """The replays of a study, run sequentially or in parallel, until stopped."""

    def __init__(
        self,
        log: EventLog,
        tasks: Sequence[TaskSpec],
        parts: ReplayParts,
        watch: Watch | None = None,
        *,
        fixed: bool = False,
        quick: bool = False,
        bounded: bool = True,
    ) -> None:
        self.log = log
        self._quick, self._bounded = quick, bounded
        self._fixed = fixed
        self.tasks = tuple(tasks)
        self._chosen = select(log, parts.settings)
        located = placed_in(log, tasks, parts.settings.racks)
        self._paying, self._free = as_replayed(located, parts.settings), without_costs(located)
        self._parts, self._settings = parts, parts.settings
        self._ideal = ideally(parts.settings, parts.objective)
        self._watch = watch
        self._parallel = ParallelPasses(self._go_on)
        self.going = True

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Inside the block, run the comparison replays in parallel processes where safe and useful."""
        if len(self.part) >= MIN_EVENTS_TO_FORK and may_fork():
            # One pass more than there are processors, as all take about equally long; the dedicated pool is short
            some: Mapping[int, tuple[str, ...]] = {1: (), 2: (CEILING, self._parts.baseline)}
            for name in filter(None, some.get(usable_cpus(), (CEILING, self._parts.baseline, DEDICATED))):
                self._parallel.start(name, partial(self._in_child, name))
        try:
            yield
        finally:
            self._parallel.stop()

    def _in_child(self, name: str, keep_going: KeepGoing) -> ReplayResult | None:
        self._watch = lambda _name, simulated_s, decisions: keep_going(simulated_s, decisions)
        return self._reference(name)

    def _reference(self, name: str) -> ReplayResult | None:
        return {CEILING: self.ceiling, DEDICATED: self.dedicated}.get(name, self.baseline)()

    def _go_on(self, name: str, simulated_s: float, decisions: int) -> bool:
        """Report progress; return False after the first stopped pass, which stops all later ones."""
        if self.going and self._watch is not None:
            self.going = self._watch(name, simulated_s, decisions)
        return self.going

    @property
    def part(self) -> EventLog:
        """The replayed window and nodes of the log."""
        return self._chosen.log

    @property
    def ceiling_words(self) -> str:
        """The decider in the ceiling, as text."""
        return f"{self._ideal.solver} {CEILING}"

    def main(self) -> ReplayResult:
        """Run the main replay, and record allocations; it must be the first."""
        found = self.replay(AllocationRecorder(self.part.node_names))
        if found is None:
            raise Fault("a replay was stopped before its start", where="study")
        return found

    def references(self) -> tuple[ReplayResult | None, ReplayResult | None, ReplayResult | None]:
        """Replay the baseline, the ceiling and the dedicated pool; ``None`` for passes that were stopped before."""
        baseline = self._parts.baseline
        order = [baseline, CEILING, DEDICATED]
        # The dedicated pool is replayed here while other processes run the remaining passes
        if CEILING in self._parallel:
            order = [DEDICATED, baseline, CEILING]
        found = {name: self._reference(name) for name in order}
        return found[baseline], found[CEILING], found[DEDICATED]

    def replay(self, allocations: AllocationRecorder | None = None, *, solver: str = "") -> ReplayResult | None:
        """Run the main replay, or one with another solver; ``None`` if stopped before."""
        settings = replace(self._settings, solver=solver) if solver else self._settings
        return self._pass(settings.solver, self._chosen, self._paying, settings, allocations)

    def baseline(self) -> ReplayResult | None:
        """Replay with the baseline solver; ``None`` without a baseline or after an earlier stop."""
        name = self._parts.baseline
        return self.replay(solver=name) if name else None

    def ceiling(self) -> ReplayResult | None:
        """Replay without costs."""
        return self._pass(CEILING, self._chosen, self._free, self._ideal)

    def dedicated(self) -> ReplayResult | None:
        """Replay in the dedicated pool, if that has any node."""
        pool = dedicated_log(self.part)
        if pool is None:
            return None
        # The published rules notice completions at the events of the replayed log here, too
        return self._pass(DEDICATED, dataclasses.replace(self._chosen, log=pool), self._free, self._ideal)

    def yardsticks(self, ceiling: ReplayResult | None, dedicated: ReplayResult | None) -> ReferenceFigures | None:
        """Return the references of a harvest; ``None`` if they were not completed."""
        if ceiling is None or not self.going:
            return None
        return ReferenceFigures(
            dedicated_nodes=dedicated_nodes(self.part),
            dedicated_samples=dedicated.harvested_samples if dedicated else 0.0,
            ceiling_samples=ceiling.harvested_samples,
            **self._bound(),
        )

    def _bound(self) -> dict[str, float | None]:
        """Return the proven bound for the tasks that may compete."""
        if not self._bounded:
            return {}
        most = headline.competing(len(self.tasks), self._settings.admission, self._settings.max_tasks)
        found = harvest_bound(self.part, self.tasks, most, mixed=not self._quick)
        return asdict(found) if found is not None else {}

    def _pass(
        self,
        name: str,
        chosen: LogSelection,
        tasks: Sequence[TaskSpec],
        settings: ReplaySettings,
        allocations: AllocationRecorder | None = None,
    ) -> ReplayResult | None:
        """Take the result of another process, or replay here; return ``None`` if stopped before."""
        found = self._parallel.result(name, lambda: self.going)
        if found is not None or not self.going:
            return found

        def keep_going(simulated_s: float, decisions: int) -> bool:
            self._parallel.refresh()
            return self._go_on(name, simulated_s, decisions)

        harvester = self._parts.harvesters.pop(name, None) or build_harvester(settings, objective=self._parts.objective)
        done = run(
            chosen.log,
            tasks,
            harvester,
            rules=rules_of(settings, chosen.event_times_s),
            decision_delay=DecisionDelay.of(settings),
            keep_going=keep_going,
            allocations=allocations,
            fixed=self._fixed,
        )
        if done.complete and self._watch is not None:
            self._watch(name, chosen.log.span_s, len(done.decisions))
        result = result_of(done, settings)
        if settings.metrics:
            result = replace(result, own_metrics=measured_if_possible(metrics_of(settings.metrics), result))
        return result


class ReplayStudy(msgspec.Struct, frozen=True, kw_only=True):
    """The main replay and its comparison runs, ``None`` if not requested or not reached.

    ``log`` is the whole log, ``part`` its replayed window and nodes.
    """

    log: EventLog
    part: EventLog
    tasks: tuple[TaskSpec, ...]
    result: ReplayResult
    baseline: ReplayResult | None = None
    ceiling: ReplayResult | None = None
    complete: bool = True
    fixed: FixedClusterFigures | None = None
    sensitivity: tuple[SensitivityRow, ...] | None = None  # figures of the usual alternatives, if requested
    tried: tuple[AdviceRow, ...] | None = None  # tried changes of settings; ``None`` if skipped

    @property
    def advice(self) -> tuple[AdviceRow, ...] | None:
        """Tried changes of settings that gain, the largest gain first; ``None`` if skipped."""
        return None if self.tried is None else gaining(self.tried)

    @property
    def doubts(self) -> IdleDoubts:
        """The doubtful part of the replayed idle node-time."""
        end_s = self.part.start_s + self.result.simulated_s
        whole = self.complete or end_s >= self.part.end_s
        return doubts_of(self.part if whole else self.part.select(window=(None, end_s)))

    @property
    def headline(self) -> HarvestHeadline | None:
        """The headline on the idle nodes; ``None`` on clusters with permanent nodes."""
        if self.fixed is not None:
            return None
        assumed = progress_kept.in_short(ReplaySettings.progress_in(self.result.settings))
        settings, count = self.result.settings, len(self.tasks)
        capped = headline.competing(count, settings.admission, settings.max_tasks) < count
        found = headline_of(self.result.summary(), self.doubts, assumed, capped=capped)
        how_far = headline.note(self.result.simulated_s, self.part.span_s, complete=self.complete)
        return replace(found, sentence=f"{how_far}{found.sentence}")

    @property
    def broken_metrics(self) -> tuple[BrokenPlugin, ...]:
        """The errors of requested metrics that gave no numbers."""
        return tuple(error for each in (self.result, self.baseline) if each for error in each.own_metrics.broken)


class FixedClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a cluster with permanent nodes: its nodes, and each replay's stop reason by solver."""

    cluster: FixedCluster
    ended: Mapping[str, EndReason]


def study(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    parts: ReplayParts,
    *,
    watch: Watch | None = None,
    warn: Callable[[str], None] = lambda _text: None,
    main_done: Callable[[ReplayStudy], None] = lambda _study: None,
    quick: bool = False,
) -> ReplayStudy:
    """Replay ``log`` against ``tasks`` with these parts, with the ceiling and the dedicated pool as references.

    Once ``watch`` returns false, the current replay stops and the remaining ones are skipped. ``warn`` receives input
    warnings before the replay; the results also contain them. ``main_done`` receives a study of the main replay alone
    if it is complete, while the comparison replays may still run. ``quick`` skips the proven bound of heterogeneous
    tasks. On a machine with several processors the passes of a long log run in parallel, and ``watch`` is called for
    all of them alternately.
    """
    passes = StudyPasses(log, tasks, parts, watch, quick=quick)
    check_kinds(log, tasks)
    for text in odd_inputs(passes.part, passes.tasks, parts.settings.racks):
        warn(text)
    with passes.side_by_side():
        main = passes.main()
        if main.complete:
            main_done(ReplayStudy(log=log, part=passes.part, tasks=passes.tasks, result=main))
        return _with_references(passes, main)


def cluster_study(
    cluster: FixedCluster, tasks: Sequence[TaskSpec], parts: ReplayParts, watch: Watch | None = None
) -> ReplayStudy:
    """Replay ``tasks`` on nodes that never leave, until all are done.

    There are no references: all nodes are dedicated. The study's log stops with the main replay.
    """
    check_cluster(parts.settings)
    cluster.check(tasks)
    passes = StudyPasses(cluster.log(), tasks, parts, watch, fixed=True)
    main = passes.main()
    simple = passes.baseline()
    log = cluster.log(main.simulated_s)
    warnings = _warnings(log, passes.tasks, main, simple, {})
    results = [replace(each, warnings=warnings) for each in (main, simple) if each is not None]
    ended = {each.settings.solver: each.ended for each in results if each.ended is not None}
    return ReplayStudy(
        log=log,
        part=log,
        tasks=passes.tasks,
        result=results[0],
        baseline=results[1] if simple and simple.complete else None,
        complete=passes.going,
        fixed=FixedClusterFigures(cluster=cluster, ended=ended),
    )


def study_of(
    main: ReplayResult, log: EventLog, tasks: Sequence[TaskSpec], parts: ReplayParts, watch: Watch | None = None
) -> ReplayStudy:
    """Build a study from a run of ``log`` and ``tasks`` that was not a replay.

    It has no proven bound: its settings and the sizes of its tasks may have changed during the run.
    """
    passes = StudyPasses(log, tasks, parts, watch, bounded=False)
    passes.going = main.complete
    return _with_references(passes, main)


def _with_references(passes: StudyPasses, main: ReplayResult) -> ReplayStudy:
    """Return the study of a replay, with the baseline and the references."""
    simple, ceiling, dedicated = passes.references()
    warnings = _warnings(passes.part, passes.tasks, main, simple, {passes.ceiling_words: ceiling})
    yardsticks = passes.yardsticks(ceiling, dedicated)
    own, *others = (
        each and replace(each, yardsticks=yardsticks, warnings=warnings) for each in (main, simple, ceiling)
    )
    # Figures of part of the log have no comparison
    simple, free = (each if each and each.complete else None for each in others)
    return ReplayStudy(
        log=passes.log,
        part=passes.part,
        tasks=passes.tasks,
        result=own or main,
        baseline=simple,
        ceiling=free,
        complete=passes.going,
    )


def _warnings(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    main: ReplayResult,
    simple: ReplayResult | None,
    more: Mapping[str, ReplayResult | None],
) -> tuple[str, ...]:
    """Return warnings about the inputs, the settings, the decisions of these replays and their metrics."""
    made = {main.settings.solver: main, **({simple.settings.solver: simple} if simple else {}), **more}
    odd = (
        *odd_inputs(log, tasks, main.settings.racks),
        *odd_settings(main.settings, tasks, log.kind_names),
        *odd_decisions(made),
    )
    of_metrics = dict.fromkeys((*main.own_metrics.notes, *(simple.own_metrics.notes if simple else ())))
    return (*map(words_of(log.unit), odd), *of_metrics)
