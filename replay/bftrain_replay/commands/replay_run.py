"""A replay as commands run it: what is done by then is kept if it is interrupted, and shown at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bftrain.cli.interruption import unterminated
from bftrain.errors import BrokenPlugin, Interrupted
from bftrain_replay.commands.replay_progress import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from bftrain.cli.output import Output
    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.provenance import InputSource
    from bftrain_replay.results.result import ReplayResult
    from bftrain_replay.resume.solver_cache import AnswerFile, AnswerOrigin
    from bftrain_replay.study import ReplayStudy


class CommandRun(NamedTuple):
    """A replay that ran, and whether its result was written; a part does not replace a finished one."""

    study: ReplayStudy
    written: bool


def run_into(
    folder: Path,
    source: InputSource,
    origin: AnswerOrigin,
    run: Callable[[AnswerFile], ReplayStudy],
    out: Output,
    *,
    tables: str,
    resume: bool,
    overwrite: bool,
) -> CommandRun:
    """Run a replay of this ``origin`` and write it into ``folder``, or go on with what was interrupted there."""
    from bftrain.result_folder import ResultFolder
    from bftrain_replay import replay_folder
    from bftrain_replay.resume.solver_cache import AnswerFile

    unfinished = folder / replay_folder.UNFINISHED
    with unterminated(), ResultFolder(folder, replay_folder.KIND, overwrite=overwrite) as result:
        if resume and not unfinished.exists():
            out.say(f"nothing was interrupted in {folder}: starting from the beginning")
        with AnswerFile(unfinished, origin, resume=resume) as answers:
            study = run(answers)
            written = study.complete or not result.holds_finished
            if written:
                result.replace(lambda draft: replay_folder.write(study, draft, source, tables=tables))
            if study.complete:
                answers.discard()
    return CommandRun(study, written)


def replay(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    baseline: str,
    out: Output,
    answers: AnswerFile | None = None,
) -> ReplayStudy:
    """Replay a log and show how far it is; warnings come as soon as they are known."""
    from bftrain_replay.study import study

    shown: list[str] = []

    def warn(text: str) -> None:
        shown.append(text)
        out.warn(text)

    with watched(out, log.span_s) as watch:
        done = study(log, tasks, settings, baseline=baseline, watch=watch, answers=answers, warn=warn)
    warn_of(done.result, out, shown)
    return done


def warn_of(result: ReplayResult, out: Output, shown: Collection[str] = ()) -> None:
    """Say what is odd about a replay, apart from what was ``shown`` already."""
    for warning in result.warnings:
        if warning not in shown:
            out.warn(warning)
    for time_s, note in result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")


def show(study: ReplayStudy, source: InputSource, out: Output, *, title: str, **more: object) -> None:
    """Print the figures side by side with a picture, or as JSON with ``more`` added."""
    from bftrain_replay.commands.replay_result import in_words
    from bftrain_replay.output import summary_json

    data = {**summary_json.summary(study, source), **more} if out.json else None
    out.result(data, lambda: in_words(study, title))


def leave_if_interrupted(study: ReplayStudy, folder: Path, advice: str = "", *, written: bool = True) -> None:
    """End as interrupted if it was."""
    if not study.complete:
        raise Interrupted(f"interrupted; {what_remains(folder, written=written)}{advice}")


def leave_if_broken(metrics: Iterable[BrokenPlugin]) -> None:
    """End with an error if a metric gave no numbers: the result lacks something that was asked for."""
    broken = {error.where: error for error in metrics}
    if broken:
        where = ", ".join(str(each) for each in broken)
        what = "gave no numbers; all else of the result stands"
        raise BrokenPlugin(what, where=where) from next(iter(broken.values())).__cause__


def what_remains(folder: Path, *, written: bool) -> str:
    """Return in words what an interrupted command leaves in its folder."""
    if not written:
        return f"the finished result in {folder} is as it was"
    return f'the result in {folder} covers a part and says "complete": false'
