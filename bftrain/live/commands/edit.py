"""``bftrain edit``: change tasks that hold no nodes."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output
from bftrain.errors import UsageError
from bftrain.live.commands.submit import MomentOption
from bftrain.live.commands.tasks import clock, talks
from bftrain.taskfiles.records import sizes_of

if TYPE_CHECKING:
    from bftrain.live.client.client import Client
    from bftrain.live.model.schemas import TaskView

_NONE: Final = "none"


class _MomentOrNone(MomentOption):
    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a time; none is the epoch."""
        return datetime.fromtimestamp(0.0).astimezone() if value == _NONE else super().convert(value, param, ctx)


@click.command(
    cls=DocumentedCommand,
    example="bftrain edit cnn --nodes 2:16\nbftrain edit cnn --deadline 2030-01-31T18:00 --weight 0.5",
)
@click.argument("task", metavar="TASK")
@heading("Nodes")
@click.option("--nodes", metavar="MIN:MAX", help="Fewest and most nodes it may have.")
@click.option("--min-nodes", type=int, metavar="N", help="Fewest nodes.")
@click.option("--max-nodes", type=int, metavar="N", help="Most nodes.")
@heading("For decisions")
@click.option("--weight", type=float, help="What it counts under some objectives.")
@click.option("--deadline", type=_MomentOrNone(), help="When it should be done; none: no deadline.")
@click.option("--campaign", help="What it belongs to.")
@click.option("--name", help="What to call it from now on.")
@talks
def edit(  # noqa: PLR0913 - one parameter an option
    task: str,
    *,
    nodes: str | None,
    min_nodes: int | None,
    max_nodes: int | None,
    weight: float | None,
    deadline: datetime | None,
    campaign: str | None,
    name: str | None,
    client: Client,
    out: Output,
) -> None:
    """Change a task while it holds no nodes; what is not given stays as it is.

    A running task is paused first: bftrain pause TASK.
    """
    from bftrain.live.model.task_edit import TaskEdit

    if nodes is not None:
        if min_nodes is not None or max_nodes is not None:
            raise UsageError("cannot be used with --min-nodes or --max-nodes", where="--nodes", fix="leave one out")
        sizes = sizes_of({"nodes": nodes}, "--nodes")
        min_nodes, max_nodes = sizes["min_nodes"], sizes["max_nodes"]
    given = (min_nodes, max_nodes, weight, deadline, campaign, name)
    if all(one is None for one in given):
        raise UsageError("nothing is to be changed", where="edit", fix="such as --weight 0.5; see bftrain edit --help")
    changes = TaskEdit(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        weight=weight,
        deadline_s=None if deadline is None else deadline.timestamp(),
        campaign=campaign,
        name=name,
    )
    changed = client.edit(task, changes)
    out.result(changed, lambda: _in_words(changed))


def _in_words(task: TaskView) -> str:
    due = "" if task.deadline_s is None else f", due at {clock(task.deadline_s)}"
    campaign = f", of campaign {task.campaign}" if task.campaign else ""
    return f"{task.name}: {task.min_nodes} to {task.max_nodes} nodes, weight {task.weight:g}{due}{campaign}"
