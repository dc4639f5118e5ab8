"""The result of an experiment: its runs, our values next to the published ones, plots, and a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, Self

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from bftrain import summaries
from bftrain.errors import BadInput
from bftrain.files import write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain_datasets import result_tables
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, HtmlText, html, value_table
from bftrain_replay.reproducing.experiment import (
    FOLDER,
    RATE,
    Experiment,
    Figure,
    Mark,
    Point,
    Published,
    Request,
    XValue,
    published,
)
from bftrain_replay.rounds.round_engine import OVERLOAD
from bftrain_replay.sweeping.sweep import PRINTS, PreparedSweep
from bftrain_replay.sweeping.sweep_passes import POINTS
from bftrain_replay.sweeping.sweep_table import PointRow, PointState

CLOSE: Final = 3.0  # percent: a smaller difference counts as agreement
_LOADS_AT_ONCE: Final = 3  # loads of a line in one sweep: each sweep starts workers, which load their inputs again


def run_all(
    title: str, figures: Sequence[Figure], run: Callable[[PreparedSweep, bool], Sequence[PointRow]]
) -> dict[bytes, PointRow]:
    """Run all points, each once, lower loads first; return their rows by key.

    ``run`` gets a sweep, and whether it must run point by point, without the cache, to measure times. Loads above a
    saturated one are not simulated: they get its row. If a point stays open, the run was interrupted: all points that
    have not run get its row.
    """
    rows: dict[bytes, PointRow] = {}
    for timed in (False, True):
        points = {
            _key(point): point for figure in figures if figure.machine_dependent is timed for point in figure.points
        }
        loads: dict[bytes, list[bytes]] = defaultdict(list)  # points that differ only in their load, lowest load first
        for key, point in sorted(points.items(), key=lambda item: item[1].options.get(RATE, 0.0)):
            if key not in rows:
                loads[_key(point, without=RATE)].append(key)
        while wave := [key for keys in loads.values() for key in keys[:_LOADS_AT_ONCE]]:
            spec = {"title": title, "cases": [dict(points[key].options) for key in wave]}
            rows |= zip(wave, run(PreparedSweep.of(spec, FOLDER), timed), strict=True)
            if unfinished := [rows[key] for key in wave if rows[key].state is PointState.OPEN]:
                others = (_key(point) for figure in figures for point in figure.points)
                return dict.fromkeys(others, unfinished[0]) | rows
            for keys in loads.values():
                done = [rows[key] for key in keys[:_LOADS_AT_ONCE]]
                del keys[:_LOADS_AT_ONCE]
                saturated = [row for row in done if row.cells.get("ended") == OVERLOAD]
                if saturated:
                    rows |= dict.fromkeys(keys, saturated[0])
                    keys.clear()
    return rows


def _key(point: Point, without: str = "") -> bytes:
    return wire.encode({name: value for name, value in sorted(point.options.items()) if name != without})


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a figure: ours, the mean over ``seeds``, and the published one, if any.

    ``ours`` is ``None`` if ``saturated``: the queue grows without bound. ``difference_percent`` is ``None`` for values
    of different seeds or machines.
    """

    figure: str
    line: str
    x: XValue
    seeds: tuple[int, ...]
    ours: float | None
    published: float | None = None
    difference_percent: float | None = None
    saturated: bool = False
    published_seeds: tuple[int, ...] = ()
    source: str = ""


def x_text(x: XValue) -> str:
    """Return an x value as text."""
    return x if isinstance(x, str) else f"{x:,.6g}"


