"""Options that every command with decisions has, and how they and a configuration file become settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")

# option, its type, and what it says; each is named like the setting it overrides
_OPTIONS: tuple[tuple[str, str, type, str], ...] = (
    ("--solver", "solver", str, "Who decides the sizes [exact]."),
    ("--fallback", "fallback", str, 'Who decides when the solver fails or is late; "" for nobody [greedy].'),
    ("--objective", "objective", str, "What decisions maximise [throughput]; a name, or FILE.py:FUNCTION."),
    ("--admission", "admission", str, "Who chooses the tasks that compete [first-come]."),
    ("--placement", "placement", str, "Who chooses the nodes [grouped]."),
    ("--horizon", "horizon_s", float, "Seconds ahead for which speed counts [120]."),
    ("--max-tasks", "max_tasks", int, "How many tasks may compete [35]."),
    ("--solver-deadline", "solver_deadline_s", float, "Seconds after which a solver must answer [10]."),
)


def decides(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options of the decision core, and ``--config`` to read them from a file."""
    for option, name, kind, text in reversed(_OPTIONS):
        function = click.option(option, name, type=kind, default=None, help=text)(function)
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        default=None,
        help="TOML file with these settings; options on the command line win.",
    )(function)
