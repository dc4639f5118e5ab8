"""What the commands about logs have in common: the log they are given, the one they write, its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bftrain_datasets.log.eventlog import EventLog

log_argument = click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))

log_output = click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The log to write; its name ends in .npz, .csv or .parquet.",
)

kinds_option = click.option(
    "--kinds",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    metavar="FILE",
    help='Kinds of the nodes: kind = "node set" in a .toml, or columns nodes and kind in a .csv.',
)


def figures_of(log: EventLog, path: Path | None) -> dict[str, Any]:
    """Tell programs what was written: the file, and what is in it."""
    return {
        "file": str(path) if path else None,
        "nodes": len(log.node_names),
        "events": len(log),
        "start_s": log.start_s,
        "end_s": log.end_s,
        "idle_share": log.idle_share,
        "idle_node_hours": log.idle_node_s / 3600,
        "sha256": log.sha256,
    }