class Agreement(NamedTuple):
    """The agreement of values: how many are compared and close, and the largest difference in percent.

    ``pairs`` counts the pairs of lines with clearly different published values at one x; ``swapped`` names the pairs
    that our values order differently.
    """

    compared: int
    close: int
    largest: float | None
    pairs: int
    swapped: tuple[str, ...]

    @property
    def order(self) -> str:
        """The number of pairs of lines in the published order, in words; empty without pairs."""
        return f"{self.pairs - len(self.swapped):,} of {self.pairs:,}" if self.pairs else ""

    @classmethod
    def of(cls, values: Iterable[Value]) -> Self:
        """Compare these values."""
        differences, pairs, swapped = [], 0, list[str]()
        by_x: dict[tuple[str, XValue, str], list[tuple[str, float, float]]] = defaultdict(list)
        for value in values:
            if value.difference_percent is not None and value.ours and value.published:
                differences.append(abs(value.difference_percent))
                by_x[value.figure, value.x, value.source].append((value.line, value.ours, value.published))
        for (_, x, _), group in by_x.items():
            for (line, ours, theirs), (other_line, our_other, their_other) in combinations(group, 2):
                gap = theirs / their_other - 1.0
                if line != other_line and abs(gap) > CLOSE / 100.0:
                    pairs += 1
                    if (ours - our_other) * gap <= 0.0:
                        swapped.append(f"{line} and {other_line} at {x_text(x)}")
        close = sum(difference <= CLOSE for difference in differences)
        return cls(len(differences), close, max(differences, default=None), pairs, tuple(swapped))


@dataclass(frozen=True)
class Reproduction:
    """The figures of an experiment and its runs, by the options of a point."""

    experiment: Experiment
    request: Request
    figures: tuple[Figure, ...]
    runs: Mapping[bytes, PointRow]

    @cached_property
    def values(self) -> dict[str, list[Value]]:
        """The values by figure, one for each line and x; two where two values are published."""
        return {figure.name: self._compared(figure) for figure in self.figures}

    @cached_property
    def published(self) -> dict[tuple[str, str, XValue], list[Published]]:
        """The published values of these figures, by figure, line and x."""
        names, by_key = {figure.name for figure in self.figures}, defaultdict(list)
        for value in published(self.experiment.name):
            if value.figure in names:
                by_key[value.figure, value.line, value.x].append(value)
        return by_key

    def count(self, state: PointState) -> int:
        """Return the number of runs in this state."""
        return sum(run.state is state for run in self.runs.values())

    @property
    def failure(self) -> str:
        """The reason of the first failed run; empty if all succeeded."""
        return next((run.error for run in self.runs.values() if run.error), "")

    def _compared(self, figure: Figure) -> list[Value]:
        by_key: dict[tuple[str, XValue], dict[int, Mark]] = defaultdict(dict)
        for seed, mark in self._marks(figure):
            by_key[mark.line, mark.x][seed] = mark
        known = ((marks, self.published.get((figure.name, *key), [None])) for key, marks in by_key.items())
        return [_value(figure, marks, one) for marks, theirs in known for one in theirs]

    def _marks(self, figure: Figure) -> list[tuple[int, Mark]]:
        """Return the seed and each value of the finished points of a figure, and its computed values with seed 0."""
        marks: dict[bool, dict[tuple[int, str, XValue], Mark]] = {False: {}, True: {}}
        for point in figure.points:
            run = self.runs[_key(point)]
            for mark in figure.marks(point, run.cells) if run.state is PointState.DONE else ():
                marks[point.divides][point.seed, mark.line, mark.x] = mark
        values, divisors = marks[False], marks[True]
        if any(point.divides for point in figure.points):
            values = {key: mark.over(divisors[key]) for key, mark in values.items() if key in divisors}
        return [(0, mark) for mark in figure.computed_marks] + [(seed, mark) for (seed, *_), mark in values.items()]


