"""Every figure of a summary: its label, unit, format, better direction, meaning, and where it is shown.

The terminal, pages, comparisons, sweeps, ``bftrain explain`` and the glossary all read ``figures.toml``. A new figure
needs a field of :class:`ReplaySummary`, which is then in ``summary.json`` and in the tables of sweeps, and an entry
there; a figure that is computed from others needs a line in ``_COMPUTED`` instead of the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bftrain import text_formats, toml_io
from bftrain.errors import UnknownName, fold, near
from bftrain_replay.run.headline import efficiency_text, field_of, harvest_node_h
from bftrain_replay.run.task_figures import share_of
from bftrain_replay.simulation.task_progress import SampleLoss

PARTS: Final = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99", "max": "max"}


class GlossaryTopic(StrEnum):
    """Headings of the glossary."""

    HARVEST = "Harvest"
    UNUSED = "Why idle nodes stayed unused"
    LOST = "How work was lost"
    TASKS = "Tasks"
    ROUNDS = "Time shared in rounds"
    DECISIONS = "Decisions and run time"
    SITE = "For a site"


_PAGES: Final = {
    GlossaryTopic.HARVEST: "docs/explanation/semantics.md#yardsticks",
    GlossaryTopic.UNUSED: "docs/explanation/semantics.md#node-time",
    GlossaryTopic.LOST: "docs/explanation/semantics.md#node-time",
    GlossaryTopic.TASKS: "docs/reference/results.md#task-durations-and-fairness",
    GlossaryTopic.ROUNDS: "docs/how-to/rounds.md",
    GlossaryTopic.DECISIONS: "docs/reference/results.md",
    GlossaryTopic.SITE: "docs/how-to/assess.md",
}


class GlossaryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A figure: its ``key`` in files, its meaning and formula, and further reading; ``also`` are other names."""

    key: str
    meaning: str
    topic: GlossaryTopic
    formula: str = ""
    page: str
    also: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The meaning as a sentence."""
        return f"{self.meaning[:1].upper()}{self.meaning[1:]}."


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
    ``predicate``, ``colour`` and ``explanation`` describe a part of the idle node-time on the page of a replay.
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
    predicate: str = ""  # completes a sentence that starts with a number of node-hours
    colour: str = "@unused"
    explanation: str = ""

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
        return meaning_of(self.name)

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


def _of_idle(part_h: Callable[[object], float]) -> Callable[[object], float | None]:
    return lambda summary: share_of(part_h(summary), field_of(summary, "idle_node_h"))


def _lost_h(*losses: str) -> Callable[[object], float]:
    return lambda summary: math.fsum(field_of(summary, f"lost.{loss}.node_h") or 0.0 for loss in losses)


def _computed(name: str) -> Callable[[object], float | None] | None:
    """Return the function that computes a figure; ``None`` for a field of the summary."""
    of, _, part = name.partition(".")
    if of == "unused":
        return _of_idle(lambda summary: field_of(summary, f"unused_node_h.{part}") or 0.0)
    if of == "lost" and not part.endswith(".node_h"):
        return _of_idle(_lost_h(*([part] if part else SampleLoss)))
    if name.startswith("harvested_of_"):
        reference = f"{name.removeprefix('harvested_of_')}_samples"
        return lambda summary: share_of(field_of(summary, "harvested"), field_of(summary, reference))
    return _COMPUTED.get(name)


_COMPUTED: Final[Mapping[str, Callable[[object], float | None]]] = {
    "harvest_node_h": harvest_node_h,
    "harvest_share": _of_idle(harvest_node_h),
    "doubtful_share": lambda summary: field_of(summary, "doubtful.share"),
    "lost_to_changes": _of_idle(_lost_h(SampleLoss.RESCALING, SampleLoss.START_UP)),
}
_TEXTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "efficiency": efficiency_text,
    "tasks_finished": lambda summary: f"{summary['tasks_finished']:,} of {summary['tasks']:,}",
}
_EXPLAINED: Final = ("meaning", "formula", "also")  # fields of the glossary alone


def _read() -> tuple[tuple[GlossaryEntry, ...], tuple[SummaryFigure, ...]]:
    """Return the glossary by topic, and all figures in the order of tables."""
    rows = toml_io.parse(files("bftrain_replay.run").joinpath("figures.toml").read_text("utf-8"), "figures.toml")
    entries, figures = [], list[SummaryFigure]()
    for key, row in rows.items():
        explained = {name: row.pop(name) for name in _EXPLAINED if name in row}
        if (topic := row.pop("topic", None)) is not None:
            explained |= {"key": key, "topic": topic, "page": _PAGES[GlossaryTopic(topic)]}
            entries.append(msgspec.convert(explained, GlossaryEntry))
        if "label" in row:
            figures += _figures(key, row)
    return tuple(sorted(entries, key=lambda entry: [*GlossaryTopic].index(entry.topic))), tuple(figures)


def _figures(key: str, row: dict[str, Any]) -> Iterator[SummaryFigure]:
    parts: Mapping[str, Sequence[str]] = row.pop("parts", {})
    topic = row.pop("group", None)
    figure = msgspec.convert({**row, "name": key, "topic": topic}, SummaryFigure)
    if not parts:
        yield replace(figure, value=_computed(key), text=_TEXTS.get(key))
    for part, places in parts.items():  # smaller values are better
        shown = frozenset(map(FigurePlace, {*places} - {_COMPARED}))
        yield replace(
            figure,
            name=f"{key}.{part}",
            label=f"{figure.label}, {PARTS[part]}",
            better=BetterDirection.LESS,
            topic=figure.topic if _COMPARED in places else None,
            when=ShownWhen.KNOWN,
            places=shown,
        )


_COMPARED: Final = "comparison"  # the place that shows parts of a distribution
GLOSSARY, FIGURES = _read()
GLOSSARY_OF: Final = {entry.key: entry for entry in GLOSSARY}
FIGURE_OF: Final[Mapping[str, SummaryFigure]] = {figure.name: figure for figure in FIGURES}


def entry_of(figure: str) -> GlossaryEntry | None:
    """Return a figure's entry by its key; parts of a spread, such as ``rho.p95``, share the entry of the spread.

    >>> entry_of("rho.p95").key
    'rho'
    """
    while figure not in GLOSSARY_OF and "." in figure:
        figure = figure.rpartition(".")[0]
    return GLOSSARY_OF.get(figure)


def meaning_of(figure: str) -> str:
    """Return the meaning of a figure as a sentence; "" if it is not in the glossary."""
    entry = entry_of(figure)
    return "" if entry is None else entry.sentence


def find_entry(text: str, labels: dict[str, str]) -> GlossaryEntry:
    """Find an entry by its key, another name, or one of the ``labels`` (label of a figure -> its key).

    Raises:
        UnknownName: None is called so; it names the nearest.

    """
    names = {fold(label): key for label, key in labels.items()}
    names |= {fold(name): entry.key for entry in GLOSSARY for name in (entry.key, *entry.also)}
    found = entry_of(names.get(fold(text.strip()), text.strip()))
    if found is None:
        raise UnknownName(f"no figure is called '{text}'", fix=near(text, names) or "bftrain explain lists all")
    return found
