"""``bftrain resume``: Let a paused task compete again."""

from __future__ import annotations

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output
from bftrain.live.commands.change_task import change_of_tasks, changed
from bftrain.live.commands.connection import Live


@click.command(cls=DocumentedCommand, example="bftrain resume resnet")
@change_of_tasks
def command(tasks: tuple[str, ...], live: Live, out: Output) -> None:
    """Let a paused task compete again, in its old place in the queue."""
    changed(live, tasks, "resume", out)
