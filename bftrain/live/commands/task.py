"""``bftrain task``: change tasks of a live run, and list their use."""

from __future__ import annotations

from typing import Final

import click

from bftrain.cli.command_table import CommandEntry, LazyGroup

_TASKS: Final = "bftrain.live.commands.tasks"
_COMMANDS: Final = {
    "pause": CommandEntry(f"{_TASKS}:pause", "Pause tasks: they release their nodes and wait until resumed."),
    "resume": CommandEntry(f"{_TASKS}:resume", "Resume paused tasks."),
    "cancel": CommandEntry(f"{_TASKS}:cancel", "Cancel tasks; their saved state stays."),
    "edit": CommandEntry("bftrain.live.commands.submit:edit", "Change waiting tasks: nodes, weight, deadline."),
    "usage": CommandEntry(f"{_TASKS}:usage", "List used node-hours by user, project, campaign, month or task."),
}


@click.group(cls=LazyGroup, sections={"Commands": _COMMANDS})
def command() -> None:
    """Pause, resume, cancel or edit tasks of a live run; list their node-hours."""
