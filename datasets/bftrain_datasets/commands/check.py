"""``bftrain check``: list doubtful data in a log, or in a scheduler's records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.node_units import NODE
from bftrain_datasets.commands import records

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_datasets.importing.pipeline import Imported, NoUsableRecords


@click.command(cls=DocumentedCommand, example="bftrain check sacct.txt --strict")
@records.records_argument
@records.reads_records
@prints_results
def command(*, files: tuple[Path, ...], strict: bool, out: Output, **given: Any) -> None:  # noqa: ANN401 - options
    """List doubtful data in FILES: one log, or a scheduler's records. Nothing is written.

    For a log these are the findings of its import, and present suspicions. With --strict a doubt ends
    the command with exit code 3.
    """
    options = records.options_of(given)
    from bftrain_datasets.importing.pipeline import NoUsableRecords

    try:
        checked = _checked_log(files, options) or records.read_records(files, options, out)
    except NoUsableRecords as without:
        _print_report(without, out)
        raise
    _print_report(checked, out)
    if strict and checked.doubts:
        raise records.refusal(checked)


def _checked_log(files: tuple[Path, ...], options: ImportOptions) -> Imported | None:
    """Check a log, if the files are one."""
    from bftrain_datasets.importing.pipeline import check_log
    from bftrain_datasets.log.log_files import holds_log, load_log

    logs = [path for path in files if holds_log(path)]
    if not logs:
        return None
    if len(files) > 1:
        raise click.UsageError(f"{logs[0]} is a log: check it alone")
    return check_log(load_log(logs[0]), options.downtime_after_s)


def _print_report(checked: Imported | NoUsableRecords, out: Output) -> None:
    data = {"format": checked.format, "rows": checked.rows, "findings": records.findings_data(checked.findings)}
    out.result(data, lambda: _words(checked))


def _words(checked: Imported | NoUsableRecords) -> RenderableType:
    from rich.console import Group

    from bftrain_datasets.importing.pipeline import NoUsableRecords

    failed = isinstance(checked, NoUsableRecords)
    unit = NODE if isinstance(checked, NoUsableRecords) else checked.log.unit
    tables = [records.report(checked.findings, unit)] if checked.findings or not failed else []
    return Group(*tables, *([records.row_totals(checked)] if checked.rows.read or failed else []))
