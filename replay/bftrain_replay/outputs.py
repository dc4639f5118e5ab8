"""Outputs: a study as files in one folder.

The same inputs give the same bytes, but for the few figures of ``summary.json`` that a real clock measured
(:data:`MEASURED`); its ``figures_sha256`` leaves these out.
"""

from __future__ import annotations

import errno
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import msgspec

from bftrain import config
from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain_datasets.storage import whole_file
from bftrain_replay import csv_tables, parquet_tables
from bftrain_replay.origins import Source, tasks_sha256, versions_with
from bftrain_replay.report import render
from bftrain_replay.result import Result, Timings
from bftrain_replay.study import Study
from bftrain_replay.tables import TABLES

FORMAT: Final = "bftrain replay 1"
CSV: Final = "csv"
PARQUET: Final = "parquet"

# What a real clock measured, and so differs from run to run
MEASURED: Final = frozenset(Timings.__struct_fields__)


def prepare(folder: Path) -> None:
    """Make ``folder`` if it is not there, so that a place that cannot be written to is found before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise BadInput("is a file, not a folder", where=str(folder), fix="name another folder") from error
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise  # the folder is the right one
        what = f"cannot be written to: {error.strerror}"
        raise BadInput(what, where=str(folder), fix="name another folder") from error


def check_tables(form: str) -> None:
    """Make sure that tables of this ``form`` can be written here."""
    if form == PARQUET:
        parquet_tables.pyarrow()


def write(study: Study, folder: Path, source: Source | None = None, *, tables: str = CSV) -> None:
    """Write all files of ``study`` into ``folder``, tables as csv or parquet; each appears complete or not at all."""
    source = source or Source()
    prepare(folder)
    result = study.result
    if tables == PARQUET:
        parquet_tables.write(result, folder, FORMAT)
        others = csv_tables.SUFFIX
    else:
        csv_tables.write(result, folder)
        others = parquet_tables.SUFFIX
    for name in TABLES:
        (folder / f"{name}{others}").unlink(missing_ok=True)  # of an earlier replay
    write_text(folder / "config.toml", _rerun(source, tables) + config.dump(result.settings))
    write_text(folder / "report.html", render(study, source=source, measured=False))
    write_text(folder / "summary.json", _json(summary(study, source)))


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears complete or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


def summary(study: Study, source: Source) -> dict[str, Any]:
    """Give what ``summary.json`` holds: the figures, then what they were made from and with."""
    told: dict[str, Any] = {
        "format": FORMAT,
        **_figures(study.result),
        "complete": study.complete,
        "baseline": _figures(study.baseline) if study.baseline else None,
        "ceiling": _figures(study.ceiling) if study.ceiling else None,
        "warnings": list(study.result.warnings),
        "first_notes": [{"time_s": time_s, "note": note} for time_s, note in study.result.decisions.notes],
        "inputs": {
            "log": {"name": source.log, "sha256": study.log.sha256},
            "tasks": {"name": source.tasks, "sha256": tasks_sha256(study.tasks)},
        },
        "settings": wire.plain(study.result.settings),
        "versions": versions_with(study.result.settings.solver),
    }
    return {**told, "figures_sha256": hashlib.sha256(wire.encode(repeatable(told))).hexdigest()}


def repeatable(told: Mapping[str, Any]) -> dict[str, Any]:
    """Give ``told`` without what a real clock measured: the same inputs give the same."""
    return {
        name: repeatable(value) if isinstance(value, dict) else value
        for name, value in told.items()
        if name not in MEASURED
    }


def _figures(result: Result) -> dict[str, Any]:
    return {**wire.plain(result.summary()), **wire.plain(result.timings())}


def _rerun(source: Source, tables: str) -> str:
    """Give the command that runs it again, as a comment, if it can be written on one line."""
    words = ["bftrain", "replay", source.log, "--tasks", source.tasks]
    if source.baseline:
        words += ["--baseline", source.baseline]
    if tables != CSV:
        words += ["--tables", tables]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    return f"# {command}\n" if source.log and source.tasks and command.isprintable() else ""


def _json(data: object) -> str:
    return msgspec.json.format(wire.encode(data), indent=2).decode() + "\n"
