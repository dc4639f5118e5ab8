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

_TYPES: Final = {field.name: field.type for field in fields(TaskSpec)}
COUNTS: Final = tuple(name for name, kind in _TYPES.items() if kind is int)
NUMBERS: Final = tuple(name for name, kind in _TYPES.items() if kind in {float, float | None})
_AFTER_THE_CURVE: Final = tuple(name for name in _TYPES if name not in {"name", "curve", "curves"})
COLUMNS: Final = ("name", "profile", "curve", "curves", *_AFTER_THE_CURVE)
OF_THE_RUN: Final = (
    "launcher",
    "script",
    "command",
    "args",
    "folder",
    "cwd",
    "env",
    "stop_grace_s",
    "workers_per_node",
    "finish_code",
    "finish_file",
    "stall_limit_s",
)
ON_THE_CALENDAR: Final = "deadline"
KEYS: Final = (*COLUMNS, "nodes", ON_THE_CALENDAR, *OF_THE_RUN)
_CURVES: Final = ("profile", "curve", "curves")
_DEFAULTS: Final[Mapping[str, object]] = {field.name: field.default for field in fields(TaskSpec)}
CURVE_REMEDY: Final = "write curve = { nodes = [1, 2, 4], rate = [100.0, 190.0, 370.0] }"
CURVES_REMEDY: Final = (
    "write curves = { v100 = { nodes = [1, 2], rate = [9.0, 17.0] }, k80 = { nodes = [1], rate = [2.0] } }"
)


def task_of(record: Mapping[str, Any], where: str) -> TaskSpec:
    """Make the task that ``record`` describes; ``where`` it stands leads every complaint.

    Keys of the run (``script``, ``launcher``...) are for a live run: a replay passes over them.

    ``profile`` brings the curve and the costs of a rescale; what the record says itself goes before them. With
    ``curves`` by kind of node it needs neither ``profile`` nor ``curve``: the first of them stands in.
    ``max_nodes`` is by default the largest size that was measured, on any kind.
    """
    check_keys(record, where)
    if ON_THE_CALENDAR in record:
        what = f"{ON_THE_CALENDAR}: is a time on the calendar, which only a live run has"
        raise BadInput(what, where=where, fix="write deadline_s, in seconds from the start; a live run reads it too")
    name = record.get("name")
    if name is None:
        raise BadInput("name: is missing", where=where, fix="give every task a name of its own")
    where = f"{where} '{name}'"
    curves = _by_kind(record["curves"], where) if "curves" in record else {}
    curve, costs = _speed(record, curves, where)
    given = costs | {key: record[key] for key in _AFTER_THE_CURVE if key in record} | sizes_of(record, where)
    given.setdefault("max_nodes", _last_measured(curve, curves))
    try:
        return TaskSpec(name=name, curve=curve, curves=curves, **given)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{field}: {error.what}", where=where, fix=error.fix) from error


def check_keys(record: Mapping[str, Any], where: str) -> None:
    """Refuse a key that neither a replay nor a live run reads."""
    for key in record:
        if key not in KEYS:
            raise UnknownName.among("key of a task", key, KEYS, where=where)


def sizes_of(record: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the bounds that ``nodes = "1:8"`` stands for, if the record has it."""
    if "nodes" not in record:
        return {}
    smallest, _, largest = str(record["nodes"]).partition(":")
    if not smallest.isdecimal() or not (largest or smallest).isdecimal():
        raise BadInput(f"nodes: '{record['nodes']}' is not MIN:MAX", where=where, fix="such as 1:8")
    return {"min_nodes": int(smallest), "max_nodes": int(largest or smallest)}


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
