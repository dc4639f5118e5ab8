"""Options shared by commands: one per setting of decisions, with its name, and some for results and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import DURATION, heading, rare
from bftrain.cli.value_completion import OF_SETTING, Completer
from bftrain.durations import FORMS, parse_duration, parse_time
from bftrain.errors import near
from bftrain.ranges import size_range

if TYPE_CHECKING:
    import msgspec

    from bftrain.values.options import Setting


class _ParsedType(click.ParamType[Any]):
    """The type of an option that ``parse`` reads; its ``ValueError`` becomes the error of the option."""

    parse: Callable[[str], Any]

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - the result of ``parse``
        """Return the parsed value."""
        try:
            return self.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class DurationType(_ParsedType):
    """Parses a duration to seconds; ``min`` is the lower bound, exclusive with ``min_open``."""

    name = DURATION
    parse = staticmethod(parse_duration)

    def __init__(self, min: float | None = None, *, min_open: bool = False) -> None:  # noqa: A002 - as click's ranges
        self._range = None if min is None else click.FloatRange(min=min, min_open=min_open)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds: float = super().convert(value, param, ctx)
        return seconds if self._range is None else self._range.convert(seconds, param, ctx)


class TimeType(_ParsedType):
    """Parses a time to seconds UTC."""

    name = "TIME"
    parse = staticmethod(parse_time)


class SizeRange(_ParsedType):
    """Parses MIN:MAX or one size; an omitted bound is ``None``."""

    name = "MIN:MAX"
    parse = staticmethod(size_range)


class OrWord(click.ParamType["float | str"]):
    """Parses a duration, or a whole ``number``, or ``word`` in upper or lower case."""

    def __init__(self, word: str, *, number: bool = False) -> None:
        self._word, self._number = word, number
        self.name = f"{'integer' if number else DURATION}|{word}"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Return the seconds or the number, or the word in lower case."""
        text = str(value)
        if text.lower() == self._word:
            return self._word
        try:
            return int(text) if self._number else parse_duration(text)
        except ValueError:
            if self._number:
                self.fail(f"{value!r} is neither a number nor '{self._word}'", param, ctx)
            meant = near(text.lower(), (self._word,))
            more = f" ({meant})" if meant else ""
            self.fail(f"{value!r} is neither a duration nor '{self._word}'{more}: write {FORMS}", param, ctx)


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="msgspec.Struct")


def overwrite_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--overwrite`` to a command."""
    text = "Replace the finished result in DIR; it stays until the new one is complete."
    return click.option("--overwrite", is_flag=True, help=text)(function)


def name_of(file: IO[bytes]) -> str:
    """Return the file's name, or a description of standard input."""
    return "stdin" if file.name in {"-", "<stdin>"} else file.name


_TOML_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
TABLES: Final = ("entities", "prices", "racks")  # settings from a shares file or a topology


def decides(function: Callable[P, R], *, auto_cap: bool = False) -> Callable[P, R]:
    """Add the options of the decision core to a command, and ``--config`` to read them from a file.

    ``auto_cap`` allows ``--max-tasks auto``.
    """
    from bftrain.config import Settings

    every = options_of(Settings)
    if auto_cap:
        text = "How many tasks may compete; auto: as many as add 1 % to the proven bound [35]."
        every["max_tasks"] = (OrWord("auto", number=True), text)
    options = with_options(every)(shares_option(topology_option(function)))
    return heading("Decisions")(config_option(options))


def config_option(function: Callable[P, R], made_by: str = "a replay") -> Callable[P, R]:
    """Add ``--config`` to a command; ``made_by`` is a run that writes such a file."""
    text = f"TOML file with these settings, such as {made_by}'s config.toml; options on the command line win."
    return click.option("--config", type=_TOML_FILE, default=None, help=text)(function)


def options_of(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, str]]:
    """Return the type and the help text of the settings that ``kind`` itself declares; rare ones have no text."""
    from bftrain.values import options

    settings = options.own_settings(kind).items()
    return {name: (_type_of(each), "" if each.option.rare else each.text) for name, each in settings}


def _type_of(setting: Setting) -> Any:  # noqa: ANN401 - click's own types
    if setting.option.choices:
        return click.Choice(tuple(setting.option.choices))
    if setting.option.word:
        return OrWord(setting.option.word)
    if float in setting.types:
        return DurationType() if setting.name.endswith("_s") else float
    return int if int in setting.types else str


def shares_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--shares`` to a command, for the settings that are tables."""
    text = "TOML file with users' weights and quotas, and prices of nodes by kind [equal weights]."
    return click.option("--shares", type=_TOML_FILE, default=None, help=text)(function)


def topology_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--topology`` to a command, for the setting ``racks``."""
    text = "Racks of the nodes: Slurm's topology.conf, a list of racks, or names:N [none]."
    return click.option("--topology", metavar="FILE", default=None, help=text)(function)


def with_options(
    options: Mapping[str, tuple[Any, str]], **given: Completer
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add one option per setting in ``options`` to a command, rare ones without text; ``given`` completes values."""

    def give(function: Callable[P, R]) -> Callable[P, R]:
        for name, (kind, text) in reversed(list(options.items())):
            # No default here: options that are not set must not override the configuration file
            completer = given.get(name) or OF_SETTING.get(name)
            option = click.option(option_of(name), name, type=kind, default=None, help=text, shell_complete=completer)
            function = option(function) if text else rare(name)(option(function))
        return function

    return give


def option_of(setting: str) -> str:
    """Return the option of a setting."""
    return "--" + setting.removesuffix("_s").replace("_", "-")


def with_shares(given: Mapping[str, object]) -> dict[str, object]:
    """Replace paths of a shares file and a topology by their settings."""
    options = dict(given)
    path = options.pop("shares", None)
    if isinstance(path, Path):
        from bftrain.config import load_shares

        options |= load_shares(path)
    elif path is not None:  # a setting with that name
        options["shares"] = path
    if topology := options.pop("topology", None):
        from bftrain.topology import load_topology

        options["racks"] = load_topology(str(topology))
    return options


def settings_of_kind(config: Path | None, given: Mapping[str, object], kind: type[S]) -> S:
    """Return the settings of the file and the options in ``given``; errors show options as they were typed."""
    from bftrain.config import merged
    from bftrain.errors import BadValue
    from bftrain.values import options

    given = with_shares(given)
    try:
        return merged(config, given, kind)
    except BadValue as error:
        setting = (error.where or "").removeprefix(f"{kind.__name__}.")
        if given.get(setting) is None:
            raise
        rare_name = options.settings_of(kind)[setting].option.rare and option_of(setting).replace("--", "--set ")
        raise BadValue(error.what, where=rare_name or option_of(setting), fix=error.fix) from error
