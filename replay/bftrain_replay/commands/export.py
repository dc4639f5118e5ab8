"""``bftrain export``: a replay as a trace for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results


@click.command(cls=DocumentedCommand, example="bftrain export result/ -o trace.json")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--to",
    type=click.Choice(("perfetto",)),
    default="perfetto",
    expose_value=False,
    help="perfetto: a trace for ui.perfetto.dev or chrome://tracing [perfetto].",
)
@click.option(
    "-o", "--output", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write."
)
@prints_results
def command(folder: Path, path: Path, out: Output) -> None:
    """Write the replay in DIR in the format of another tool."""
    from bftrain.files import check_replaceable, whole_file
    from bftrain.text_formats import counted
    from bftrain_replay.output import perfetto
    from bftrain_replay.output.read_folder import SavedReplay

    check_replaceable(path, perfetto.is_own, "trace")
    saved = SavedReplay(folder)
    with whole_file(path) as file:
        count = perfetto.export(saved, file)
    out.result({"file": str(path), "events": count}, lambda: f"{path}: {counted(count, 'event')}")
