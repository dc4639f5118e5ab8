"""``bftrain assess``: the weekly value of a log's idle nodes, its uncertainty and its assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from bftrain.cli.command_help import DocumentedCommand, heading, omitted
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType, overwrite_option, topology_option
from bftrain_datasets.commands import records
from bftrain_datasets.commands.logfiles import FILE, FOLDER, InputFile, kinds_option
from bftrain_replay.commands.shared_options import QUICK, no_cache_option


class NodeWatts(click.ParamType["Mapping[str, float]"]):
    """Power of a node: idle, busy, and powered down where idle nodes are."""

    name = "idle=W,busy=W[,off=W]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, float]:
        """Read the text."""
        parts = dict(part.partition("=")[::2] for part in str(value).replace(" ", "").split(","))
        try:
            if unknown := parts.keys() - {"idle", "busy", "off"}:
                self.fail(f"{value!r}: '{min(unknown)}' is not idle, busy or off", param, ctx)
            found = {f"{state}_watts": float(parts[state]) for state in parts}
            idle, busy = found["idle_watts"], found["busy_watts"]
        except (KeyError, ValueError):
            self.fail(f"{value!r} does not give numbers for both; write idle=150,busy=500", param, ctx)
        if not 0.0 <= found.get("off_watts", 0.0) <= idle <= busy < math.inf:
            self.fail(
                f"{value!r}: power must not fall from off to idle to busy, as in idle=150,busy=500,off=5", param, ctx
            )
        return found


@click.command(
    cls=DocumentedCommand,
    example="bftrain assess sacct.txt events.txt --nodes n[001-064] --handback-delay 30s\n"
    "bftrain assess log.npz --node-watts idle=150,busy=500 --price-kwh 0.20",
    epilog="DIR gets assess.html, a page of two screens, and assess.json; docs/how-to/assess.md explains the figures. "
    "Records are read with all options of bftrain import; its help describes them.",
)
@omitted(
    *("columns", "map", "preset", "counts", "sharing", "strict", "node_gpus", "node_cores", "downtime_after_s"),
    *("preemptible", "min_gap_s", "keep_end", "format"),
)
@click.argument("files", nargs=-1, required=True, type=InputFile())
@heading("Value")
@click.option("--node-watts", type=NodeWatts(), help="Power of a node; energy is the extra of a busy one.")
@click.option("--price-kwh", type=click.FloatRange(min=0), help="Price of a kWh.")
@click.option("--co2", metavar="G/KWH", type=click.FloatRange(min=0), help="Grams of carbon dioxide of a kWh.")
@click.option("--node-hour-price", type=click.FloatRange(min=0), help="Value of a node-hour.")
@click.option("--currency", default="EUR", help="Currency of the prices [EUR].")
@heading("Assumptions")
@click.option("--tasks", "task_file", type=FILE, help="Task file [identical trials, more than fit].")
@click.option("--max-tasks", type=click.IntRange(min=1), help="Maximum number of competing tasks [35].")
@click.option(
    "--progress",
    help="Where progress is kept: memory, copies, memory:DURATION, copies:DURATION, disk:DURATION or task [memory].",
)
@click.option("--cost-factor", type=click.FloatRange(min=0), help="Multiplies the costs of starts and rescales [1].")
@click.option("--config", type=FILE, help="TOML file with more settings of a replay.")
@kinds_option
@topology_option
@heading("Effect on batch jobs")
@click.option(
    "--handback-delay",
    "handback_delay_s",
    type=DurationType(min=0),
    help="Time until a node with a task is free for a job; adds the effect on the waits of jobs.",
)
@click.option(
    "--records",
    type=FILE,
    multiple=True,
    help="Records from which the log was imported: start times, nodes and users of jobs. May be repeated.",
)
@heading("How much is replayed")
@click.option("--events", type=click.IntRange(min=0), help="Maximum number of log events to replay; 0: all [25000].")
@click.option("--quick", is_flag=True, envvar=QUICK, help="One replay only, without alternatives and mixes of models.")
@no_cache_option
@click.option(
    "--profiles",
    type=FILE,
    multiple=True,
    help="Models to compare, from files of bftrain generate profiles [bundled models]. May be repeated.",
)
@records.reads_records
@heading("Result")
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=FOLDER, default=Path("assessment"), help="Folder [assessment]."
)
@click.option("--static", is_flag=True, help="Draw the pictures into the page: no zoom, but no JavaScript.")
@overwrite_option
@prints_results
def command(out: Output, **given: Any) -> None:  # noqa: ANN401 - the options' own types
    """Assess FILES, one log or a scheduler's records: node-hours a week that can be harvested, and their worth.

    Doubtful records are listed first.
    """
    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_replay.commands import assess_run

    names = given.keys() & {*ImportOptions.__struct_fields__, *records.NODE_UNITS_OPTIONS}
    options = records.options_of({name: given.pop(name) for name in names})
    assess_run.run(SimpleNamespace(**given), options, out)
