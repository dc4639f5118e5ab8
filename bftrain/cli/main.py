"""The command ``bftrain``: finds the command asked for, runs it, and turns what went wrong into words and an exit code.

Exit codes: 0 fine, 1 some of the work failed, 2 usage, 3 bad input, 4 something needed is missing, 5 a fault of ours,
130 interrupted.
Command modules are imported only when they run, so that ``bftrain --help`` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from importlib import import_module
from keyword import iskeyword
from typing import Final, NamedTuple, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from bftrain.cli import bash_completion  # noqa: F401 - it registers itself
from bftrain.errors import (
    BadInput,
    BftrainError,
    Fault,
    Interrupted,
    NotAvailable,
    ResultWarning,
    UsageError,
    is_from_own_file,
    raised,
    source_line,
    suggestion,
)
from bftrain.version import __version__


class CommandEntry(NamedTuple):
    """Where a command is, and its line in ``bftrain --help``.

    ``place`` is a package with a module named like the command, which holds it as ``command``; or ``MODULE:ATTRIBUTE``.
    """

    place: str
    about: str

    def load(self, name: str) -> click.Command:
        """Import the command ``name``."""
        module, _, attribute = self.place.partition(":")
        if not attribute:
            module, attribute = f"{module}.{name}_" if iskeyword(name) else f"{module}.{name}", "command"
        command: click.Command = getattr(import_module(module), attribute)
        return command


_CORE: Final = "bftrain.cli"
_LIVE: Final = "bftrain.live.commands"
_DATASETS: Final = "bftrain_datasets.commands"
_REPLAY: Final = "bftrain_replay.commands"

# In the order in which a newcomer meets them
_TABLE: Final = {
    "demo": (_REPLAY, "Replay the built-in sample log and write a report: a first look in seconds."),
    "doctor": (_CORE, "Say what is available here, what is not, why, and the command that fixes it."),
    "import": (_DATASETS, "Read what a scheduler wrote (sacct, PBS, SWF, ...) into a log of idle nodes."),
    "check": (_DATASETS, "List what is doubtful in a log or in a scheduler's records, and what can be done about it."),
    "generate": (_DATASETS, "Generate a log of idle nodes that looks like a real machine's."),
    "tasks": (_DATASETS, "Generate task files; list models that were measured."),
    "inspect": (_DATASETS, "Describe a log: how much was idle, in what pieces."),
    "slice": (_DATASETS, "Cut a part out of a log: some nodes, some time, or both."),
    "anonymise": (_DATASETS, "Make a log that can be given away: no names, no sources."),
    "schedule": (_REPLAY, "Simulate a main scheduler on an archive's SWF log: waits, and which nodes stay idle."),
    "assess": (_REPLAY, "Say what a log's idle nodes can do a week, how sure that is, and what it is worth."),
    "replay": (_REPLAY, "Replay a log against tasks: what would have been harvested, lost, and possible."),
    "explain": (_REPLAY, "Say what a figure means: U, rho, the harvest, what was lost to what."),
    "compare": (_REPLAY, "Put the figures of several replays side by side, in the terminal and as a page."),
    "report": (_REPLAY, "Draw a replay: one page for people, or its pictures for papers."),
    "sweep": (_REPLAY, "Replay every combination of options that a file asks for, side by side, into one table."),
    "export": (_REPLAY, "Write a replay in the formats of other tools: Batsim, Perfetto."),
    "solve": (_CORE, "Solve one allocation problem with one solver or all."),
    "decide": (_CORE, "Read events as JSON lines, write actions as JSON lines: the decision core in a pipe."),
    "train": (_LIVE, "Try a training script elastically on this machine: its speed, and what changing its size costs."),
    "elastic": (f"{_LIVE}.train:elastic", "Say whether a training script is ready to be resized, and what it lacks."),
    "live": (_LIVE, "Train on idle nodes beside a running batch scheduler; --demo shows it on this machine."),
    "submit": (_LIVE, "Hand a task to a live run."),
    "queue": (f"{_LIVE}.tasks:queue", "List the tasks of a live run."),
    "status": (f"{_LIVE}.tasks:status", "Say how a live run stands, or one of its tasks."),
    "usage": (_LIVE, "Say who used how many node-hours of a live run, by user, project, campaign, month or task."),
    "top": (_LIVE, "Watch a live run in the terminal: nodes, tasks, their sizes over time, what happens."),
    "page": (f"{_LIVE}.live:page", "Say where the status page of a live run is, or open it."),
    "logs": (f"{_LIVE}.tasks:logs", "Print what the workers of a task print."),
    "cancel": (f"{_LIVE}.tasks:cancel", "End tasks for good."),
    "pause": (f"{_LIVE}.tasks:pause", "Let tasks wait without nodes until they are resumed."),
    "resume": (f"{_LIVE}.tasks:resume", "Let paused tasks compete again."),
    "drain": (f"{_LIVE}.tasks:drain", "Take nodes out of use in a live run, or into use again."),
    "api": (
        f"{_LIVE}.live:api",
        "List what programs can ask a live run; its OpenAPI description, dashboard and alerts.",
    ),
    "hooks": (f"{_LIVE}.live:hooks", "Let a batch scheduler tell a live run at once of jobs that start and end."),
    "journal": (_REPLAY, "Look into a journal, and check that it leads to the same decisions again."),
    "completion": (_CORE, "Print the completion script for your shell."),
}
COMMANDS: Final = {name: CommandEntry(*row) for name, row in _TABLE.items()}


class LazyGroup(click.Group):
    """Knows its commands by name and one-line help; imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command asked for."""
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

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
    # A standard stream may be closed, as daemons leave them: Python has None for it, and the next file to be opened, a
    # journal perhaps, would take its number
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until we end
    warnings.showwarning = _show_warning
    try:
        ended = main.main(prog_name="bftrain", standalone_mode=False)
        sys.stdout.flush()
        code = ended if isinstance(ended, int) else 0  # click gives back what went into ctx.exit()
    except SystemExit:  # shell completion ends the process by itself
        raise
    except BaseException as error:  # noqa: BLE001 - the one place where any end of a command becomes an exit code
        code = exit_code(error)
    sys.exit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a remark as commands do, and another warning as Python does."""
    if issubclass(category, ResultWarning):
        click.echo(f"warning: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), nl=False, file=file, err=True)


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
        case Exception() if is_from_own_file(error):
            return _complain(f"your own code {raised(error)}{_trace(error)}", BadInput.exit_code)
        case _:
            _traced(error)
            what = f"a fault of ours: {type(error).__name__}: {error}. Please report it, with what -v prints."
            return _complain(what, Fault.exit_code)


def _mute(*streams: TextIO) -> None:
    """Point streams to nowhere, or Python would complain once more when it flushes at exit."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(text: str, code: int) -> int:
    click.echo(f"bftrain: {text}", err=True)
    return code


def _trace(cause: BaseException | None) -> str:
    """Print what led to an exception in code that is not ours if ``-v`` asks for it; else say that it does."""
    if cause is None or isinstance(cause, BftrainError | OSError) or source_line(cause) is None:
        return ""
    return "" if _traced(cause) else "; -v prints the whole traceback"


def _traced(error: BaseException) -> bool:
    verbose = bool({"-v", "--verbose"} & set(sys.argv))
    if verbose:
        traceback.print_exception(error)
    return verbose
