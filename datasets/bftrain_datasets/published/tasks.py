"""The task sets of the published replayer: conversion of a pair of pickled tables to tasks.

``*-Jbnd-*.pkl`` has the limits of each task (Tcup, Tcdw, Jmin, Jmax, Pmax, Tsub), ``*-JNPs-*.pkl`` its speeds
(Ns, Ps, Tsub). Rows of both are matched by their label, the name of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bftrain.errors import BadInput, BadValue
from bftrain.taskfiles.records import Profile, profiles
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.log.provenance import ProvenanceSource
from bftrain_datasets.published.frame import SavedFrame, load_frame, seconds_of

BOUND_COLUMNS: Final = ("Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub")
SPEED_COLUMNS: Final = ("Ns", "Ps", "Tsub")
ROUNDING: Final = 0.5  # samples/s; the bundled profiles are published in whole samples/s
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTasks:
    """Tasks; ``begin_s`` is the origin of ``submit_s`` (seconds UTC).

    ``profiles`` counts the tasks with each bundled profile; ``rounded`` is the largest relative speed change caused by
    them.
    """

    tasks: tuple[TaskSpec, ...]
    begin_s: float
    profiles: dict[str, int]
    rounded: float
    sources: tuple[ProvenanceSource, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    bounds: dict[str, Any]
    speeds: dict[str, Any]
    where: str


def import_tasks(bounds_path: Path, speeds_path: Path, *, begin_s: float | None = None) -> PublishedTasks:
    """Read a pair of files; ``submit_s`` counts from ``begin_s`` (seconds UTC; default: the first Tsub).

    A curve that rounds to a bundled profile is replaced by the profile's.
    """
    bounds, bounds_source = _table(bounds_path, BOUND_COLUMNS, SPEED_COLUMNS)
    speeds, speeds_source = _table(speeds_path, SPEED_COLUMNS, BOUND_COLUMNS)
    # Match the rows of both tables; all must have a partner
    first, second = _rows(bounds, BOUND_COLUMNS), _rows(speeds, SPEED_COLUMNS)
    for here, there, frame in ((first, second, speeds), (second, first, bounds)):
        alone = [name for name in here if name not in there]
        if alone:
            more = f" and {len(alone) - _SHOWN} more" if len(alone) > _SHOWN else ""
            shown = ", ".join(f"'{name}'" for name in alone[:_SHOWN])
            fix = f"{bounds.where} has {len(first)} tasks, {speeds.where} {len(second)}; they must have the same"
            raise BadInput(f"no row for {shown}{more}", where=frame.where, fix=fix)
    for name, bound in first.items():
        if bound["Tsub"] != second[name]["Tsub"]:
            what = f"task '{name}': Tsub differs between the files"
            raise BadInput(what, where=speeds.where, fix="use two files of the same pair")
    rows = [_Row(name, bound, second[name], f"{bounds.where}: task '{name}'") for name, bound in first.items()]
    curves = [_curve(row) for row in rows]
    begin_s = min(row.bounds["Tsub"] for row in rows) if begin_s is None else begin_s
    tasks = []
    named: dict[str, int] = {}
    rounded = 0.0
    for row, measured in zip(rows, curves, strict=True):
        curve = measured
        known = _rounded_profile(measured)
        if known is not None:
            curve = known.curve
            named[known.name] = named.get(known.name, 0) + 1
            pairs = zip(measured.rate, curve.rate, strict=True)
            rounded = max(rounded, *(abs(after / before - 1) for before, after in pairs if before > 0))
        tasks.append(_task(row, curve, begin_s))
    return PublishedTasks(
        tasks=tuple(tasks),
        begin_s=begin_s,
        profiles=dict(sorted(named.items())),
        rounded=rounded,
        sources=(bounds_source, speeds_source),
    )


def _table(path: Path, wanted: Sequence[str], other: Sequence[str]) -> tuple[SavedFrame, ProvenanceSource]:
    """Read one of the files; raise ``BadInput`` if columns in ``wanted`` are missing."""
    with RawFile(path, FindingsTally()) as file:
        frame = load_frame(file.binary(), str(path))
        source = file.source()
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        swapped = set(other) <= set(frame.columns)
        fix = "pass the file with Tcup, Tcdw, Jmin, Jmax and Pmax first, then the one with Ns and Ps"
        what = "this is the other file of the pair" if swapped else f"the table has no column '{missing[0]}'"
        raise BadInput(what, where=str(path), fix=fix)
    if not len(frame.index):
        raise BadInput("the table contains no task", where=str(path))
    return frame, source


def _rows(frame: SavedFrame, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    names = [str(label) for label in np.asarray(frame.index).tolist()]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two tasks have the label '{twice}'", where=frame.where, fix="use a label once")
    table = {column: frame.column(column).tolist() for column in columns if column != "Tsub"}
    table["Tsub"] = seconds_of(frame.column("Tsub"), f"{frame.where}: Tsub").tolist()
    return {name: {column: table[column][place] for column in columns} for place, name in enumerate(names)}


def _curve(row: _Row) -> SpeedCurve:
    """Return the curve from Ns and Ps, without the point at size 0, which belongs to every curve."""
    sizes, rates = row.speeds["Ns"], row.speeds["Ps"]
    if not isinstance(sizes, list) or not isinstance(rates, list) or len(sizes) != len(rates):
        raise BadInput("Ns and Ps must be lists of the same length", where=row.where)
    points = list(zip(sizes, rates, strict=True))
    if points and points[0][0] == 0:
        if points[0][1] != 0:
            raise BadInput("Ps must be 0 where Ns is 0", where=row.where)
        del points[0]
    try:
        return SpeedCurve(nodes=tuple(size for size, _ in points), rate=tuple(rate for _, rate in points))
    except BadValue as error:
        column = {"nodes": "Ns", "rate": "Ps"}[(error.where or "").rpartition(".")[2]]
        raise BadInput(f"{column}: {error.what}", where=row.where, fix=error.fix) from error


def _task(row: _Row, curve: SpeedCurve, begin_s: float) -> TaskSpec:
    bounds = row.bounds
    sizes = {}
    for column in ("Jmin", "Jmax"):
        if not (isinstance(bounds[column], (int, float)) and float(bounds[column]).is_integer()):
            raise BadInput(f"{column}: {bounds[column]!r:.40} is not a whole number", where=row.where)
        sizes[column] = int(bounds[column])
    try:
        return TaskSpec(
            name=row.name,
            curve=curve,
            min_nodes=sizes["Jmin"],
            max_nodes=sizes["Jmax"],
            work_samples=bounds["Pmax"],
            submit_s=bounds["Tsub"] - begin_s,
            grow_cost_s=bounds["Tcup"],
            shrink_cost_s=bounds["Tcdw"],
        )
    except BadValue as error:
        field = (error.where or "").rpartition(".")[2]
        raise BadInput(f"{_COLUMN_OF.get(field, field)}: {error.what}", where=row.where, fix=error.fix) from error


_COLUMN_OF: Final = {
    "name": "the label",
    "min_nodes": "Jmin",
    "max_nodes": "Jmax",
    "work_samples": "Pmax",
    "grow_cost_s": "Tcup",
    "shrink_cost_s": "Tcdw",
}


def _rounded_profile(curve: SpeedCurve) -> Profile | None:
    for known in profiles().values():
        if known.curve.nodes == curve.nodes and all(
            abs(ours - theirs) <= ROUNDING for ours, theirs in zip(known.curve.rate, curve.rate, strict=True)
        ):
            return known
    return None
