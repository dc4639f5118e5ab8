"""``bftrain doctor``: what works here, and what to do about the rest."""

from __future__ import annotations

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import NotAvailable


@click.command(cls=DocumentedCommand, example="bftrain doctor")
@prints_results
def command(out: Output) -> None:
    """Say what is available here, what is not, why, and the command that fixes it.

    Exit 0 if all that the basic work needs is there, else 4.
    """
    from bftrain.doctor import PartState, examine

    findings = list(examine())
    rows = [(item.kind, item.name, str(item.state), item.detail, item.fix) for item in findings]
    columns = ("", "name", "state", "detail", "what to do")
    out.result(findings, lambda: table("", columns, rows, left=range(5)))
    lacking = [item.name for item in findings if item.needed and item.state is not PartState.OK]
    if lacking:
        raise NotAvailable(f"needed for the basic work and not usable: {', '.join(lacking)}")
