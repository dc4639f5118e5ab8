"""Tasks of a task file as a live run is sent them. A replay reads the same files: docs/formats.md lists the keys."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec.structs import fields

from bftrain.errors import BadInput, BadValue
from bftrain.live.model.schemas import Submission
from bftrain.live.model.task_record import Run
from bftrain.taskfiles.files import toml_records
from bftrain.taskfiles.records import ON_THE_CALENDAR, check_keys, sizes_of
from bftrain.values import wire

_OF_THE_RUN: Final = tuple(field.name for field in fields(Run))
_OF_THE_TASK: Final = tuple(field.name for field in fields(Submission) if field.name not in {"run", "deadline_s"})


def records_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read the tasks of a file, each with where it stands."""
    records = list(toml_records(path))
    if not records:
        raise BadInput("holds no task", where=str(path), fix="describe tasks as docs/formats.md shows")
    return records


def submission_of(record: dict[str, Any], where: str, base: Path) -> Submission:
    """Make what is sent of one record; relative paths count from ``base``.

    A live run passes over ``user`` and ``submit_s``: a task belongs to its sender and begins when it is sent.
    """
    check_keys(record, where)
    given: dict[str, Any] = {key: record[key] for key in _OF_THE_TASK if key in record} | sizes_of(record, where)
    given |= _deadline(record, where)
    if "profile" in record:
        given = _profiled(record, given, where)
    run: dict[str, Any] = {key: record[key] for key in _OF_THE_RUN if key in record}
    run["cwd"] = str((base / run.get("cwd", ".")).resolve())
    if "folder" in run:
        run["folder"] = str((base / run["folder"]).resolve())
    run["argv"] = _argv(record, where, base)
    given = _with_largest(_as_values(given, where), where)
    try:
        return Submission(run=wire.convert(run, Run, where=where), **given)
    except BadValue as error:
        raise BadInput(f"{(error.where or '').rpartition('.')[2]}: {error.what}", where=where, fix=error.fix) from error
    except TypeError as error:
        raise BadInput(str(error), where=where) from error


def _argv(record: dict[str, Any], where: str, base: Path) -> list[str]:
    args = record.get("args", [])
    if ("script" in record) == ("command" in record):
        raise BadInput("give either script or command", where=where, fix='such as script = "cnn.py"')
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise BadInput("args: must be a list of texts", where=where, fix='such as args = ["--steps", "500"]')
    if "command" in record:
        return [str(record["command"]), *args]
    script = (base / str(record["script"])).resolve()
    if not script.is_file():
        raise BadInput(f"script: there is no file {script}", where=where)
    return [str(script), *args]


def _with_largest(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Add ``max_nodes`` where it is left out: the largest size that was measured, as in a replay."""
    if "max_nodes" in given:
        return given
    curves = [*given.get("curves", {}).values()] or [given[key] for key in ("curve",) if key in given]
    if not curves:
        raise BadInput("the number of nodes is missing", where=where, fix="such as --nodes 1:8")
    return {**given, "max_nodes": max(curve.last_measured for curve in curves)}


def _profiled(record: dict[str, Any], given: dict[str, Any], where: str) -> dict[str, Any]:
    from bftrain.taskfiles.profiles import profile

    if "curve" in record:
        raise BadInput("profile and curve are both given", where=where, fix="give one of them, or none")
    found = profile(str(record["profile"]), where=f"{where}: profile")
    costs = {"grow_cost_s": found.grow_cost_s, "shrink_cost_s": found.shrink_cost_s}
    return {**costs, **given, "curve": wire.plain(found.curve)}


def _deadline(record: dict[str, Any], where: str) -> dict[str, float]:
    """Read ``deadline``, a time on the calendar, or ``deadline_s``, which counts as ``submit_s`` does."""
    given = record.get(ON_THE_CALENDAR, record.get("deadline_s"))
    if given is None:
        return {}
    if ON_THE_CALENDAR in record and "deadline_s" in record:
        raise BadInput("deadline and deadline_s are both given", where=where, fix="give one of them, or none")
    if isinstance(given, datetime) and ON_THE_CALENDAR in record:
        return {"deadline_s": given.timestamp()}
    if not isinstance(given, int | float) or isinstance(given, bool):
        fix = "such as deadline = 2030-01-31T18:00:00, or deadline_s = 7200.0"
        raise BadInput("deadline: must be a time, or seconds", where=where, fix=fix)
    if ON_THE_CALENDAR in record:
        return {"deadline_s": float(given)}
    submit_s = record.get("submit_s", 0.0)
    if not isinstance(submit_s, int | float) or isinstance(submit_s, bool):
        raise BadInput("submit_s: must be a number", where=where)
    return {"deadline_s": time.time() + given - submit_s}


def _as_values(given: dict[str, Any], where: str) -> dict[str, Any]:
    from bftrain.values.curve import SpeedCurve

    if "curve" in given:
        given["curve"] = wire.convert(given["curve"], SpeedCurve, where=f"{where}: curve")
    if "curves" in given:
        if not isinstance(given["curves"], dict):
            fix = "curves.v100 = { nodes = [1, 4], rate = [310, 1160] }"
            raise BadInput("curves: must be a table of kinds", where=where, fix=fix)
        given["curves"] = {
            kind: wire.convert(curve, SpeedCurve, where=f"{where}: curves.{kind}")
            for kind, curve in given["curves"].items()
        }
    return given
