"""Help pages of commands: options under headings, and an example that can be copied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import click

from bftrain.cli.former_names import REMOVED
from bftrain.durations import FORMS

P = ParamSpec("P")
R = TypeVar("R")

OWN: Final = "Options"  # the heading of options without one
COMMON: Final = "Output and help"  # options of all commands, shown last
DURATION: Final = "DURATION"  # the metavar of durations

_headings: Final[WeakKeyDictionary[click.Parameter, str]] = WeakKeyDictionary()


def heading(title: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Group the options below this decorator, down to the next heading, under ``title``."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        for parameter in getattr(function, "__click_params__", ()):
            _headings.setdefault(parameter, title)
        return function

    return mark


class DocumentedCommand(click.Command):
    """A command whose help page starts with an ``example``, one command per line, and groups its options.

    The most important information is so on the first screen. The meaning of values follows the options.
    """

    def __init__(self, *args: Any, example: str, **settings: Any) -> None:  # noqa: ANN401 - click's own types
        super().__init__(*args, **settings)
        self.example = example

    def options_by_heading(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Return the options of each heading, as declared; the common options are last."""
        groups: dict[str, list[click.Option]] = {}
        help_option = self.get_help_option(ctx)
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                title = COMMON if parameter is help_option else _headings.get(parameter, OWN)
                groups.setdefault(title, []).append(parameter)
        if COMMON in groups:
            groups[COMMON] = groups.pop(COMMON)
        return groups

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; reject an option without its value, instead of using the next option as its value."""
        options = {
            name: parameter
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        for word, following in pairwise(args):
            if word == "--":
                break
            option = options.get(word)
            if option and not option.is_flag and not option.count and following in options:
                what = f"Option '{word}' requires an argument, {option.make_metavar(ctx)}, before '{following}'."
                raise click.BadOptionUsage(word, what, ctx)
        return super().parse_args(ctx, args)

    @property
    def takes_durations(self) -> bool:
        """Whether an option is a duration."""
        return any(DURATION in parameter.type.name for parameter in self.params)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, unwrapped for copying, and the options under their headings."""
        lines = self.example.splitlines()
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        for title, options in self.options_by_heading(ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog, and the form of durations if an option is one."""
        super().format_epilog(ctx, formatter)
        if self.takes_durations:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{DURATION} is {FORMS}.")


class CommandGroup(click.Group):
    """A group that names the replacement of a removed command, and lists each command with its whole first sentence."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; fail with the replacement if it was removed."""
        name = " ".join([*ctx.command_path.split()[1:], *args[:1]])
        if name in REMOVED:
            ctx.fail(f"No such command '{args[0]}': {REMOVED[name]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(command.help)) for name, command in commands.items() if command])


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a help text."""
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".") + "."


class DocumentedGroup(DocumentedCommand, CommandGroup):
    """A command with an action of its own and subcommands."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - click's own types
        super().__init__(*args, invoke_without_command=True, **settings)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, the options and the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
