"""The sensitivity table and the advice: replays after the main one, with progress, and the table for a terminal."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
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
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study import ReplayStudy
    from bftrain_replay.sweeping.alternatives import AlternativeReplays
    from bftrain_replay.variations import SensitivityRow

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


def no_cache_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--no-cache`` to a command."""
    text = "Replay again what earlier commands have replayed and kept in the user's cache folder."
    return click.option("--no-cache", is_flag=True, help=text)(function)


@dataclass(slots=True)
class SensitivityTable:
    """Adds table and advice to a replay of these files, if ``wanted`` and the rules are the realistic ones."""

    log: Path
    tasks: Path | Sequence[TaskSpec]
    settings: ReplaySettings
    out: Output
    kinds: Path | None = None
    wanted: bool = True
    cached: bool = True
    interrupted: bool = False

    def added_to(self, study: ReplayStudy) -> ReplayStudy:
        """Return a complete ``study`` with table and advice; without them if not wanted, interrupted or failed."""
        from msgspec.structs import replace

        from bftrain_replay.simulation.replay_settings import PUBLISHED

        if not self.wanted or not study.complete or self.settings.semantics == PUBLISHED:
            return study
        with interruption() as interrupted:  # what is imported and planned first takes a moment too
            try:
                found = self._replays(study, interrupted)
            except (BftrainError, OSError) as error:  # the replay itself is done, and must not be lost for it
                self.out.warn(f"no sensitivity table and no advice: {error}")
                return study
            self.interrupted = interrupted()
        for reason in found.failed:
            self.out.warn(f"no sensitivity table and no advice: a replay for them failed: {reason}")
        return replace(study, sensitivity=found.rows, advice=found.advice)

    def _replays(self, study: ReplayStudy, interrupted: Callable[[], bool]) -> AlternativeReplays:
        """Replay the alternatives; return no rows if interrupted, or if one of them fails."""
        from bftrain.taskfiles.files import save_tasks
        from bftrain_replay.sweeping.alternatives import plan, replay_alternatives
        from bftrain_replay.sweeping.outcome_cache import OutcomeCache
        from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile

        kinds = str(self.kinds.absolute()) if self.kinds else ""
        log = SweepLog(path=str(self.log.absolute()), kinds=kinds)
        with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
            if isinstance(self.tasks, Path):
                task_file = self.tasks
            else:  # the workers read files
                task_file = Path(folder) / "tasks.toml"
                save_tasks(self.tasks, task_file)
            planned = plan(study, self.settings, log, TaskFile(path=str(task_file.absolute())))
            cache = OutcomeCache.of_user(wanted=self.cached)
            known = cache.count(planned.passes) if cache else 0
            from_cache = f" ({known} of them from {cache.folder})" if cache and known else ""
            self.out.say(
                f"sensitivity to what is assumed, and advice: {len(planned.passes)} more replays{from_cache}, "
                f"{planned.workers} at a time, about {planned.expected_s(known):,.0f} s; --quick leaves them out"
            )
            with self.out.progress() as bars:
                show = progress_shown(bars, self.out, "sensitivity")

                def watch(done: float, of: int) -> bool:
                    show(done, of)
                    return not interrupted()

                found = replay_alternatives(planned, watch, cache)
            if cache and cache.remark:
                self.out.warn(cache.remark)
            return found

    def exit_if_interrupted(self, folder: Path) -> None:
        """Exit as interrupted if the table was; the replay itself is complete."""
        if self.interrupted:
            what = f"interrupted; the result in {folder} is complete, only sensitivity table and advice are missing"
            raise Interrupted(what)


def progress_shown(bars: Progress, out: Output, name: str) -> Callable[[float, int], None]:
    """Return a function that shows how many replays are done: a bar on a terminal, a line now and then elsewhere."""
    bar = bars.add_task(name, total=1) if sys.stderr.isatty() else None
    begun_s = last_line_s = time.monotonic()

    def show(done: float, count: int) -> None:
        nonlocal last_line_s
        now_s = time.monotonic()
        if bar is not None:
            text = f"{name}, {int(done)} of {count} replays"
            bars.update(bar, completed=done * _STEPS, total=count * _STEPS, description=text)
        elif now_s - last_line_s >= _LINE_EVERY_S and done > 0.0:
            last_line_s = now_s
            left_s = (now_s - begun_s) * (count / done - 1.0)
            out.say(f"{name}: {int(done)} of {count} replays, about {left_s:,.0f} s left")

    return show


def sensitivity_table(rows: Sequence[SensitivityRow]) -> RenderableType:
    """Return the table: a row for each alternative, the chosen ones marked."""
    from bftrain_replay.reporting import alternatives_section

    headings, cells = alternatives_section.sensitivity_table(f"assumed ({_CHOSEN} here)", rows, f" {_CHOSEN}")
    headings = tuple(name.removeprefix("efficiency ") for name in headings)  # to fit into 80 columns
    return table("", headings, cells, compact=True)
