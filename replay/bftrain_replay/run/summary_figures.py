"""Every figure of a summary: its label, unit, format, better direction, and where it is shown.

The terminal, report pages, comparisons and sweeps all read :data:`FIGURES`. A new figure needs a field of
:class:`ReplaySummary`, which is then in ``summary.json`` and in the tables of sweeps, and a line here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec

from bftrain import text_formats
from bftrain_replay.run import glossary
from bftrain_replay.run.headline import efficiency_text, field_of, harvest_node_h
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.task_progress import SampleLoss

UNUSED: Final[Mapping[UnusedReason, str]] = {
    UnusedReason.NO_TASK: "no task left",
    UnusedReason.TASK_CAP: "too few compete",
    UnusedReason.AT_MAXIMUM: "tasks are full",
    UnusedReason.BELOW_MINIMUM: "too few nodes",
    UnusedReason.NOT_WORTH: "not worth it",
    UnusedReason.UNDECIDED: "not yet decided",
    UnusedReason.OTHER_KIND: "tasks use other kinds",
}
LOST: Final[Mapping[SampleLoss, str]] = {
    SampleLoss.PREEMPTION: "preemption",
    SampleLoss.RESCALING: "rescaling",
    SampleLoss.START_UP: "start-up",
    SampleLoss.UNNOTICED: "late notice of finish",
    SampleLoss.SPREAD: "spreading",
}
PARTS: Final = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99", "max": "max"}


class FigureUnit(StrEnum):
    """The unit of a figure."""

    SAMPLES = "samples"
    SHARE = "share"  # fraction from 0 to 1
    NODE_HOURS = "node-hours"
    SECONDS = "s"
    MILLISECONDS = "ms"
    COUNT = "count"
    RATIO = "ratio"


class BetterDirection(StrEnum):
    """Whether a larger or smaller value is better."""

    MORE = "more"
    LESS = "less"


class FigureTopic(StrEnum):
    """Headings in comparisons."""

    HARVEST = "Harvest"
    NODE_TIME = "Idle node-time"
    LOSSES = "Work lost"
    TASKS = "Tasks"
    ROUNDS = "Rounds"
    DECISIONS = "Decisions"


class FigurePlace(StrEnum):
    """Where a replay's figures are shown, apart from comparisons and sweeps."""

    TERMINAL = "terminal"
    PAGE = "page"


class ShownWhen(StrEnum):
    """When a table that shows several replays has a row for a figure."""

    ALWAYS = "always"
    KNOWN = "known"  # known in one replay or more
    NOT_ZERO = "not zero"  # not zero in one replay or more
    DIFFERENT = "different"  # different between replays


_FORMATS: Final[Mapping[FigureUnit, Callable[[float], str]]] = {
    FigureUnit.SAMPLES: text_formats.large,
    FigureUnit.SHARE: text_formats.percent,
    FigureUnit.NODE_HOURS: text_formats.count,
    FigureUnit.SECONDS: text_formats.duration,
    FigureUnit.MILLISECONDS: text_formats.milliseconds,
    FigureUnit.COUNT: text_formats.count,
    FigureUnit.RATIO: text_formats.ratio,
}


class SummaryFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``name`` is its path in ``summary.json``, or a separate name if ``value`` computes it.

    ``text`` replaces the plain format for figures with several numbers. Comparisons omit figures without a ``topic``.
    """

    name: str
    label: str
    unit: FigureUnit
    better: BetterDirection | None = None
    short: str = ""  # terminal column heading where the label is too long
    topic: FigureTopic | None = None
    when: ShownWhen = ShownWhen.ALWAYS
    places: frozenset[FigurePlace] = frozenset()
    value: Callable[[object], float | None] | None = None
    text: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def column(self) -> str:
        """Its column in the table of a sweep."""
        return self.name.replace(".", "_")

    @property
    def heading(self) -> str:
        """Its label at the beginning of a line."""
        return f"{self.label[:1].upper()}{self.label[1:]}"

    @property
    def about(self) -> str:
        """Its meaning, from the glossary."""
        return glossary.meaning_of(self.name)

    @property
    def cluster_label(self) -> str:
        """Label on clusters, where nodes are not called idle."""
        return self.label.removeprefix("idle ")

    def value_in(self, summary: object) -> float | None:
        """Return the value in a summary, as read from JSON or as a record; ``None`` where it is unknown."""
        found: float | None = field_of(summary, self.name) if self.value is None else self.value(summary)
        return found

    def format(self, value: float | None) -> str:
        """Return a value as text."""
        return text_formats.UNKNOWN if value is None else _FORMATS[self.unit](value)

    def text_in(self, summary: Mapping[str, Any]) -> str:
        """Return the value in a summary as text."""
        return self.text(summary) if self.text is not None else self.format(self.value_in(summary))

    def shown(self, values: Sequence[float | None]) -> bool:
        """Return whether comparisons show a row for these values."""
        match self.when:
            case ShownWhen.KNOWN:
                return any(value is not None for value in values)
            case ShownWhen.NOT_ZERO:
                return any(values)
            case ShownWhen.DIFFERENT:
                return len(set(values)) > 1
        return True


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _of_idle(part_h: Callable[[object], float]) -> Callable[[object], float | None]:
    return lambda summary: _share(part_h(summary), field_of(summary, "idle_node_h"))


def _lost_h(*losses: SampleLoss) -> Callable[[object], float]:
    return lambda summary: math.fsum(field_of(summary, f"lost.{loss}.node_h") or 0.0 for loss in losses)


def _lost(
    loss: SampleLoss, label: str = "", when: ShownWhen = ShownWhen.ALWAYS, places: frozenset[FigurePlace] = frozenset()
) -> SummaryFigure:
    return _shares(
        name=f"lost.{loss}",
        label=label or f"lost to {LOST[loss]}",
        better=_LESS,
        topic=_LOSSES,
        when=when,
        places=places,
        value=_of_idle(_lost_h(loss)),
    )


def _unused_h(reason: UnusedReason) -> Callable[[object], float]:
    return lambda summary: field_of(summary, f"unused_node_h.{reason}") or 0.0


_samples, _shares, _hours, _times, _measured, _counts, _ratios = (
    partial(SummaryFigure, unit=unit) for unit in FigureUnit
)
_MORE, _LESS = BetterDirection
_HARVEST, _NODE_TIME, _LOSSES, _TASKS, _ROUNDS, _DECISIONS = FigureTopic
_BOTH, _TERMINAL, _PAGE = frozenset(FigurePlace), frozenset({FigurePlace.TERMINAL}), frozenset({FigurePlace.PAGE})
_KNOWN, _NOT_ZERO, _DIFFERENT = ShownWhen.KNOWN, ShownWhen.NOT_ZERO, ShownWhen.DIFFERENT


def _parts(
    make: Callable[..., SummaryFigure],
    name: str,
    label: str,
    *parts: str,
    topic: FigureTopic | None = None,
    places: frozenset[FigurePlace] = frozenset(),
) -> Iterator[SummaryFigure]:
    """Yield a figure for each part of a distribution, such as the mean; smaller values are better."""
    for part in parts:
        text = f"{label}, {PARTS[part]}"
        yield make(name=f"{name}.{part}", label=text, better=_LESS, topic=topic, when=_KNOWN, places=places)


def _harvested_of(reference: str, label: str, places: frozenset[FigurePlace] = frozenset()) -> SummaryFigure:
    """Return the harvest as a share of a reference harvest; more is better."""
    return _shares(
        name=f"harvested_of_{reference}",
        label=f"harvest / {label}",
        better=_MORE,
        topic=_HARVEST,
        when=_KNOWN,
        places=places,
        value=lambda summary: _share(field_of(summary, "harvested"), field_of(summary, f"{reference}_samples")),
    )


FIGURES: Final = (
    _times(name="simulated_s", label="time simulated", topic=_HARVEST, when=_DIFFERENT),
    _samples(name="harvested", label="harvest, samples", short="harvested", better=_MORE, topic=_HARVEST, places=_BOTH),
    _hours(name="harvest_node_h", label="harvest, node-hours", topic=_HARVEST, value=harvest_node_h),
    _shares(name="harvest_share", label="harvest / idle node-time", topic=_HARVEST, value=_of_idle(harvest_node_h)),
    _shares(
        name="efficiency",
        label="efficiency U",
        better=_MORE,
        topic=_HARVEST,
        when=_KNOWN,
        places=_BOTH,
        text=efficiency_text,
    ),
    _shares(name="ceiling_efficiency", label="U without costs", topic=_HARVEST, when=_KNOWN),
    _harvested_of("ceiling", "without costs"),
    _harvested_of("bound", "proven bound", _BOTH),
    _harvested_of("one_each", "one task per node", _PAGE),
    _hours(name="idle_node_h", label="idle node-hours", topic=_NODE_TIME),
    _hours(name="used_node_h", label="idle node-hours used"),
    _shares(
        name="doubtful_share",
        label="idle node-time, doubtful",
        topic=_NODE_TIME,
        when=_NOT_ZERO,
        value=lambda summary: field_of(summary, "doubtful.share"),
    ),
    _shares(
        name="coverage", label="idle node-time used", short="coverage", better=_MORE, topic=_NODE_TIME, places=_BOTH
    ),
    *(
        _shares(
            name=f"unused.{why}",
            label=f"unused: {label}",
            topic=_NODE_TIME,
            when=_NOT_ZERO,
            value=_of_idle(_unused_h(why)),
        )
        for why, label in UNUSED.items()
    ),
    _shares(name="lost", label="lost in all", better=_LESS, topic=_LOSSES, value=_of_idle(_lost_h(*SampleLoss))),
    _lost(SampleLoss.PREEMPTION, places=_BOTH),
    _shares(
        name="lost_to_changes",
        label="lost to rescaling, start-up",
        better=_LESS,
        places=_BOTH,
        value=_of_idle(_lost_h(SampleLoss.RESCALING, SampleLoss.START_UP)),
    ),
    _lost(SampleLoss.RESCALING),
    _lost(SampleLoss.START_UP),
    _lost(SampleLoss.UNNOTICED, label="lost to late notice of finish", when=_NOT_ZERO, places=_TERMINAL),
    _lost(SampleLoss.SPREAD, label="lost to spreading", when=_NOT_ZERO, places=_BOTH),
    *(
        _hours(name=f"lost.{loss}.node_h", label=f"lost to {label}, node-hours", better=_LESS)
        for loss, label in LOST.items()
    ),
    _counts(name="tasks", label="tasks", topic=_TASKS, when=_DIFFERENT),
    _counts(
        name="tasks_finished",
        label="tasks finished",
        better=_MORE,
        topic=_TASKS,
        places=_BOTH,
        text=lambda summary: f"{summary['tasks_finished']:,} of {summary['tasks']:,}",
    ),
    _counts(name="tasks_unfinished", label="tasks not finished", better=_LESS, topic=_TASKS, when=_DIFFERENT),
    _counts(name="tasks_finished_by_all", label="tasks finished in all runs", topic=_TASKS, when=_KNOWN),
    *_parts(_times, "completion_s", "completion time", "mean", topic=_TASKS, places=_BOTH),
    *_parts(_times, "completion_s", "completion time", "p50", "p95", topic=_TASKS),
    *_parts(_times, "completion_s", "completion time", "max"),
    _times(name="completion_at_least_s", label="completion, at least", better=_LESS, topic=_TASKS),
    *_parts(_times, "response_s", "first node after", "mean", topic=_TASKS, places=_PAGE),
    *_parts(_times, "response_s", "first node after", "p95"),
    *_parts(_times, "waited_s", "waiting time", "mean", topic=_TASKS),
    *_parts(_times, "late_s", "lateness of late tasks", "mean"),
    *_parts(_ratios, "slowdown", "slowdown", "mean", "max", "p95", topic=_TASKS),
    *_parts(_ratios, "slowdown", "slowdown", "p50"),
    *_parts(_ratios, "rho", "rho", "mean", topic=_TASKS, places=_PAGE),
    *_parts(_ratios, "rho", "rho", "max", "p95", topic=_TASKS),
    *_parts(_ratios, "rho", "rho", "p50"),
    _shares(name="rho_over_1", label="rho above 1", better=_LESS, topic=_TASKS, when=_KNOWN),
    _times(name="makespan_s", label="all tasks finished after", better=_LESS, topic=_TASKS, when=_KNOWN, places=_BOTH),
    _counts(name="deadlines_missed", label="deadlines missed", better=_LESS, topic=_TASKS, when=_KNOWN),
    _counts(name="cost", label="cost, priced node-hours", better=_LESS, topic=_TASKS, when=_KNOWN, places=_BOTH),
    _counts(name="waits", label="waits", topic=_TASKS, when=_KNOWN),
    _counts(name="starts", label="starts", topic=_TASKS),
    _counts(name="wasted_starts", label="wasted starts", better=_LESS, topic=_TASKS, when=_NOT_ZERO, places=_PAGE),
    _counts(name="rescales", label="rescales", topic=_TASKS, when=_KNOWN),
    _counts(name="preemptions", label="preemptions", topic=_TASKS, places=_PAGE),
    _counts(name="rounds", label="rounds", topic=_ROUNDS),
    *_parts(_times, "responsiveness_s", "time until the first round ended", "mean", "p95", topic=_ROUNDS),
    _counts(name="moves", label="moves to another kind", topic=_ROUNDS),
    _counts(name="taken", label="preemptions by nodes that left", topic=_ROUNDS),
    _counts(name="decisions", label="decisions", topic=_DECISIONS),
    _counts(name="fallbacks", label="decisions by fallback", better=_LESS, topic=_DECISIONS, when=_NOT_ZERO),
    _counts(
        name="infeasible_decisions", label="decisions with no plan", better=_LESS, topic=_DECISIONS, when=_NOT_ZERO
    ),
    *_parts(_measured, "solve_ms", "solver time", "p50", "p99"),
    *_parts(_measured, "decide_ms", "decision time", "p50", topic=_DECISIONS, places=_BOTH),
    *_parts(_measured, "decide_ms", "decision time", "p99", topic=_DECISIONS, places=_PAGE),
    _times(name="wall_s", label="run time of the replay", topic=_DECISIONS),
)
FIGURE_OF: Final[Mapping[str, SummaryFigure]] = {figure.name: figure for figure in FIGURES}
