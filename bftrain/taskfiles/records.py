"""Task records: conversion between tasks as plain keys and values and TaskSpec, and the bundled model profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import fields

from bftrain.errors import BadInput, BadValue, UnknownName
from bftrain.ranges import size_range
from bftrain.values import wire
from bftrain.values.batch_scaling import BatchScaling
from bftrain.values.curve import SpeedCurve
from bftrain.values.job import Run
from bftrain.values.resources import ResourceSpeeds
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec

T = TypeVar("T")
V = TypeVar("V", TaskSpec, SpeedCurve)

# Measured speeds of seven image models on 1 to 64 nodes of Summit, images per second, and their rescaling costs: the
# figures published with BFTrainer (Liu, Kettimuthu, Papka, Foster: "BFTrainer: Low-Cost Training of Neural Networks on
# Unfillable Supercomputer Nodes", arXiv:2106.12091)
SOURCE: Final = "BFTrainer, arXiv:2106.12091"
MEASURED_WORK_SAMPLES: Final = 1.3e8
GROW_COST_S: Final = 18.0
SHRINK_COST_S: Final = 12.0

_NODES: Final = (1, 2, 4, 8, 16, 32, 64)
_RATES: Final[Mapping[str, tuple[float, ...]]] = {
    "alexnet": (7115, 13072, 21066, 40485, 74003, 130762, 202135),
    "resnet18": (5219, 10583, 20436, 39584, 78024, 144763, 262723),
    "mnasnet": (3246, 6002, 11489, 23076, 43900, 83474, 160494),
    "mobilenet": (3040, 5893, 11386, 22025, 42488, 82268, 155214),
    "shufflenet": (2831, 5259, 9988, 20379, 38895, 74125, 145082),
    "vgg16": (1193, 2389, 4692, 9258, 18349, 36209, 70152),
    "densenet": (990, 1953, 3850, 7608, 14993, 28812, 57774),
}
PROFILE_NAMES: Final[tuple[str, ...]] = tuple(_RATES)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A measured model: speed in samples/s by size, seconds to grow and to shrink, and the source.

    Costs of the bundled ones are means over the models: growing took 17 to 19 s, shrinking 11 to 13 s; the cost of
    a start from zero nodes is not published.
    """

    name: str
    curve: SpeedCurve
    grow_cost_s: float
    shrink_cost_s: float
    start_cost_s: float | None = None
    source: str
    batch: BatchScaling | None = None  # allowed batches of its tasks
    spread: SpreadSpeeds | None = None  # speed of its tasks on several hosts


@cache
def profiles() -> Mapping[str, Profile]:
    """Return all bundled profiles by name, the fastest model first."""
    curves = {name: SpeedCurve(nodes=_NODES, rate=rates) for name, rates in _RATES.items()}
    costs: dict[str, Any] = {"grow_cost_s": GROW_COST_S, "shrink_cost_s": SHRINK_COST_S}
    return MappingProxyType(
        {name: Profile(name=name, curve=curve, source=SOURCE, **costs) for name, curve in curves.items()}
    )


def profile(name: str, *, where: str | None = None) -> Profile:
    """Return the bundled profile of this name; the error for an unknown name lists the known ones."""
    known = profiles()
    if name not in known:
        raise UnknownName.among("profile", name, known, where=where)
    return known[name]


_TYPES: Final = {field.name: field.type for field in fields(TaskSpec)}
COUNTS: Final = tuple(name for name, kind in _TYPES.items() if kind is int)
NUMBERS: Final = tuple(name for name, kind in _TYPES.items() if kind in {float, float | None})
_AFTER_THE_CURVE: Final = tuple(name for name in _TYPES if name not in {"name", "curve", "curves"})
COLUMNS: Final = ("name", "profile", "curve", "curves", *_AFTER_THE_CURVE)
# In place of ``argv``: a script or command, and args
OF_THE_RUN: Final = ("launcher", "script", "command", "args", *Run.__struct_fields__[1:], "kinds")
ON_THE_CALENDAR: Final = "deadline"
KEYS: Final = (*COLUMNS, "nodes", ON_THE_CALENDAR, *OF_THE_RUN)
_DEFAULTS: Final[Mapping[str, object]] = {field.name: field.default for field in fields(TaskSpec)}
CURVE_REMEDY: Final = "write curve = { nodes = [1, 2, 4], rate = [100.0, 190.0, 370.0] }"
CURVES_REMEDY: Final = (
    "write curves = { v100 = { nodes = [1, 2], rate = [9.0, 17.0] }, k80 = { nodes = [1], rate = [2.0] } }"
)

