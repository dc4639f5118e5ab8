"""The command ``bftrain``: finds the command asked for, runs it, and turns what went wrong into words and an exit code.

Exit codes: 0 fine, 1 some of the work failed, 2 usage, 3 bad input, 4 something needed is missing, 5 a fault of ours,
130 interrupted.
Command modules are imported only when they run, so that ``bftrain --help`` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Final, NamedTuple, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from bftrain.errors import BadInput, BftrainError, Fault, Interrupted, NotAvailable, UsageError, suggestion
from bftrain.version import __version__


class CommandEntry(NamedTuple):
    """The module of a command, which each room ships, and its line in ``bftrain --help``."""

    module: str
    about: str


# In the order in which a newcomer meets them
COMMANDS: Final = {
    "demo": CommandEntry(
        "bftrain_replay.commands.demo",
        "Replay the built-in sample log and write a report: a first look in seconds.",
    ),
    "doctor": CommandEntry(
        "bftrain.cli.doctor",
        "Say what is available here, what is not, why, and the command that fixes it.",
    ),
    "import": CommandEntry(
        "bftrain_datasets.commands.import_",
        "Read what a scheduler wrote (sacct, PBS, SWF, ...) into a log of idle nodes.",
    ),
    "check": CommandEntry(
        "bftrain_datasets.commands.check",
        "List what is doubtful in a log or in a scheduler's records, and what can be done about it.",
    ),
    "generate": CommandEntry(
        "bftrain_datasets.commands.generate",
        "Generate a log of idle nodes that looks like a real machine's.",
    ),
    "tasks": CommandEntry(
        "bftrain_datasets.commands.tasks",
        "Generate task files.",
    ),
    "inspect": CommandEntry(
        "bftrain_datasets.commands.inspect",
        "Describe a log: how much was idle, in what pieces.",
    ),
    "slice": CommandEntry(
        "bftrain_datasets.commands.slice",
        "Cut a part out of a log: some nodes, some time, or both.",
    ),
    "anonymise": CommandEntry(
        "bftrain_datasets.commands.anonymise",
        "Make a log that can be given away: no names, no sources.",
    ),
    "schedule": CommandEntry(
        "bftrain_replay.commands.schedule",
        "Simulate a main scheduler on an archive's SWF log: waits, and which nodes stay idle.",
    ),
    "replay": CommandEntry(
        "bftrain_replay.commands.replay",
        "Replay a log against tasks: what would have been harvested, lost, and possible.",
    ),
    "compare": CommandEntry(
        "bftrain_replay.commands.compare",
        "Put the figures of several replays side by side, in the terminal and as a page.",
    ),
    "report": CommandEntry(
        "bftrain_replay.commands.report",
        "Draw a replay: one page for people, or its pictures for papers.",
    ),
    "sweep": CommandEntry(
        "bftrain_replay.commands.sweep",
        "Replay every combination of options that a file asks for, side by side, into one table.",
    ),
    "export": CommandEntry(
        "bftrain_replay.commands.export",
        "Write a replay in the formats of other tools: Batsim, Perfetto.",
    ),
    "solve": CommandEntry(
        "bftrain.cli.solve",
        "Solve one allocation problem with one solver or all.",
    ),
    "decide": CommandEntry(
        "bftrain.cli.decide",
        "Read events as JSON lines, write actions as JSON lines: the decision core in a pipe.",
    ),
    "train": CommandEntry(
        "bftrain.live.commands.train",
        "Try a training script elastically on this machine: its speed, and what changing its size costs.",
    ),
    "elastic": CommandEntry(
        "bftrain.live.commands.elastic",
        "Say whether a training script is ready to be resized, and what it lacks.",
    ),
    "live": CommandEntry(
        "bftrain.live.commands.live",
        "Train on idle nodes beside a running batch scheduler; --demo shows it on this machine.",
    ),
    "submit": CommandEntry(
        "bftrain.live.commands.submit",
        "Hand a task to a live run.",
    ),
    "queue": CommandEntry(
        "bftrain.live.commands.queue",
        "List the tasks of a live run.",
    ),
    "status": CommandEntry(
        "bftrain.live.commands.status",
        "Say how a live run stands, or one of its tasks.",
    ),
    "top": CommandEntry(
        "bftrain.live.commands.top",
        "Watch a live run in the terminal: nodes, tasks, their sizes over time, what happens.",
    ),
    "page": CommandEntry(
        "bftrain.live.commands.page",
        "Say where the status page of a live run is, or open it.",
    ),
    "logs": CommandEntry(
        "bftrain.live.commands.logs",
        "Print what the workers of a task print.",
    ),
    "cancel": CommandEntry(
        "bftrain.live.commands.cancel",
        "End tasks for good.",
    ),
    "pause": CommandEntry(
        "bftrain.live.commands.pause",
        "Let tasks wait without nodes until they are resumed.",
    ),
    "resume": CommandEntry(
        "bftrain.live.commands.resume",
        "Let paused tasks compete again.",
    ),
    "drain": CommandEntry(
        "bftrain.live.commands.drain",
        "Take nodes out of use in a live run, or into use again.",
    ),
    "api": CommandEntry(
        "bftrain.live.commands.api",
        "List what programs can ask a live run; its OpenAPI description, dashboard and alerts.",
    ),
    "hooks": CommandEntry(
        "bftrain.live.commands.hooks",
        "Let a batch scheduler tell a live run at once of jobs that start and end.",
    ),
    "journal": CommandEntry(
        "bftrain_replay.commands.journal",
        "Look into a journal, and check that it leads to the same decisions again.",
    ),
    "completion": CommandEntry(
        "bftrain.cli.completion",
        "Print the completion script for your shell.",
    ),
}


class LazyGroup(click.Group):
    """Knows its commands by name and one-line help; imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command asked for."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name].module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name when there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}': {suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands."""
        names = [
            CompletionItem(name, help=entry.about) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    # The reader of our output may end early (head, less): that is no error. Both methods can print, --help in the
    # first; a broken pipe is caught there because click would end the process with 1.

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments before the command."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            _mute(sys.stdout, sys.stderr)  # either may be the pipe
            ctx.exit(0)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _mute(sys.stdout, sys.stderr)  # either may be the pipe
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.about) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="bftrain COMMAND --help tells more of each.",
)
@click.version_option(__version__, prog_name="bftrain", message="%(prog)s %(version)s")
def main() -> None:
    """Fill the idle nodes of a supercomputer's batch queue with elastic training tasks."""


