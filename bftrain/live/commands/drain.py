"""``bftrain drain``: take nodes out of use, or into use again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput
from bftrain.live.commands.connection import Live, talks

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.model.schemas import NodeView


@click.command(cls=DocumentedCommand, example="bftrain drain 'node[01-04]'\nbftrain drain 'node[01-04]' --end")
@click.argument("nodes", metavar="[NODESET]...", nargs=-1)
@click.option("--end", is_flag=True, help="Use them again.")
@talks
@prints_results
def command(nodes: tuple[str, ...], live: Live, out: Output, *, end: bool) -> None:
    """Use nodes no more, such as nid[0001-0004]: what runs there saves its state and moves first.

    Without NODESET, lists all nodes that the live run knows.
    """
    with live.call() as client:
        found = client.drain(_expanded(nodes), end=end) if nodes else client.nodes()
    out.result(found, lambda: _words(found))


def _expanded(nodesets: tuple[str, ...]) -> tuple[str, ...]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(",".join(nodesets)))
    except NodeSetException as error:
        raise BadInput(str(error), where=",".join(nodesets), fix="such as nid[0001-0004,7]") from error


def _words(found: tuple[NodeView, ...]) -> RenderableType:
    rows = [(one.name, one.state, one.task) for one in found]
    return table("", ("node", "state", "task"), rows, left=(0, 1, 2))
