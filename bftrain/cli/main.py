"""The command ``bftrain``: finds and runs a subcommand, and turns errors into messages and exit codes.

Exit codes: 0 success, 1 partial failure, 2 usage, 3 bad input, 4 a requirement is missing, 5 an internal error,
130 interrupted.
Command modules are imported only when they run, so ``bftrain --help`` responds immediately.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import threading
import traceback
import warnings
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from bftrain.cli import bash_completion  # noqa: F401 - it registers itself
from bftrain.cli.command_help import REMOVED
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

if TYPE_CHECKING:
    from collections.abc import Iterator

# New objects; Python's 700 look for unused ones 120 times while modules are imported, and 50,000 once in most replays
_COLLECT_AFTER: Final = 200_000


class CommandEntry(NamedTuple):
    """The location of a command, and its line in ``bftrain --help``.

    ``place`` is a package with a module named like the command, with an attribute ``command``; or ``MODULE:ATTRIBUTE``.
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

# Sorted by a newcomer's needs
_TABLE: Final = {
    "demo": (_REPLAY, "Replay the built-in sample log and write a report: a first look in seconds."),
    "doctor": (_CORE, "Check which parts and dependencies work here, and show fixes for the rest."),
    "import": (_DATASETS, "Convert a scheduler's records (sacct, PBS, SWF, ...) to a log of idle nodes."),
    "check": (_DATASETS, "List doubtful data in a log or in a scheduler's records, with options to treat it."),
    "generate": (_DATASETS, "Generate a log of idle nodes that looks like a real machine's."),
    "tasks": (_DATASETS, "Generate task files; list measured models."),
    "inspect": (_DATASETS, "Describe a log: its idle node-time, and how it is fragmented."),
    "slice": (_DATASETS, "Extract a part of a log: some nodes, some time, or both."),
    "anonymise": (_DATASETS, "Remove names and sources from a log, so that it can be published."),
    "schedule": (_REPLAY, "Simulate a main scheduler on an archive's SWF log: waits, and which nodes stay idle."),
    "assess": (_REPLAY, "Estimate the weekly harvest of a log's idle nodes, its uncertainty and its worth."),
    "replay": (_REPLAY, "Replay a log with tasks: the harvest, the losses, and the upper bound."),
    "explain": (_REPLAY, "Explain a figure: U, rho, the harvest, the causes of losses."),
    "compare": (_REPLAY, "Compare the figures of several replays, in the terminal and as a page."),
    "report": (_REPLAY, "Draw a replay: one page for people, or its pictures for papers."),
    "rounds": (_REPLAY, "Share the time of a cluster, or of a log's idle nodes, among tasks in rounds."),
    "sweep": (_REPLAY, "Replay every combination of the options in a file, in parallel, into one table."),
    "reproduce": (_REPLAY, "Reproduce the figures of published systems, next to the published values."),
    "export": (_REPLAY, "Write a replay as a trace for Perfetto."),
    "solve": (_CORE, "Solve one allocation problem with one solver or all."),
    "decide": (_CORE, "Read events as JSON lines, write actions as JSON lines: the decision core in a pipe."),
    "train": (_LIVE, "Test a training script elastically on this machine: its speed, and the cost of resizing."),
    "elastic": (f"{_LIVE}.train:elastic", "Check whether a training script can be resized, and list its gaps."),
    "live": (_LIVE, "Train on idle nodes next to a running batch scheduler; --demo runs it on this machine."),
    "submit": (_LIVE, "Submit a task to a live run."),
    "queue": (f"{_LIVE}.tasks:queue", "List the tasks of a live run."),
    "status": (f"{_LIVE}.tasks:status", "Show the state of a live run or a task."),
    "usage": (
        f"{_LIVE}.tasks:usage",
        "Show the node-hours used in a live run, by user, project, campaign, month or task.",
    ),
    "page": (f"{_LIVE}.live:page", "Print the address of a live run's status page, or open it."),
    "logs": (f"{_LIVE}.tasks:logs", "Print the output of a task's workers."),
    "edit": (f"{_LIVE}.submit:edit", "Change waiting tasks."),
    "cancel": (f"{_LIVE}.tasks:cancel", "Cancel tasks."),
    "pause": (f"{_LIVE}.tasks:pause", "Pause tasks: they release their nodes and wait until resumed."),
    "resume": (f"{_LIVE}.tasks:resume", "Resume paused tasks."),
    "drain": (f"{_LIVE}.tasks:drain", "Exclude nodes from a live run, or include them again."),
    "api": (
        f"{_LIVE}.live:api",
        "List the HTTP API of a live run; print its OpenAPI description, dashboard and alerts.",
    ),
    "hooks": (f"{_LIVE}.live:hooks", "Install scheduler hooks that report job starts and ends immediately."),
    "journal": (_REPLAY, "Inspect a journal, and verify that it leads to the same decisions again."),
    "completion": (_CORE, "Print the completion script for your shell."),
}
COMMANDS: Final = {name: CommandEntry(*row) for name, row in _TABLE.items()}


