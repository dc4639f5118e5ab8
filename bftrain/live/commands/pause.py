"""``bftrain pause``: Let a task wait without nodes until it is resumed."""

from __future__ import annotations

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output
from bftrain.live.commands.change_task import change_of_tasks, changed
from bftrain.live.commands.connection import Live


@click.command(cls=DocumentedCommand, example="bftrain pause resnet")
@change_of_tasks
def command(tasks: tuple[str, ...], live: Live, out: Output) -> None:
    """Let a task wait without nodes until it is resumed; it saves where it is."""
    changed(live, tasks, "pause", out)
