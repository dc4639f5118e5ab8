"""``bftrain replay``: what a log's idle nodes would have given to a set of tasks, and what it would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli import rounds
from bftrain.cli.cluster_option import ClusterType
from bftrain.cli.interruption import interruption, unterminated
from bftrain.cli.logfiles import kinds_option
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import decides, settings_of_kind, with_options
from bftrain.errors import BadInput, Interrupted, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.answers import Answers
    from bftrain_replay.origins import Source
    from bftrain_replay.study import Study


class _Latency(click.ParamType["float | str"]):
    """Seconds, or the word ``measured``."""

    name = "SECONDS|measured"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Leave the word as it is."""
        if value == "measured":
            return "measured"
        try:
            return float(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number of seconds nor 'measured'", param, ctx)


# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "semantics": (click.Choice(("realistic", "published")), "By which rules tasks advance [realistic]."),
    "events": (click.Choice(("all", "chosen")), "Published rules: events of all nodes, or of the chosen ones [all]."),
    "window": (str, "Replay A..B only, seconds UTC or ISO times; either may be left out."),
    "nodes": (str, "Nodes to replay: a set such as nid[0001-0100], or a slice such as 0:1024 in the log's own order."),
    "skip_events": (int, "Leave out so many events at the begin [0]."),
    "decision_latency_s": (_Latency(), "Seconds until new sizes take effect; measured: the solver's own time [0]."),
    "min_interval_s": (float, "Seconds between decisions at least; nodes are given back at once all the same [0]."),
    "grow_cost_s": (float, "Seconds that every growth takes [what the tasks say]."),
    "shrink_cost_s": (float, "Seconds that every shrinking takes [what the tasks say]."),
    "start_cost_s": (float, "Seconds that every start from zero takes [what the tasks say]."),
    "cost_factor": (float, "Multiplies what growing, shrinking and starting take [1]."),
    "checkpoint_interval_s": (float, "Seconds between commits; preemption takes the work since [shrink_cost_s]."),
    "seed": (int, "Where whatever is random comes from [0]."),
    "metrics": (str, "More figures: names of metrics, or FILE.py:NAME, with commas between."),
}

UNFINISHED: Final = "unfinished.jsonl"  # the answers of a replay that runs or was interrupted

_existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    epilog="DIR gets summary.json, config.toml, report.html and the tables decisions, tasks and allocations; "
    "docs/results.md explains them. Ctrl-C ends it early, keeps what is done by then, and --resume goes on."
)
@click.argument("log", type=_existing_file, required=False)
@click.option("--tasks", "task_file", type=_existing_file, help="Task file, .toml or .csv.")
@click.option("--cluster", type=ClusterType(), help="Instead of LOG: nodes that never leave, as v100=36,k80=4, or 128.")
@click.option("--until", "until_s", type=click.FloatRange(min=0, min_open=True), help="On a cluster: seconds at most.")
@click.option(
    "--ideal", is_flag=True, default=None, help="On a cluster: what nodes divided at no cost would have done."
)
@kinds_option
@click.option("--journal", type=_existing_file, help="Instead of LOG and tasks: what a live run wrote down.")
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
@click.option("--resume", is_flag=True, help="Go on with what was interrupted in DIR; all else must be as it was.")
@with_options(OPTIONS)
@with_options(rounds.OPTIONS)
@decides
@prints_results
def command(
    log: Path | None,
    task_file: Path | None,
    folder: Path | None,
    *,
    baseline: str,
    tables: str,
    resume: bool,
    config: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Replay LOG against tasks: what would have been harvested, lost, and possible."""
    journal: Path | None = given.pop("journal")
    where = {name: given.pop(name) for name in ("cluster", "until_s", "ideal", "kinds")}
    by_rounds = {name: given.pop(name) for name in rounds.OPTIONS}
    if journal is not None:
        from bftrain.cli.replay_journal import replay_journal

        own = {
            "log": log,
            "task_file": task_file,
            "config": config,
            "resume": resume or None,
            **given,
            **where,
            **by_rounds,
        }
        _insist_on_journal_alone(own)
        replay_journal(journal, folder, baseline, tables, out)
        return
    if rounds.wanted(config, by_rounds):
        rounds.replay_in_rounds(
            rounds.Sources(log=log, cluster=where["cluster"], kinds=where["kinds"], tasks=task_file),
            folder,
            tables,
            config,
            {
                **given,
                **by_rounds,
                "until_s": where["until_s"],
                "ideal": where["ideal"],
                "baseline": baseline,
                "resume": resume,
            },
            out,
        )
        return
    if where["cluster"] is not None:
        from bftrain.cli.replay_cluster import Wanted, replay_cluster

        _insist_on_cluster_alone(log, where["kinds"])
        wanted = Wanted(
            nodes=where["cluster"],
            until_s=where["until_s"],
            ideal=bool(where["ideal"]),
            task_file=_there(task_file, "--tasks"),
            folder=_there(folder, "-o"),
            baseline=baseline,
            tables=tables,
            resume=resume,
        )
        replay_cluster(wanted, config, given, out)
        return
    for name, fix in (("until_s", "choose a --window of the log"), ("ideal", "a log has a ceiling instead")):
        if where[name] is not None:
            raise UsageError("goes with --cluster only", where=f"--{name.removesuffix('_s')}", fix=fix)
    if log is None or task_file is None or folder is None:
        missing = "LOG" if log is None else "--tasks" if task_file is None else "-o"
        fix = "bftrain replay LOG --tasks TASKS -o DIR, or --cluster NODES or --journal JOURNAL instead of LOG"
        raise UsageError("is missing", where=missing, fix=fix)
    from bftrain_replay import outputs
    from bftrain_replay.answers import Answers, origin_of
    from bftrain_replay.drawing import vega
    from bftrain_replay.origins import Source
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import check_parts

    settings = settings_of_kind(config, given, ReplaySettings)
    check_parts(settings, baseline)
    outputs.check_tables(tables)
    kinds: Path | None = where["kinds"]
    events, specs = _inputs(log, kinds, task_file)
    outputs.prepare(folder)
    told = ("--kinds", str(kinds)) if kinds is not None else ()
    source = Source(log=str(log), tasks=str(task_file), baseline=baseline, options=told)
    unfinished = folder / UNFINISHED
    if resume and not unfinished.exists():
        out.say(f"nothing was interrupted in {folder}: beginning at the begin")
    with unterminated(), Answers(unfinished, origin_of(events, specs, settings, baseline), resume=resume) as answers:
        study = replay(events, specs, settings, baseline, out, answers)
        outputs.write(study, folder, source, tables=tables)
        if study.complete:
            answers.discard()
    show(study, source, out, title=f"{log} with {task_file}")
    out.say(f"result: {folder}")
    if vega.lacking():
        out.say(f"no page: {vega.lacking()}")
    leave_if_interrupted(study, folder, "; the same command with --resume goes on")


def _inputs(log: Path, kinds: Path | None, task_file: Path) -> tuple[EventLog, tuple[TaskSpec, ...]]:
    """Read log and tasks; tasks for which the log has no kind of node are refused before anything is written."""
    from bftrain_datasets.files import load_log
    from bftrain_datasets.kind_files import with_kinds
    from bftrain_datasets.taskfiles import load_tasks
    from bftrain_replay.study import check_kinds

    events = load_log(log) if kinds is None else with_kinds(load_log(log), kinds)
    tasks = tuple(load_tasks(task_file))
    try:
        check_kinds(events, tasks)
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    return events, tasks


def _insist_on_cluster_alone(log: Path | None, kinds: Path | None) -> None:
    """Refuse what a cluster says itself."""
    if log is not None:
        raise UsageError("a cluster takes the place of a log", where="--cluster", fix="leave LOG or --cluster out")
    if kinds is not None:
        raise UsageError("a cluster names its kinds itself", where="--kinds", fix="leave it out")


def _there(given: Path | None, option: str) -> Path:
    if given is None:
        raise UsageError("is missing", where=option, fix="bftrain replay --cluster NODES --tasks TASKS -o DIR")
    return given


def _insist_on_journal_alone(others: Mapping[str, object]) -> None:
    """Refuse what a journal says itself."""
    for parameter in click.get_current_context().command.params:
        if others.get(parameter.name or "") is not None:
            raise UsageError(
                "a journal was written with settings, nodes and tasks of its own",
                where=max(parameter.opts, key=len) if isinstance(parameter, click.Option) else "LOG",
                fix="leave it out; for what-if replays: bftrain journal export",
            )


def replay(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    baseline: str,
    out: Output,
    answers: Answers | None = None,
) -> Study:
    """Replay and show how far it is; Ctrl-C or SIGTERM end it early, a second Ctrl-C at once."""
    from bftrain.cli.replay_progress import ReplayProgress
    from bftrain_replay.study import study

    with interruption() as interrupted, out.progress() as bars:
        progress = ReplayProgress(bars, out, log.span_s)

        def watch(name: str, simulated_s: float, decisions: int) -> bool:
            progress.tell(name, simulated_s, decisions)
            return not interrupted()

        told: list[str] = []

        def warn(text: str) -> None:
            told.append(text)
            out.warn(text)

        done = study(log, tasks, settings, baseline=baseline, watch=watch, answers=answers, warn=warn)
    for warning in done.result.warnings:
        if warning not in told:
            out.warn(warning)
    for time_s, note in done.result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")
    return done


def show(study: Study, source: Source, out: Output, *, title: str, **more: object) -> None:
    """Print the figures side by side with a picture, or as JSON with ``more`` added."""
    from bftrain.cli.replay_result import in_words
    from bftrain_replay import told

    data = {**told.summary(study, source), **more} if out.json else None
    out.result(data, lambda: in_words(study, title))


def leave_if_interrupted(study: Study, folder: Path, advice: str = "") -> None:
    """End as interrupted if it was."""
    if not study.complete:
        raise Interrupted(f'interrupted; the result in {folder} covers a part and says "complete": false{advice}')
