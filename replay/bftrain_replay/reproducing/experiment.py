"""The vocabulary of published experiments: figures, their points, and the published values beside ours.

An experiment writes its input files and returns figures. A point of a figure is a point of a sweep: a set of options
as in a sweep file (docs/sweeps.md). :mod:`running` runs all points as one sweep, so finished points are never repeated.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

Options = Mapping[str, Any]  # of a point, by their names in a sweep file
Cells = Mapping[str, object]  # one row of the sweep's table, by column
Place = float | str  # on the horizontal axis

HOUR_S: Final = 3600.0


class Mark(NamedTuple):
    """One value in a figure: its line, its place and the value. ``saturated``: the value has no meaning."""

    line: str
    x: Place
    y: float | None
    saturated: bool = False


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``options`` must contain its seed, if it has one; points with equal options run once."""

    line: str
    x: Place
    options: Options
    seed: int = 0


Marks = Callable[[Point, Cells], Iterable[Mark]]


def column(name: str, unit: float = 1.0, saturated: Callable[[Cells], bool] = lambda _: False) -> Marks:
    """Return how a figure reads one column of the sweep's table, divided by ``unit``, at the place of the point."""

    def marks(point: Point, cells: Cells) -> Iterable[Mark]:
        value = cells.get(name)
        number = float(value) / unit if isinstance(value, int | float) else None
        yield Mark(point.line, point.x, number, saturated(cells))

    return marks


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``marks`` reads the values of a point from its row; seeds are averaged.

    Axes are titled ``x`` and ``y``; ``form`` is how the lines are drawn: in a heat map, lines are the vertical places.
    ``note`` explains differences on the page. ``ready`` are values that need no run.
    """

    name: str
    title: str
    x: str
    y: str
    points: tuple[Point, ...] = ()
    marks: Marks = column("completion_s_mean", HOUR_S)
    ready: tuple[Mark, ...] = ()
    form: Literal["lines", "steps", "bars", "heat"] = "lines"
    log_x: bool = False
    log_y: bool = False
    digits: int = 2  # behind the decimal point, in tables
    note: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a user. ``figures`` are the wanted names; input files go to ``folder``."""

    folder: Path
    figures: tuple[str, ...]
    seeds: tuple[int, ...] = ()  # none: those of the experiment
    traces: Path | None = None
    quick: bool = False


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A published experiment. ``figures`` maps the name of each figure to a short title, in the published order.

    ``prepare`` writes input files and returns the requested figures, in any order. ``needs`` describes the folder that
    ``--traces`` must name; empty if the experiment generates its inputs.
    """

    name: str
    title: str
    source: str
    figures: Mapping[str, str]
    prepare: Callable[[Request], Sequence[Figure]]
    needs: str = ""


class Published(msgspec.Struct, frozen=True):
    """One published value. ``seeds`` are those over which it is the mean; none: not specified."""

    figure: str
    line: str
    x: Place
    value: float
    unit: str
    seeds: tuple[int, ...]
    source: str


def published(experiment: str) -> tuple[Published, ...]:
    """Return the published values of an experiment, from the CSV file of its name; none if there is no file."""
    path = files(__package__).joinpath("published", f"{experiment}.csv")
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8") as lines:
        return tuple(map(_published, csv.DictReader(lines)))


def _published(row: Mapping[str, str]) -> Published:
    seeds = tuple(int(seed) for seed in row["seeds"].split())
    own = {name: row[name] for name in ("figure", "line", "unit", "source")}
    return Published(**own, x=as_place(row["x"]), value=float(row["value"]), seeds=seeds)


def as_place(text: str) -> Place:
    """Return a place as a number if it is one."""
    try:
        return float(text)
    except ValueError:
        return text
