"""``bftrain anonymise``: remove names and sources from a log."""

from __future__ import annotations

from pathlib import Path

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.text_formats import counted
from bftrain_datasets.commands.logfiles import figures_of, log_argument, log_output


@click.command(cls=DocumentedCommand, example="bftrain anonymise log.npz -o public.npz --shift-times")
@log_argument
@log_output()
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with a secret key: nodes get the same names in all logs made with it. Created if missing.",
)
@click.option("--shift-times", is_flag=True, help="Start the log at 0, which hides its dates.")
@prints_results
def command(log: Path, path: Path, key_file: Path | None, shift_times: bool, out: Output) -> None:  # noqa: FBT001 - click's way
    """Replace node names by pseudonyms, and omit the sources of LOG.

    The result shows when how many nodes, and which together, were idle. Without --key a random key is used once:
    the old names can never be recovered, and the next log gets other pseudonyms.
    """
    from bftrain.node_units import in_words_of
    from bftrain_datasets.importing.anonymise import anonymised, load_key, make_key, new_key, others_may_read
    from bftrain_datasets.log.log_files import check_log_name, load_log, save_log

    check_log_name(path)
    whole = load_log(log)
    made_key = key_file is not None and not key_file.exists()
    if key_file is None:
        key = new_key()
    elif made_key:
        key = make_key(key_file)
    else:
        key = load_key(key_file)
        if others_may_read(key_file):
            out.warn(f"{key_file} is readable by other users, who can then find the names: chmod 600 {key_file}")
    hidden = anonymised(whole, key, shift_times=shift_times)
    save_log(hidden, path)
    if made_key:
        out.say(f"{key_file}: a new key; keep it to give nodes the same names again, and keep it secret")
    figures = {
        **figures_of(hidden, path),
        "key": str(key_file) if key_file else None,
        "key_made": made_key,
        "times_shifted": shift_times,
    }
    times = "begins at 0" if shift_times else "keeps its times (--shift-times moves them)"
    nodes = in_words_of(hidden.unit, counted(len(hidden.node_names), "node"))
    out.result(figures, lambda: f"{path}: {nodes} with new names; the log {times}")
