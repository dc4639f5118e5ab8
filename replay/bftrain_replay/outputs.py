"""Outputs: a study as files in one folder.

The same inputs give the same bytes in every file but ``timings.json``, which holds what a real clock measured.
"""

from __future__ import annotations

import csv
import hashlib
import platform
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import bftrain
from bftrain import config
from bftrain.assembly import find_solver
from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_replay.decisions import HEADINGS
from bftrain_replay.result import TaskRecord
from bftrain_replay.study import Study

FORMAT: Final = "bftrain replay 1"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """How the caller named the inputs: a log and a task file. Empty for what was made in memory."""

    log: str = ""
    tasks: str = ""
    baseline: str = ""


def write(study: Study, folder: Path, source: Source | None = None) -> None:
    """Write all files of ``study`` into ``folder``, which is made if it is not there."""
    source = source or Source()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise BadInput("is a file, not a folder", where=str(folder), fix="name another folder") from error
    _write_json(folder / "summary.json", summary(study, source))
    _write_json(folder / "timings.json", timings(study))
    (folder / "config.toml").write_text(_rerun(source) + config.dump(study.result.settings), encoding="utf-8")
    _write_csv(folder / "decisions.csv", HEADINGS, study.result.decisions.rows())
    _write_csv(folder / "tasks.csv", TaskRecord.__struct_fields__, map(msgspec.structs.astuple, study.result.tasks))


def summary(study: Study, source: Source) -> dict[str, Any]:
    """Give what ``summary.json`` holds: the figures, then what they were made from and with."""
    figures: dict[str, Any] = wire.plain(study.result.summary())
    figures["complete"] = study.complete
    return {
        "format": FORMAT,
        **figures,
        "baseline": wire.plain(study.baseline.summary()) if study.baseline else None,
        "warnings": list(study.result.warnings),
        "inputs": {
            "log": {"name": source.log, "sha256": study.log.sha256},
            "tasks": {"name": source.tasks, "sha256": tasks_sha256(study.tasks)},
        },
        "settings": wire.plain(study.result.settings),
        "versions": versions(study),
    }


def timings(study: Study) -> dict[str, Any]:
    """Give what ``timings.json`` holds: measured times of every replay in the study."""
    named = {"result": study.result, "baseline": study.baseline, "ceiling": study.ceiling}
    return {name: wire.plain(result.timings()) for name, result in named.items() if result is not None}


def tasks_sha256(tasks: Sequence[TaskSpec]) -> str:
    """SHA-256 of what the tasks say, whatever file they came from."""
    return hashlib.sha256(wire.encode(tuple(tasks))).hexdigest()


def versions(study: Study) -> dict[str, str]:
    """Give the versions of what the figures depend on."""
    solver = study.result.settings.solver
    return {
        "bftrain": bftrain.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        f"solver {solver}": find_solver(solver).available().version,
    }


def _rerun(source: Source) -> str:
    """Give the command that runs it again, as a comment, if it can be written on one line."""
    words = ["bftrain", "replay", source.log, "--tasks", source.tasks]
    if source.baseline:
        words += ["--baseline", source.baseline]
    command = shlex.join([*words, "--config", "config.toml", "-o", "NEW_FOLDER"])
    return f"# {command}\n" if source.log and source.tasks and command.isprintable() else ""


def _write_json(path: Path, data: object) -> None:
    path.write_bytes(msgspec.json.format(wire.encode(data), indent=2) + b"\n")


def _write_csv(path: Path, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)
