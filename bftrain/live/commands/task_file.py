"""Task files of a live run: what people write about a task, to what the live run is sent."""

from __future__ import annotations

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BadConfig, BadInput, BadValue, UnknownName
from bftrain.live.model.schemas import Submission
from bftrain.live.model.task_record import Run
from bftrain.values import wire

_OF_THE_RUN: Final = (
    "folder",
    "cwd",
    "env",
    "stop_grace_s",
    "workers_per_node",
    "finish_code",
    "finish_file",
    "stall_limit_s",
)
_OF_THE_TASK: Final = (
    "name",
    "launcher",
    "curve",
    "curves",
    "work_samples",
    "grow_cost_s",
    "shrink_cost_s",
    "start_cost_s",
    "weight",
    "campaign",
    "min_nodes",
    "max_nodes",
)
KEYS: Final = (*_OF_THE_TASK, *_OF_THE_RUN, "script", "command", "args", "nodes", "profile", "deadline")


def records_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read the tasks of a file, each with where it stands: one at its top, or several as ``[[task]]``."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"is not valid TOML: {error}", where=str(path)) from error
    if "task" not in document:
        return [(str(path), document)]
    entries = document.pop("task")
    if document or not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries) or not entries:
        raise BadInput("must hold one task, or several as [[task]] and nothing else", where=str(path))
    return [(f"{path}: task {number}", one) for number, one in enumerate(entries, start=1)]


def submission_of(record: dict[str, Any], where: str, base: Path) -> Submission:
    """Make what is sent of one record; relative paths count from ``base``."""
    for key in record:
        if key not in KEYS:
            raise UnknownName.among("key of a task", key, KEYS, where=where)
    given: dict[str, Any] = {key: record[key] for key in _OF_THE_TASK if key in record}
    given |= _sizes(record, where)
    if "profile" in record:
        given = _profiled(record, given, where)
    if "deadline" in record:
        given["deadline_s"] = _moment(record["deadline"], where)
    run: dict[str, Any] = {key: record[key] for key in _OF_THE_RUN if key in record}
    run["cwd"] = str((base / run.get("cwd", ".")).resolve())
    if "folder" in run:
        run["folder"] = str((base / run["folder"]).resolve())
    run["argv"] = _argv(record, where, base)
    try:
        return Submission(run=wire.convert(run, Run, where=where), **_as_values(given, where))
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


def _sizes(record: dict[str, Any], where: str) -> dict[str, Any]:
    if "nodes" not in record:
        if "max_nodes" not in record:
            raise BadInput("it is not said on how many nodes it may run", where=where, fix="such as --nodes 1:8")
        return {}
    smallest, _, largest = str(record["nodes"]).partition(":")
    if not smallest.isdecimal() or not (largest or smallest).isdecimal():
        raise BadInput(f"nodes: '{record['nodes']}' is not MIN:MAX", where=where, fix="such as 1:8")
    return {"min_nodes": int(smallest), "max_nodes": int(largest or smallest)}


def _profiled(record: dict[str, Any], given: dict[str, Any], where: str) -> dict[str, Any]:
    from bftrain.taskfiles.profiles import profile

    if "curve" in record:
        raise BadInput("profile and curve are both given", where=where, fix="give one of them, or none")
    found = profile(str(record["profile"]), where=f"{where}: profile")
    costs = {"grow_cost_s": found.grow_cost_s, "shrink_cost_s": found.shrink_cost_s}
    return {**costs, **given, "curve": wire.plain(found.curve)}


def _moment(given: object, where: str) -> float:
    if isinstance(given, datetime):
        return given.timestamp()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    raise BadInput("deadline: must be a time, or seconds since 1970", where=where, fix="such as 2030-01-31T18:00:00")


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