def _value(figure: Figure, marks: Mapping[int, Mark], one: Published | None) -> Value:
    """Compare with the mean over the published seeds, or over all seeds if no published seed ran."""
    used = {seed: mark for seed, mark in marks.items() if one and seed in one.seeds} or marks
    numbers = [mark.y for mark in used.values() if mark.y is not None]
    mark, seeds, saturated = next(iter(marks.values())), tuple(sorted(used)), any(m.saturated for m in used.values())
    ours = None if saturated or len(numbers) < len(used) else fmean(numbers)
    value = Value(figure=figure.name, line=mark.line, x=mark.x, seeds=seeds, ours=ours, saturated=saturated)
    if one is None:
        return value
    comparable = one.seeds in {(), seeds} and one.value and not figure.machine_dependent
    difference = 100.0 * (ours / one.value - 1.0) if comparable and ours is not None else None
    return replace(
        value, published=one.value, difference_percent=difference, published_seeds=one.seeds, source=one.source
    )


FORMAT: Final = "bftrain reproduce 1"
SUMMARY: Final = "reproduce.json"
TABLE: Final = "values"
_EXPLAINED: Final = 5.0  # percent: larger differences need an explanation
_ONE_WORD_A_LINE: Final = "split(datum.label, ' ')"  # labels fit narrow screens
_CROSS: Final = "M-1,-1L1,1M-1,1L1,-1"


def result_kind(experiment: Experiment) -> ResultKind:
    """Return the files of an experiment's result."""
    pictures = (f"{name}.{form}" for name, form in product(experiment.figures, vega.FORMS))
    return ResultKind(
        title="reproduction",
        form="bftrain reproduce",
        summary=SUMMARY,
        names=frozenset({SUMMARY, REPORT_FILE, f"{TABLE}.csv", *pictures}),
        records={POINTS: b'{"format":"bftrain sweep '},
        prints=frozenset({PRINTS}),
    )


def write(folder: Path, result: Reproduction) -> None:
    """Write the table, the summary and, where charts can be drawn, the page and each plot as SVG and PNG."""
    data = summary(result)
    table = {name: [row[name] for row in data["values"]] for name in Value.__struct_fields__}
    table |= {name: [" ".join(map(str, seeds)) for seeds in table[name]] for name in ("seeds", "published_seeds")}
    columns = result_tables.columns_of(table)
    result_tables.write(folder, TABLE, columns, result_tables.rows(table), result_tables.CSV, FORMAT)
    write_text(folder / SUMMARY, summaries.to_json(data))
    if vega.available():
        drawn = page(result)
        write_text(folder / REPORT_FILE, html(drawn))
        for form in vega.FORMS:
            vega.write(drawn.figures, folder, form)


def continues(folder: Path, experiment: Experiment, request: Request) -> bool:
    """Return whether a folder has a result of the same request."""
    try:
        data = wire.decode((folder / SUMMARY).read_bytes(), dict[str, Any])
    except (OSError, BadInput):
        return False
    return (data.get("experiment"), data.get("request")) == (experiment.name, request.options)


def summary(result: Reproduction) -> dict[str, Any]:
    """Return the content of ``reproduce.json``."""
    values = [*chain(*result.values.values())]
    agreement = Agreement.of(values)
    return {
        "format": FORMAT,
        "experiment": result.experiment.name,
        "request": result.request.options,
        "complete": not result.count(PointState.OPEN),
        "figures": [figure.name for figure in result.figures],
        "runs": len(result.runs),
        **{str(state): result.count(state) for state in PointState},
        "compared": agreement.compared,
        "within_3_percent": agreement.close,
        "largest_difference_percent": agreement.largest,
        "pairs": agreement.pairs,
        "pairs_in_published_order": agreement.pairs - len(agreement.swapped),
        "published": sum(map(len, result.published.values())),
        "values": [to_builtins(value) for value in values],
    }


def figures_with_values(result: Reproduction) -> list[tuple[Figure, list[Value]]]:
    """Return the figures that have values, and these."""
    return [(figure, values) for figure in result.figures if (values := result.values[figure.name])]


