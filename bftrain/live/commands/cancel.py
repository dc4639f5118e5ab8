"""``bftrain cancel``: End a task for good."""

from __future__ import annotations

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output
from bftrain.live.commands.change_task import change_of_tasks, changed
from bftrain.live.commands.connection import Live


@click.command(cls=DocumentedCommand, example="bftrain cancel resnet vgg")
@change_of_tasks
def command(tasks: tuple[str, ...], live: Live, out: Output) -> None:
    """End a task for good; what it has saved in its folder stays."""
    changed(live, tasks, "cancel", out)
