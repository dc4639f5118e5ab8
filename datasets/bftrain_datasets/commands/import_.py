"""``bftrain import``: convert a scheduler's records to a log, or only list doubtful data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.errors import UsageError
from bftrain.node_units import NODE
from bftrain_datasets.commands import records
from bftrain_datasets.commands.logfiles import figures_of, kinds_option, log_output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_datasets.importing.pipeline import Imported, NoUsableRecords
    from bftrain_datasets.log.idle_doubts import IdleDoubts


@click.command(
    "import",
    cls=DocumentedCommand,
    example="bftrain import sacct.txt -o log.npz --timezone America/New_York\nbftrain import sacct.txt --dry-run",
)
@records.records_argument
@log_output(required=False)
@click.option("--dry-run", is_flag=True, help="List doubtful data in records or one log, without writing a log.")
@click.option(
    "--explain", is_flag=True, help="Only show the meaning of the columns of a table of jobs, and its first rows."
)
@kinds_option
@records.reads_records
@prints_results
def command(
    *,
    files: tuple[Path, ...],
    path: Path | None,
    kinds: Path | None,
    dry_run: bool,
    explain: bool,
    strict: bool,
    out: Output,
    **given: Any,  # noqa: ANN401 - options
) -> None:
    """Convert FILES with a scheduler's records to one log of idle nodes; - is standard input.

    Formats are recognised by content, compressed or not. A node is idle while no job uses its cores. Each row is
    used or skipped for a reason that is counted, and each doubt is listed with the option that changes it. With
    --strict a doubt ends the command with exit code 3.
    """
    from bftrain_datasets.log.idle_doubts import doubts_of
    from bftrain_datasets.log.log_files import check_log_name, save_log

    if path is not None and (dry_run or explain):
        raise UsageError("writes nothing", where="--dry-run" if dry_run else "--explain", fix="omit -o")
    if dry_run and explain:
        raise UsageError("cannot be used with --explain", where="--dry-run", fix="omit one")
    options = records.options_of(given)
    if dry_run:
        _dry_run(files, options, out, strict=strict)
        return
    if explain:
        _explain(files, options, out)
        return
    if path is None:
        raise click.UsageError("Missing option '-o' / '--output': the log to write, or --dry-run.")
    check_log_name(path)
    made = records.read_records(files, options, out)
    if kinds is not None:
        from bftrain_datasets.log.edits import with_kinds

        made = replace(made, log=with_kinds(made.log, kinds))
    refused = strict and bool(made.doubts)
    written = None if refused else path
    if written is not None:
        save_log(made.log, written)
    doubts = doubts_of(made.log)
    found = {
        "doubtful": doubts.to_dict(),
        "format": made.format,
        "rows": made.rows,
        "findings": records.findings_data(made.findings),
    }
    figures = {**figures_of(made.log, written), **found}
    out.result(figures, lambda: _words(made, written, doubts, quiet=out.level < 0))
    if refused:
        raise records.refusal(made)


def _dry_run(files: tuple[Path, ...], options: ImportOptions, out: Output, *, strict: bool) -> None:
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
    """Check the log among the files, or return None if none is a log."""
    from bftrain_datasets.importing.pipeline import check_log
    from bftrain_datasets.log.log_files import holds_log, load_log

    logs = [path for path in files if holds_log(path)]
    if not logs:
        return None
    if len(files) > 1:
        raise click.UsageError(f"{logs[0]} is a log: pass it alone")
    return check_log(load_log(logs[0]), options.downtime_after_s)


def _print_report(checked: Imported | NoUsableRecords, out: Output) -> None:
    data = {"format": checked.format, "rows": checked.rows, "findings": records.findings_data(checked.findings)}
    out.result(data, lambda: _report_words(checked))


def _report_words(checked: Imported | NoUsableRecords) -> RenderableType:
    from rich.console import Group

    from bftrain_datasets.importing.pipeline import NoUsableRecords

    failed = isinstance(checked, NoUsableRecords)
    unit = NODE if isinstance(checked, NoUsableRecords) else checked.log.unit
    tables = [records.report(checked.findings, unit)] if checked.findings or not failed else []
    return Group(*tables, *([records.row_totals(checked)] if checked.rows.read or failed else []))


def _explain(files: tuple[Path, ...], options: ImportOptions, out: Output) -> None:
    from rich.console import Group

    from bftrain.cli.output import table
    from bftrain_datasets.job_tables.explanation import explain

    def words() -> RenderableType:
        uses = [(use["meaning"], use["column"], use["unit"], use["why"]) for use in found.columns]
        parts = [table("Meaning of the columns", ("meaning", "column", "unit", "why"), uses, left=(0, 1, 2, 3))]
        names = tuple(found.rows[0]) if found.rows else ()
        rows = [tuple(str(row[name]) for name in names) for row in found.rows]
        parts.append(table("The first rows, as understood", names, rows, left=tuple(range(len(names)))))
        known = f"This is {found.public_set}. " if found.public_set else ""
        unused = f" Not used: {', '.join(found.unused)}." if found.unused else ""
        return Group(*parts, f"{known}The time zone is {found.timezone} unless a time states one.{unused}")

    found = explain(None if str(files[0]) == "-" else files[0], options)
    out.result(found, words)


def _words(made: Imported, path: Path | None, doubts: IdleDoubts, *, quiet: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from bftrain import text_formats
    from bftrain.node_units import words_of

    log = made.log
    begin, end = text_formats.moment(log.start_s), text_formats.moment(log.end_s)
    words = words_of(log.unit)
    idle = words(f"{100 * log.idle_share:.2f} % of the node-time idle")
    nodes, events = words(text_formats.counted(len(log.node_names), "node")), text_formats.counted(len(log), "event")
    return Group(
        *([] if quiet else [records.report(made.findings, log.unit)]),
        records.row_totals(made),
        f"{path or 'not written'}: {nodes}, {events}, {idle},",
        f"{text_formats.duration(log.span_s)} from {begin} to {end}",
        Text(doubts.in_words),
    )
