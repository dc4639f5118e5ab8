"""Task records: a task as plain keys and values, as people write it, to a TaskSpec and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import fields

from bftrain.errors import BadInput, BadValue, UnknownName
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_datasets.profiles import Profile, profile, profile_with

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
KEYS: Final = ("name", "profile", "curve", *_AFTER_THE_CURVE)
_DEFAULTS: Final[Mapping[str, object]] = {field.name: field.default for field in fields(TaskSpec)}
CURVE_REMEDY: Final = "write curve = { nodes = [1, 2, 4], rate = [100.0, 190.0, 370.0] }"


def task_of(record: Mapping[str, Any], where: str) -> TaskSpec:
    """Make the task that ``record`` describes; ``where`` it stands leads every complaint.

    ``profile`` brings the curve and the costs of a rescale; what the record says itself goes before them.
    ``max_nodes`` is by default the largest measured size.
    """
    for key in record:
        if key not in KEYS:
            raise UnknownName.among("key of a task", key, KEYS, where=where)
    name = record.get("name")
    if name is None:
        raise BadInput("name: is missing", where=where, fix="give every task a name of its own")
    where = f"{where} '{name}'"
    given = {key: value for key, value in record.items() if key not in ("profile", "curve")}
    if ("profile" in record) == ("curve" in record):
        both = "profile and curve are both given" if "profile" in record else "neither profile nor curve is given"
        raise BadInput(both, where=where, fix="give one of them: the name of a bundled profile, or measured points")
    if "profile" in record:
        chosen = profile(str(record["profile"]), where=f"{where}: profile")
        given = _costs(chosen) | given
        curve = chosen.curve
    else:
        curve = _curve(record["curve"], where)
    given.setdefault("max_nodes", curve.last_measured)
    try:
        return TaskSpec(curve=curve, **given)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{field}: {error.what}", where=where, fix=error.fix) from error


def _costs(bundled: Profile) -> dict[str, float]:
    return {"grow_cost_s": bundled.grow_cost_s, "shrink_cost_s": bundled.shrink_cost_s}


def _curve(given: object, where: str) -> SpeedCurve:
    if not isinstance(given, dict) or set(given) != {"nodes", "rate"}:
        raise BadInput("curve: must have nodes and rate, and nothing else", where=where, fix=CURVE_REMEDY)
    try:
        return SpeedCurve(**given)
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"curve.{field}: {error.what}", where=where, fix=error.fix) from error


def record_of(task: TaskSpec) -> dict[str, Any]:
    """Describe a task by its keys in their order; a bundled curve becomes ``profile``, what is default is left out."""
    bundled = profile_with(task.curve)
    record: dict[str, Any] = {"name": task.name}
    if bundled is None:
        record["curve"] = {"nodes": list(task.curve.nodes), "rate": list(task.curve.rate)}
    else:
        record["profile"] = bundled.name
    defaults = {**_DEFAULTS, "max_nodes": task.curve.last_measured, **(_costs(bundled) if bundled else {})}
    for key in _AFTER_THE_CURVE:
        value = getattr(task, key)
        if value != defaults[key]:
            record[key] = value
    return record


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
