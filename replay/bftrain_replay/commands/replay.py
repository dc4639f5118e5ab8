"""``bftrain replay``: what a log's idle nodes would have given to a set of tasks, and what it would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output, prints_results
from bftrain.cli.overwrite_option import overwrite_option
from bftrain.cli.seconds_or_word import SecondsOrWord
from bftrain.cli.settings import decides, with_options
from bftrain.errors import UsageError
from bftrain_datasets.commands.logfiles import kinds_option
from bftrain_replay.commands import rounds
from bftrain_replay.commands.cluster_option import ClusterType
from bftrain_replay.commands.replay_request import ReplayRequest
from bftrain_replay.commands.sensitivity import quick_option

if TYPE_CHECKING:
    from collections.abc import Mapping


# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "semantics": (click.Choice(("realistic", "published")), "By which rules tasks advance [realistic]."),
    "events": (click.Choice(("all", "chosen")), "Published rules: events of all nodes, or of the chosen ones [all]."),
    "window": (str, "Replay A..B only, seconds UTC or ISO times; either may be left out."),
    "nodes": (str, "Nodes to replay: a set such as nid[0001-0100], or a slice such as 0:1024 in the log's own order."),
    "skip_events": (int, "Leave out so many events at the begin [0]."),
    "decision_latency_s": (
        SecondsOrWord("measured"),
        "Seconds until new sizes take effect; measured: the solver's own time [0].",
    ),
    "min_interval_s": (float, "Seconds between decisions at least; nodes are given back at once all the same [0]."),
    "grow_cost_s": (float, "Seconds that every growth takes [what the tasks say]."),
    "shrink_cost_s": (float, "Seconds that every shrinking takes [what the tasks say]."),
    "start_cost_s": (float, "Seconds that every start from zero takes [what the tasks say]."),
    "cost_factor": (float, "Multiplies what growing, shrinking and starting take [1]."),
    "progress": (str, "What preemption takes back: memory, memory:SECONDS, disk:SECONDS or task [memory]."),
    "checkpoint_interval_s": (float, "The same as --progress disk:SECONDS."),
    "seed": (int, "Seed of all random choices [0]."),
    "metrics": (str, "More figures: names of metrics, or FILE.py:NAME, with commas between."),
}

_OF_NODES: Final = ("cluster", "until_s", "ideal", "kinds")  # options that say what nodes there are

_existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    cls=DocumentedCommand,
    example="bftrain replay log.npz --tasks tasks.toml --baseline equal-share -o result",
    epilog="DIR gets summary.json, config.toml, report.html and the tables decisions, tasks and allocations; "
    "docs/results.md explains them. Ctrl-C ends it early, keeps what is done by then, and --resume goes on.",
)
@click.argument("log", type=_existing_file, required=False)
@heading("What is replayed")
@click.option(
    "--tasks",
    "task_file",
    type=_existing_file,
    help="Task file, .toml or .csv [identical trials, more than LOG has room for].",
)
@click.option("--cluster", type=ClusterType(), help="Instead of LOG: nodes that never leave, as v100=36,k80=4, or 128.")
@click.option("--until", "until_s", type=click.FloatRange(min=0, min_open=True), help="On a cluster: seconds at most.")
@click.option(
    "--ideal", is_flag=True, default=None, help="On a cluster: what nodes divided at no cost would have done."
)
@kinds_option
@click.option("--journal", type=_existing_file, help="Instead of LOG and tasks: what a live run wrote down.")
@heading("Result")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the result.",
)
@click.option("--baseline", default="", metavar="SOLVER", help="Replay with this solver too, such as equal-share.")
@click.option("--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Form of the tables [csv].")
@quick_option
@overwrite_option
@click.option("--resume", is_flag=True, help="Go on with what was interrupted in DIR; all else must be as it was.")
@heading("Rules of the replay")
@with_options(OPTIONS)
@heading("Time shared in rounds")
@with_options(rounds.OPTIONS)
@decides
@prints_results
def command(  # noqa: PLR0913 - one argument for each option
    log: Path | None,
    task_file: Path | None,
    folder: Path | None,
    *,
    baseline: str,
    tables: str,
    resume: bool,
    overwrite: bool,
    config: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Replay LOG against tasks: what would have been harvested, lost, and possible.

    Without --tasks it replays LOG against identical trials, more than its idle nodes can do.
    """
    journal: Path | None = given.pop("journal")
    nodes = {name: given.pop(name) for name in _OF_NODES}
    by_rounds = {name: given.pop(name) for name in rounds.OPTIONS}
    asked = ReplayRequest(
        log=log,
        task_file=task_file,
        folder=folder,
        baseline=baseline,
        tables=tables,
        resume=resume,
        overwrite=overwrite,
        config=config,
        quick=given.pop("quick"),
        given=given,
        **nodes,
    )
    if journal is not None:
        _of_journal(journal, asked, by_rounds, out)
    elif rounds.wanted(config, by_rounds):
        _in_rounds(asked, by_rounds, out)
    elif asked.cluster is not None:
        from bftrain_replay.commands.replay_cluster import replay_cluster

        replay_cluster(asked.cluster, asked, out)
    else:
        from bftrain_replay.commands.replay_log import replay_log

        replay_log(asked, out)


def _of_journal(journal: Path, asked: ReplayRequest, by_rounds: Mapping[str, object], out: Output) -> None:
    """Replay a journal, with which nothing else goes that it says itself."""
    from bftrain_replay.commands.replay_journal import replay_journal

    others: dict[str, object] = {
        **asked.given,
        **by_rounds,
        **{name: getattr(asked, name) for name in ("log", "task_file", "config", *_OF_NODES)},
        "resume": asked.resume or None,
    }
    for parameter in click.get_current_context().command.params:
        if others.get(parameter.name or "") is not None:
            raise UsageError(
                "a journal was written with settings, nodes and tasks of its own",
                where=max(parameter.opts, key=len) if isinstance(parameter, click.Option) else "LOG",
                fix="leave it out; for what-if replays: bftrain journal export",
            )
    replay_journal(journal, asked, out)


def _in_rounds(asked: ReplayRequest, by_rounds: Mapping[str, object], out: Output) -> None:
    """Share the time of nodes in rounds."""
    sources = rounds.RoundSources(log=asked.log, cluster=asked.cluster, kinds=asked.kinds, tasks=asked.task_file)
    more = {name: getattr(asked, name) for name in ("until_s", "ideal", "baseline", "resume")}
    rounds.replay_in_rounds(sources, asked, {**asked.given, **by_rounds, **more}, out)