def run() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    _replace_closed_streams()
    try:
        ended = main.main(prog_name="bftrain", standalone_mode=False)
        sys.stdout.flush()
        code = ended if isinstance(ended, int) else 0  # click gives back what went into ctx.exit()
    except SystemExit:  # shell completion ends the process by itself
        raise
    except BaseException as error:  # noqa: BLE001 - the one place where any end of a command becomes an exit code
        code = exit_code(error)
    sys.exit(code)


def exit_code(error: BaseException) -> int:
    """Say on stderr what ended the command, and give the exit code for it."""
    match error:
        case click.ClickException():
            error.show()
            return UsageError.exit_code
        case BftrainError():
            return _complain(f"{error}{_trace(error.__cause__)}", error.exit_code)
        case KeyboardInterrupt() | click.Abort():
            return _complain("interrupted", Interrupted.exit_code)
        case BrokenPipeError():
            _mute(sys.stdout, sys.stderr)  # either may be the pipe
            return 0
        case OSError(errno=errno.ENOSPC | errno.EDQUOT, filename=name, strerror=reason):
            _mute(sys.stdout)
            return _complain(f"{name or 'writing'}: {reason}", NotAvailable.exit_code)
        case OSError(filename=str() as name, strerror=reason):
            return _complain(f"{name}: {reason}", BadInput.exit_code)
        case _:
            return _fault(error)


def _replace_closed_streams() -> None:
    """Put nothingness where a standard stream is closed, as daemons may leave them.

    Otherwise Python has ``None`` for it, and the next file to be opened, a journal perhaps, would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until we end


def _mute(*streams: TextIO) -> None:
    """Point streams to nowhere, or Python would complain once more when it flushes at exit."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(text: str, code: int) -> int:
    click.echo(f"bftrain: {text}", err=True)
    return code


def _trace(cause: BaseException | None) -> str:
    """Print what led to an exception in code that is not ours if ``-v`` asks for it; else say that it does."""
    from bftrain.exception_text import source_line

    if cause is None or isinstance(cause, BftrainError | OSError) or source_line(cause) is None:
        return ""
    return "" if _traced(cause) else "; -v prints the whole traceback"


def _traced(error: BaseException) -> bool:
    import traceback

    verbose = bool({"-v", "--verbose"} & set(sys.argv))
    if verbose:
        traceback.print_exception(error)
    return verbose


def _fault(error: BaseException) -> int:
    from bftrain.exception_text import is_from_own_file, raised

    if isinstance(error, Exception) and is_from_own_file(error):
        return _complain(f"your own code {raised(error)}{_trace(error)}", BadInput.exit_code)
    _traced(error)
    what = f"a fault of ours: {type(error).__name__}: {error}. Please report it, with what -v prints."
    return _complain(what, Fault.exit_code)
