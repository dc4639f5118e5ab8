"""Help pages of commands: options under headings, and an example that can be copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import click

from bftrain.cli.former_names import REMOVED
from bftrain.durations import FORMS
from bftrain.errors import near, suggestion

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
P = ParamSpec("P")
R = TypeVar("R")

OWN: Final = "Options"  # the heading of options without one
COMMON: Final = "Output and help"  # options of all commands, shown last
DURATION: Final = "DURATION"  # the metavar of durations

REQUIRED: Final = "Required"
_COMMON_ROW: Final = ("--json, -q, -v, -h", "Print JSON, only the result, details, or this help.")
_SET: Final = "--set"
_UNBREAKABLE: Final = "\u2011"  # a hyphen at which no line is broken
# One word per concept for the values of options that declare no metavar, by option or by type
_METAVARS: Final = {
    "window": "A:B",
    **dict.fromkeys(("metrics", "seeds"), "NAME,.."),
    **dict.fromkeys(("shares", "pairs"), "FILE"),
    "map": "WHAT=COL,..",
    "nodes": "NODESET",
    "until": "TIME",
    "timezone": "ZONE",
}
_METAVAR_OF_TYPE: Final = {
    **dict.fromkeys(("integer", "integer range"), "N"),
    **dict.fromkeys(("float", "float range"), "NUMBER"),
    "text": "NAME",
    "directory": "DIR",
}

_headings: Final[WeakKeyDictionary[click.Parameter, str]] = WeakKeyDictionary()
_hints: Final[WeakKeyDictionary[click.Parameter, str]] = WeakKeyDictionary()


def _each_option(mark: Callable[[Any], object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that calls ``mark`` with each option below it."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        for parameter in getattr(function, "__click_params__", ()):
            mark(parameter)
        return function

    return decorate


def heading(title: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Group the options below this decorator, down to the next heading, under ``title``."""
    return _each_option(lambda option: _headings.setdefault(option, title))


