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
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

import click

from bftrain.cli.command_help import print_hint
from bftrain.cli.command_table import COMMANDS, SECTIONS, LazyGroup
from bftrain.cli.former_names import renaming_of
from bftrain.errors import (
    BadInput,
    BftrainError,
    Fault,
    FormerSpelling,
    Interrupted,
    NotAvailable,
    ResultWarning,
    UsageError,
    is_from_own_file,
    raised,
    source_line,
)
from bftrain.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

# New objects before a garbage collection. With Python's 700, imports alone lead to 120 collections; with 50,000, most
# replays have one
_COLLECT_AFTER: Final = 200_000


class MainGroup(LazyGroup):
    """All commands; former names work for one release."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; hint at the new name of a renamed one."""
        if renaming := renaming_of(args):
            if not ctx.resilient_parsing:  # completion prints only candidates
                print_hint(args, renaming.hint)
            args = renaming.arguments
        return super().resolve_command(ctx, args)

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


@click.group(
    cls=MainGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="bftrain COMMAND --help describes a command.",
)
@click.version_option(__version__, prog_name="bftrain", message="%(prog)s %(version)s")
def main() -> None:
    """Fill the idle nodes of a supercomputer's batch queue with elastic training tasks."""


def run() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    sys.exit(exit_code_of_command())


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
        with _one_thread(sys.argv[1:]):
            ended = main.main(prog_name="bftrain", standalone_mode=False)
        sys.stdout.flush()
        code = ended if isinstance(ended, int) else 0  # click returns the argument of ctx.exit()
    except SystemExit:  # shell completion exits on its own
        raise
    except BaseException as error:  # noqa: BLE001 - the only place that converts exceptions to exit codes
        code = exit_code(error)
    return code


_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"
_ONE_THREAD_SUFFICES: Final = ("bftrain_datasets.", "bftrain_replay.")  # packages of commands that do not train


@contextmanager
def _one_thread(arguments: list[str]) -> Iterator[None]:
    """Limit numpy's linear algebra to one thread in commands that do not train.

    Its other threads, one per processor, spin for a tenth of a second before they sleep, without any work.
    """
    renaming = renaming_of(arguments)
    name = next(iter(renaming.arguments if renaming else arguments), "")
    entry = COMMANDS.get(name)
    chosen = os.environ.keys() & {_BLAS_THREADS, "OMP_NUM_THREADS"}
    if entry is None or chosen or not entry.place.startswith(_ONE_THREAD_SUFFICES):
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
    """Print a FormerSpelling or a ResultWarning like commands do, and any other warning like Python."""
    if issubclass(category, FormerSpelling):
        print_hint(sys.argv, str(message))
    elif issubclass(category, ResultWarning):
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
