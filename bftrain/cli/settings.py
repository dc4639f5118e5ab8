"""Options that every command with decisions has: one for each setting, named like it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import heading
from bftrain.cli.seconds_or_word import SecondsOrWord

if TYPE_CHECKING:
    import msgspec

    from bftrain.config import Settings

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="msgspec.Struct")

# setting: its type, and what its option says. They repeat bftrain.config, which would make --help slow to import;
# a test holds them to it.
OPTIONS: Final[dict[str, tuple[Any, str]]] = {
    "solver": (str, "Who decides the sizes [exact]."),
    "fallback": (str, 'Who decides when the solver fails or is late; "" for none [greedy].'),
    "objective": (str, "What decisions maximise; a name, or FILE.py:FUNCTION [throughput]."),
    "admission": (str, "Who chooses the tasks that compete [first-come]."),
    "placement": (str, "Who chooses the nodes; auto: neighbours, by the published rules grouped [auto]."),
    "horizon_s": (
        SecondsOrWord("auto"),
        "Seconds ahead for which speed counts; auto: as costs and nodes ask for [auto].",
    ),
    "max_tasks": (int, "How many tasks may compete [35]."),
    "solver_deadline_s": (float, "Seconds after which a solver must answer [10]."),
    "solver_gap": (float, "Relative gap at which a solver may stop [0]."),
    "solver_threads": (int, "Threads a solver may use [1]."),
    "max_failures": (int, "Failures after which a task is given up [3]."),
}
TABLES: Final = ("entities", "prices")  # settings that a shares file gives


def decides(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options of the decision core, and ``--config`` to read them from a file."""
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    config = click.option(
        "--config",
        type=file,
        default=None,
        help="TOML file with these settings, such as a replay's config.toml; options on the command line win.",
    )
    return heading("Decisions")(config(with_options(OPTIONS)(shares_option(function))))


def shares_option(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--shares``, for the settings that are tables."""
    return click.option(
        "--shares",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        default=None,
        help="TOML file with users' weights and quotas, and prices of nodes by kind [equal weights].",
    )(function)


def with_options(options: Mapping[str, tuple[Any, str]]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a command one option for each setting in ``options``."""

    def give(function: Callable[P, R]) -> Callable[P, R]:
        for name, (kind, text) in reversed(list(options.items())):
            # The default is left to the settings: what was not given must not win over the configuration file
            function = click.option(option_of(name), name, type=kind, default=None, help=text)(function)
        return function

    return give


def option_of(setting: str) -> str:
    """Give the option of a setting."""
    return "--" + setting.removesuffix("_s").replace("_", "-")


def settings_of(config: Path | None, given: Mapping[str, object]) -> Settings:
    """Settings of the file and the options ``given``; an option that breaks a rule is named as it was typed.

    The file may be the ``config.toml`` of a replay: what only a replay knows, such as its window, is left out.
    """
    from bftrain.config import ONLY_IN_REPLAYS, Settings

    return settings_of_kind(config, given, Settings, ONLY_IN_REPLAYS)


def left_out(config: Path | None) -> Iterator[str]:
    """Return which settings of a replay's configuration mean nothing elsewhere, if they were set."""
    if config is None:
        return
    from tomllib import loads

    from bftrain.config import ONLY_IN_REPLAYS

    for name, value in loads(config.read_text(encoding="utf-8")).items():
        if name in ONLY_IN_REPLAYS and value != ONLY_IN_REPLAYS[name]:
            yield f"{config}: {name} is left out: it is for replays"


def with_shares(given: Mapping[str, object]) -> dict[str, object]:
    """Put the settings that a shares file gives in the place of its name."""
    options = dict(given)
    path = options.pop("shares", None)
    if isinstance(path, Path):
        from bftrain.shares_file import load_shares

        options |= load_shares(path).settings
    elif path is not None:  # a setting of that name
        options["shares"] = path
    return options


def settings_of_kind(
    config: Path | None, given: Mapping[str, object], kind: type[S], others: Collection[str] = ()
) -> S:
    """Like :func:`settings_of`, for settings of any ``kind``; ``others`` may stand in the file and are left out."""
    from bftrain.config import merged
    from bftrain.errors import BadValue

    given = with_shares(given)
    try:
        return merged(config, given, kind, others)
    except BadValue as error:
        setting = (error.where or "").removeprefix(f"{kind.__name__}.")
        if given.get(setting) is None:
            raise
        raise BadValue(error.what, where=option_of(setting), fix=error.fix) from error
