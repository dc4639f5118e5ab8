"""Every figure of a summary: its label, unit, format, better direction, meaning, and where it is shown.

The terminal, pages, comparisons, sweeps, ``bftrain explain`` and the glossary all read ``figures.toml``. A new figure
needs an entry there, and a field of :class:`ReplaySummary`, which is then in ``summary.json`` and in the tables of
sweeps. A figure that is computed from other figures needs a line in ``_COMPUTED`` instead of the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from bftrain import text_formats, toml_io
from bftrain.errors import UnknownName, fold, near
from bftrain_replay.run.headline import efficiency_text, field_of, harvest_node_h
from bftrain_replay.run.task_figures import share_of
from bftrain_replay.simulation.task_progress import SampleLoss

PARTS: Final = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99", "max": "max"}  # numbers of a distribution
# Headings of the glossary, and pages for further reading
GLOSSARY_PAGES: Final = {
    "Harvest": "docs/explanation/semantics.md#yardsticks",
    "Why idle nodes stayed unused": "docs/explanation/semantics.md#node-time",
    "How work was lost": "docs/explanation/semantics.md#node-time",
    "Tasks": "docs/reference/results.md#task-durations-and-fairness",
    "Time shared in rounds": "docs/how-to/rounds.md",
    "Decisions and run time": "docs/reference/results.md",
    "For a site": "docs/how-to/assess.md",
}
Place = Literal["terminal", "page", "comparison"]
FigureUnit = Literal["samples", "share", "node-hours", "s", "ms", "count", "ratio"]  # shares are fractions from 0 to 1
# Headings in comparisons
FigureTopic = Literal["Harvest", "Idle node-time", "Work lost", "Tasks", "Rounds", "Decisions"]


class GlossaryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A figure: its ``key`` in files, its meaning and formula, and further reading; ``also`` are other names."""

    key: str
    meaning: str
    topic: str
    formula: str = ""
    page: str
    also: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The meaning as a sentence."""
        return f"{self.meaning[:1].upper()}{self.meaning[1:]}."


_FORMATS: Final[Mapping[FigureUnit, Callable[[float], str]]] = {
    "samples": text_formats.large,
    "share": text_formats.percent,
    "node-hours": text_formats.count,
    "s": text_formats.duration,
    "ms": text_formats.milliseconds,
    "count": text_formats.count,
    "ratio": text_formats.ratio,
}


class SummaryFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``name`` is its path in ``summary.json``, or a separate name if ``value`` computes it.

    ``text`` replaces the plain format for figures with several numbers or a mark. Comparisons omit figures without a
    ``topic``, and show the rest ``when`` a value is known, not zero, or different between replays.
    The terminal and the page of a replay show a figure if they are among its ``places``.
    ``predicate``, ``colour`` and ``explanation`` describe a part of the idle node-time on the page of a replay.
    """

    name: str
    label: str
    unit: FigureUnit
    better: Literal["more", "less"] | None = None
    short: str = ""  # terminal column heading where the label is too long
    topic: FigureTopic | None = None
    when: Literal["always", "known", "not zero", "different"] = "always"
    places: frozenset[Place] = frozenset()
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
        """Its label with a capital letter."""
        return f"{self.label[:1].upper()}{self.label[1:]}"

    @property
    def about(self) -> str:
        """Its meaning, from the glossary."""
        return meaning_of(self.name)

    @property
    def cluster_label(self) -> str:
        """Its label on clusters, where nodes are not called idle."""
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
        """Return whether a table shows a row for these values."""
        match self.when:
            case "known":
                return any(value is not None for value in values)
            case "not zero":
                return any(values)
            case "different":
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
            explained |= {"key": key, "topic": topic, "page": GLOSSARY_PAGES[topic]}
            entries.append(msgspec.convert(explained, GlossaryEntry))
        if "label" in row:
            figures += _figures(key, row)
    return tuple(sorted(entries, key=lambda entry: [*GLOSSARY_PAGES].index(entry.topic))), tuple(figures)


def _figures(key: str, row: dict[str, Any]) -> Iterator[SummaryFigure]:
    parts = msgspec.convert(row.pop("parts", {}), dict[str, frozenset[Place]])
    topic = row.pop("group", None)
    figure = msgspec.convert({**row, "name": key, "topic": topic}, SummaryFigure)
    if not parts:
        yield replace(figure, value=_computed(key), text=_TEXTS.get(key))
    for part, places in parts.items():  # smaller values are better
        yield replace(
            figure,
            name=f"{key}.{part}",
            label=f"{figure.label}, {PARTS[part]}",
            better="less",
            topic=figure.topic if "comparison" in places else None,
            when="known",
            places=places,
        )


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


def find_entry(text: str) -> GlossaryEntry:
    """Find an entry by its key, another name, or the label of a figure; otherwise raise ``UnknownName``."""
    names = {fold(figure.label): figure.name for figure in FIGURES}
    names |= {fold(name): entry.key for entry in GLOSSARY for name in (entry.key, *entry.also)}
    found = entry_of(names.get(fold(text.strip()), text.strip()))
    if found is None:
        raise UnknownName(f"no figure is called '{text}'", fix=near(text, names) or "bftrain explain lists all")
    return found
