"""The sensitivity table and the advice: replays after the main one, with progress, and the table for a terminal."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import click

from bftrain.cli.interruption import interruption
from bftrain.cli.output import table
from bftrain.errors import BftrainError, Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.progress import Progress

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_replay.alternatives.sensitivity import SensitivityRow
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study import ReplayStudy
    from bftrain_replay.sweeping.alternatives import AlternativeReplays

P = ParamSpec("P")
R = TypeVar("R")

_LINE_EVERY_S: Final = 30.0
_STEPS: Final = 1000  # of a replay: bars count whole numbers
_CHOSEN: Final = "*"
QUICK: Final = "BFTRAIN_QUICK"  # set in the environment, it means --quick


def quick_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--quick`` to a command."""
    text = "Leave out the sensitivity table and the advice, which take more replays."
    return click.option("--quick", is_flag=True, envvar=QUICK, help=text)(function)


class SensitivityTable:
    """Adds table and advice to a replay of these files, if that is ``wanted`` and the rules are the realistic ones."""

    def __init__(
        self,
        log: Path,
        tasks: Path | Sequence[TaskSpec],
        settings: ReplaySettings,
        out: Output,
        *,
        kinds: Path | None = None,
        wanted: bool = True,
    ) -> None:
        from bftrain_replay.simulation.replay_settings import PUBLISHED

        self._log, self._tasks, self._kinds = log, tasks, kinds
        self._settings = settings
        self._out = out
        self._wanted = wanted and settings.semantics != PUBLISHED
        self._interrupted = False

    def added_to(self, study: ReplayStudy) -> ReplayStudy:
        """Return a complete ``study`` with table and advice; without them if not wanted, interrupted or failed."""
        if not (self._wanted and study.complete):
            return study
        from dataclasses import replace

        with interruption() as interrupted:  # what is imported and planned first takes a moment too
            try:
                found = self._replays(study, interrupted)
            except (BftrainError, OSError) as error:  # the replay itself is done, and must not be lost for it
                self._out.warn(f"no sensitivity table and no advice: {error}")
                return study
            self._interrupted = interrupted()
        for reason in found.failed:
            self._out.warn(f"no sensitivity table and no advice: a replay for them failed: {reason}")
        return replace(study, sensitivity=found.rows, advice=found.advice)

    def _replays(self, study: ReplayStudy, interrupted: Callable[[], bool]) -> AlternativeReplays:
        """Replay the alternatives; return no rows if interrupted, or if one of them fails."""
        if isinstance(self._tasks, Path):
            return self._replayed(study, self._tasks, interrupted)
        from bftrain.taskfiles.files import save_tasks

        with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:  # the workers read files
            save_tasks(self._tasks, Path(folder) / "tasks.toml")
            return self._replayed(study, Path(folder) / "tasks.toml", interrupted)

    def _replayed(self, study: ReplayStudy, task_file: Path, interrupted: Callable[[], bool]) -> AlternativeReplays:
        from bftrain_replay.sweeping.alternatives import plan, replay_alternatives
        from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile

        kinds = str(self._kinds.absolute()) if self._kinds else ""
        log, tasks = SweepLog(path=str(self._log.absolute()), kinds=kinds), TaskFile(path=str(task_file.absolute()))
        planned = plan(study, self._settings, log, tasks)
        self._out.say(
            f"sensitivity to what is assumed, and advice: {len(planned.passes)} more replays, "
            f"{planned.workers} at a time, about {planned.expected_s:,.0f} s; --quick leaves them out"
        )
        with self._out.progress() as bars:
            shown = _ReplaysDone(bars, self._out)

            def watch(done: float, of: int) -> bool:
                shown.show(done, of)
                return not interrupted()

            return replay_alternatives(planned, watch)

    def leave_if_interrupted(self, folder: Path) -> None:
        """End as interrupted if the table was; the replay itself is complete."""
        if self._interrupted:
            what = f"interrupted; the result in {folder} is complete, only sensitivity table and advice are missing"
            raise Interrupted(what)


class _ReplaysDone:
    """Shows how many replays are done: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, bars: Progress, out: Output) -> None:
        self._bars = bars
        self._out = out
        self._in_lines = not sys.stderr.isatty()
        self._bar = None if self._in_lines else bars.add_task("sensitivity", total=1)
        self._begun_s = self._last_line_s = time.monotonic()

    def show(self, done: float, count: int) -> None:
        """Show how many are done; a line only if the last one is old enough."""
        now_s = time.monotonic()
        if self._bar is not None:
            text = f"sensitivity, {int(done)} of {count} replays"
            self._bars.update(self._bar, completed=done * _STEPS, total=count * _STEPS, description=text)
        elif now_s - self._last_line_s >= _LINE_EVERY_S and done > 0.0:
            self._last_line_s = now_s
            left_s = (now_s - self._begun_s) * (count / done - 1.0)
            self._out.say(f"sensitivity: {int(done)} of {count} replays, about {left_s:,.0f} s left")


def sensitivity_table(rows: Sequence[SensitivityRow]) -> RenderableType:
    """Lay the table out: a row for each alternative, the chosen ones marked."""
    from bftrain import text_formats
    from bftrain_replay.reporting.sensitivity_section import label

    cells = [
        (
            f"{label(row)} {_CHOSEN}" if row.chosen else label(row),
            text_formats.percent(row.efficiency),
            text_formats.large(row.harvested),
            text_formats.percent(row.lost_preemption),
        )
        for row in rows
    ]
    headings = (f"assumed ({_CHOSEN} here)", "U", "harvest, samples", "lost to preemption")
    return table("", headings, cells, compact=True)
