"""``bftrain replay``: what a log's idle nodes would have given to a set of tasks, and what it would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click import Choice

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType, SecondsOrWord, decides, overwrite_option, with_options
from bftrain.cli.value_completion import LOG_FILES, TASK_FILES, complete_files, complete_parts
from bftrain.errors import UsageError
from bftrain_datasets.commands.logfiles import InputFile, kinds_option
from bftrain_replay.commands import rounds
from bftrain_replay.commands.replay_run import ReplayRequest
from bftrain_replay.commands.sensitivity import no_cache_option, quick_option


class ClusterType(click.ParamType["Mapping[str, int]"]):
    """The number of nodes of each kind; the kind without a name is that of nodes that are all alike."""

    name = "KIND=NODES,.."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Parse the text."""
        from bftrain.values.curve import CLUSTER_FORM, cluster_of

        try:
            return cluster_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; {CLUSTER_FORM}", param, ctx)


# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "semantics": (Choice(("realistic", "published")), "By which rules tasks advance [realistic]."),
    "events": (Choice(("all", "chosen")), "Published rules: events of all nodes, or of the chosen ones [all]."),
    "window": (
        str,
        "Replay A..B only, seconds UTC or ISO times, either may be left out; or such as last-2w, first-12h.",
    ),
    "nodes": (str, "Nodes to replay: a set such as nid[0001-0100], or a slice such as 0:1024 in the log's own order."),
    "skip_events": (int, "Leave out so many events at the begin [0]."),
    "decision_latency_s": (
        SecondsOrWord("measured"),
        "Seconds until new sizes take effect; measured: the solver's own time [0].",
    ),
    "min_interval_s": (
        DurationType(),
        "Seconds between decisions at least; nodes are given back at once all the same [0].",
    ),
    "grow_cost_s": (DurationType(), "Seconds that every growth takes [what the tasks say]."),
    "shrink_cost_s": (DurationType(), "Seconds that every shrinking takes [what the tasks say]."),
    "start_cost_s": (DurationType(), "Seconds that every start from zero takes [what the tasks say]."),
    "cost_factor": (float, "Multiplies what growing, shrinking and starting take [1]."),
    "progress": (str, "What preemption takes back: memory, memory:DURATION, disk:DURATION or task [memory]."),
    "checkpoint_interval_s": (DurationType(), "The same as --progress disk:DURATION."),
    "speed_error": (float, "Decisions mistake each speed by a factor whose logarithm has this standard deviation [0]."),
    "profiled": (float, "With --speed-error: share of the tasks whose speeds are known exactly [0]."),
    "learning": (
        Choice(("yes", "no", "completed")),
        "With --speed-error: decisions learn speeds as tasks run; completed, in rounds: those on other kinds too [no].",
    ),
    "seed": (int, "Seed of all random choices [0]."),
    "metrics": (str, "More figures: names of metrics, or FILE.py:NAME, with commas between."),
}

_OF_NODES: Final = ("cluster", "until_s", "ideal", "kinds")  # options that say what nodes there are

_TASKS: Final = "Task file, .toml or .csv [identical trials, more than LOG has room for]."
_folder = click.Path(path_type=Path, file_okay=False)
_existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    cls=DocumentedCommand,
    example="bftrain replay log.npz -o result --horizon 2min\n"
    "bftrain replay log.npz --tasks tasks.toml --window last-2w -o fortnight",
    epilog="Without --tasks LOG is replayed against identical trials, more than its idle nodes can do. "
    "DIR gets summary.json, config.toml, report.html and the tables decisions, tasks and allocations; "
    "docs/reference/results.md explains them. Ctrl-C ends it early, and keeps what is done by then.",
)
@click.argument("log", type=InputFile(), required=False, shell_complete=LOG_FILES)
@heading("Needed first")
@click.option("-o", "--output", "folder", metavar="DIR", type=_folder, help="Folder for the result [required].")
@click.option("--tasks", "task_file", type=_existing_file, help=_TASKS, shell_complete=TASK_FILES)
@click.option(
    "--baseline",
    default="",
    metavar="SOLVER",
    help="Replay with this solver too, such as equal-share.",
    shell_complete=complete_parts("solver"),
)
@heading("What is replayed")
@click.option("--cluster", type=ClusterType(), help="Instead of LOG: nodes that never leave, as v100=36,k80=4, or 128.")
@click.option("--until", "until_s", type=DurationType(min=0, min_open=True), help="On a cluster: seconds at most.")
@click.option(
    "--ideal", is_flag=True, default=None, help="On a cluster: what nodes divided at no cost would have done."
)
@kinds_option
@click.option(
    "--journal",
    type=_existing_file,
    shell_complete=complete_files(".db"),
    help="Instead of LOG and tasks: what a live run wrote down.",
)
@heading("Result")
@click.option("--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Form of the tables [csv].")
@quick_option
@no_cache_option
@overwrite_option
@heading("Rules of the replay")
@with_options(OPTIONS)
@heading("Time shared in rounds")
@with_options(rounds.OPTIONS, policy=complete_parts("rounds", "sharing", own=True))
@decides
@prints_results
def command(config: Path | None, out: Output, **given: Any) -> None:  # noqa: ANN401 - the options' own types
    """Replay LOG against tasks: what would have been harvested, lost, and possible."""
    journal: Path | None = given.pop("journal")
    by_rounds = {name: given.pop(name) for name in rounds.OPTIONS}
    own = {name: given.pop(name) for name in ReplayRequest.__struct_fields__ if name in given}
    asked = ReplayRequest(config=config, given=given, **own)
    if journal is not None:
        _of_journal(journal, asked, by_rounds, out)
    elif rounds.wanted(config, by_rounds):
        more = {name: getattr(asked, name) for name in ("until_s", "ideal", "baseline")}
        rounds.replay_in_rounds(asked, {**asked.given, **by_rounds, **more}, out)
    elif asked.cluster is not None:
        from bftrain_replay.commands.replay_sources import replay_cluster

        replay_cluster(asked.cluster, asked, out)
    else:
        from bftrain_replay.commands.replay_sources import replay_log

        replay_log(asked, out)


def _of_journal(journal: Path, asked: ReplayRequest, by_rounds: Mapping[str, object], out: Output) -> None:
    """Replay a journal; raise for options that the journal itself sets."""
    from bftrain_replay.commands.replay_sources import replay_journal

    others: dict[str, object] = {
        **asked.given,
        **by_rounds,
        **{name: getattr(asked, name) for name in ("log", "task_file", "config", *_OF_NODES)},
    }
    for parameter in click.get_current_context().command.params:
        if others.get(parameter.name or "") is not None:
            raise UsageError(
                "a journal was written with settings, nodes and tasks of its own",
                where=max(parameter.opts, key=len) if isinstance(parameter, click.Option) else "LOG",
                fix="leave it out; for what-if replays: bftrain journal export",
            )
    replay_journal(journal, asked, out)
