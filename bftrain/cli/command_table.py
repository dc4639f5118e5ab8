"""The commands of ``bftrain`` by group, and where their code is. A command is imported only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from bftrain.cli.command_help import CommandGroup


class CommandEntry(NamedTuple):
    """The location of a command, ``MODULE:ATTRIBUTE`` or a module with the attribute ``command``, and its help line."""

    place: str
    about: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        command: click.Command = getattr(import_module(module), attribute or "command")
        return command


class LazyGroup(CommandGroup):
    """Knows its commands by name and help line, in ``sections``; imports one only to run it or to show its own help."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, CommandEntry]], **settings: Any) -> None:  # noqa: ANN401 - click's own types
        super().__init__(*args, **settings)
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return a command."""
        return self.entries[cmd_name].load() if cmd_name in self.entries else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands."""
        items = (CompletionItem(name, help=entry.about) for name, entry in self.entries.items())
        return [item for item in items if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands of each section without importing them; all sections are aligned."""
        width = max(map(len, self.entries))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", entry.about) for name, entry in section.items()])


_LIVE: Final = "bftrain.live.commands."
_LOGS: Final = "bftrain_datasets.commands."
_REPLAYS: Final = "bftrain_replay.commands."
_TOOLS: Final = "bftrain.cli."

# The order of a newcomer's needs
SECTIONS: Final = {
    "Logs": {
        "import": CommandEntry(
            _LOGS + "import_", "Convert a scheduler's records (sacct, PBS, SWF, ...) to a log of idle nodes."
        ),
        "inspect": CommandEntry(_LOGS + "inspect", "Describe a log: its idle node-time, and how it is fragmented."),
        "slice": CommandEntry(_LOGS + "slice", "Extract a part of a log; remove names before you publish it."),
        "generate": CommandEntry(_LOGS + "generate", "Generate logs and task files; list measured models."),
    },
    "Simulate": {
        "demo": CommandEntry(_REPLAYS + "demo", "Replay the built-in sample log and write a report, in seconds."),
        "replay": CommandEntry(_REPLAYS + "replay", "Replay a log with tasks: harvest, losses, and upper bound."),
        "rounds": CommandEntry(_REPLAYS + "rounds", "Share a cluster, or a log's idle nodes, among tasks in rounds."),
        "schedule": CommandEntry(_REPLAYS + "schedule", "Simulate a batch scheduler on an SWF log: waits, idle nodes."),
        "sweep": CommandEntry(_REPLAYS + "sweep", "Replay all combinations of the options in a file, in parallel."),
        "compare": CommandEntry(_REPLAYS + "compare", "Compare the figures of several replays."),
        "report": CommandEntry(_REPLAYS + "report", "Draw a replay: a page, pictures for papers, or a trace."),
        "assess": CommandEntry(_REPLAYS + "assess", "Estimate the weekly harvest of your idle nodes, and its worth."),
        "reproduce": CommandEntry(_REPLAYS + "reproduce", "Reproduce the figures of published systems."),
    },
    "Train": {
        "train": CommandEntry(_LIVE + "train", "Train a script elastically on this machine, and measure resizing."),
        "check": CommandEntry(_LIVE + "train:check", "Check whether a training script can be resized."),
    },
    "Live": {
        "live": CommandEntry(_LIVE + "live", "Train on idle nodes next to a batch scheduler; --demo needs none."),
        "agent": CommandEntry(_LIVE + "agent", "Add this machine to a live run without a batch scheduler."),
        "submit": CommandEntry(_LIVE + "submit", "Submit a task to a live run."),
        "status": CommandEntry(_LIVE + "tasks:status", "Show a live run and its tasks, or one task."),
        "logs": CommandEntry(_LIVE + "tasks:logs", "Print the output of a task's workers."),
        "task": CommandEntry(_LIVE + "tasks:task_group", "Pause, resume or cancel tasks; list their node-hours."),
    },
    "Tools": {
        "doctor": CommandEntry(_TOOLS + "doctor", "Find what is missing or broken here, with the fix."),
        "solve": CommandEntry(_TOOLS + "solve", "Solve one allocation problem with one solver or all."),
        "decide": CommandEntry(_TOOLS + "decide", "Read events as JSON lines, write actions as JSON lines."),
        "journal": CommandEntry(_REPLAYS + "journal", "Inspect a journal; verify that its decisions are the same."),
        "explain": CommandEntry(_REPLAYS + "explain", "Explain a figure: U, rho, the harvest, the causes of losses."),
    },
}
COMMANDS: Final = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
