"""Figures of several replays, row by row: what is compared, in what unit, and which is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain import text_formats
from bftrain_replay.accounting.node_time_ledger import UnusedReason
from bftrain_replay.comparing.compared_run import RoundSummaryFigures, SummaryFigures
from bftrain_replay.metrics.percentiles import TaskPercentiles
from bftrain_replay.results.headline import RAN_OUT, harvest_node_h, ran_out
from bftrain_replay.results.reason_labels import LOST, UNUSED
from bftrain_replay.simulation.task_progress import SampleLoss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bftrain_replay.comparing.compared_run import ComparedRun
    from bftrain_replay.metrics.task_columns import TaskColumns

_SAME_FROM: Final = 5e-4  # a relative change below this would be shown as 0.0 %


class FigureUnit(StrEnum):
    """What a figure counts."""

    SAMPLES = "samples"
    SHARE = "share"  # of 1
    NODE_HOURS = "node-hours"
    SECONDS = "s"
    MILLISECONDS = "ms"
    COUNT = "count"
    RATIO = "ratio"


class BetterDirection(StrEnum):
    """Whether more of it is better, or less."""

    MORE = "more"
    LESS = "less"


_SAID: Final[Mapping[FigureUnit, Callable[[float], str]]] = {
    FigureUnit.SAMPLES: text_formats.large,
    FigureUnit.SHARE: text_formats.percent,
    FigureUnit.NODE_HOURS: text_formats.count,
    FigureUnit.SECONDS: text_formats.duration,
    FigureUnit.MILLISECONDS: text_formats.milliseconds,
    FigureUnit.COUNT: text_formats.count,
    FigureUnit.RATIO: text_formats.ratio,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One row: a value for each replay (``None`` where it is unknown), and the places of the best of them."""

    name: str
    label: str
    unit: FigureUnit
    amounts: tuple[float | None, ...]
    better: BetterDirection | None = None
    best: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()  # what stands behind each value, if anything
    compares: bool = True  # otherwise no change is given, since the values do not measure the same

    @property
    def said(self) -> tuple[str, ...]:
        """The values in words."""
        plain = (text_formats.UNKNOWN if value is None else _SAID[self.unit](value) for value in self.amounts)
        return tuple(f"{text} ({mark})" if mark else text for text, mark in zip_longest(plain, self.marks))

    def change(self, place: int) -> str:
        """Say how much the value at ``place`` differs from the first."""
        first, value = self.amounts[0], self.amounts[place]
        if first is None or value is None or not self.compares:
            return text_formats.UNKNOWN
        if self.unit is FigureUnit.SHARE:
            points = round(100.0 * (value - first), 1)
            return f"{points:+.1f} points" if points else "same"
        if first == value:
            return "same"
        if first == 0.0:
            return text_formats.UNKNOWN
        change = value / first - 1.0
        if abs(change) < _SAME_FROM:
            return "< 0.1 %"
        return f"{value / first:,.1f} times" if change >= 10.0 else f"{100.0 * change:+.1f} %"  # noqa: PLR2004 - more per cent than that say little


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureGroup:
    """Figures that belong together."""

    title: str
    figures: tuple[ComparedFigure, ...]


def groups_of(sides: Sequence[ComparedRun], *, comparable: bool) -> tuple[FigureGroup, ...]:
    """Give all figures. Unless the work is ``comparable`` the best is marked among decision times only."""
    replays = [side.summary for side in sides if isinstance(side.summary, SummaryFigures)]
    if len(replays) < len(sides):
        return _in_rounds(sides, comparable=comparable)
    every = {
        "Harvest": _harvest(replays),
        "Idle node-time": _node_time(replays),
        "Work lost": _losses(replays),
        "Tasks": _tasks(sides, comparable=comparable),
    }
    groups = [
        FigureGroup(
            title=title, figures=tuple(figure if comparable else replace(figure, best=()) for figure in figures)
        )
        for title, figures in every.items()
    ]
    decisions = FigureGroup(title="Decisions", figures=tuple(_decisions(replays)))
    own = tuple(_own(replays))
    return (*groups, FigureGroup(title="Metrics asked for", figures=own), decisions) if own else (*groups, decisions)


