"""``bftrain pause``: Let a task wait without nodes until it is resumed."""

from __future__ import annotations

import click

from bftrain.cli.changing import change_of_tasks, changed
from bftrain.cli.output import Output
from bftrain.cli.talking import Live


@click.command()
@change_of_tasks
def command(tasks: tuple[str, ...], live: Live, out: Output) -> None:
    """Let a task wait without nodes until it is resumed; it saves where it is."""
    changed(live, tasks, "pause", out)
