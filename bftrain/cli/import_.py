"""``bftrain import``: from what a scheduler wrote to a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.output import Output, prints_results
from bftrain.cli.records import books, options_of, read_records, reads_records, report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_datasets.importing.pipeline import Imported


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The log to write; its name ends in .npz, .csv or .parquet.",
)
@reads_records
@prints_results
def command(
    *,
    files: tuple[Path, ...],
    path: Path,
    strict: bool,
    counts: bool,
    out: Output,
    **given: Any,  # noqa: ANN401 - options
) -> None:
    """Read FILES that a scheduler wrote into one log of idle nodes; - is standard input.

    Formats are recognised by content, compressed or not. A node is idle when no job holds any of its cores. Each row is
    used or set aside for a reason that is counted, and whatever is doubtful is listed with the option that changes it.
    """
    from bftrain_datasets.files import check_log_name, save_log

    check_log_name(path)
    made = read_records(files, options_of(given, counts=counts), out)
    refused = strict and bool(made.doubts)
    if not refused:
        save_log(made.log, path)
    out.result(_figures(made, None if refused else path), lambda: _words(made, None if refused else path))
    if refused:
        raise refusal(made)


def refusal(made: Imported) -> Exception:
    """What ``--strict`` says."""
    from bftrain.errors import BadInput

    kinds = ", ".join(each.name for each in made.doubts)
    return BadInput(f"--strict: {len(made.doubts)} kinds of doubt: {kinds}", fix="see the options in the report above")


def _figures(made: Imported, path: Path | None) -> dict[str, object]:
    log = made.log
    return {
        "file": str(path) if path else None,
        "format": made.format,
        "rows": made.rows,
        "nodes": len(log.node_names),
        "events": len(log),
        "start_s": log.start_s,
        "end_s": log.end_s,
        "idle_share": log.idle_share,
        "idle_node_hours": log.idle_node_s / 3600,
        "sha256": log.sha256,
        "findings": made.findings,
    }


def _words(made: Imported, path: Path | None) -> RenderableType:
    from rich.console import Group

    from bftrain_replay import words

    log = made.log
    begin, end = words.moment(log.start_s), words.moment(log.end_s)
    idle = f"{100 * log.idle_share:.2f} % of the node-time idle ({log.idle_node_s / 3600:,.0f} node-hours)"
    return Group(
        report(made.findings),
        books(made),
        f"{path or 'not written'}: {len(log.node_names):,} nodes, {len(log):,} events, {idle},",
        f"{words.duration(log.span_s)} from {begin} to {end}",
    )