class LazyGroup(click.Group):
    """Knows its commands by name and one-line help; imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return a command."""
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; name the replacement of a removed one, or the nearest name to an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}': {REMOVED.get(args[0]) or suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands."""
        names = [
            CompletionItem(name, help=entry.about) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    # The reader of the output may end early (head, less), which is no error. Both methods can print, --help in the
    # first; a broken pipe is caught there because click would end the process with 1.

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            _silence(sys.stdout, sys.stderr)  # either may be the pipe
            ctx.exit(0)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _silence(sys.stdout, sys.stderr)  # either may be the pipe
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.about) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="bftrain COMMAND --help describes a command.",
)
@click.version_option(__version__, prog_name="bftrain", message="%(prog)s %(version)s")
def main() -> None:
    """Fill the idle nodes of a supercomputer's batch queue with elastic training tasks."""


def run() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    code = exit_code_of_command()
    if sys.argv[1:2] == [_WITHOUT_FOREIGN_CODE]:
        _exit_at_once(code)
    sys.exit(code)


# It runs no third-party code, which could keep files open that are written when Python frees them
_WITHOUT_FOREIGN_CODE: Final = "demo"


def _exit_at_once(code: int) -> None:
    """Exit as Python does, but do not free objects one by one, which takes 0.01 s after a replay.

    Return if that would lose something.
    """
    if threading.active_count() > 1:  # Python waits for threads
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # Python reports these itself
        return
    os._exit(code)


def exit_code_of_command() -> int:
    """Run the command line of this process and return its exit code."""
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # Python would look through all objects once more at its end: 0.05 s after a replay
    # A standard stream may be closed, as in daemons: Python has None for it, and the next opened file, perhaps a
    # journal, would get its number
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the exit
    warnings.showwarning = _show_warning
    try:
        with _one_thread(sys.argv[1:2]):
            ended = main.main(prog_name="bftrain", standalone_mode=False)
        sys.stdout.flush()
        code = ended if isinstance(ended, int) else 0  # click returns the argument of ctx.exit()
    except SystemExit:  # shell completion exits on its own
        raise
    except BaseException as error:  # noqa: BLE001 - the only place that converts exceptions to exit codes
        code = exit_code(error)
    return code


_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def _one_thread(command: list[str]) -> Iterator[None]:
    """Limit numpy's linear algebra to one thread in commands without third-party code.

    Its other threads, one per processor, spin for a tenth of a second before they sleep, without any work.
    """
    places = {_TABLE[name][0] for name in command if name in _TABLE}
    if not places & {_DATASETS, _REPLAY} or os.environ.keys() & {_BLAS_THREADS, "OMP_NUM_THREADS"}:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_BLAS_THREADS]


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a ResultWarning like commands do, and any other warning like Python."""
    if issubclass(category, ResultWarning):
        click.echo(f"warning: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), nl=False, file=file, err=True)


def exit_code(error: BaseException) -> int:
    """Print the error on stderr, and return its exit code."""
    match error:
        case click.ClickException():
            error.show()
            return UsageError.exit_code
        case BftrainError():
            return _print_error(f"{error}{_traceback_or_hint(error.__cause__)}", error.exit_code)
        case KeyboardInterrupt() | click.Abort():
            return _print_error("interrupted", Interrupted.exit_code)
        case BrokenPipeError():
            _silence(sys.stdout, sys.stderr)  # either may be the pipe
            return 0
        case OSError(errno=errno.ENOSPC | errno.EDQUOT, filename=name, strerror=reason):
            _silence(sys.stdout)
            return _print_error(f"{name or 'writing'}: {reason}", NotAvailable.exit_code)
        case OSError(filename=str() as name, strerror=reason):
            return _print_error(f"{name}: {reason}", BadInput.exit_code)
        case Exception() if is_from_own_file(error):
            return _print_error(f"your own code {raised(error)}{_traceback_or_hint(error)}", BadInput.exit_code)
        case _:
            _print_traceback(error)
            what = f"internal error: {type(error).__name__}: {error}. Please report it with the output of -v."
            return _print_error(what, Fault.exit_code)


def _silence(*streams: TextIO) -> None:
    """Redirect streams to /dev/null; otherwise Python would print another error when it flushes at exit."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_error(text: str, code: int) -> int:
    click.echo(f"bftrain: {text}", err=True)
    return code


def _traceback_or_hint(cause: BaseException | None) -> str:
    """Print the traceback of an exception in foreign code with ``-v``; otherwise return a hint at ``-v``."""
    if cause is None or isinstance(cause, BftrainError | OSError) or source_line(cause) is None:
        return ""
    return "" if _print_traceback(cause) else "; -v prints the whole traceback"


def _print_traceback(error: BaseException) -> bool:
    verbose = bool({"-v", "--verbose"} & set(sys.argv))
    if verbose:
        traceback.print_exception(error)
    return verbose
