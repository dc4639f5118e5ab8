"""Command usage: who used how many node-hours of a live run, asked of the run itself or read from its journal."""

from __future__ import annotations

import csv
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, table
from bftrain.errors import BadInput
from bftrain.live.commands.tasks import talks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain.live.client.client import Client
    from bftrain.live.model.resource_views import UsageRow

_GROUPINGS: Final = ("user", "project", "campaign", "month", "day", "task")
_COLUMNS: Final = ("node_s", "gpu_s", "samples", "energy_j")
_HEADS: Final = ("node-hours", "GPU-hours", "samples", "kWh")
_UNITS: Final = (3600.0, 3600.0, 1.0, 3.6e6)
_DIGITS: Final = (2, 2, 0, 2)


@click.command(
    cls=DocumentedCommand, example="bftrain usage --since 2026-11-01 --by project\nbftrain usage --by month --csv"
)
@click.option("--by", type=click.Choice(_GROUPINGS), default="user", help="What is summed up together [user].")
@click.option("--since", metavar="DATE", default="", help="The first day that counts, such as 2026-11-01 [all days].")
@click.option("--csv", "as_csv", is_flag=True, help="Print a table in CSV: exact seconds, samples and joules.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read a journal instead of asking the live run.",
)
@talks
def command(by: str, since: str, journal: Path | None, client: Client, out: Output, *, as_csv: bool) -> None:
    """List used node-hours, GPU-hours and samples of your tasks; operators see those of all users.

    Days are those of the live run's time zone. GPU-hours and energy follow from [usage] in the site's settings.
    """
    since = _day(since)
    rows = client.usage(by, since) if journal is None else _of_journal(journal, by, since)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow((by, *_COLUMNS))
        writer.writerows((row.of, *(getattr(row, name) for name in _COLUMNS)) for row in rows)
        return
    out.result(rows, lambda: table("", *_laid_out(by, rows)))


def _day(text: str) -> str:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat() if text else ""  # noqa: DTZ007 - a day has no zone
    except ValueError as error:
        raise BadInput(f"is no day: {text!r}", where="--since", fix="write it as 2026-11-01") from error


def _of_journal(path: Path, by: str, since: str) -> Sequence[UsageRow]:
    from bftrain.journal import Journal
    from bftrain.live.tasks.usage_ledger import usage

    with Journal.open(path) as opened:
        return usage(opened, by, since)


def _laid_out(by: str, rows: Sequence[UsageRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows with the sum as the last one; without GPUs and energy where the site tells none."""
    sums = [sum(getattr(row, name) for row in rows) for name in _COLUMNS]
    values = [(row.of or "none", [getattr(row, name) for name in _COLUMNS]) for row in rows]
    if len(rows) > 1:
        values.append(("all", sums))
    shown = [place for place in range(len(_COLUMNS)) if _HEADS[place] in {"node-hours", "samples"} or sums[place]]
    laid_out = [(of, *(f"{row[place] / _UNITS[place]:,.{_DIGITS[place]}f}" for place in shown)) for of, row in values]
    return (by, *(_HEADS[place] for place in shown)), laid_out
