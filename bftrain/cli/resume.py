"""``bftrain resume``: Let a paused task compete again."""

from __future__ import annotations

import click

from bftrain.cli.changing import change_of_tasks, changed
from bftrain.cli.output import Output
from bftrain.cli.talking import Live


@click.command()
@change_of_tasks
def command(tasks: tuple[str, ...], live: Live, out: Output) -> None:
    """Let a paused task compete again, in its old place in the queue."""
    changed(live, tasks, "resume", out)