BATCH_REMEDY: Final = "write batch = { initial = 128, largest = 4096, noise_scale = 2000 }"
RESOURCES_REMEDY: Final = (
    "write resources = { cpus = [1, 3, 6], speed = [0.4, 0.9, 1.0] }, or see docs/reference/formats.md"
)
SPREAD_REMEDY: Final = "write spread = 0.8, the part of its speed on two hosts or more, see docs/reference/formats.md"


def task_of(record: Mapping[str, Any], where: str) -> TaskSpec:
    """Return the task described by ``record``; error messages start with ``where``.

    Keys of live runs (``script``, ``launcher``...) are ignored here.

    ``profile`` sets the curve and the rescaling costs; keys of the record override it. ``curves`` by node
    kind replace both ``profile`` and ``curve``; ``curve`` is then the first of the curves.
    ``max_nodes`` defaults to the largest measured size, on any kind.
    """
    check_keys(record, where)
    if ON_THE_CALENDAR in record:
        what = f"{ON_THE_CALENDAR}: is a calendar time, which only live runs support"
        raise BadInput(what, where=where, fix="write deadline_s, in seconds from the start; live runs also accept this")
    name = record.get("name")
    if name is None:
        raise BadInput("name: is missing", where=where, fix="give every task its own name")
    where = f"{where} '{name}'"
    curves: dict[str, SpeedCurve] = {}
    if "curves" in record:
        given = record["curves"]
        if not isinstance(given, dict) or not given:  # a task without kinds would wait forever
            raise BadInput("curves: must have a curve for at least one node kind", where=where, fix=CURVES_REMEDY)
        curves = {kind: curve_of(points, where, f"curves.{kind}", CURVES_REMEDY) for kind, points in given.items()}
    curve, costs = _speed(record, curves, where)
    fields = costs | {key: record[key] for key in _AFTER_THE_CURVE if key in record} | sizes_of(record, where)
    fields.setdefault("max_nodes", _last_measured(curve, curves))
    fields |= {key: read(record[key], where) for key, (read, _) in _TABLES.items() if key in record}
    return _made(TaskSpec, {"name": name, "curve": curve, "curves": curves, **fields}, where)


def batch_of(given: object, where: str) -> BatchScaling:
    """Return the batch sizes of a record."""
    return _table(given, BatchScaling, where, "batch", BATCH_REMEDY)


def _table(given: object, kind: type[T], where: str, key: str, remedy: str) -> T:
    if not isinstance(given, dict):
        what = f"{key}: must be a {'number or a ' if kind is SpreadSpeeds else ''}table"
        raise BadInput(what, where=where, fix=remedy)
    return wire.convert(given, kind, where=f"{where}: {key}")


def spread_of(given: object, where: str) -> SpreadSpeeds:
    """Parse the speed on additional places: a share, one speed, or a list of speeds."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {"share": float(given)}
    if isinstance(given, dict) and "speeds" not in given:
        per_place = {key: given[key] for key in given if key == "per_place"}
        given = {"speeds": [{key: given[key] for key in given if key not in per_place}], **per_place}
    return _table(given, SpreadSpeeds, where, "spread", SPREAD_REMEDY)


def resources_of(given: object, where: str) -> ResourceSpeeds:
    """Parse the speed by CPU cores and memory; with only one resource, ``speed`` is a list of numbers."""
    speed = given.get("speed") if isinstance(given, dict) else None
    if isinstance(given, dict) and isinstance(speed, list) and not any(isinstance(each, list) for each in speed):
        given = {**given, "speed": [speed] if not given.get("cpus") else [[each] for each in speed]}
    return _table(given, ResourceSpeeds, where, "resources", RESOURCES_REMEDY)


def resources_record(resources: ResourceSpeeds) -> dict[str, Any]:
    """Describe speeds by CPU cores and memory as briefly as :func:`resources_of` reads them."""
    rows = [list(row) for row in resources.speed]
    speed = rows if resources.cpus and resources.memory_gb else [each for row in rows for each in row]
    axes = {"cpus": list(resources.cpus), "memory_gb": list(resources.memory_gb)}
    return {name: amounts for name, amounts in axes.items() if amounts} | {"speed": speed}


def batch_record(batch: BatchScaling) -> dict[str, Any]:
    """Describe batches by their keys; defaults are omitted."""
    return _without_defaults(batch)


def _without_defaults(value: msgspec.Struct) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(value)}
    return {key: item for key, item in wire.plain(value).items() if item != defaults[key]}


def check_keys(record: Mapping[str, Any], where: str) -> None:
    """Raise an error for a key that neither replays nor live runs read."""
    for key in record:
        if key not in KEYS:
            raise UnknownName.among("key of a task", key, KEYS, where=where)


def sizes_of(record: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the bounds in ``nodes = "1:8"``, if the record has it."""
    if "nodes" not in record:
        return {}
    place = where if where == "--nodes" else f"{where}: nodes"
    try:
        smallest, largest = size_range(str(record["nodes"]))
    except ValueError as error:
        raise BadInput(str(error), where=place, fix="such as 1:8") from error
    if smallest is None or largest is None:
        raise BadInput(f"{record['nodes']!r} omits a bound", where=place, fix="write MIN:MAX, such as 1:8")
    return {"min_nodes": smallest, "max_nodes": largest}


