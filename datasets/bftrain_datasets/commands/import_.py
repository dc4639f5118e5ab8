"""``bftrain import``: convert a scheduler's records to a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain_datasets.commands import records
from bftrain_datasets.commands.logfiles import figures_of, kinds_option, log_output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_datasets.importing.pipeline import Imported
    from bftrain_datasets.log.idle_doubts import IdleDoubts


@click.command(
    "import",
    cls=DocumentedCommand,
    example="bftrain import sacct.txt -o log.npz --timezone America/New_York\nbftrain import jobs.parquet --explain",
)
@records.records_argument
@log_output(required=False)
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
    explain: bool,
    strict: bool,
    out: Output,
    **given: Any,  # noqa: ANN401 - options
) -> None:
    """Convert FILES with a scheduler's records to one log of idle nodes; - is standard input.

    Formats are recognised by content, compressed or not. A node is idle when no job holds any of its cores. Each row is
    used or skipped for a reason that is counted, and each doubt is listed with the option that changes it.
    """
    from bftrain_datasets.log.idle_doubts import doubts_of
    from bftrain_datasets.log.log_files import check_log_name, save_log

    options = records.options_of(given)
    if explain:
        _explain(files, options, out)
        return
    if path is None:
        raise click.MissingParameter(param_type="option", param_hint="'-o' / '--output'")
    check_log_name(path)
    made = records.read_records(files, options, out)
    if kinds is not None:
        from bftrain_datasets.log.kind_files import with_kinds

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


def _explain(files: tuple[Path, ...], options: ImportOptions, out: Output) -> None:
    from rich.console import Group

    from bftrain.cli.output import table
    from bftrain_datasets.job_tables.explanation import explain

    def words() -> RenderableType:
        uses = [(use["meaning"], use["column"], use["unit"], use["why"]) for use in found.columns]
        parts = [table("What the columns mean", ("meaning", "column", "unit", "why"), uses, left=(0, 1, 2, 3))]
        names = tuple(found.rows[0]) if found.rows else ()
        rows = [tuple(str(row[name]) for name in names) for row in found.rows]
        parts.append(table("The first rows, as understood", names, rows, left=tuple(range(len(names)))))
        known = f"This is {found.public_set}. " if found.public_set else ""
        unused = f" Not used: {', '.join(found.unused)}." if found.unused else ""
        return Group(*parts, f"{known}Times without a zone are in {found.timezone}.{unused}")

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
    return Group(
        *([] if quiet else [records.report(made.findings, log.unit)]),
        records.row_totals(made),
        f"{path or 'not written'}: {words(_many(len(log.node_names), 'node'))}, {_many(len(log), 'event')}, {idle},",
        f"{text_formats.duration(log.span_s)} from {begin} to {end}",
        Text(doubts.in_words),
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
