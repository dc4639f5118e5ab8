"""Study: one log and one set of tasks, replayed with its yardsticks and, if wanted, a simple baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec.structs import replace as changed

from bftrain import text_formats
from bftrain.assembly import build_harvester, find_solver
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.node_stay import fixed_horizon_s
from bftrain.errors import BrokenPlugin, Fault
from bftrain.node_units import words_of
from bftrain.parts import measured_if_possible, metrics_of, notes_on_broken
from bftrain.ports import Objective
from bftrain.short_repr import ShortRepr
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import IdleDoubts, doubts_of
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.alternatives.advice import AdviceRow
from bftrain_replay.alternatives.sensitivity import SensitivityRow
from bftrain_replay.forked_pass import PassesBeside, RunPass, may_fork, usable_cpus
from bftrain_replay.reference.ceiling_and_dedicated import dedicated_log, dedicated_nodes, ideally, without_costs
from bftrain_replay.reference.fluid_shares import FluidShares
from bftrain_replay.reference.ideal_cluster import IdealCluster, QueueDetector, ideal
from bftrain_replay.results import headline
from bftrain_replay.results.decider_counts import CEILING
from bftrain_replay.results.headline import HarvestHeadline, headline_of
from bftrain_replay.results.input_warnings import odd_decisions, odd_inputs, odd_settings
from bftrain_replay.results.result import ReferenceFigures, ReplayResult, result_of
from bftrain_replay.resume.solver_cache import BESIDE, DEDICATED, AnswerFile
from bftrain_replay.simulation import progress_kept
from bftrain_replay.simulation.engine import KeepGoing, QueueWatcher, run
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.rules import DecisionDelay, as_replayed, semantics_of
from bftrain_replay.simulation.timeline import LogSelection, select
from bftrain_replay.study_checks import ReplayParts, check_cluster, check_kinds, check_parts

# Receives the present replay, its simulated seconds and its decisions; returns whether to go on
Watch = Callable[[str, float, int], bool]

IDEAL: Final = "ideal"
_WORTH_A_FORK: Final = 2000  # moments of a log: a second of work, and to fork takes 20 ms


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
    def doubts(self) -> IdleDoubts:
        """How much of the idle node-time that was replayed is doubtful."""
        end_s = self.part.start_s + self.result.simulated_s
        whole = self.complete or end_s >= self.part.end_s
        return doubts_of(self.part if whole else self.part.select(window=(None, end_s)))

    @property
    def headline(self) -> HarvestHeadline | None:
        """What came of the nodes that were idle; ``None`` on clusters, whose nodes are no find."""
        if self.fixed is not None:
            return None
        assumed = progress_kept.in_short(ReplaySettings.progress_in(self.result.settings))
        found = headline_of(self.result.summary(), self.doubts, assumed)
        how_far = headline.note(self.result.simulated_s, self.part.span_s, complete=self.complete)
        return changed(found, sentence=f"{how_far}{found.sentence}")

    @property
    def broken_metrics(self) -> tuple[BrokenPlugin, ...]:
        """What was wrong with metrics that were asked for and gave no numbers."""
        return tuple(_broken_metrics(self.result, self.baseline))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        title, figures = self.result.shown()
        figures = dict(figures)
        for name, each in {"baseline": self.baseline, "without costs": self.ceiling}.items():
            if each:
                figures[f"{name} harvested"] = text_formats.large(each.harvested_samples)
        if self.result.warnings:
            figures["warnings"] = f"{len(self.result.warnings):,}"
        return title, figures


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
    settings: Settings | ReplayParts,
    *,
    baseline: str = "",
    objective: Objective | None = None,
    watch: Watch | None = None,
    answers: AnswerFile | None = None,
    warn: Callable[[str], None] | None = None,
) -> ReplayStudy:
    """Replay ``log`` against ``tasks`` with ``settings``, with the ceiling and the dedicated pool as yardsticks.

    ``baseline`` names a second solver to replay with; ``objective`` replaces the one the settings name. Parts that were
    checked already stand for all three. Once ``watch`` says no, the replay in hand ends where it is and the others are
    left out; ``answers`` let it go on later. ``warn`` receives warnings about the inputs before the replay; the results
    hold them too. Passes on a long log run side by side in processes of their own where there is more than one
    processor, so that ``watch`` is asked for one and the other in turn.
    """
    parts = settings if isinstance(settings, ReplayParts) else check_parts(settings, baseline, objective)
    passes = StudyPasses(log, tasks, parts, watch, answers)
    check_kinds(log, tasks)
    if warn is not None:
        for text in odd_inputs(passes.part, passes.tasks):
            warn(text)
    with passes.side_by_side():
        return passes.held_against_yardsticks(passes.main())


def cluster_study(
    cluster: FixedCluster,
    tasks: Sequence[TaskSpec],
    settings: Settings | ReplayParts,
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
    known = settings.settings if isinstance(settings, ReplayParts) else ReplaySettings.of(settings)
    check_cluster(known)
    cluster.check(tasks)
    # With an end that was asked for, the run is shown until then
    gauges = QueueWatcher if cluster.until_s is not None else partial(QueueDetector, cluster.nodes, tasks)
    parts = settings if isinstance(settings, ReplayParts) else check_parts(known, baseline, objective)
    fluid = FluidShares(tasks, cluster.nodes, parts.objective, fixed_horizon_s(known.horizon_s)) if ideally else None
    passes = StudyPasses(cluster.log(), tasks, parts, watch, answers, gauges=gauges)
    main = passes.main()
    simple = passes.replay(solver=parts.baseline) if parts.baseline else None
    found = passes.ideal(fluid, cluster.nodes) if fluid is not None else None
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
        fixed=FixedClusterFigures(cluster=cluster, ended=ended, ideal=found),
    )


def study_of(
    main: ReplayResult, log: EventLog, tasks: Sequence[TaskSpec], parts: ReplayParts, watch: Watch | None = None
) -> ReplayStudy:
    """Hold against its yardsticks what came of ``log`` and ``tasks`` in some other way than by a replay."""
    passes = StudyPasses(log, tasks, parts, watch)
    passes.going = main.complete
    return passes.held_against_yardsticks(main)


def _warnings(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    main: ReplayResult,
    simple: ReplayResult | None,
    more: Mapping[str, ReplayResult | None],
) -> tuple[str, ...]:
    """Say what is odd about the inputs, the settings, the decisions of these replays and their metrics."""
    made = {main.settings.solver: main, **({simple.settings.solver: simple} if simple else {}), **more}
    odd = (*odd_inputs(log, tasks), *odd_settings(main.settings, tasks, log.kind_names), *odd_decisions(made))
    return (*map(words_of(log.unit), odd), *notes_on_broken(_broken_metrics(main, simple)))


def _broken_metrics(*results: ReplayResult | None) -> Iterator[BrokenPlugin]:
    for each in results:
        yield from each.broken_metrics if each is not None else ()


class StudyPasses:
    """The replays that a study is made of: any of them, one after the other or side by side, until stopped."""

    def __init__(
        self,
        log: EventLog,
        tasks: Sequence[TaskSpec],
        parts: ReplayParts,
        watch: Watch | None = None,
        answers: AnswerFile | None = None,
        *,
        gauges: Callable[[], QueueWatcher] | None = None,
    ) -> None:
        self.log = log
        self._gauges = gauges
        self.tasks = tuple(tasks)
        self._chosen = select(log, parts.settings)
        self._paying, self._free = as_replayed(tasks, parts.settings), without_costs(tasks)
        self._parts, self._settings = parts, parts.settings
        self._ideal = ideally(parts.settings, parts.objective)
        self._watch = watch
        self._answers = answers
        self._beside = PassesBeside(self._go_on)
        self.going = True

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        """Run the yardsticks beside the replays in the block, in other processes, if that is safe and worth it."""
        if len(self.part) >= _WORTH_A_FORK and may_fork():
            for name in BESIDE[: usable_cpus() - 1]:
                self._beside.start(name, self._in_child(name))
        try:
            yield
        finally:
            self._beside.stop()

    def _in_child(self, name: str) -> RunPass:
        """Return what a child does for the pass of this ``name``."""

        def run_pass(keep_going: KeepGoing) -> ReplayResult | None:
            self._watch = lambda _name, simulated_s, decisions: keep_going(simulated_s, decisions)
            return self._yardstick(name)

        return run_pass

    def _yardstick(self, name: str) -> ReplayResult | None:
        return self.ceiling() if name == CEILING else self.dedicated()

    def _go_on(self, name: str, simulated_s: float, decisions: int) -> bool:
        """Report progress; return whether to go on, which no pass does after the first one was stopped."""
        if self.going and self._watch is not None:
            self.going = self._watch(name, simulated_s, decisions)
        return self.going

    @property
    def part(self) -> EventLog:
        """The window and nodes of the log that are replayed."""
        return self._chosen.log

    @property
    def ceiling_words(self) -> str:
        """Say who decides in the ceiling."""
        return f"{self._ideal.solver} {CEILING}"

    def main(self) -> ReplayResult:
        """Replay as asked for, and take down who held which node; it is the first replay."""
        found = self.replay(AllocationRecorder(self.part.node_names))
        if found is None:
            raise Fault("a replay that was not begun was stopped", where="study")
        return found

    def held_against_yardsticks(self, main: ReplayResult) -> ReplayStudy:
        """Return the study of a replay: with the baseline, and with what its harvest is held against."""
        simple = self.replay(solver=self._parts.baseline) if self._parts.baseline else None
        # While the ceiling is under way elsewhere, the dedicated pool can be replayed here
        found = {name: self._yardstick(name) for name in (BESIDE[::-1] if CEILING in self._beside else BESIDE)}
        ceiling, dedicated = found[CEILING], found[DEDICATED]
        warnings = _warnings(self.part, self.tasks, main, simple, {self.ceiling_words: ceiling})
        yardsticks = self.yardsticks(ceiling, dedicated)
        own, *others = (
            each and replace(each, yardsticks=yardsticks, warnings=warnings) for each in (main, simple, ceiling)
        )
        # The figures of a part of the log compare with nothing
        baseline, free = (each if each and each.complete else None for each in others)
        return ReplayStudy(
            log=self.log,
            part=self.part,
            tasks=self.tasks,
            result=own or main,
            baseline=baseline,
            ceiling=free,
            complete=self.going,
        )

    def replay(self, allocations: AllocationRecorder | None = None, *, solver: str = "") -> ReplayResult | None:
        """Replay as asked for, or with another solver; ``None`` if stopped before."""
        settings = changed(self._settings, solver=solver) if solver else self._settings
        return self._pass(settings.solver, self._chosen, self._paying, settings, allocations)

    def ideal(self, fluid: FluidShares, nodes: Mapping[str, int]) -> IdealCluster | None:
        """Find the ideal of a cluster; ``None`` if stopped."""

        def keep_going(simulated_s: float, chosen: int) -> bool:
            return self._go_on(IDEAL, simulated_s, chosen)

        return ideal(self.tasks, nodes, fluid, keep_going) if self.going else None

    def ceiling(self) -> ReplayResult | None:
        """Replay without costs."""
        return self._beside.result(CEILING, lambda: self.going) or self._pass(
            CEILING, self._chosen, self._free, self._ideal
        )

    def dedicated(self) -> ReplayResult | None:
        """Replay in the dedicated pool, if that has any node."""
        pool = dedicated_log(self.part)
        if pool is None:
            return None
        # Rules that see completions at events only see them at the same times in the dedicated pool
        found = self._beside.result(DEDICATED, lambda: self.going)
        return found or self._pass(DEDICATED, replace(self._chosen, log=pool), self._free, self._ideal)

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

        with self._answers_of(name) as answers:
            return self._replayed(name, chosen, tasks, settings, allocations, answers)

    def _answers_of(self, name: str) -> AbstractContextManager[AnswerFile | None]:
        """Give the file of the answers in a pass: one of its own for a pass that may have a process of its own."""
        if self._answers is None or name not in BESIDE:
            return nullcontext(self._answers)
        return self._answers.beside(name)

    def _replayed(
        self,
        name: str,
        chosen: LogSelection,
        tasks: Sequence[TaskSpec],
        settings: ReplaySettings,
        allocations: AllocationRecorder | None,
        answers: AnswerFile | None,
    ) -> ReplayResult:
        def keep_going(simulated_s: float, decisions: int) -> bool:
            if answers is not None:
                answers.check()
            self._beside.refresh()
            return self._go_on(name, simulated_s, decisions)

        done = run(
            chosen.log,
            tasks,
            self._harvester(name, settings, answers),
            semantics=semantics_of(settings, chosen.event_times_s),
            pace=DecisionDelay.of(settings),
            keep_going=keep_going,
            allocations=allocations,
            fixed=self._gauges() if self._gauges is not None else None,
        )
        if done.complete and self._watch is not None:
            self._watch(name, chosen.log.span_s, len(done.decisions))
        result = result_of(done, settings)
        if settings.metrics:
            found = measured_if_possible(metrics_of(settings.metrics), result)
            result = replace(result, metrics=found.numbers, broken_metrics=found.broken)
        if answers is None:
            return result
        answers.check()
        return replace(result, wall_s=result.wall_s + answers.repeated_s)

    def _harvester(self, name: str, settings: ReplaySettings, answers: AnswerFile | None) -> Harvester:
        """Give the decision core; its solvers answer as they did before an interruption."""
        objective = self._parts.objective
        if answers is None:
            return self._parts.harvesters.pop(name, None) or build_harvester(settings, objective=objective)
        answers.begin(name)
        solver = answers.through(find_solver(settings.solver))
        fallback = answers.through(find_solver(settings.fallback)) if settings.fallback else None
        return build_harvester(settings, solver=solver, fallback=fallback, objective=objective)
