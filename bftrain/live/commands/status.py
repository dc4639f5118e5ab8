"""``bftrain status``: how a live run stands, or one of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.live.commands.connection import Live, clock, described, duration, kinds_in_words, talks

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.model.schemas import StatusView

_REMARKS = 5


@click.command(cls=DocumentedCommand, example="bftrain status resnet")
@click.argument("task", metavar="[TASK]", required=False)
@talks
@prints_results
def command(task: str | None, live: Live, out: Output) -> None:
    """Say how a live run stands, or all about TASK (a name, or #number)."""
    with live.call() as client:
        if task is not None:
            found = client.task(task)
            out.result(found, lambda: described(found))
        else:
            status = client.status()
            out.result(status, lambda: words(status))


def words(status: StatusView) -> RenderableType:
    """Describe a live run."""
    decision, harvest = status.decision, ""
    if status.harvested:
        today = status.harvested[-1]
        harvest = f"{today.samples:,.0f} samples in {today.node_s / 3600:.2f} node-hours ({today.day})"
    rows = [
        ("state", f"{status.state}, for {duration(status.now_s - status.since_s)}"),
        ("nodes", f"{status.pool} ours, {status.used} of them used; {status.agents} agents, {status.drained} drained"),
        ("kinds", kinds_in_words(status)),
        (
            "tasks",
            f"{status.running} running, {status.waiting} waiting, {status.paused} paused, {status.over} over",
        ),
        ("speed", f"{status.speed:,.0f} samples/s"),
        ("harvest", harvest),
        (
            "decided",
            ""
            if decision is None
            else f"{decision.number} times, last at {clock(decision.time_s)} in {1e3 * decision.solve_s:.1f} ms",
        ),
        ("listens on", " ".join(status.addresses)),
        ("runs", f"bftrain {status.version} as {status.user}, process {status.pid}, scheduler {status.scheduler}"),
        *(("remark", f"{clock(one.time_s)}  {one.text}") for one in status.remarks[-_REMARKS:]),
    ]
    return table(f"live run {status.site}", ("", ""), [one for one in rows if one[1]], left=(0, 1))
