"""What the commands that change tasks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from bftrain.cli.output import Output, prints_results
from bftrain.errors import BadInput, PartlyFailed
from bftrain.live.commands.connection import Live, talks

if TYPE_CHECKING:
    from bftrain.live.model.schemas import TaskView

P = ParamSpec("P")
R = TypeVar("R")


def change_of_tasks(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the names of tasks, by name or as #number."""
    return click.argument("tasks", metavar="TASK...", nargs=-1, required=True)(talks(prints_results(function)))


def changed(live: Live, tasks: tuple[str, ...], how: str, out: Output) -> None:
    """Change tasks one by one; one that cannot be changed does not stop the others."""
    done: list[TaskView] = []
    problems: list[BadInput] = []
    with live.call() as client:
        for name in tasks:
            try:
                done.append(client.change(name, how))
            except BadInput as error:
                if len(tasks) == 1:
                    raise
                problems.append(error)
    out.result(done, lambda: "\n".join(f"{task.name}: {task.state}" for task in done))
    for problem in problems:
        out.warn(str(problem))
    if problems:
        raise PartlyFailed(f"{len(problems)} of {len(tasks)} tasks could not be changed")
