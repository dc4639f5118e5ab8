"""Grid: the points of a sweep, each with the values of its options."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from bftrain.errors import BadValue
from bftrain.measuring import from_anywhere
from bftrain.values import wire
from bftrain_replay.settings import ReplaySettings
from bftrain_replay.sweeping.options import BASELINE, INPUTS, LOG, METRICS, TASKS, Value, input_of, setting_named
from bftrain_replay.sweeping.spec import CASES, GRID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bftrain_replay.sweeping.spec import Options, Spec

MOST_POINTS: Final = 1_000_000


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of options: one row of the table. ``options`` are those that are swept, as they are meant."""

    options: dict[str, Value]
    log: str
    tasks: str
    baseline: str
    settings: ReplaySettings
    changes: dict[str, Value] = msgspec.field(default_factory=dict)  # in generated inputs, by their dotted names

    @property
    def words(self) -> str:
        """Its options in words."""
        return ", ".join(f"{name} = {value}" for name, value in self.options.items()) or "all as fixed"


def points_of(spec: Spec) -> tuple[Point, ...]:
    """Give all points: case by case, and of the grid the last option changes fastest."""
    count = len(spec.cases) * prod(map(len, spec.axes.values()))
    if count > MOST_POINTS:
        raise spec.document.wrong(f"{count:,} points are too many", GRID, fix=f"make it {MOST_POINTS:,} at most")
    found: dict[tuple[object, ...], Point] = {}
    for chosen in _combinations(spec):
        point = _point(spec, chosen)
        changes = tuple(point.changes.items())
        key = (
            point.log,
            point.tasks,
            changes,
            point.baseline,
            wire.encode(point.settings),
        )  # settings may hold mappings
        if key in found:
            raise spec.document.wrong(f"the point {point.words} comes twice", CASES if len(spec.cases) > 1 else GRID)
        found[key] = point
    if not found:
        raise spec.document.wrong("there is no point left", GRID, fix="exclude fewer of them")
    return tuple(found.values())


def _combinations(spec: Spec) -> Iterator[Options]:
    for case in spec.cases:
        for values in product(*spec.axes.values()):
            chosen = case | dict(zip(spec.axes, values, strict=True))
            if not any(_matches(chosen, entry) for entry in spec.exclude):
                yield chosen


def _matches(chosen: Options, entry: Mapping[str, tuple[Value, ...]]) -> bool:
    return all(chosen.get(name) in values for name, values in entry.items())


def _point(spec: Spec, chosen: Options) -> Point:
    given = spec.fixed | chosen
    inputs = {name: given.pop(name, "") for name in INPUTS}
    for name, value in inputs.items():
        if not isinstance(value, str):
            raise spec.document.wrong(f"must be text, not {value!r}", *spec.place_of(name))
    changes = {name: given.pop(name) for name in list(given) if input_of(name)}
    log, tasks, baseline = (str(inputs[name]) for name in (LOG, TASKS, BASELINE))
    try:
        settings = ReplaySettings(**given)  # type: ignore[arg-type]  # it checks them itself
    except BadValue as error:
        raise spec.document.wrong(error.what, *spec.place_of(setting_named(error)), fix=error.fix) from error
    spec.log(log, changes), spec.tasks(tasks, changes)  # whatever is wrong with them is told before any work
    own = {METRICS: settings.metrics}  # as it was written
    settings = replace(settings, metrics=from_anywhere(settings.metrics, spec.document.folder))
    meant = {name: _meant(name, inputs | changes | own, settings) for name in spec.swept}
    return Point(options=meant, log=log, tasks=tasks, baseline=baseline, settings=settings, changes=changes)


def _meant(name: str, given: Mapping[str, Value], settings: ReplaySettings) -> Value:
    return given[name] if name in given else getattr(settings, name)
