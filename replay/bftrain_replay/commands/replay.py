"""``bftrain replay``: the harvest and the losses of a set of tasks on a log's idle nodes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading, print_hint
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType, decides, options_of, overwrite_option, with_options
from bftrain.errors import BadConfig
from bftrain_datasets.commands.logfiles import FILE, FOLDER, InputFile, kinds_option
from bftrain_replay.commands.shared_options import (
    baseline_option,
    cluster_option,
    no_cache_option,
    quick_option,
    tables_option,
)
from bftrain_replay.simulation.replay_settings import ReplaySettings


class ReplayCommand(DocumentedCommand):
    """Also accepts the former spellings of ``bftrain rounds`` and ``bftrain journal replay``, with a hint."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own types
    ) -> click.Context:
        """Parse the arguments, with the command that they are for."""
        command: click.Command
        if any(word.partition("=")[0] == "--journal" for word in args):
            from bftrain_replay.commands import journal

            command, name = journal.replay, "journal replay"
            args = [word.removeprefix("--journal=") for word in args if word != "--journal"]
        elif _in_rounds(args):
            from bftrain_replay.commands import rounds

            command, name = rounds.command, "rounds"
        else:
            return super().make_context(info_name, args, parent, **extra)
        if not extra.get("resilient_parsing"):  # completion prints only candidates
            print_hint(args, f"this is now bftrain {name}; bftrain replay will stop accepting it")
        return command.make_context(name, args, parent, **extra)


def _in_rounds(args: list[str]) -> bool:
    if any(word.partition("=")[0] == "--round" for word in args):
        return True
    files = [Path(value) for word, value in pairwise(args) if word == "--config"]
    files += [Path(word.removeprefix("--config=")) for word in args if word.startswith("--config=")]
    if not any(file.is_file() for file in files):
        return False
    from bftrain.config import read_toml

    with suppress(BadConfig):  # the command itself reports a file that cannot be read
        return any("round_s" in read_toml(file) for file in files if file.is_file())
    return False


_SETTINGS: Final = {*ReplaySettings.__struct_fields__, "shares", "topology"}
_TASKS: Final = "Task file, .toml or .csv [identical trials, more than fit]."


@click.command(
    cls=ReplayCommand,
    example="bftrain replay log.npz -o result --horizon 2min\n"
    "bftrain replay log.npz --tasks tasks.toml --window last-2w -o fortnight",
    epilog="Without --tasks the replay uses identical trials, more than the idle nodes can finish. "
    "DIR gets summary.json, config.toml, log.npz, report.html and the tables decisions, tasks, allocations and "
    "over_time; docs/reference/results.md explains them. Ctrl-C stops early and keeps the results.",
)
@click.argument("log", type=InputFile(), required=False)
@heading("Inputs")
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, help="Folder for the result. [required]")
@click.option("--tasks", "task_file", type=FILE, help=_TASKS)
@baseline_option
@cluster_option
@click.option(
    "--until", "until_s", type=DurationType(min=0, min_open=True), help="On a cluster: time limit in seconds."
)
@kinds_option
@heading("Result")
@tables_option
@quick_option
@no_cache_option
@overwrite_option
@heading("Rules of the replay")
@with_options(options_of(ReplaySettings))
@partial(decides, auto_cap=True)
@prints_results
def command(config: Path | None, out: Output, **given: Any) -> None:  # noqa: ANN401 - the options' own types
    """Replay LOG with tasks: the harvest, the losses, and the possible harvest."""
    from bftrain_replay.commands.replay_run import replay_cluster, replay_log

    asked = SimpleNamespace(config=config, **{name: given.pop(name) for name in given.keys() - _SETTINGS})
    (replay_log if asked.cluster is None else replay_cluster)(asked, given, out)
