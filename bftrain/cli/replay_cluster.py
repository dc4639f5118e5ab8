"""``bftrain replay --cluster``: tasks on nodes that never leave, until all are done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bftrain.cli.interruption import interruption, unterminated
from bftrain.cli.settings import option_of, settings_of_kind
from bftrain.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_replay.answers import Answers
    from bftrain_replay.fixed import Cluster
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for: the inputs, where the result goes, and what besides."""

    nodes: Mapping[str, int]
    until_s: float | None
    ideal: bool
    task_file: Path
    folder: Path
    baseline: str
    tables: str
    resume: bool

    @property
    def options(self) -> tuple[str, ...]:
        """Give the options that say the cluster."""
        from bftrain_replay.fixed import Cluster

        until = ("--until", repr(self.until_s)) if self.until_s is not None else ()
        return ("--cluster", Cluster(nodes=self.nodes).text, *until, *(("--ideal",) if self.ideal else ()))


def replay_cluster(wanted: Wanted, config: Path | None, given: Mapping[str, Any], out: Output) -> None:
    """Replay the tasks of a file on a cluster, and write and show what came of it."""
    from bftrain.cli.replay import UNFINISHED, leave_if_interrupted, show
    from bftrain_datasets.taskfiles import load_tasks
    from bftrain_replay import outputs
    from bftrain_replay.answers import Answers, origin_of
    from bftrain_replay.fixed import Cluster
    from bftrain_replay.origins import Source
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import check_cluster, check_parts

    settings = settings_of_kind(config, given, ReplaySettings)
    baseline, folder, task_file = wanted.baseline, wanted.folder, wanted.task_file
    check_parts(settings, baseline)
    try:
        check_cluster(settings)
    except UsageError as error:
        raise UsageError(error.what, where=option_of(error.where or ""), fix=error.fix) from error
    outputs.check_tables(wanted.tables)
    cluster, specs = Cluster(nodes=wanted.nodes, until_s=wanted.until_s), load_tasks(task_file)
    try:
        cluster.check(specs)
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    outputs.prepare(folder)
    source = Source(tasks=str(task_file), baseline=baseline, options=wanted.options)
    unfinished = folder / UNFINISHED
    if wanted.resume and not unfinished.exists():
        out.say(f"nothing was interrupted in {folder}: beginning at the begin")
    origin = origin_of(cluster.log(), specs, settings, baseline)
    with unterminated(), Answers(unfinished, origin, resume=wanted.resume) as answers:
        study = _replay(cluster, specs, settings, baseline, out, answers, ideally=wanted.ideal)
        outputs.write(study, folder, source, tables=wanted.tables)
        if study.complete:
            answers.discard()
    show(study, source, out, title=f"{cluster.text} nodes with {task_file}")
    out.say(f"result: {folder}")
    leave_if_interrupted(study, folder, "; the same command with --resume goes on")


def _replay(
    cluster: Cluster,
    specs: Sequence[TaskSpec],
    settings: ReplaySettings,
    baseline: str,
    out: Output,
    answers: Answers,
    *,
    ideally: bool,
) -> Study:
    """Replay and show how far it is: nobody knows how long it will be, so hours are told without an end."""
    from bftrain.cli.replay_progress import ReplayProgress
    from bftrain_replay.study import cluster_study

    last_s = max(spec.submit_s for spec in specs)
    with interruption() as interrupted, out.progress() as bars:
        progress = ReplayProgress(bars, out, cluster.until_s or last_s)

        def watch(name: str, simulated_s: float, decisions: int) -> bool:
            progress.tell(name, simulated_s, decisions)
            return not interrupted()

        done = cluster_study(cluster, specs, settings, baseline=baseline, watch=watch, answers=answers, ideally=ideally)
    for warning in done.result.warnings:
        out.warn(warning)
    for time_s, note in done.result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")
    return done