def _speed(
    record: Mapping[str, Any], curves: Mapping[str, SpeedCurve], where: str
) -> tuple[SpeedCurve, dict[str, float]]:
    if "profile" in record and "curve" in record:
        both = "profile and curve are both set"
        raise BadInput(both, where=where, fix="set one: the name of a bundled profile, or measured points")
    if "profile" in record:
        chosen = profile(str(record["profile"]), where=f"{where}: profile")
        return chosen.curve, _costs(chosen)
    if "curve" in record:
        return curve_of(record["curve"], where), {}
    if curves:
        return next(iter(curves.values())), {}
    neither = "neither profile nor curve nor curves are set"
    fix = "set one: the name of a bundled profile, measured points, or measured points by node kind"
    raise BadInput(neither, where=where, fix=fix)


def _last_measured(curve: SpeedCurve, curves: Mapping[str, SpeedCurve]) -> int:
    return max(each.last_measured for each in curves.values()) if curves else curve.last_measured


def _costs(bundled: Profile) -> dict[str, float]:
    return {"grow_cost_s": bundled.grow_cost_s, "shrink_cost_s": bundled.shrink_cost_s}


def curve_of(given: object, where: str, called: str = "curve", remedy: str = CURVE_REMEDY) -> SpeedCurve:
    """Return the curve of some points; ``called`` is its key."""
    if not isinstance(given, dict) or set(given) != {"nodes", "rate"}:
        raise BadInput(f"{called}: must have nodes and rate, and no other key", where=where, fix=remedy)
    return _made(SpeedCurve, given, where, f"{called}.")


def _made(kind: type[V], fields: Mapping[str, Any], where: str, prefix: str = "") -> V:
    """Return a value; errors in its fields name the record."""
    try:
        return kind(**fields)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{prefix}{field}: {error.what}", where=where, fix=error.fix) from error


def record_of(task: TaskSpec) -> dict[str, Any]:
    """Return a task as ordered keys; a bundled curve becomes ``profile``, defaults are omitted."""
    record: dict[str, Any] = {"name": task.name}
    defaults = {**_DEFAULTS, "max_nodes": _last_measured(task.curve, task.curves)}
    if next(iter(task.curves.values()), None) != task.curve:  # otherwise the first of curves is implied
        bundled = next((known for known in profiles().values() if known.curve == task.curve), None)
        if bundled is None:
            record["curve"] = _points(task.curve)
        else:
            record["profile"] = bundled.name
            defaults |= _costs(bundled)
    if task.curves:
        record["curves"] = {kind: _points(curve) for kind, curve in task.curves.items()}
    fields = {key: getattr(task, key) for key in _AFTER_THE_CURVE}
    fields |= {key: write(fields[key]) for key, (_, write) in _TABLES.items() if fields[key] is not None}
    return record | {key: value for key, value in fields.items() if value != defaults[key]}


def spread_record(spread: SpreadSpeeds) -> object:
    """Describe speeds on more places as briefly as :func:`spread_of` reads them."""
    speeds = [_without_defaults(each) for each in spread.speeds]
    more = {} if spread.per_place is None else {"per_place": spread.per_place}
    if len(speeds) > 1:
        return {**more, "speeds": speeds}
    return speeds[0]["share"] if not more and set(speeds[0]) == {"share"} else {**more, **speeds[0]}


# Keys with tables: how they are read and written
_TABLES: Final[Mapping[str, tuple[Callable[[object, str], object], Callable[[Any], object]]]] = {
    "batch": (batch_of, batch_record),
    "spread": (spread_of, spread_record),
    "resources": (resources_of, resources_record),
}


def _points(curve: SpeedCurve) -> dict[str, list[Any]]:
    return {"nodes": list(curve.nodes), "rate": list(curve.rate)}


def tasks_of(records: Iterable[tuple[str, Mapping[str, Any]]], where: str) -> tuple[TaskSpec, ...]:
    """Return the tasks of ``(where, record)``; raise an error for an empty list or repeated names."""
    tasks: list[TaskSpec] = []
    places: dict[str, str] = {}
    for place, record in records:
        task = task_of(record, place)
        if task.name in places:
            what = f"name: the task at {places[task.name]} has the same name '{task.name}'"
            raise BadInput(what, where=place, fix="give every task its own name")
        places[task.name] = place
        tasks.append(task)
    if not tasks:
        raise BadInput("contains no task", where=where, fix="see docs/reference/formats.md for the format")
    return tuple(tasks)