def page(result: Reproduction) -> HtmlPage:
    """Return the page: the number of values that agree, by figure, and each figure with its plot and its table."""
    experiment, agreement = result.experiment, Agreement.of(chain(*result.values.values()))
    left, failed = result.count(PointState.OPEN), result.count(PointState.FAILED)
    warnings = [f"{counted(left, 'run')} still to be done."] if left else []
    warnings += [f"{counted(failed, 'run')} failed: {result.failure}."] if failed else []
    shown = figures_with_values(result)
    charts = [*chain(*(_charts(figure, values) for figure, values in shown))]
    results = [
        (figure.title, _intro(figure, values), figure.name, table_of(figure, values)) for figure, values in shown
    ]
    close = f"<strong>{agreement.close:,} of {agreement.compared:,} published values</strong>"
    lead = f"{close} are reproduced within {CLOSE:g} %; the largest difference is {agreement.largest or 0.0:.1f} %."
    return HtmlPage(
        template="reproduce.html",
        title=f"{experiment.title}, reproduced",
        main=next((chart.name for chart in charts), ""),
        figures=charts,
        warnings=warnings,
        parts={
            "source": experiment.source,
            "lead": HtmlText(lead) if agreement.compared else "No published value has the seeds of this run.",
            "cards": list(_cards(result, agreement)),
            "agreement": _agreement(result) if agreement.compared else None,
            "results": results,
        },
        static_command=f"bftrain reproduce {experiment.name} -o DIR",
    )


def _cards(result: Reproduction, agreement: Agreement) -> Iterator[tuple[str, str, str]]:
    """Yield the cards: how well the values agree, and how many are not compared."""
    if agreement.compared:
        yield f"Within {CLOSE:g} %", f"{agreement.close:,}", f"of {counted(agreement.compared, 'published value')}"
    if agreement.pairs:
        yield "In the published order", agreement.order, "pairs of lines at the same x"
    if left := sum(map(len, result.published.values())) - agreement.compared:
        yield "Published, not compared", f"{left:,}", "saturated, not run, or with other seeds or machines"


def _agreement(result: Reproduction) -> HtmlTable:
    by_figure = {name: Agreement.of(values) for name, values in result.values.items()}
    rows = [
        (name, f"{found.compared:,}", f"{found.close:,}", f"{found.largest:.1f} %", found.order)
        for name, found in by_figure.items()
        if found.largest is not None
    ]
    headings = ("figure", "compared", f"within {CLOSE:g} %", "largest", "pairs in order")
    about = {figure.name: figure.title for figure in result.figures}
    return HtmlTable(label="Agreement", headings=headings, rows=rows, about=about)


def table_of(figure: Figure, values: Sequence[Value]) -> HtmlTable:
    """Return the table of a figure's values, without empty columns; seeds and sources are given where they differ."""
    number: Callable[[float], str] = f"{{:,.{figure.digits}f}}".format
    columns: dict[str, Callable[[Any], str]] = {"line": str, figure.x: x_text, "ours": number, "published": number}
    columns |= {"difference": "{:+.1f} %".format, "seeds": str, "source": str}
    sources = {value.source for value in values}

    def row(value: Value) -> tuple[object, ...]:
        own, theirs = (" ".join(map(str, part)) for part in (value.seeds, value.published_seeds))
        seeds = None if value.published_seeds in {(), value.seeds} else f"{own} (published: {theirs})"
        ours = HtmlCell("saturated") if value.saturated else value.ours
        source = value.source if len(sources) > 1 else None
        return value.line, value.x, ours, value.published, value.difference_percent, seeds, source

    cells = zip(columns, zip(*map(row, values), strict=True), strict=True)
    shown = {name: column for name, column in cells if {*column} != {None}}
    forms = {name: columns[name] for name in shown}
    return value_table(figure.title, forms, zip(*shown.values(), strict=True), folded="All values")


