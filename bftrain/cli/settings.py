"""Options that every command with decisions has: one for each setting, named like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    import msgspec

    from bftrain.config import Settings

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="msgspec.Struct")

# setting: its type, and what its option says. They repeat bftrain.config, which would make --help slow to import;
# a test holds them to it.
OPTIONS: Final[dict[str, tuple[type, str]]] = {
    "solver": (str, "Who decides the sizes [exact]."),
    "fallback": (str, 'Who decides when the solver fails or is late; "" for nobody [greedy].'),
    "objective": (str, "What decisions maximise; a name, or FILE.py:FUNCTION [throughput]."),
    "admission": (str, "Who chooses the tasks that compete [first-come]."),
    "placement": (str, "Who chooses the nodes [grouped]."),
    "horizon_s": (float, "Seconds ahead for which speed counts [120]."),
    "max_tasks": (int, "How many tasks may compete [35]."),
    "solver_deadline_s": (float, "Seconds after which a solver must answer [10]."),
    "solver_gap": (float, "Relative gap at which a solver may stop [0]."),
    "solver_threads": (int, "Threads a solver may use [1]."),
    "max_failures": (int, "Failures after which a task is given up [3]."),
}


def decides(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options of the decision core, and ``--config`` to read them from a file."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        default=None,
        help="TOML file with these settings; options on the command line win.",
    )(with_options(OPTIONS)(function))


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
    """Settings of the file and the options ``given``; an option that breaks a rule is named as it was typed."""
    from bftrain.config import Settings

    return settings_of_kind(config, given, Settings)


def settings_of_kind(config: Path | None, given: Mapping[str, object], kind: type[S]) -> S:
    """Like :func:`settings_of`, for settings of any ``kind``."""
    from bftrain.config import merged
    from bftrain.errors import BadValue

    try:
        return merged(config, given, kind)
    except BadValue as error:
        setting = (error.where or "").removeprefix(f"{kind.__name__}.")
        if given.get(setting) is None:
            raise
        raise BadValue(error.what, where=option_of(setting), fix=error.fix) from error
