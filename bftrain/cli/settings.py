"""Options that every command with decisions has: one for each setting, named like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import click
from msgspec.structs import fields

from bftrain.config import Settings

P = ParamSpec("P")
R = TypeVar("R")

_HELP: Final = {
    "solver": "Who decides the sizes",
    "fallback": 'Who decides when the solver fails or is late; "" for nobody',
    "objective": "What decisions maximise; a name, or FILE.py:FUNCTION",
    "admission": "Who chooses the tasks that compete",
    "placement": "Who chooses the nodes",
    "horizon_s": "Seconds ahead for which speed counts",
    "max_tasks": "How many tasks may compete",
    "solver_deadline_s": "Seconds after which a solver must answer",
    "solver_gap": "Relative gap at which a solver may stop",
    "solver_threads": "Threads a solver may use",
    "max_failures": "Failures after which a task is given up",
}


def decides(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options of the decision core, and ``--config`` to read them from a file."""
    for field in reversed(fields(Settings)):
        option = "--" + field.name.removesuffix("_s").replace("_", "-")
        text = f"{_HELP[field.name]} [{field.default}]."
        # The default is left to the settings: what was not given must not win over the configuration file
        function = click.option(option, field.name, type=field.type, default=None, help=text)(function)
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        default=None,
        help="TOML file with these settings; options on the command line win.",
    )(function)
