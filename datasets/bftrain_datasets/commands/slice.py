"""``bftrain slice``: extract a part of a log, or remove its names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType
from bftrain.errors import UsageError
from bftrain_datasets.commands.logfiles import figures_of, log_argument, log_output, nodes_in_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@click.command(
    cls=DocumentedCommand,
    example="bftrain slice log.npz -o part.npz --nodes 0:128 --window last-2w\n"
    "bftrain slice log.npz -o public.npz --anonymise --shift-times",
)
@rare("lead_s")
@log_argument
@log_output()
@click.option(
    "--nodes",
    help="Nodes to keep: a node set such as nid[0001-0064], a file with nodes, or A:B for places A to B - 1, "
    "counted from 0.",
)
@click.option("--window", help="Time to keep: A:B, seconds UTC or ISO times; or such as last-2w, first-12h.")
@click.option(
    "--leave-early",
    "lead_s",
    type=DurationType(min=0, min_open=True),
    help="End idle times earlier by this time, as if tasks left upon notice.",
)
@heading("Publication")
@click.option("--anonymise", "anonymous", is_flag=True, help="Replace node names by pseudonyms; omit the sources.")
@click.option("--shift-times", is_flag=True, help="With --anonymise: start the log at 0, which hides its dates.")
@prints_results
def command(
    log: Path,
    path: Path,
    *,
    nodes: str | None,
    window: str | None,
    lead_s: float | None,
    anonymous: bool,
    shift_times: bool,
    out: Output,
) -> None:
    """Extract a part of LOG: some of its nodes, or some of its time, or both; or remove names from it.

    Nodes keep their order. The part starts with the states at the start of the window. An anonymous log still shows
    the number of idle nodes over time, and which nodes were idle together. A random key is used once: the old names can
    never be recovered, and the next log gets other pseudonyms.
    """
    from bftrain.node_units import in_words_of
    from bftrain.text_formats import counted, duration, percent
    from bftrain_datasets.log.edits import chosen_nodes, chosen_window, leave_earlier, places_of
    from bftrain_datasets.log.log_files import check_log_name, load_log, save_log

    if shift_times and not anonymous:
        raise click.UsageError("--shift-times requires --anonymise")
    if nodes is None and window is None and lead_s is None and not anonymous:
        raise click.UsageError("set --nodes, --window, --set leave-early or --anonymise")
    check_log_name(path)
    if path.exists() and log.exists() and path.samefile(log):
        raise UsageError(f"'{path}' is the input", where="-o", fix="name another file")
    whole = load_log(log)
    chosen: slice | NDArray[np.int64] | None = None
    if nodes is not None and Path(nodes).is_file():
        chosen = places_of(whole, nodes_in_file(Path(nodes)), where=nodes)
    elif nodes is not None:
        chosen = chosen_nodes(whole, nodes, where="--nodes")
    part = whole.select(nodes=chosen, window=chosen_window(whole, window or ":", where="--window"))
    part = leave_earlier(part, lead_s or 0.0)
    named: dict[str, Any] = {}
    if anonymous:
        from bftrain_datasets.importing.anonymise import anonymised, new_key

        part, named = anonymised(part, new_key(), shift_times=shift_times), {"times_shifted": shift_times}
    save_log(part, path)
    words = in_words_of(
        part.unit,
        f"{len(part.node_names):,} of {counted(len(whole.node_names), 'node')}, {duration(part.span_s)} of "
        f"{duration(whole.span_s)}, {percent(part.idle_share)} of the node-time idle",
    )
    times = "it starts at 0" if shift_times else "it keeps its times (--shift-times moves them)"
    hidden = f"; the nodes have new names; {times}" if anonymous else ""
    out.result({**figures_of(part, path), **named}, lambda: f"{path}: {words}{hidden}")
