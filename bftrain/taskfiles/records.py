"""Task records: a task as plain keys and values, as people write it, to a TaskSpec and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import fields

from bftrain.errors import BadInput, BadValue, UnknownName
from bftrain.taskfiles.profiles import Profile, profile, profile_with
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COUNTS: Final = ("min_nodes", "max_nodes")
NUMBERS: Final = (
    "work_samples",
    "submit_s",
    "grow_cost_s",
    "shrink_cost_s",
    "start_cost_s",
    "weight",
    "deadline_s",
)
_AFTER_THE_CURVE: Final = (*COUNTS, *NUMBERS, "user", "campaign")
KEYS: Final = ("name", "profile", "curve", "curves", *_AFTER_THE_CURVE)
_CURVES: Final = ("profile", "curve", "curves")
_DEFAULTS: Final[Mapping[str, object]] = {field.name: field.default for field in fields(TaskSpec)}
CURVE_REMEDY: Final = "write curve = { nodes = [1, 2, 4], rate = [100.0, 190.0, 370.0] }"
CURVES_REMEDY: Final = (
    "write curves = { v100 = { nodes = [1, 2], rate = [9.0, 17.0] }, k80 = { nodes = [1], rate = [2.0] } }"
)


def task_of(record: Mapping[str, Any], where: str) -> TaskSpec:
    """Make the task that ``record`` describes; ``where`` it stands leads every complaint.

    ``profile`` brings the curve and the costs of a rescale; what the record says itself goes before them. With
    ``curves`` by kind of node it needs neither ``profile`` nor ``curve``: the first of them stands in.
    ``max_nodes`` is by default the largest size that was measured, on any kind.
    """
    for key in record:
        if key not in KEYS:
            raise UnknownName.among("key of a task", key, KEYS, where=where)
    name = record.get("name")
    if name is None:
        raise BadInput("name: is missing", where=where, fix="give every task a name of its own")
    where = f"{where} '{name}'"
    curves = _by_kind(record["curves"], where) if "curves" in record else {}
    curve, costs = _speed(record, curves, where)
    given = costs | {key: value for key, value in record.items() if key not in _CURVES}
    given.setdefault("max_nodes", _last_measured(curve, curves))
    try:
        return TaskSpec(curve=curve, curves=curves, **given)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{field}: {error.what}", where=where, fix=error.fix) from error


def _speed(
    record: Mapping[str, Any], curves: Mapping[str, SpeedCurve], where: str
) -> tuple[SpeedCurve, dict[str, float]]:
    """Give the curve for where no kind is meant, and the costs that come with it."""
    if "profile" in record and "curve" in record:
        both = "profile and curve are both given"
        raise BadInput(both, where=where, fix="give one of them: the name of a bundled profile, or measured points")
    if "profile" in record:
        chosen = profile(str(record["profile"]), where=f"{where}: profile")
        return chosen.curve, _costs(chosen)
    if "curve" in record:
        return _curve(record["curve"], where), {}
    if curves:
        return next(iter(curves.values())), {}
    neither = "neither profile nor curve nor curves are given"
    fix = "give one of them: the name of a bundled profile, measured points, or these by kind of node"
    raise BadInput(neither, where=where, fix=fix)


def _last_measured(curve: SpeedCurve, curves: Mapping[str, SpeedCurve]) -> int:
    return max(each.last_measured for each in curves.values()) if curves else curve.last_measured


def _costs(bundled: Profile) -> dict[str, float]:
    return {"grow_cost_s": bundled.grow_cost_s, "shrink_cost_s": bundled.shrink_cost_s}


def _curve(given: object, where: str, called: str = "curve", remedy: str = CURVE_REMEDY) -> SpeedCurve:
    if not isinstance(given, dict) or set(given) != {"nodes", "rate"}:
        raise BadInput(f"{called}: must have nodes and rate, and nothing else", where=where, fix=remedy)
    try:
        return SpeedCurve(**given)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{called}.{field}: {error.what}", where=where, fix=error.fix) from error


def _by_kind(given: object, where: str) -> dict[str, SpeedCurve]:
    """Read a curve for each kind of node; a task that runs on none would wait for ever."""
    if not isinstance(given, dict) or not given:
        raise BadInput("curves: must have a curve for one kind of node at least", where=where, fix=CURVES_REMEDY)
    return {kind: _curve(points, where, f"curves.{kind}", CURVES_REMEDY) for kind, points in given.items()}


def record_of(task: TaskSpec) -> dict[str, Any]:
    """Describe a task by its keys in their order; a bundled curve becomes ``profile``, what is default is left out."""
    bundled = profile_with(task.curve)
    record: dict[str, Any] = {"name": task.name}
    stands_in = next(iter(task.curves.values()), None) == task.curve
    if stands_in:
        bundled = None
    elif bundled is None:
        record["curve"] = _points(task.curve)
    else:
        record["profile"] = bundled.name
    if task.curves:
        record["curves"] = {kind: _points(curve) for kind, curve in task.curves.items()}
    largest = _last_measured(task.curve, task.curves)
    defaults = {**_DEFAULTS, "max_nodes": largest, **(_costs(bundled) if bundled else {})}
    for key in _AFTER_THE_CURVE:
        value = getattr(task, key)
        if value != defaults[key]:
            record[key] = value
    return record


def _points(curve: SpeedCurve) -> dict[str, list[Any]]:
    return {"nodes": list(curve.nodes), "rate": list(curve.rate)}


def tasks_of(records: Iterable[tuple[str, Mapping[str, Any]]], where: str) -> tuple[TaskSpec, ...]:
    """Make the tasks of ``(where, record)``; there must be some, each with a name of its own."""
    tasks: list[TaskSpec] = []
    places: dict[str, str] = {}
    for place, record in records:
        task = task_of(record, place)
        if task.name in places:
            raise BadInput(
                f"name: the task at {places[task.name]} is called '{task.name}' too",
                where=place,
                fix="give every task a name of its own",
            )
        places[task.name] = place
        tasks.append(task)
    if not tasks:
        raise BadInput("holds no task", where=where, fix="describe tasks as docs/formats.md shows")
    return tuple(tasks)
