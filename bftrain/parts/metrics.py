"""Metrics of one's own: numbers by name that are drawn out of a finished run, beside those that every run has.

A metric is a function of a run, which gives one number called like the metric, or an object with ``name``, ``figures``
(the names of its numbers) and ``measure(run)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from bftrain import registry
from bftrain.errors import BadInput, BrokenPlugin
from bftrain.exception_text import described, raised
from bftrain.parts import python_file
from bftrain.ports import Metric


@dataclass(frozen=True, slots=True)
class FunctionMetric:
    """One number, as a plain function gives it."""

    name: str
    function: Callable[[Any], object]

    @property
    def figures(self) -> tuple[str, ...]:
        """Its number is called like itself."""
        return (self.name,)

    def measure(self, run: Any) -> Mapping[str, object]:  # noqa: ANN401 - a metric's own type of run
        """Ask the function."""
        return {self.name: self.function(run)}


def metrics_of(said: str) -> tuple[Metric, ...]:
    """Give the metrics that ``said`` names, with commas between: registered ones, or ``FILE.py:NAME``."""
    found = tuple(resolve(name.strip()) for name in said.split(",")) if said else ()
    names = [figure for metric in found for figure in metric.figures]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"two of them have a number called '{twice}'", where="metrics", fix="leave one of them out")
    return found


def resolve(name: str, given: object = None) -> Metric:
    """Give the metric called ``name``, or make one of what is ``given``."""
    file, attribute = python_file.parts(name)
    where = f"metric '{name}'"
    if given is None:
        given = registry.load("metric", name) if file is None else python_file.load(file, attribute, where)
    if inspect.isclass(given):
        try:
            given = given()
        except Exception as error:
            raise BrokenPlugin(f"cannot be made without arguments: {described(error)}", where=where) from error
    if isinstance(given, Metric):
        return given
    if callable(given):
        return FunctionMetric(attribute, given)
    what = "has not what bftrain.ports asks for: name, figures and measure(run), or a function of a run"
    raise BrokenPlugin(what, where=where, fix="docs/adding/metric.md shows a whole one")


def measured(metrics: Iterable[Metric], run: object) -> dict[str, float | None]:
    """Measure a run; unknown and infinite figures are ``None``."""
    found: dict[str, float | None] = {}
    for metric in metrics:
        where = f"metric '{metric.name}'"
        try:
            given = dict(metric.measure(run))
            numbers = {name: _number(given.pop(name)) for name in metric.figures}
        except Exception as error:
            raise BrokenPlugin(raised(error), where=where) from error
        if given:
            raise BrokenPlugin(f"gives '{next(iter(given))}', which is not among its figures", where=where)
        found |= numbers
    return found


class MeasuredFigures(NamedTuple):
    """The numbers of a run, and what was wrong with metrics that gave none: theirs are ``None``."""

    numbers: dict[str, float | None]
    broken: tuple[BrokenPlugin, ...] = ()


def measured_if_possible(metrics: Iterable[Metric], run: object) -> MeasuredFigures:
    """Measure a run that took long enough to be kept, even if one of its metrics is broken."""
    numbers: dict[str, float | None] = {}
    broken = []
    for metric in metrics:
        try:
            numbers |= measured((metric,), run)
        except BrokenPlugin as error:
            numbers |= dict.fromkeys(metric.figures)
            broken.append(error)
    return MeasuredFigures(numbers, tuple(broken))


def notes_on_broken(broken: Iterable[BrokenPlugin]) -> Iterator[str]:
    """Say what was wrong with metrics, once for all runs that were measured."""
    for text in dict.fromkeys(map(str, broken)):
        yield f"{text}; its numbers are null"


def figures_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Name all numbers of these metrics."""
    return tuple(figure for metric in metrics for figure in metric.figures)


def from_anywhere(said: str, folder: Path | None = None) -> str:
    """Give the same metrics by names that hold in every folder; files are looked for from ``folder`` on."""
    found = []
    for name in filter(None, said.split(",")):
        file, attribute = python_file.parts(name.strip())
        found.append(name.strip() if file is None else f"{((folder or Path()) / file).resolve()}:{attribute}")
    return ",".join(found)


def _number(given: object) -> float | None:
    if given is None:
        return None
    number = float(given)  # type: ignore[arg-type]  # float() itself refuses what is no number
    return number if isfinite(number) else None
