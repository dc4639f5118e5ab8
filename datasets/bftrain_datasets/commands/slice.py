"""``bftrain slice``: extract a part of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType
from bftrain_datasets.commands.logfiles import figures_of, log_argument, log_output, node_list

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@click.command(
    cls=DocumentedCommand,
    example="bftrain slice log.npz -o part.npz --nodes 0:128\nbftrain slice log.npz -o end.npz --window last-2w",
)
@log_argument
@log_output()
@click.option(
    "--nodes",
    help="Nodes to keep: a node set such as nid[0001-0064], a file of them, or A:B for those from place A up to B, "
    "counted from 0.",
)
@click.option("--window", help="Time to keep: A..B, seconds UTC or ISO times; or such as last-2w, first-12h.")
@click.option(
    "--leave-early",
    "lead_s",
    type=DurationType(min=0, min_open=True),
    help="End idle times earlier by this time, as if tasks left upon notice.",
)
@prints_results
def command(log: Path, path: Path, nodes: str | None, window: str | None, lead_s: float | None, out: Output) -> None:
    """Extract a part of LOG: some of its nodes, or some of its time, or both.

    Nodes keep the order of the log. The part begins with the states at the begin of the window.
    """
    from bftrain.node_units import in_words_of
    from bftrain.text_formats import counted, duration, percent
    from bftrain_datasets.log.edits import chosen_nodes, chosen_window, leave_earlier, places_of
    from bftrain_datasets.log.log_files import check_log_name, load_log, save_log

    if nodes is None and window is None and lead_s is None:
        raise click.UsageError("set --nodes, --window, or both")
    check_log_name(path)
    whole = load_log(log)
    chosen: slice | NDArray[np.int64] | None = None
    if nodes is not None and Path(nodes).is_file():
        chosen = places_of(whole, node_list(nodes, Path(nodes)), where=nodes)
    elif nodes is not None:
        chosen = chosen_nodes(whole, nodes, where="--nodes")
    part = whole.select(nodes=chosen, window=chosen_window(whole, window or "..", where="--window"))
    part = leave_earlier(part, lead_s or 0.0)
    save_log(part, path)
    words = in_words_of(
        part.unit,
        f"{len(part.node_names):,} of {counted(len(whole.node_names), 'node')}, {duration(part.span_s)} of "
        f"{duration(whole.span_s)}, {percent(part.idle_share)} of the node-time idle",
    )
    out.result(figures_of(part, path), lambda: f"{path}: {words}")
