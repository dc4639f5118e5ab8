"""Runs a replay for a command: the files of an interrupted one are kept; results are printed."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bftrain.cli.interruption import interruption, unterminated
from bftrain.errors import BadValue, BrokenPlugin, Interrupted, UsageError
from bftrain.values.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.progress import Progress, TaskID

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


_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
_AN_HOUR_S: Final = 3600.0


class _ReplayShown(msgspec.Struct):
    begun_s: float
    shown_s: float
    bar: TaskID | None


class ReplayProgress:
    """Progress of several replays of the same log, sequential or parallel.

    ``goal`` is their total: seconds (shown as hours), or items with a ``unit`` of 1. ``done`` describes the progress,
    and ``counted`` is the noun for the running count.
    """

    def __init__(
        self,
        out: Output,
        goal: float,
        *,
        unit: float = _AN_HOUR_S,
        counted: str = "decisions",
        done: str = "hours replayed",
    ) -> None:
        self._out = out
        self.bars: Progress | None = None
        self._counted, self._done, self._unit = counted, done, unit
        self._total = max(goal / unit, 1.0)
        self._in_lines = not sys.stderr.isatty()
        self._shown: dict[str, _ReplayShown] = {}

    def tell(self, name: str, done: float, count: int) -> None:
        """Show the progress of replay ``name``, up to a few times per second."""
        now_s = time.monotonic()
        done /= self._unit
        shown = self._shown.get(name)
        if shown is None:
            if not self._shown and not self._in_lines:
                # Started late: a thread that draws bars blocks forking of replay processes, and needs an import
                self.bars = self._out.progress()
                self.bars.start()
            bar = self.bars.add_task(f"{name}, {self._done}", total=self._total) if self.bars is not None else None
            shown = self._shown[name] = _ReplayShown(now_s, now_s, bar)
        elif now_s - shown.shown_s < (_LINE_EVERY_S if self._in_lines else _REDRAW_S):
            return
        elif self._in_lines:
            took_s, digits = now_s - shown.begun_s, 1 if self._unit > 1.0 else 0
            left = f", about {took_s * (self._total / done - 1):,.0f} s left" if done > 0 else ""
            self._out.say(
                f"{name}: {done:,.{digits}f} of {self._total:,.{digits}f} {self._done}, "
                f"{count:,} {self._counted}, {count / took_s:,.0f} a second{left}"
            )
        shown.shown_s = now_s
        if self.bars is None or shown.bar is None:
            return
        rate = f", {count / (now_s - shown.begun_s):,.0f} {self._counted}/s" if now_s > shown.begun_s else ""
        self.bars.update(shown.bar, completed=done, description=f"{name}, {self._done}{rate}")

    def stop(self) -> None:
        """Stop drawing."""
        if self.bars is not None:
            self.bars.stop()


@contextmanager
def watched(out: Output, goal: float, **shown: Any) -> Iterator[Callable[[str, float, int], bool]]:  # noqa: ANN401 - of ReplayProgress
    """Return a watcher of a replay of this many seconds: it shows progress and returns False to stop.

    Ctrl-C or SIGTERM stop the replay early, a second Ctrl-C immediately. ``goal`` and ``shown`` go to
    ``ReplayProgress``.
    """
    with interruption() as interrupted:
        progress = ReplayProgress(out, goal, **shown)

        def watch(name: str, done: float, count: int) -> bool:
            progress.tell(name, done, count)
            return not interrupted()

        try:
            yield watch
        finally:
            progress.stop()