def _intro(figure: Figure, values: Sequence[Value]) -> str:
    sentences = [figure.note] if figure.note else []
    if large := sum(abs(value.difference_percent or 0.0) > _EXPLAINED for value in values):
        sentences.append(
            f"{counted(large, 'value')} {'differs' if large == 1 else 'differ'} by more than {_EXPLAINED:g} %."
        )
    if swapped := Agreement.of(values).swapped:
        sentences.append(f"In another order than published: {'; '.join(swapped)}.")
    return " ".join(sentences)


def _charts(figure: Figure, values: Sequence[Value]) -> Iterator[ChartFigure]:
    """Draw a heat map, or our values as lines or points and the published ones as crosses, if there are values."""
    drawn = {(value.line, value.x): value for value in sorted(values, key=lambda value: len(value.seeds))}
    data = [
        {"line": value.line, "x": value.x, "y": y, "from": who, "words": f"{label}: {y:,.6g} ({who})"}
        for value in values
        if drawn[value.line, value.x] is value and not value.saturated
        for label in [f"{value.line}, {x_text(value.x)}"]
        for who, y in (("ours", value.ours), ("published", value.published))
        if y is not None
    ]
    if not data:
        return
    crosses = any(one["from"] == "published" for one in data)
    captions = ["Crosses are published values."] if crosses else []
    captions += ["Saturated points are not drawn."] if any(value.saturated for value in values) else []
    spec = _heat_map(figure, values) if figure.form == "heat" else _lines(figure, values, crosses=crosses)
    yield ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} against {figure.x}.",
        caption=" ".join(captions),
        height=320,
        spec={"data": {"values": data}, **spec},
    )


def _lines(figure: Figure, values: Sequence[Value], *, crosses: bool) -> dict[str, Any]:
    names = any(isinstance(value.x, str) for value in values)
    as_points = figure.form == "points" or names
    scale = {"nice": False, "type": "log"} if figure.log_x else {"nice": False, "zero": False}
    x = quantity("x", title=figure.x, scale=scale)
    if names:
        order = list(dict.fromkeys(x_text(value.x) for value in values))
        x = category("x", title=figure.x or None, sort=order, axis={"labelAngle": 0, "labelExpr": _ONE_WORD_A_LINE})
    y = quantity("y", title=figure.y, scale={"type": "log"} if figure.log_y else {"zero": False})
    symbol = {} if as_points else {"symbolType": "stroke", "symbolStrokeWidth": 3}
    color = category("line", title=None, sort=list(dict.fromkeys(value.line for value in values)), legend=symbol)
    ours: dict[str, Any] = {"type": "line", "strokeWidth": 2, "point": figure.form == "lines"}
    if as_points:
        ours = {"type": "point", "filled": True, "size": 90}
    elif figure.form == "steps":
        ours["interpolate"] = "step-after"
    layers: list[dict[str, Any]] = [{"transform": [{"filter": "datum.from == 'ours'"}], "mark": ours}]
    if crosses:
        cross = {"type": "point", "shape": _CROSS, "size": 50, "strokeWidth": 1.5, "opacity": 1}
        # On a point, a cross of the same color would be invisible
        visible = {"encoding": {"color": {"value": "@ink"}}} if as_points else {}
        layers.append({"transform": [{"filter": "datum.from == 'published'"}], "mark": cross, **visible})
    return {"encoding": {"x": x, "y": y, "color": color, "tooltip": category("words")}, "layer": layers}


def _heat_map(figure: Figure, values: Sequence[Value]) -> dict[str, Any]:
    """Draw our values as the colours of a grid, with the lines as the vertical axis."""
    largest = max((abs(value.ours) for value in values if value.ours is not None), default=1.0)
    lines = sorted({value.line for value in values}, key=float, reverse=True)
    encoding = {
        "x": category("x", title=figure.x, axis={"labelAngle": 0}),
        "y": category("line", title=figure.y, sort=lines),
        "color": quantity("y", title=None, scale={"scheme": "redblue", "domain": [largest, -largest]}),
        "tooltip": category("words"),
    }
    return {"encoding": encoding, "mark": "rect"}