def omitted(*names: str, hint: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Omit these options from the help, because another command's help describes them."""

    def mark(option: click.Option) -> None:
        if option.name in names:
            option.hidden = True
            if hint is not None:
                _hints[option] = hint

    return _each_option(mark)


def rare(*names: str, hint: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Omit these options from the help: ``--set NAME=VALUE`` sets them, or use the ``hint`` instead.

    For one release the options themselves are accepted, with a hint.
    """
    return omitted(*names, hint=hint)


def print_hint(arguments: Sequence[str], text: str) -> None:
    """Print a hint on standard error, unless ``-q`` is among the arguments."""
    if not {"-q", "--quiet"} & {*arguments}:
        click.echo(f"hint: {text}", err=True)


class _WholeWords(click.HelpFormatter):
    """Breaks no line at a hyphen, so that names and paths can be copied."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _UNBREAKABLE))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace("-", _UNBREAKABLE)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_UNBREAKABLE, "-")


class DocumentedCommand(click.Command):
    """A command whose help has an ``example``, one command per line, before its grouped options.

    The required options follow first. ``renamed`` maps former spellings of options, which work for one release, to
    the current ones.
    """

    def __init__(self, *args: Any, example: str, renamed: Mapping[str, str] = NOTHING, **settings: Any) -> None:  # noqa: ANN401 - click's own types
        super().__init__(*args, **settings)
        for option in self.params:
            kind = option.type.name
            if isinstance(option, click.Option) and option.metavar is None and not option.is_flag:
                of_name = _METAVARS.get(_name_of(option)) if kind == "text" else None
                option.metavar = of_name or _METAVAR_OF_TYPE.get(kind)
        self.example = example
        self.renamed = renamed
        self.settable = {_name_of(option): option for option in self.params if _hints.get(option) == ""}
        if self.settable:
            text = f"Set {', '.join(self.settable)}."
            option = click.Option(
                [_SET],
                metavar="NAME=VALUE",
                multiple=True,
                expose_value=False,
                help=text,
                shell_complete=self._complete_settable,
            )
            _headings[option] = "Rarely used"
            place = next((place for place, each in enumerate(self.params) if _headings.get(each) == COMMON), None)
            self.params.insert(len(self.params) if place is None else place, option)

    def records_by_heading(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return names and text of the options of each heading; required options come first, common options last."""
        groups: dict[str, list[tuple[str, str]]] = {REQUIRED: []}
        for parameter in self.params:
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option) and _headings.get(parameter) != COMMON:
                names, text = record
                title = REQUIRED if text.endswith("required]") else _headings.get(parameter, OWN)
                groups.setdefault(title, []).append((names, text.removesuffix("[required]").rstrip()))
        return {title: records for title, records in groups.items() if records} | {COMMON: [_COMMON_ROW]}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; reject an option without its value, instead of using the next option as its value."""
        options = {
            name: parameter
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        args = self._in_present_spelling(ctx, args, options)
        for word, following in pairwise(args if ctx.resilient_parsing else [*args, ""]):
            if word == "--":
                break
            option = options.get(word)
            is_last = following == "" and word is args[-1]
            if option and not option.is_flag and not option.count and (is_last or following in options):
                before = "" if is_last else f", before '{following}'"
                what = f"Option '{word}' requires an argument, {option.make_metavar(ctx)}{before}."
                raise click.BadOptionUsage(word, what, ctx)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                error.possibilities[:] = [_present_spelling(options[name]) or name for name in error.possibilities]
            raise
        except click.BadParameter as error:
            if error.param is not None and error.param in self.settable.values():
                error.param_hint = f"'{_SET} {_name_of(error.param)}'"
            raise

    def _complete_settable(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        parameter: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[str]:
        return [f"{name}=" for name in self.settable if name.startswith(incomplete)]

    def _in_present_spelling(
        self, ctx: click.Context, args: list[str], options: Mapping[str, click.Option]
    ) -> list[str]:
        """Replace former spellings of options (with a hint), and ``--set NAME=VALUE`` by the option of that name."""
        if ctx.resilient_parsing:  # completion
            return args
        present, rest = list[str](), list[str]()
        if "--" in args:
            place = args.index("--")
            args, rest = args[:place], args[place:]
        words, seen = iter(args), set[str]()
        for word in words:
            name, equals, value = word.partition("=")
            if name == _SET and self.settable:
                setting = self._set(ctx, value if equals else next(words, ""))
                name = setting.partition("=")[0]
                if name in seen and not options[name].multiple:
                    raise click.BadParameter(f"'{name.lstrip('-')}' is set twice", ctx, param_hint=_SET)
                seen.add(name)
                present.append(setting)
                continue
            option_name = self.renamed.get(name, name)
            present.append(f"{option_name}{equals}{value}")
            new = _present_spelling(options[option_name]) if option_name in options else None
            if new is not None or option_name != name:
                print_hint(args, f"{name} is now {new or option_name}; the old spelling will be removed")
        return present + rest

    def _set(self, ctx: click.Context, text: str) -> str:
        """Return the option for NAME=VALUE."""
        name, equals, value = text.partition("=")
        key = name.strip().replace("_", "-")
        option = self.settable.get(key.removesuffix("-s"))
        if option is None:
            what = f"'{text}' is none of {', '.join(f'{each}=VALUE' for each in self.settable)}"
            if any(f"--{key}" in each.opts for each in self.params if isinstance(each, click.Option)):
                what = f"'{key}' has an option of its own: --{key} {value or 'VALUE'}"
            elif hint := near(key, self.settable):
                what = f"{what}; {hint}"
            raise click.BadParameter(what, ctx, param_hint=_SET)
        if not equals:
            raise click.BadParameter(f"'{text}' has no value: {_SET} {key}=VALUE", ctx, param_hint=_SET)
        if isinstance(option, click.Option) and option.is_flag:
            if value.strip() != "yes":
                raise click.BadParameter(f"'{text}': write {key}=yes, or omit it", ctx, param_hint=_SET)
            return option.opts[0]
        return f"{option.opts[0]}={value.strip()}"

    @property
    def takes_durations(self) -> bool:
        """Whether an option is a duration."""
        return any(DURATION in parameter.type.name for parameter in self.params)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, unwrapped for copying, and the options under their headings."""
        with formatter.section("Examples"):
            for line in self.example.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        for title, records in self.records_by_heading(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help page."""
        formatter = _WholeWords(width=ctx.terminal_width, max_width=ctx.max_content_width)
        self.format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog, and the form of durations if an option is one."""
        super().format_epilog(ctx, formatter)
        if self.takes_durations:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{DURATION} is {FORMS}.")


def _name_of(option: click.Parameter) -> str:
    return option.opts[0].lstrip("-")


def _present_spelling(option: click.Parameter) -> str | None:
    """Return what replaces a rare option, and ``None`` for other options."""
    hint = _hints.get(option)
    value = "yes" if isinstance(option, click.Option) and option.is_flag else "VALUE"
    return f"{_SET} {_name_of(option)}={value}" if hint == "" else hint


class CommandGroup(click.Group):
    """A group that names the replacement of a removed command, and lists each command with its whole first sentence."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; fail with the replacement if it was removed."""
        name = " ".join([*ctx.command_path.split()[1:], *args[:1]])
        if name in REMOVED:
            ctx.fail(f"No such command '{args[0]}': {REMOVED[name]}")
        commands = self.list_commands(ctx)
        if args and args[0] not in commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{args[0]}': {suggestion(args[0], commands)}")
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
