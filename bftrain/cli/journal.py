"""``bftrain journal``: what is in a journal, and does it lead to the same decisions again?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput

if TYPE_CHECKING:
    from bftrain.journal import Step

_SHOWN_DIFFERENCES = 10

_journal_file = click.argument("path", metavar="JOURNAL", type=click.Path(path_type=Path))


@click.group()
def command() -> None:
    """Look into a journal, and check that it leads to the same decisions again."""


@command.command()
@_journal_file
@prints_results
def show(path: Path, out: Output) -> None:
    """Print every step of JOURNAL: its events and its decision."""
    from bftrain.journal import Journal
    from bftrain.values import wire

    with Journal.open(path) as journal:
        if out.json:
            for step in journal.steps():
                click.echo(wire.encode(step))
            return
        rows = [_row(step) for step in journal.steps()]
    columns = ("step", "time_s", "events", "pool", "used", "running", "fallback")
    out.result(None, lambda: table(f"{path}: {len(rows)} steps", columns, rows, left=(2, 6)))


def _row(step: Step) -> tuple[object, ...]:
    tags = ", ".join(str(event.__struct_config__.tag) for event in step.events)
    decision = step.decision
    if decision is None:
        return (step.number, f"{step.events[-1].time_s:g}", tags, "", "", "", "none was recorded")
    running = sum(size > 0 for size in decision.sizes.values())
    return (
        step.number,
        f"{decision.time_s:g}",
        tags,
        decision.pool,
        decision.used,
        running,
        decision.fallback,
    )


@command.command()
@_journal_file
@prints_results
def plan(path: Path, out: Output) -> None:
    """Print which task holds which nodes where JOURNAL ends, for whoever must take over from there."""
    from bftrain.journal import Journal
    from bftrain.rerun import restore

    with Journal.open(path) as journal:
        held = restore(journal).plan
    rows = [(task, len(nodes), " ".join(nodes)) for task, nodes in held.holdings.items()]
    out.result(held, lambda: table("", ("task", "size", "nodes"), rows, left=(0, 2)))


@command.command()
@_journal_file
@prints_results
def verify(path: Path, out: Output) -> None:
    """Decide every step of JOURNAL anew; exit 3 if any decision differs from the recorded one."""
    from bftrain.journal import Journal
    from bftrain.rerun import Rerun

    with Journal.open(path) as journal:
        found = list(Rerun(journal).differences())
        steps = len(journal)
    report = {"steps": steps, "different": [difference.step for difference in found]}
    if not found:
        out.result(report, lambda: f"{steps} steps, every decision the same")
        return
    if out.json:
        out.result(report, str)
    for difference in found[:_SHOWN_DIFFERENCES]:
        out.say(
            f"step {difference.step}: recorded {dict(difference.recorded.sizes)} worth {difference.recorded.value:g}, "
            f"now {dict(difference.decided.sizes)} worth {difference.decided.value:g}"
        )
    raise BadInput(f"{len(found)} of {steps} decisions differ", where=str(path))
