"""``bftrain tasks``: task files."""

from __future__ import annotations

import click

from bftrain_datasets.commands import tasks_generate, tasks_import


@click.group()
def command() -> None:
    """Make task files: generated ones, or jobs of other systems."""


command.add_command(tasks_generate.command, "generate")
command.add_command(tasks_import.command, "import")
