"""Study: one log and one set of tasks, replayed with its yardsticks and, if wanted, a simple baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec.structs import replace as changed

from bftrain import text_formats
from bftrain.assembly import build_harvester, find_solver
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.node_stay import fixed_horizon_s
from bftrain.errors import BadInput, BrokenPlugin, Fault, UsageError
from bftrain.parts.metrics import measured_if_possible, metrics_of, notes_on_broken
from bftrain.parts.objectives import resolve_objective
from bftrain.ports import Objective
from bftrain.short_repr import ShortRepr
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.alternatives.advice import AdviceRow
from bftrain_replay.alternatives.sensitivity import SensitivityRow
from bftrain_replay.reference.ceiling_and_dedicated import dedicated_log, dedicated_nodes, ideally, without_costs
from bftrain_replay.reference.fluid_shares import FluidShares
from bftrain_replay.reference.ideal_cluster import IdealCluster, ideal
from bftrain_replay.reference.overload_detector import NoDetector, QueueDetector
from bftrain_replay.results import interruption_note
from bftrain_replay.results.decider_counts import CEILING
from bftrain_replay.results.evaluation import result_of
from bftrain_replay.results.headline import HarvestHeadline, headline_of
from bftrain_replay.results.input_warnings import odd_decisions, odd_inputs, odd_settings
from bftrain_replay.results.result import ReferenceFigures, ReplayResult
from bftrain_replay.resume.solver_cache import AnswerFile
from bftrain_replay.simulation import progress_assumptions
from bftrain_replay.simulation.decision_delay import DecisionDelay
from bftrain_replay.simulation.engine import QueueWatcher, run
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster, never_held
from bftrain_replay.simulation.log_selection import LogSelection, select
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.rules import as_replayed, semantics_of

# Receives the present replay, its simulated seconds and its decisions; returns whether to go on
Watch = Callable[[str, float, int], bool]

IDEAL = "ideal"
DEDICATED = "dedicated pool"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplayStudy(ShortRepr):
    """The replay asked for, and what it is compared with: ``None`` where that was not asked for or not reached.

    ``log`` is the one that was given, ``part`` the window and nodes of it that were replayed.
    """

    log: EventLog
    part: EventLog
    tasks: tuple[TaskSpec, ...]
    result: ReplayResult
    baseline: ReplayResult | None = None
    ceiling: ReplayResult | None = None
    complete: bool = True
    fixed: FixedClusterFigures | None = None
    sensitivity: tuple[SensitivityRow, ...] | None = None  # what the usual alternatives come to, if that was asked for
    advice: tuple[AdviceRow, ...] | None = None  # changes of settings that were tried, if any were

    @property
    def headline(self) -> HarvestHeadline | None:
        """What came of the nodes that were idle; ``None`` on clusters, whose nodes are no find."""
        if self.fixed is not None:
            return None
        assumed = progress_assumptions.in_short(ReplaySettings.progress_in(self.result.settings))
        found = headline_of(self.result.summary(), doubts_of(self.part), assumed)
        how_far = interruption_note.note(self.result.simulated_s, self.part.span_s, complete=self.complete)
        return changed(found, sentence=f"{how_far}{found.sentence}")

    @property
    def broken_metrics(self) -> tuple[BrokenPlugin, ...]:
        """What was wrong with metrics that were asked for and gave no numbers."""
        return tuple(_broken_metrics(self.result, self.baseline))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        title, figures = self.result.shown()
        others = {"baseline": self.baseline, "without costs": self.ceiling}
        return title, {
            **figures,
            **{
                f"{name} harvested": text_formats.large(each.harvested_samples) for name, each in others.items() if each
            },
            **({"warnings": f"{len(self.result.warnings):,}"} if self.result.warnings else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedClusterFigures:
    """Figures of a cluster whose nodes never leave: its nodes, and why each replay on it ended, by solver.

    ``ideal`` is there if it was asked for.
    """

    cluster: FixedCluster
    ended: Mapping[str, EndReason]
    ideal: IdealCluster | None = None


def study(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    *,
    baseline: str = "",
    objective: Objective | None = None,
    watch: Watch | None = None,
    answers: AnswerFile | None = None,
    warn: Callable[[str], None] | None = None,
) -> ReplayStudy:
    """Replay ``log`` against ``tasks`` with ``settings``, with the ceiling and the dedicated pool as yardsticks.

    ``baseline`` names a second solver to replay with; ``objective`` replaces the one the settings name. Once
    ``watch`` says no, the replay in hand ends where it is and the others are left out; ``answers`` let it go on later.
    ``warn`` receives warnings about the inputs before the replay; the results hold them too.
    """
    settings = ReplaySettings.of(settings)
    passes = StudyPasses(log, tasks, settings, check_parts(settings, baseline, objective), watch, answers)
    check_kinds(log, tasks)
    if warn is not None:
        for text in odd_inputs(passes.part, passes.tasks):
            warn(text)
    main = passes.replay(AllocationRecorder(passes.part.node_names))
    if main is None:
        raise Fault("the first replay did not begin", where="study")
    return _with_yardsticks(passes, main, baseline)


def cluster_study(
    cluster: FixedCluster,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    *,
    baseline: str = "",
    objective: Objective | None = None,
    watch: Watch | None = None,
    answers: AnswerFile | None = None,
    ideally: bool = False,
) -> ReplayStudy:
    """Replay ``tasks`` on nodes that never leave, until all are done.

    There a harvest has no yardsticks; with ``ideally`` the ideal is what it is held against. The log of the study ends
    when the replay that was asked for ends.
    """
    settings = ReplaySettings.of(settings)
    check_cluster(settings)
    cluster.check(tasks)
    # With an end that was asked for, the run is shown until then
    gauges = NoDetector if cluster.until_s is not None else partial(QueueDetector, cluster.nodes, tasks)
    objective = check_parts(settings, baseline, objective)
    fluid = FluidShares(tasks, cluster.nodes, objective, fixed_horizon_s(settings.horizon_s)) if ideally else None
    passes = StudyPasses(cluster.log(), tasks, settings, objective, watch, answers, gauges=gauges)
    main = passes.replay(AllocationRecorder(passes.part.node_names))
    if main is None:
        raise Fault("a replay that was not begun was stopped")
    simple = passes.replay(solver=baseline) if baseline else None
    found = passes.ideal(fluid, cluster.nodes) if fluid is not None else None
    log = cluster.log(main.simulated_s)
    made = {main.settings.solver: main, baseline: simple}
    odd = (*odd_inputs(log, tasks), *odd_settings(settings, tasks, log.kind_names), *odd_decisions(made))
    warnings = (*odd, *notes_on_broken(_broken_metrics(main, simple)))
    results = [replace(each, warnings=warnings) for each in (main, simple) if each is not None]
    ended = {each.settings.solver: each.ended for each in results if each.ended is not None}
    return ReplayStudy(
        log=log,
        part=log,
        tasks=passes.tasks,
        result=results[0],
        baseline=results[1] if simple and simple.complete else None,
        complete=passes.going,
        fixed=FixedClusterFigures(cluster=cluster, ended=ended, ideal=found),
    )


def check_kinds(log: EventLog, tasks: Sequence[TaskSpec]) -> None:
    """Refuse tasks that no kind of node can ever hold, however many of its nodes were idle at once."""
    unfit = never_held(tasks, Counter(log.kind_of.values())) if log.kind_names else ""
    if unfit:
        fix = "leave them out, or give them a curve for a kind that the log has"
        raise BadInput(f"no kind of node in the log can ever hold {unfit}", where="tasks", fix=fix)


def check_cluster(settings: ReplaySettings) -> None:
    """Refuse what has no meaning where nodes never leave."""
    usual = ReplaySettings()
    for name in ("semantics", "events", "window", "nodes", "skip_events"):
        if getattr(settings, name) != getattr(usual, name):
            raise UsageError("is for logs: on a cluster nodes never leave", where=name, fix="leave it out")


def study_of(
    main: ReplayResult,
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: ReplaySettings,
    *,
    baseline: str = "",
    watch: Watch | None = None,
) -> ReplayStudy:
    """Hold against its yardsticks what came of ``log`` and ``tasks`` in some other way than by a replay."""
    passes = StudyPasses(log, tasks, settings, check_parts(settings, baseline), watch)
    passes.going = main.complete
    return _with_yardsticks(passes, main, baseline)


def _with_yardsticks(passes: StudyPasses, main: ReplayResult, baseline: str) -> ReplayStudy:
    simple = passes.replay(solver=baseline) if baseline else None
    ceiling = passes.ceiling()
    dedicated = passes.dedicated()
    made = {main.settings.solver: main, baseline: simple, passes.ceiling_words: ceiling}
    odd_choices = odd_settings(main.settings, passes.tasks, passes.part.kind_names)
    odd = (*odd_inputs(passes.part, passes.tasks), *odd_choices, *odd_decisions(made))
    warnings = (*odd, *notes_on_broken(_broken_metrics(main, simple)))
    yardsticks = passes.yardsticks(ceiling, dedicated)

    def held_against(result: ReplayResult) -> ReplayResult:
        return replace(result, yardsticks=yardsticks, warnings=warnings)

    return ReplayStudy(
        log=passes.log,
        part=passes.part,
        tasks=passes.tasks,
        result=held_against(main),
        # The figures of a part of the log compare with nothing
        baseline=held_against(simple) if simple and simple.complete else None,
        ceiling=held_against(ceiling) if ceiling and ceiling.complete else None,
        complete=passes.going,
    )


def _broken_metrics(*results: ReplayResult | None) -> Iterator[BrokenPlugin]:
    for each in results:
        yield from each.broken_metrics if each is not None else ()


def check_parts(settings: Settings, baseline: str = "", objective: Objective | None = None) -> Objective:
    """Find every part that a study needs before any work is done; gives the objective."""
    if baseline == settings.solver:
        raise UsageError(f"the baseline '{baseline}' is the solver itself", fix="name another solver")
    objective = objective or resolve_objective(settings.objective)
    if isinstance(settings, ReplaySettings):
        metrics_of(settings.metrics)
    for solver in filter(None, (settings.solver, baseline)):
        build_harvester(changed(settings, solver=solver), objective=objective)
    return objective


class StudyPasses:
    """The replays that a study is made of: any of them, one after the other, until stopped."""

    def __init__(
        self,
        log: EventLog,
        tasks: Sequence[TaskSpec],
        settings: ReplaySettings,
        objective: Objective,
        watch: Watch | None = None,
        answers: AnswerFile | None = None,
        *,
        gauges: Callable[[], QueueWatcher] | None = None,
    ) -> None:
        self.log = log
        self._gauges = gauges
        self.tasks = tuple(tasks)
        self._chosen = select(log, settings)
        self._paying, self._free = as_replayed(tasks, settings), without_costs(tasks)
        self._settings, self._ideal = settings, ideally(settings, objective)
        self._objective = objective
        self._watch = watch
        self._answers = answers
        self.going = True

    @property
    def part(self) -> EventLog:
        """The window and nodes of the log that are replayed."""
        return self._chosen.log

    @property
    def ceiling_words(self) -> str:
        """Say who decides in the ceiling."""
        return f"{self._ideal.solver} {CEILING}"

    def replay(self, allocations: AllocationRecorder | None = None, *, solver: str = "") -> ReplayResult | None:
        """Replay as asked for, or with another solver; ``None`` if stopped before."""
        settings = changed(self._settings, solver=solver) if solver else self._settings
        return self._pass(settings.solver, self._chosen, self._paying, settings, allocations)

    def ideal(self, fluid: FluidShares, nodes: Mapping[str, int]) -> IdealCluster | None:
        """Find the ideal of a cluster; ``None`` if stopped."""

        def keep_going(simulated_s: float, chosen: int) -> bool:
            self.going = self._watch is None or self._watch(IDEAL, simulated_s, chosen)
            return self.going

        return ideal(self.tasks, nodes, fluid, keep_going) if self.going else None

    def ceiling(self) -> ReplayResult | None:
        """Replay without costs."""
        return self._pass(CEILING, self._chosen, self._free, self._ideal)

    def dedicated(self) -> ReplayResult | None:
        """Replay in the dedicated pool, if that has any node."""
        pool = dedicated_log(self.part)
        if pool is None:
            return None
        # Rules that see completions at events only see them at the same times in the dedicated pool
        return self._pass(DEDICATED, replace(self._chosen, log=pool), self._free, self._ideal)

    def yardsticks(self, ceiling: ReplayResult | None, dedicated: ReplayResult | None) -> ReferenceFigures | None:
        """Give what a harvest is held against, unless these were not completed."""
        if ceiling is None or not self.going:
            return None
        return ReferenceFigures(
            dedicated_nodes=dedicated_nodes(self.part),
            dedicated_samples=dedicated.harvested_samples if dedicated else 0.0,
            ceiling_samples=ceiling.harvested_samples,
        )

    def _pass(
        self,
        name: str,
        chosen: LogSelection,
        tasks: Sequence[TaskSpec],
        settings: ReplaySettings,
        allocations: AllocationRecorder | None = None,
    ) -> ReplayResult | None:
        if not self.going:
            return None

        def keep_going(simulated_s: float, decisions: int) -> bool:
            if self._answers is not None:
                self._answers.check()
            self.going = self._watch is None or self._watch(name, simulated_s, decisions)
            return self.going

        harvester = self._harvester(name, settings)
        semantics, pace = semantics_of(settings, chosen.event_times_s), DecisionDelay.of(settings)
        done = run(
            chosen.log,
            tasks,
            harvester,
            semantics=semantics,
            pace=pace,
            keep_going=keep_going,
            allocations=allocations,
            fixed=self._gauges() if self._gauges is not None else None,
        )
        result = result_of(done, settings)
        if settings.metrics:
            found = measured_if_possible(metrics_of(settings.metrics), result)
            result = replace(result, metrics=found.numbers, broken_metrics=found.broken)
        if self._answers is None:
            return result
        self._answers.check()
        return replace(result, wall_s=result.wall_s + self._answers.repeated_s)

    def _harvester(self, name: str, settings: ReplaySettings) -> Harvester:
        """Build the decision core; its solvers answer as they did before an interruption."""
        answers = self._answers
        if answers is None:
            return build_harvester(settings, objective=self._objective)
        answers.begin(name)
        return build_harvester(
            settings,
            solver=answers.through(find_solver(settings.solver)),
            fallback=answers.through(find_solver(settings.fallback)) if settings.fallback else None,
            objective=self._objective,
        )
