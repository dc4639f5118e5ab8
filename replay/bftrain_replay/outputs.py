"""Outputs: a study as files in one folder.

The same inputs give the same bytes in every file but ``timings.json``, which holds what a real clock measured.
"""

from __future__ import annotations

import csv
import errno
import io
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import msgspec

from bftrain import config
from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain_datasets.storage import whole_file
from bftrain_replay.decisions import HEADINGS
from bftrain_replay.origins import Source, tasks_sha256, versions
from bftrain_replay.report import render
from bftrain_replay.result import TaskRecord
from bftrain_replay.study import Study

FORMAT: Final = "bftrain replay 1"


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


def write(study: Study, folder: Path, source: Source | None = None) -> None:
    """Write all files of ``study`` into ``folder``; each appears complete or not at all."""
    source = source or Source()
    prepare(folder)
    result = study.result
    _write_csv(folder / "decisions.csv", HEADINGS, result.decisions.rows())
    _write_csv(folder / "tasks.csv", TaskRecord.__struct_fields__, map(msgspec.structs.astuple, result.tasks))
    write_text(folder / "config.toml", _rerun(source) + config.dump(result.settings))
    write_text(folder / "report.html", render(study, source=source, measured=False))
    write_text(folder / "timings.json", _json(timings(study)))
    write_text(folder / "summary.json", _json(summary(study, source)))


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears complete or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


def summary(study: Study, source: Source) -> dict[str, Any]:
    """Give what ``summary.json`` holds: the figures, then what they were made from and with."""
    figures: dict[str, Any] = wire.plain(study.result.summary())
    figures["complete"] = study.complete
    return {
        "format": FORMAT,
        **figures,
        "baseline": wire.plain(study.baseline.summary()) if study.baseline else None,
        "warnings": list(study.result.warnings),
        "first_notes": [{"time_s": time_s, "note": note} for time_s, note in study.result.decisions.notes],
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


def _rerun(source: Source) -> str:
    """Give the command that runs it again, as a comment, if it can be written on one line."""
    words = ["bftrain", "replay", source.log, "--tasks", source.tasks]
    if source.baseline:
        words += ["--baseline", source.baseline]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    return f"# {command}\n" if source.log and source.tasks and command.isprintable() else ""


def _json(data: object) -> str:
    return msgspec.json.format(wire.encode(data), indent=2).decode() + "\n"


def _write_csv(path: Path, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)
        text.detach()