def _in_rounds(sides: Sequence[ComparedRun], *, comparable: bool) -> tuple[FigureGroup, ...]:
    """Give the figures where time is shared in rounds in some of them: those that all have, and those of rounds."""
    every = {
        "Tasks": _tasks(sides, comparable=comparable),
        "Nodes": _nodes(sides),
        "Rounds": _of_rounds(sides),
    }
    own = tuple(_own([side.summary for side in sides]))
    if own:
        every["Metrics asked for"] = iter(own)
    return tuple(
        FigureGroup(
            title=title, figures=tuple(figure if comparable else replace(figure, best=()) for figure in figures)
        )
        for title, figures in every.items()
    )


def _row(
    name: str, label: str, unit: FigureUnit, values: Sequence[float | None], better: BetterDirection | None = None
) -> ComparedFigure:
    given = tuple(values)
    row = ComparedFigure(name=name, label=label, unit=unit, amounts=given, better=better)
    known = [value for value in given if value is not None]
    if better is None or len(known) < 2:  # noqa: PLR2004 - who is alone is not best
        return row
    chosen = max(known) if better is BetterDirection.MORE else min(known)
    said = row.said
    wanted = said[given.index(chosen)]  # what is said alike is as good
    best = tuple(place for place, value in enumerate(given) if value is not None and said[place] == wanted)
    return replace(row, best=best if len(best) < len(known) else ())


def _own(summary: Sequence[SummaryFigures | RoundSummaryFigures]) -> Iterator[ComparedFigure]:
    """Return the figures of chosen metrics; which way they are better is unknown."""
    for name in dict.fromkeys(name for each in summary for name in each.metrics):
        yield _row(f"metrics.{name}", name, FigureUnit.RATIO, [each.metrics.get(name) for each in summary])


def _nodes(sides: Sequence[ComparedRun]) -> Iterator[ComparedFigure]:
    summary = [side.summary for side in sides]
    yield _row("simulated_s", "time simulated", FigureUnit.SECONDS, [each.simulated_s for each in summary])
    yield _row("idle_node_h", "node-hours there", FigureUnit.NODE_HOURS, [each.idle_node_h for each in summary])
    yield _row("used_node_h", "node-hours held", FigureUnit.NODE_HOURS, [each.used_node_h for each in summary])
    yield _row("coverage", "held of them", FigureUnit.SHARE, [each.coverage for each in summary])
    for kind in dict.fromkeys(kind for each in summary for kind in each.kinds if kind):
        shares = [each.kinds[kind].coverage if kind in each.kinds else None for each in summary]
        yield _row(f"kinds.{kind}.coverage", f"of '{kind}'", FigureUnit.SHARE, shares)


def _of_rounds(sides: Sequence[ComparedRun]) -> Iterator[ComparedFigure]:
    """Give the figures that rounds alone have."""
    summary = [side.summary if isinstance(side.summary, RoundSummaryFigures) else None for side in sides]

    def counts(name: str) -> list[float | None]:
        return [None if each is None else getattr(each, name) for each in summary]

    yield _row("rounds", "rounds", FigureUnit.COUNT, counts("rounds"))
    for part, said in (("mean", "mean"), ("p95", "p95")):
        row = [getattr(each.responsiveness_s, part) if each and each.responsiveness_s else None for each in summary]
        yield _row(
            f"responsiveness_s.{part}", f"first round over after, {said}", FigureUnit.SECONDS, row, BetterDirection.LESS
        )
    yield _row("moves", "moves to another kind", FigureUnit.COUNT, counts("moves"))
    yield _row("taken", "preempted by leaving nodes", FigureUnit.COUNT, counts("taken"))
    yield _row("wall_s", "simulated in", FigureUnit.SECONDS, [side.summary.wall_s for side in sides])


def _harvest(summary: Sequence[SummaryFigures]) -> Iterator[ComparedFigure]:
    if not all(each.complete for each in summary) or len({each.simulated_s for each in summary}) > 1:
        yield _row("simulated_s", "replayed", FigureUnit.SECONDS, [each.simulated_s for each in summary])
    yield _row(
        "harvested", "harvest, samples", FigureUnit.SAMPLES, [each.harvested for each in summary], BetterDirection.MORE
    )
    hours = [harvest_node_h(each) for each in summary]
    yield _row("harvest_node_h", "harvest, node-hours", FigureUnit.NODE_HOURS, hours)
    shares = [_share(hours_of, each.idle_node_h) for hours_of, each in zip(hours, summary, strict=True)]
    yield _row("harvest_share", "of the idle node-hours", FigureUnit.SHARE, shares)
    lacking = [ran_out(each) for each in summary]
    for row in _shares_of_yardsticks(summary):
        yield replace(row, compares=False, best=(), marks=_marks(row, lacking)) if any(lacking) else row


