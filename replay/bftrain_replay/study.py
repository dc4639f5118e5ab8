"""Study: one log and one set of tasks, replayed with its references and, if wanted, a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from bftrain import text_formats
from bftrain.config import Settings
from bftrain.deciding.goodput import by_progress
from bftrain.deciding.node_stay import fixed_horizon_s
from bftrain.errors import BrokenPlugin
from bftrain.node_units import words_of
from bftrain.ports import Objective
from bftrain.short_repr import ShortRepr
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import IdleDoubts, doubts_of
from bftrain_replay.reference.fluid_shares import FluidShares
from bftrain_replay.reference.ideal_cluster import IdealCluster, QueueDetector
from bftrain_replay.results import headline
from bftrain_replay.results.headline import HarvestHeadline, headline_of
from bftrain_replay.results.input_warnings import odd_decisions, odd_inputs, odd_settings
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.simulation import progress_kept
from bftrain_replay.simulation.engine import QueueWatcher
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study_passes import ReplayParts, StudyPasses, Watch, check_cluster, check_kinds, check_parts
from bftrain_replay.variations import AdviceRow, SensitivityRow


def _ignore(_: object) -> None:
    pass


class ReplayStudy(ShortRepr, msgspec.Struct, frozen=True, kw_only=True):
    """The main replay and its comparison runs: ``None`` if not requested or not reached.

    ``log`` is the given one, ``part`` its replayed window and nodes.
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
    advice: tuple[AdviceRow, ...] | None = None  # changes of settings that were tried, if any were

    @property
    def doubts(self) -> IdleDoubts:
        """The doubtful part of the replayed idle node-time."""
        end_s = self.part.start_s + self.result.simulated_s
        whole = self.complete or end_s >= self.part.end_s
        return doubts_of(self.part if whole else self.part.select(window=(None, end_s)))

    @property
    def headline(self) -> HarvestHeadline | None:
        """The headline on the idle nodes; ``None`` on clusters, whose nodes are not idle."""
        if self.fixed is not None:
            return None
        assumed = progress_kept.in_short(ReplaySettings.progress_in(self.result.settings))
        cap = self.result.settings.max_tasks
        found = headline_of(self.result.summary(), self.doubts, assumed, capped=len(self.tasks) > cap)
        how_far = headline.note(self.result.simulated_s, self.part.span_s, complete=self.complete)
        return replace(found, sentence=f"{how_far}{found.sentence}")

    @property
    def broken_metrics(self) -> tuple[BrokenPlugin, ...]:
        """The errors of requested metrics that gave no numbers."""
        return tuple(error for each in (self.result, self.baseline) if each for error in each.broken_metrics)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        title, figures = self.result.shown()
        figures = dict(figures)
        for name, each in {"baseline": self.baseline, "without costs": self.ceiling}.items():
            if each:
                figures[f"{name} harvested"] = text_formats.large(each.harvested_samples)
        if self.result.warnings:
            figures["warnings"] = f"{len(self.result.warnings):,}"
        return title, figures


class FixedClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a cluster whose nodes never leave: its nodes, and why each replay on it ended, by solver.

    ``ideal`` is there if it was asked for.
    """

    cluster: FixedCluster
    ended: Mapping[str, EndReason]
    ideal: IdealCluster | None = None


class StudyCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Functions to call during a study.

    ``warn`` receives warnings about the inputs before the replay; the results hold them too. ``main_done`` receives a
    study of the main replay alone if that is complete, while those to compare with may go on.
    """

    warn: Callable[[str], None]
    main_done: Callable[[ReplayStudy], None] = _ignore


def study(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings | ReplayParts,
    *,
    baseline: str = "",
    objective: Objective | None = None,
    watch: Watch | None = None,
    calls: StudyCalls | None = None,
    quick: bool = False,
) -> ReplayStudy:
    """Replay ``log`` against ``tasks`` with ``settings``, with the ceiling and the dedicated pool as references.

    ``baseline`` names a second solver to replay with; ``objective`` replaces that of the settings. Parts that were
    checked already replace all three. Once ``watch`` returns false, the present replay ends and the others are left
    out. ``quick`` leaves out the proven bound of tasks that differ. Passes on a long log run side by side in processes
    of their own if there is more than one processor, so that
    ``watch`` is called for each in turn.
    """
    parts = settings if isinstance(settings, ReplayParts) else check_parts(settings, baseline, objective)
    passes = StudyPasses(log, tasks, parts, watch, quick=quick)
    check_kinds(log, tasks)
    if calls is not None:
        for text in odd_inputs(passes.part, passes.tasks, parts.settings.racks):
            calls.warn(text)
    with passes.side_by_side():
        main = passes.main()
        if calls is not None and main.complete:
            calls.main_done(ReplayStudy(log=log, part=passes.part, tasks=passes.tasks, result=main))
        return _with_references(passes, main)


def cluster_study(
    cluster: FixedCluster,
    tasks: Sequence[TaskSpec],
    settings: Settings | ReplayParts,
    *,
    baseline: str = "",
    watch: Watch | None = None,
    ideally: bool = False,
) -> ReplayStudy:
    """Replay ``tasks`` on nodes that never leave, until all are done.

    A harvest has no references there; with ``ideally`` it is compared with the ideal. The log of the study ends with
    the main replay.
    """
    known = settings.settings if isinstance(settings, ReplayParts) else ReplaySettings.of(settings)
    check_cluster(known)
    cluster.check(tasks)
    advancing = [by_progress(task) for task in tasks]
    # With an end that was asked for, the run is shown until then
    gauges = QueueWatcher if cluster.until_s is not None else partial(QueueDetector, cluster.nodes, advancing)
    parts = settings if isinstance(settings, ReplayParts) else check_parts(known, baseline)
    horizon_s = fixed_horizon_s(known.horizon_s)
    fluid = FluidShares(advancing, cluster.nodes, parts.objective, horizon_s) if ideally else None
    passes = StudyPasses(cluster.log(), tasks, parts, watch, gauges=gauges)
    main = passes.main()
    simple = passes.baseline()
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
    """Build a study from a run of ``log`` and ``tasks`` that was not a replay."""
    passes = StudyPasses(log, tasks, parts, watch)
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
    # The figures of a part of the log compare with nothing
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
    of_metrics = dict.fromkeys((*main.metric_notes, *(simple.metric_notes if simple else ())))
    return (*map(words_of(log.unit), odd), *of_metrics)
