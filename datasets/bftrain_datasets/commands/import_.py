"""``bftrain import``: from what a scheduler wrote to a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain_datasets.commands.logfiles import figures_of, kinds_option, log_output
from bftrain_datasets.commands.records import (
    books,
    findings_data,
    options_of,
    read_records,
    reads_records,
    records_argument,
    refusal,
    report,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_datasets.importing.pipeline import Imported


@click.command(
    "import", cls=DocumentedCommand, example="bftrain import sacct.txt -o log.npz --timezone America/New_York"
)
@records_argument
@log_output
@kinds_option
@reads_records
@prints_results
def command(
    *,
    files: tuple[Path, ...],
    path: Path,
    kinds: Path | None,
    strict: bool,
    counts: bool,
    out: Output,
    **given: Any,  # noqa: ANN401 - options
) -> None:
    """Read FILES that a scheduler wrote into one log of idle nodes; - is standard input.

    Formats are recognised by content, compressed or not. A node is idle when no job holds any of its cores. Each row is
    used or set aside for a reason that is counted, and each doubt is listed with the option that changes it.
    """
    from bftrain_datasets.log.log_files import check_log_name, save_log

    check_log_name(path)
    made = read_records(files, options_of(given, counts=counts), out)
    if kinds is not None:
        from bftrain_datasets.log.kind_files import with_kinds

        made = replace(made, log=with_kinds(made.log, kinds))
    refused = strict and bool(made.doubts)
    written = None if refused else path
    if written is not None:
        save_log(made.log, written)
    found = {"format": made.format, "rows": made.rows, "findings": findings_data(made.findings)}
    figures = {**figures_of(made.log, written), **found}
    out.result(figures, lambda: _words(made, written))
    if refused:
        raise refusal(made)


def _words(made: Imported, path: Path | None) -> RenderableType:
    from rich.console import Group

    from bftrain import text_formats

    log = made.log
    begin, end = text_formats.moment(log.start_s), text_formats.moment(log.end_s)
    idle = f"{100 * log.idle_share:.2f} % of the node-time idle ({log.idle_node_s / 3600:,.0f} node-hours)"
    return Group(
        report(made.findings),
        books(made),
        f"{path or 'not written'}: {_many(len(log.node_names), 'node')}, {_many(len(log), 'event')}, {idle},",
        f"{text_formats.duration(log.span_s)} from {begin} to {end}",
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
