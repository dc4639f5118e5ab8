"""Runs a replay for a command: the files of an interrupted one are kept; results are printed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bftrain.cli.interruption import unterminated
from bftrain.errors import BadValue, BrokenPlugin, Interrupted, UsageError
from bftrain.values.options import AUTO
from bftrain_replay.commands.progress import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from bftrain.cli.output import Output
    from bftrain.config import Settings
    from bftrain.result_folder import ResultFolder
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.run.result import ReplayResult
    from bftrain_replay.run.run import EarlyFiles
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study.study import ReplayParts, ReplayStudy


def run_into(
    folder: Path, source: InputSource, run: Callable[[Callable[[ReplayStudy], None]], ReplayStudy], asked: ReplayRequest
) -> tuple[ReplayStudy, bool]:
    """Run a replay and write it into ``folder``.

    ``run`` gets a callback that takes a study of the main replay alone, as soon as that is complete: its files are
    written while the comparison replays are still running. Return the study, and whether its result was written: a
    partial result does not replace a finished one.
    """
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.study_run import REPLAY

    with unterminated(), ResultFolder(folder, REPLAY.folder, overwrite=asked.overwrite) as result:
        early = EarlyWriter(result, source, asked.tables)
        study = run(early.write)
        written = study.complete or not result.holds_finished
        if written:
            early.complete(study)
    return study, written


# Modules that the figures on the screen need
_NEEDED_LATER: Final = ("bftrain_replay.commands.replay_result", "rich.console", "rich.table", "numpy.ma")


class EarlyWriter:
    """Writes the main replay's files while the comparison replays run, and the rest afterwards."""

    def __init__(self, result: ResultFolder, source: InputSource, tables: str) -> None:
        self._result, self._source, self._tables = result, source, tables
        self._early: EarlyFiles | None = None

    def write(self, main: ReplayStudy) -> None:
        """Write the files that need only the main replay, and import modules for the rest."""
        from bftrain_replay.study_run import run_of

        def write(draft: Path) -> None:
            self._early = run_of(main, self._source).write_early(draft, self._tables)

        self._result.write_ahead(write)
        for module in _NEEDED_LATER:
            import_module(module)

    def complete(self, study: ReplayStudy) -> None:
        """Write all other files, and replace the old result."""
        from bftrain_replay.study_run import run_of

        run = run_of(study, self._source)
        self._result.replace(lambda draft: run.write_into(draft, self._tables, self._early))


def replay(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings | ReplayParts,
    baseline: str,
    out: Output,
    main_done: Callable[[ReplayStudy], None] = lambda _: None,
    *,
    quick: bool = False,
) -> ReplayStudy:
    """Replay a log with progress; print warnings immediately, and call ``main_done`` as ``study`` does."""
    from bftrain_replay.study.study import StudyCalls, study

    shown: list[str] = []

    def warn(text: str) -> None:
        shown.append(text)
        out.warn(text)

    with watched(out, log.span_s) as watch:
        calls = StudyCalls(warn=warn, main_done=main_done)
        done = study(log, tasks, settings, baseline=baseline, watch=watch, calls=calls, quick=quick)
    print_warnings(done.result, out, shown)
    return done


def print_warnings(result: ReplayResult, out: Output, shown: Collection[str] = ()) -> None:
    """Print a replay's warnings, except those already ``shown``."""
    for warning in result.warnings:
        if warning not in shown:
            out.warn(warning)
    for time_s, note in result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")


def show(study: ReplayStudy, source: InputSource, out: Output, *, title: str, **more: object) -> None:
    """Print the figures side by side with a plot, or as JSON with ``more`` added."""
    from bftrain_replay.commands.replay_result import in_words
    from bftrain_replay.study_run import run_of

    data = {**run_of(study, source).summary, **more} if out.json else None
    out.result(data, lambda: in_words(study, title))


def exit_if_interrupted(study: ReplayStudy, folder: Path, *, written: bool = True) -> None:
    """Exit with the interrupted status if the study was interrupted."""
    if not study.complete:
        raise Interrupted(f"interrupted; {kept_files_text(folder, written=written)}")


def exit_if_broken(metrics: Iterable[BrokenPlugin]) -> None:
    """Exit with an error if a metric failed, because a requested figure is missing."""
    broken = {error.where: error for error in metrics}
    if broken:
        where = ", ".join(str(each) for each in broken)
        what = "gave no numbers; all else of the result stands"
        raise BrokenPlugin(what, where=where) from next(iter(broken.values())).__cause__


def kept_files_text(folder: Path, *, written: bool) -> str:
    """Return in words what an interrupted command leaves in its folder."""
    if not written:
        return f"the finished result in {folder} is as it was"
    return f'the result in {folder} covers a part and says "complete": false'


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, the place of the result, and options; ``given`` are the settings. ``None``: not given."""

    log: Path | None
    cluster: Mapping[str, int] | None
    kinds: Path | None
    task_file: Path | None
    folder: Path | None
    tables: str
    overwrite: bool
    config: Path | None
    given: Mapping[str, Any]
    until_s: float | None = None
    baseline: str = ""
    quick: bool = False
    no_cache: bool = False

    @property
    def auto_cap(self) -> bool:
        """Whether the cap on competing tasks is to be found."""
        return self.given.get("max_tasks") == AUTO

    @property
    def settings(self) -> ReplaySettings:
        """The settings from file and options; raise ``BadValue`` for two that contradict each other."""
        from bftrain.cli.settings import option_of, settings_of_kind
        from bftrain_replay.simulation.progress_kept import agreed
        from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings

        try:
            given = agreed({**self.given, **({"max_tasks": None} if self.auto_cap else {})})
        except BadValue as error:
            raise BadValue(error.what, where=option_of("checkpoint_interval_s"), fix=error.fix) from error
        settings = settings_of_kind(self.config, given, ReplaySettings)
        if settings.semantics == PUBLISHED and given.get("progress") is not None:
            fix = "omit it, or replay realistic"
            raise BadValue("is unknown to the published rules", where=option_of("progress"), fix=fix)
        return settings

    def load_log(self, path: Path) -> EventLog:
        """Read the log, and the kinds of its nodes if a file has them."""
        from bftrain_datasets.log.kind_files import with_kinds
        from bftrain_datasets.log.log_files import load_log

        return load_log(path) if self.kinds is None else with_kinds(load_log(path), self.kinds)

    def check_cluster_alone(self) -> None:
        """Raise for options that a cluster sets itself."""
        if self.log is not None:
            raise UsageError("a cluster takes the place of a log", where="--cluster", fix="leave LOG or --cluster out")
        if self.kinds is not None:
            raise UsageError("a cluster names its kinds itself", where="--kinds", fix="omit it")