def _shares_of_yardsticks(summary: Sequence[SummaryFigures]) -> Iterator[ComparedFigure]:
    """Give the harvest as shares of what the same tasks do elsewhere; where tasks run out that depends on the tasks."""
    yield _row(
        "efficiency", "efficiency U", FigureUnit.SHARE, [each.efficiency for each in summary], BetterDirection.MORE
    )
    yield _row("ceiling_efficiency", "U without costs", FigureUnit.SHARE, [each.ceiling_efficiency for each in summary])
    shares = [_share(each.harvested, each.ceiling_samples) for each in summary]
    yield _row("harvested_of_ceiling", "harvest / without costs", FigureUnit.SHARE, shares, BetterDirection.MORE)


def _marks(row: ComparedFigure, lacking: Sequence[bool]) -> tuple[str, ...]:
    known = (amount is not None for amount in row.amounts)
    return tuple(RAN_OUT if without and there else "" for without, there in zip(lacking, known, strict=True))


def _node_time(summary: Sequence[SummaryFigures]) -> Iterator[ComparedFigure]:
    yield _row("idle_node_h", "idle node-hours", FigureUnit.NODE_HOURS, [each.idle_node_h for each in summary])
    doubtful = [each.doubtful.share if each.doubtful else None for each in summary]
    if any(doubtful):
        yield _row("doubtful_share", "doubtful of them", FigureUnit.SHARE, doubtful)
    yield _row("coverage", "used of them", FigureUnit.SHARE, [each.coverage for each in summary], BetterDirection.MORE)
    for reason in UnusedReason:
        shares = [_share(each.unused_node_h.get(reason, 0.0), each.idle_node_h) for each in summary]
        if any(shares):
            yield _row(f"unused.{reason}", f"unused: {UNUSED[reason]}", FigureUnit.SHARE, shares)


def _losses(summary: Sequence[SummaryFigures]) -> Iterator[ComparedFigure]:
    yield _row(
        "lost", "lost in all", FigureUnit.SHARE, [_lost(each, *SampleLoss) for each in summary], BetterDirection.LESS
    )
    for loss in SampleLoss:
        shares = [_lost(each, loss) for each in summary]
        if any(shares) or loss is not SampleLoss.UNNOTICED:
            yield _row(f"lost.{loss}", f"lost: {LOST[loss]}", FigureUnit.SHARE, shares, BetterDirection.LESS)


