"""``bftrain queue``: the tasks of a live run."""

from __future__ import annotations

import time

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.live.commands.connection import COLUMNS, Live, row, talks


@click.command(cls=DocumentedCommand, example="bftrain queue --all")
@click.option("--all", "over", is_flag=True, help="Those as well that are over.")
@talks
@prints_results
def command(live: Live, out: Output, *, over: bool) -> None:
    """List your tasks in a live run; its operators see those of all users."""
    with live.call() as client:
        tasks = client.tasks(over=over)
    now = time.time()
    title = f"{len(tasks)} tasks" if len(tasks) != 1 else "1 task"
    out.result(tasks, lambda: table(title, COLUMNS, [row(task, now) for task in tasks], left=(0, 1, 2, 4)))
