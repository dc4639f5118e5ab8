"""``bftrain generate``: logs and task files for experiments; ``bftrain generate log``."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Final

import click

from bftrain.cli.command_help import DocumentedCommand, rare
from bftrain.cli.command_table import CommandEntry, LazyGroup
from bftrain.cli.output import Output, prints_results
from bftrain.errors import BadInput
from bftrain_datasets.commands.logfiles import figures_of, log_output

_PACKAGE: Final = "bftrain_datasets.commands"
_COMMANDS: Final = {
    "log": CommandEntry(f"{_PACKAGE}.generate:log", "Generate a log of idle nodes that looks like a real machine's."),
    "tasks": CommandEntry(f"{_PACKAGE}.tasks", "Generate tasks with measured speeds."),
    "from-trace": CommandEntry(f"{_PACKAGE}.tasks_import", "Convert a job trace (Gavel, Philly, Blox, SWF) to tasks."),
    "profiles": CommandEntry(f"{_PACKAGE}.tasks_profiles", "List measured models, or write them to a file."),
}


@click.group(cls=LazyGroup, sections={"Commands": _COMMANDS})
def command() -> None:
    """Generate logs and task files; list measured models."""


@click.command(
    "log",
    cls=DocumentedCommand,
    example="bftrain generate log -o log.npz --nodes 512 --days 3\n"
    "bftrain generate log -o march.npz --start 2026-03-02 --seed 7",
)
@rare("idle_share")
@log_output()
@click.option(
    "--nodes", type=click.IntRange(1, 1_000_000), default=1024, show_default=True, help="Nodes of the machine."
)
@click.option("--days", type=float, default=7.0, show_default=True, help="Days observed.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses one log of many.")
@click.option("--idle-share", type=float, default=0.0827, show_default=True, help="Idle part of all node-time.")
@click.option("--start", metavar="TIME", default="0", help="First moment: seconds UTC, or such as 2026-03-02 [1970].")
@prints_results
def log(path: Path, nodes: int, days: float, seed: int, idle_share: float, start: str, out: Output) -> None:
    """Generate a log with bursts, fragments and groups of idle time as measured on Summit.

    The same options give the same file.
    """
    from bftrain.text_formats import counted, percent
    from bftrain_datasets.log.log_files import check_log_name, save_log
    from bftrain_datasets.log.log_generator import generate_log
    from bftrain_datasets.log.time_formats import RecordClock

    check_log_name(path)
    try:
        start_s = RecordClock(UTC).seconds(start)
    except ValueError as error:
        fix = "write seconds UTC, or such as 2026-03-02T12:00"
        raise BadInput(f"{start!r} is not a time: {error}", where="--start", fix=fix) from error
    made = generate_log(nodes, days, seed, idle_share=idle_share, start_s=start_s)
    save_log(made, path)
    size = f"{counted(nodes, 'node')}, {counted(len(made), 'event')}"
    words = f"{path}: {size}, {percent(made.idle_share)} of the node-time idle"
    out.result(figures_of(made, path), lambda: words)
