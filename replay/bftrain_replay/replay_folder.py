"""Writes a study as files in one folder.

The same inputs give the same bytes, except for times measured by a real clock
(:data:`bftrain_replay.output.summary_json.MEASURED`), which appear in ``summary.json`` and in the page only.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain import config, summaries
from bftrain.files import prepare_folder, write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain_datasets import result_tables
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.result_tables import CSV
from bftrain_replay.output import allocation_files
from bftrain_replay.provenance import FORMAT, LOG_FILE, InputSource
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.study import ReplayStudy
from bftrain_replay.tables import TABLES

if TYPE_CHECKING:
    from bftrain_replay.reporting.report import OwnParts

KIND: Final = ResultKind(
    title="replay",
    form="bftrain replay",
    names=frozenset({"summary.json", "config.toml", LOG_FILE, REPORT_FILE})
    | {f"{name}.{form}" for name in TABLES for form in result_tables.FORMS},
)


def write_tables(result: ReplayResult, folder: Path, form: str = CSV) -> None:
    """Write the tables of a replay as csv or parquet; each appears complete or not at all."""
    for name, rows in result.table_rows().items():
        result_tables.write(folder, name, TABLES[name], rows, form, FORMAT)
    if result.allocations is not None:
        allocation_files.write(result.allocations, folder, form, FORMAT)


class EarlyFiles(msgspec.Struct, frozen=True):
    """The early files of a replay, written before the comparison replays; ``own`` are such parts of its page."""

    own: OwnParts | None


def write_early(
    study: ReplayStudy, folder: Path, source: InputSource, tables: str = CSV, *, draw: bool = True
) -> EarlyFiles:
    """Write the files that need the main replay of ``study`` alone; ``draw`` such parts of the page, if possible."""
    from bftrain_replay.drawing import vega  # noqa: PLC0415 - what draws takes a while to import

    write_tables(study.result, folder, tables)
    write_text(folder / "config.toml", _rerun(source, tables) + config.dump(study.result.settings))
    save_log(study.part, folder / LOG_FILE)
    if not draw or not vega.available():
        return EarlyFiles(None)
    from bftrain_replay.reporting.report import own_parts  # noqa: PLC0415 - as above
    from bftrain_replay.reporting.report_data import of_study  # noqa: PLC0415 - as above

    vega.script()  # made once a user, which takes seconds
    return EarlyFiles(own_parts(of_study(study, source)))


def write(
    study: ReplayStudy,
    folder: Path,
    source: InputSource | None = None,
    *,
    tables: str = CSV,
    early: EarlyFiles | None = None,
) -> None:
    """Write all files of ``study`` into ``folder``; each appears complete or not at all.

    ``tables`` are csv or parquet; ``early`` is the return value of ``write_early`` for the same folder.
    """
    from bftrain_replay.drawing import vega  # noqa: PLC0415 - what draws takes a while to import
    from bftrain_replay.reporting.report import render  # noqa: PLC0415 - as above
    from bftrain_replay.reporting.report_data import of_study  # noqa: PLC0415 - as above

    source = source or InputSource()
    prepare_folder(folder)
    early = early or write_early(study, folder, source, tables, draw=False)
    material = of_study(study, source)
    if vega.available():
        write_text(folder / REPORT_FILE, render(material, own=early.own))
    else:
        (folder / REPORT_FILE).unlink(missing_ok=True)  # removes an earlier replay's report
    write_text(folder / "summary.json", summaries.to_json(material.summary))


def _rerun(source: InputSource, tables: str) -> str:
    """Return the command that repeats it, as a comment, if it fits on one line."""
    words = ["bftrain", "replay", *filter(None, (source.log,)), *source.options]
    if source.tasks:
        words += ["--tasks", source.tasks]
    if source.baseline:
        words += ["--baseline", source.baseline]
    if tables != CSV:
        words += ["--tables", tables]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    return (
        f"# {command}\n"
        if (source.log or source.options) and (source.tasks or source.workload) and command.isprintable()
        else ""
    )
