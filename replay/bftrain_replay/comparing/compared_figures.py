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
from bftrain_replay.accounting.node_time_ledger import Unused
from bftrain_replay.comparing.compared_run import Told, ToldInRounds
from bftrain_replay.metrics.percentiles import Percentiles
from bftrain_replay.results.headline import RAN_OUT, harvest_node_h, ran_out
from bftrain_replay.results.reason_labels import LOST, UNUSED
from bftrain_replay.simulation.task_progress import Loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bftrain_replay.comparing.compared_run import Side
    from bftrain_replay.metrics.task_columns import TaskColumns

_SAME_FROM: Final = 5e-4  # a relative change below this would be shown as 0.0 %


class Unit(StrEnum):
    """What a figure counts."""

    SAMPLES = "samples"
    SHARE = "share"  # of 1
    NODE_HOURS = "node-hours"
    SECONDS = "s"
    MILLISECONDS = "ms"
    COUNT = "count"
    RATIO = "ratio"


class Better(StrEnum):
    """Whether more of it is better, or less."""

    MORE = "more"
    LESS = "less"


_SAID: Final[Mapping[Unit, Callable[[float], str]]] = {
    Unit.SAMPLES: text_formats.large,
    Unit.SHARE: text_formats.percent,
    Unit.NODE_HOURS: text_formats.count,
    Unit.SECONDS: text_formats.duration,
    Unit.MILLISECONDS: text_formats.milliseconds,
    Unit.COUNT: text_formats.count,
    Unit.RATIO: text_formats.ratio,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: a value for each replay (``None`` where it cannot be told), and the places of the best of them."""

    name: str
    label: str
    unit: Unit
    amounts: tuple[float | None, ...]
    better: Better | None = None
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
        if self.unit is Unit.SHARE:
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
class Group:
    """Figures that belong together."""

    title: str
    figures: tuple[Figure, ...]


def groups_of(sides: Sequence[Side], *, comparable: bool) -> tuple[Group, ...]:
    """Give all figures. Unless the work is ``comparable`` the best is marked among decision times only."""
    replays = [side.told for side in sides if isinstance(side.told, Told)]
    if len(replays) < len(sides):
        return _in_rounds(sides, comparable=comparable)
    every = {
        "Harvest": _harvest(replays),
        "Idle node-time": _node_time(replays),
        "Work lost": _losses(replays),
        "Tasks": _tasks(sides, comparable=comparable),
    }
    groups = [
        Group(title=title, figures=tuple(figure if comparable else replace(figure, best=()) for figure in figures))
        for title, figures in every.items()
    ]
    decisions = Group(title="Decisions", figures=tuple(_decisions(replays)))
    own = tuple(_own(replays))
    return (*groups, Group(title="Metrics asked for", figures=own), decisions) if own else (*groups, decisions)


def _in_rounds(sides: Sequence[Side], *, comparable: bool) -> tuple[Group, ...]:
    """Give the figures where time is shared in rounds in some of them: those that all have, and those of rounds."""
    every = {
        "Tasks": _tasks(sides, comparable=comparable),
        "Nodes": _nodes(sides),
        "Rounds": _of_rounds(sides),
    }
    own = tuple(_own([side.told for side in sides]))
    if own:
        every["Metrics asked for"] = iter(own)
    return tuple(
        Group(title=title, figures=tuple(figure if comparable else replace(figure, best=()) for figure in figures))
        for title, figures in every.items()
    )


def _row(name: str, label: str, unit: Unit, values: Sequence[float | None], better: Better | None = None) -> Figure:
    given = tuple(values)
    row = Figure(name=name, label=label, unit=unit, amounts=given, better=better)
    known = [value for value in given if value is not None]
    if better is None or len(known) < 2:  # noqa: PLR2004 - who is alone is not best
        return row
    chosen = max(known) if better is Better.MORE else min(known)
    said = row.said
    wanted = said[given.index(chosen)]  # what is said alike is as good
    best = tuple(place for place, value in enumerate(given) if value is not None and said[place] == wanted)
    return replace(row, best=best if len(best) < len(known) else ())


def _own(told: Sequence[Told | ToldInRounds]) -> Iterator[Figure]:
    """Give the figures of metrics that somebody asked for; who knows which way they are better?"""
    for name in dict.fromkeys(name for each in told for name in each.metrics):
        yield _row(f"metrics.{name}", name, Unit.RATIO, [each.metrics.get(name) for each in told])


def _nodes(sides: Sequence[Side]) -> Iterator[Figure]:
    told = [side.told for side in sides]
    yield _row("simulated_s", "time simulated", Unit.SECONDS, [each.simulated_s for each in told])
    yield _row("idle_node_h", "node-hours there", Unit.NODE_HOURS, [each.idle_node_h for each in told])
    yield _row("used_node_h", "node-hours held", Unit.NODE_HOURS, [each.used_node_h for each in told])
    yield _row("coverage", "held of them", Unit.SHARE, [each.coverage for each in told])
    for kind in dict.fromkeys(kind for each in told for kind in each.kinds if kind):
        shares = [each.kinds[kind].coverage if kind in each.kinds else None for each in told]
        yield _row(f"kinds.{kind}.coverage", f"of '{kind}'", Unit.SHARE, shares)


def _of_rounds(sides: Sequence[Side]) -> Iterator[Figure]:
    """Give the figures that rounds alone have."""
    told = [side.told if isinstance(side.told, ToldInRounds) else None for side in sides]

    def counts(name: str) -> list[float | None]:
        return [None if each is None else getattr(each, name) for each in told]

    yield _row("rounds", "rounds", Unit.COUNT, counts("rounds"))
    for part, said in (("mean", "mean"), ("p95", "p95")):
        row = [getattr(each.responsiveness_s, part) if each and each.responsiveness_s else None for each in told]
        yield _row(f"responsiveness_s.{part}", f"first round over after, {said}", Unit.SECONDS, row, Better.LESS)
    yield _row("moves", "moves to another kind", Unit.COUNT, counts("moves"))
    yield _row("taken", "preempted by leaving nodes", Unit.COUNT, counts("taken"))
    yield _row("wall_s", "simulated in", Unit.SECONDS, [side.told.wall_s for side in sides])


def _harvest(told: Sequence[Told]) -> Iterator[Figure]:
    if not all(each.complete for each in told) or len({each.simulated_s for each in told}) > 1:
        yield _row("simulated_s", "replayed", Unit.SECONDS, [each.simulated_s for each in told])
    yield _row("harvested", "harvest, samples", Unit.SAMPLES, [each.harvested for each in told], Better.MORE)
    hours = [harvest_node_h(each) for each in told]
    yield _row("harvest_node_h", "harvest, node-hours", Unit.NODE_HOURS, hours)
    shares = [_share(hours_of, each.idle_node_h) for hours_of, each in zip(hours, told, strict=True)]
    yield _row("harvest_share", "of the idle node-hours", Unit.SHARE, shares)
    lacking = [ran_out(each) for each in told]
    for row in _shares_of_yardsticks(told):
        yield replace(row, compares=False, best=(), marks=_marks(row, lacking)) if any(lacking) else row


def _shares_of_yardsticks(told: Sequence[Told]) -> Iterator[Figure]:
    """Give the harvest as shares of what the same tasks do elsewhere; where tasks run out that depends on the tasks."""
    yield _row("efficiency", "efficiency U", Unit.SHARE, [each.efficiency for each in told], Better.MORE)
    yield _row("ceiling_efficiency", "U without costs", Unit.SHARE, [each.ceiling_efficiency for each in told])
    shares = [_share(each.harvested, each.ceiling_samples) for each in told]
    yield _row("harvested_of_ceiling", "harvest / without costs", Unit.SHARE, shares, Better.MORE)


def _marks(row: Figure, lacking: Sequence[bool]) -> tuple[str, ...]:
    known = (amount is not None for amount in row.amounts)
    return tuple(RAN_OUT if without and there else "" for without, there in zip(lacking, known, strict=True))


def _node_time(told: Sequence[Told]) -> Iterator[Figure]:
    yield _row("idle_node_h", "idle node-hours", Unit.NODE_HOURS, [each.idle_node_h for each in told])
    doubtful = [each.doubtful.share if each.doubtful else None for each in told]
    if any(doubtful):
        yield _row("doubtful_share", "doubtful of them", Unit.SHARE, doubtful)
    yield _row("coverage", "used of them", Unit.SHARE, [each.coverage for each in told], Better.MORE)
    for reason in Unused:
        shares = [_share(each.unused_node_h.get(reason, 0.0), each.idle_node_h) for each in told]
        if any(shares):
            yield _row(f"unused.{reason}", f"unused: {UNUSED[reason]}", Unit.SHARE, shares)


def _losses(told: Sequence[Told]) -> Iterator[Figure]:
    yield _row("lost", "lost in all", Unit.SHARE, [_lost(each, *Loss) for each in told], Better.LESS)
    for loss in Loss:
        shares = [_lost(each, loss) for each in told]
        if any(shares) or loss is not Loss.UNNOTICED:
            yield _row(f"lost.{loss}", f"lost: {LOST[loss]}", Unit.SHARE, shares, Better.LESS)


def _tasks(sides: Sequence[Side], *, comparable: bool) -> Iterator[Figure]:
    told, times = [side.told for side in sides], [side.tasks for side in sides]
    if len({each.tasks for each in told}) > 1:
        yield _row("tasks", "tasks", Unit.COUNT, [each.tasks for each in told])
    yield _row("tasks_finished", "tasks finished", Unit.COUNT, [each.tasks_finished for each in told], Better.MORE)
    if len({each.tasks_unfinished for each in told}) > 1:
        unfinished = [each.tasks_unfinished for each in told]
        yield _row("tasks_unfinished", "not finished in the end", Unit.COUNT, unfinished, Better.LESS)
    makespans = [each.makespan_s for each in told]
    if any(value is not None for value in makespans):
        yield _row("makespan_s", "all finished after", Unit.SECONDS, makespans, Better.LESS)
    finished = [each.columns.chosen(each.columns.finished) for each in times]
    if comparable:
        # A task that is slow here and unfinished there would be held against those who finish it
        common = frozenset(finished[0].name).intersection(*(each.name for each in finished))
        finished = [each.chosen(np.array([name in common for name in each.name], dtype=bool)) for each in finished]
        yield _row("tasks_finished_by_all", "finished in all", Unit.COUNT, [len(common)] * len(sides))
    yield from _spread("time_to_finish_s", "time to finish", Unit.SECONDS, [each.completion_s for each in finished])
    if len({each.tasks_unfinished for each in told}) > 1:
        least = [each.completion_at_least_s for each in told]
        yield _row("completion_at_least_s", "of all, at least, mean", Unit.SECONDS, least, Better.LESS)
    response = [None if each.response_s is None else each.response_s.mean for each in told]
    yield _row("response_s.mean", "first node after, mean", Unit.SECONDS, response, Better.LESS)
    waited = [None if np.isnan(each.waited_s).all() else float(np.nanmean(each.waited_s)) for each in times]
    yield _row("waited_s.mean", "waiting, mean of a task", Unit.SECONDS, waited, Better.LESS)
    yield from _fairness(finished)
    if any(each.deadlines for each in told):
        missed = [each.deadlines_missed for each in told]
        yield _row("deadlines_missed", "deadlines missed", Unit.COUNT, missed, Better.LESS)
    costs = [each.cost if each.settings.get("prices") else None for each in told]
    if any(cost is not None for cost in costs):
        yield _row("cost", "cost", Unit.COUNT, costs, Better.LESS)
    yield _row("waits", "waits", Unit.COUNT, [each.waits for each in times])
    yield _row("starts", "starts", Unit.COUNT, [each.starts for each in told])
    if not all(side.in_rounds for side in sides):
        rescales = [each.rescales if isinstance(each, Told) else None for each in told]
        yield _row("rescales", "rescales", Unit.COUNT, rescales)
    yield _row("preemptions", "preemptions", Unit.COUNT, [each.preemptions for each in told])


def _fairness(finished: Sequence[TaskColumns]) -> Iterator[Figure]:
    """Give how the finished tasks stand against the machine to themselves, and against an n-th part of it."""
    if not any(len(each) for each in finished):
        return
    yield from _spread("slowdown", "slowdown", Unit.RATIO, [each.slowdown for each in finished])
    yield from _spread("rho", "rho", Unit.RATIO, [each.rho for each in finished])
    above = [_share(float((each.rho > 1.0).sum()), float((~np.isnan(each.rho)).sum())) for each in finished]
    yield _row("rho_over_1", "rho above 1", Unit.SHARE, above, Better.LESS)


def _spread(name: str, label: str, unit: Unit, values: Sequence[NDArray[np.float64]]) -> Iterator[Figure]:
    spreads = [Percentiles.of(each) for each in values]
    middle = ("p50", "median") if unit is Unit.SECONDS else ("max", "most")  # of ratios the worst tells most
    for part, said in (("mean", "mean"), middle, ("p95", "p95")):
        row = [None if each is None else float(getattr(each, part)) for each in spreads]
        yield _row(f"{name}.{part}", f"{label}, {said}", unit, row, Better.LESS)


def _decisions(told: Sequence[Told]) -> Iterator[Figure]:
    yield _row("decisions", "decisions", Unit.COUNT, [each.decisions for each in told])
    if any(each.fallbacks for each in told):
        yield _row("fallbacks", "not the solver's own", Unit.COUNT, [each.fallbacks for each in told], Better.LESS)
    if any(each.infeasible_decisions for each in told):
        infeasible = [each.infeasible_decisions for each in told]
        yield _row("infeasible_decisions", "of these: there was no plan", Unit.COUNT, infeasible, Better.LESS)
    medians, slowest = [each.decide_ms.p50 for each in told], [each.decide_ms.p99 for each in told]
    yield _row("decide_ms.p50", "decision time, median", Unit.MILLISECONDS, medians, Better.LESS)
    yield _row("decide_ms.p99", "decision time, p99", Unit.MILLISECONDS, slowest, Better.LESS)
    yield _row("wall_s", "replayed in", Unit.SECONDS, [each.wall_s for each in told])


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _lost(told: Told, *losses: Loss) -> float | None:
    return _share(math.fsum(told.lost[loss].node_h for loss in losses), told.idle_node_h)
