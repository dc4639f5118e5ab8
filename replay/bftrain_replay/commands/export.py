"""``bftrain export``: a replay in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results


@click.command(cls=DocumentedCommand, example="bftrain export result/ --to perfetto -o trace.json")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--to",
    "form",
    type=click.Choice(("batsim", "perfetto")),
    required=True,
    help="batsim: a jobs.csv for Evalys. perfetto: a trace for ui.perfetto.dev or chrome://tracing.",
)
@click.option(
    "-o", "--output", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write."
)
@prints_results
def command(folder: Path, form: str, path: Path, out: Output) -> None:
    """Write what a replay left in DIR in the format of another tool."""
    from bftrain.files import check_replaceable, whole_file
    from bftrain.text_formats import counted
    from bftrain_replay.output import batsim, perfetto
    from bftrain_replay.output.read_folder import SavedReplay

    module, thing = (batsim, "job") if form == "batsim" else (perfetto, "event")
    check_replaceable(path, module.is_own)
    saved = SavedReplay(folder)
    with whole_file(path) as file:
        count = module.export(saved, file)
    out.result({"file": str(path), f"{thing}s": count}, lambda: f"{path}: {counted(count, thing)}")