def _tasks(sides: Sequence[ComparedRun], *, comparable: bool) -> Iterator[ComparedFigure]:
    summary, times = [side.summary for side in sides], [side.tasks for side in sides]
    if len({each.tasks for each in summary}) > 1:
        yield _row("tasks", "tasks", FigureUnit.COUNT, [each.tasks for each in summary])
    yield _row(
        "tasks_finished",
        "tasks finished",
        FigureUnit.COUNT,
        [each.tasks_finished for each in summary],
        BetterDirection.MORE,
    )
    if len({each.tasks_unfinished for each in summary}) > 1:
        unfinished = [each.tasks_unfinished for each in summary]
        yield _row("tasks_unfinished", "not finished in the end", FigureUnit.COUNT, unfinished, BetterDirection.LESS)
    makespans = [each.makespan_s for each in summary]
    if any(value is not None for value in makespans):
        yield _row("makespan_s", "all finished after", FigureUnit.SECONDS, makespans, BetterDirection.LESS)
    finished = [each.columns.chosen(each.columns.finished) for each in times]
    if comparable:
        # A task that is slow here and unfinished there would be held against those who finish it
        common = frozenset(finished[0].name).intersection(*(each.name for each in finished))
        finished = [each.chosen(np.array([name in common for name in each.name], dtype=bool)) for each in finished]
        yield _row("tasks_finished_by_all", "finished in all", FigureUnit.COUNT, [len(common)] * len(sides))
    yield from _spread(
        "time_to_finish_s", "time to finish", FigureUnit.SECONDS, [each.completion_s for each in finished]
    )
    if len({each.tasks_unfinished for each in summary}) > 1:
        least = [each.completion_at_least_s for each in summary]
        yield _row("completion_at_least_s", "of all, at least, mean", FigureUnit.SECONDS, least, BetterDirection.LESS)
    response = [None if each.response_s is None else each.response_s.mean for each in summary]
    yield _row("response_s.mean", "first node after, mean", FigureUnit.SECONDS, response, BetterDirection.LESS)
    waited = [None if np.isnan(each.waited_s).all() else float(np.nanmean(each.waited_s)) for each in times]
    yield _row("waited_s.mean", "waiting, mean of a task", FigureUnit.SECONDS, waited, BetterDirection.LESS)
    yield from _fairness(finished)
    if any(each.deadlines for each in summary):
        missed = [each.deadlines_missed for each in summary]
        yield _row("deadlines_missed", "deadlines missed", FigureUnit.COUNT, missed, BetterDirection.LESS)
    costs = [each.cost if each.settings.get("prices") else None for each in summary]
    if any(cost is not None for cost in costs):
        yield _row("cost", "cost", FigureUnit.COUNT, costs, BetterDirection.LESS)
    yield _row("waits", "waits", FigureUnit.COUNT, [each.waits for each in times])
    yield _row("starts", "starts", FigureUnit.COUNT, [each.starts for each in summary])
    if not all(side.in_rounds for side in sides):
        rescales = [each.rescales if isinstance(each, SummaryFigures) else None for each in summary]
        yield _row("rescales", "rescales", FigureUnit.COUNT, rescales)
    yield _row("preemptions", "preemptions", FigureUnit.COUNT, [each.preemptions for each in summary])


def _fairness(finished: Sequence[TaskColumns]) -> Iterator[ComparedFigure]:
    """Give how the finished tasks stand against the machine to themselves, and against an n-th part of it."""
    if not any(len(each) for each in finished):
        return
    yield from _spread("slowdown", "slowdown", FigureUnit.RATIO, [each.slowdown for each in finished])
    yield from _spread("rho", "rho", FigureUnit.RATIO, [each.rho for each in finished])
    above = [_share(float((each.rho > 1.0).sum()), float((~np.isnan(each.rho)).sum())) for each in finished]
    yield _row("rho_over_1", "rho above 1", FigureUnit.SHARE, above, BetterDirection.LESS)


def _spread(name: str, label: str, unit: FigureUnit, values: Sequence[NDArray[np.float64]]) -> Iterator[ComparedFigure]:
    spreads = [TaskPercentiles.of(each) for each in values]
    middle = ("p50", "median") if unit is FigureUnit.SECONDS else ("max", "most")  # of ratios the worst tells most
    for part, said in (("mean", "mean"), middle, ("p95", "p95")):
        row = [None if each is None else float(getattr(each, part)) for each in spreads]
        yield _row(f"{name}.{part}", f"{label}, {said}", unit, row, BetterDirection.LESS)


def _decisions(summary: Sequence[SummaryFigures]) -> Iterator[ComparedFigure]:
    yield _row("decisions", "decisions", FigureUnit.COUNT, [each.decisions for each in summary])
    if any(each.fallbacks for each in summary):
        yield _row(
            "fallbacks",
            "not the solver's own",
            FigureUnit.COUNT,
            [each.fallbacks for each in summary],
            BetterDirection.LESS,
        )
    if any(each.infeasible_decisions for each in summary):
        infeasible = [each.infeasible_decisions for each in summary]
        yield _row(
            "infeasible_decisions", "of these: there was no plan", FigureUnit.COUNT, infeasible, BetterDirection.LESS
        )
    medians, slowest = [each.decide_ms.p50 for each in summary], [each.decide_ms.p99 for each in summary]
    yield _row("decide_ms.p50", "decision time, median", FigureUnit.MILLISECONDS, medians, BetterDirection.LESS)
    yield _row("decide_ms.p99", "decision time, p99", FigureUnit.MILLISECONDS, slowest, BetterDirection.LESS)
    yield _row("wall_s", "replayed in", FigureUnit.SECONDS, [each.wall_s for each in summary])


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _lost(summary: SummaryFigures, *losses: SampleLoss) -> float | None:
    return _share(math.fsum(summary.lost[loss].node_h for loss in losses), summary.idle_node_h)
