"""The replays for the sensitivity table and the advice, with progress, and the table for a terminal."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bftrain.cli.interruption import interruption
from bftrain.cli.output import table
from bftrain.errors import BftrainError, Interrupted
from bftrain_replay.commands.progress import ShownProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from bftrain.cli.output import Output
    from bftrain_replay.run.variations import SensitivityRow
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study.study import ReplayStudy
    from bftrain_replay.sweeping.sweep_passes import PassOutcome, SweepPass

_CHOSEN: Final = "*"


class SideReplays:
    """Runs replays in addition to the main one, with progress; ``cached`` ones come from the user's cache."""

    def __init__(self, out: Output, *, cached: bool = True) -> None:
        self.out, self.cached = out, cached
        self.interrupted = False

    def with_table(
        self, study: ReplayStudy, log: Path, task_file: Path | None, settings: ReplaySettings, kinds: Path | None = None
    ) -> ReplayStudy:
        """Return ``study`` with table and advice; without them if it is partial, or if they fail or are interrupted."""
        from bftrain_replay.simulation.replay_settings import PUBLISHED

        if not study.complete or settings.semantics == PUBLISHED:
            return study
        of_nodes = str(kinds.absolute()) if kinds else ""
        # Ctrl-C is handled from here on, because imports and planning also take a moment
        with interruption() as interrupted, tempfile.TemporaryDirectory(prefix="bftrain-") as scratch:
            try:
                from bftrain_replay.sweeping.alternatives import ReplayFiles, with_table

                files = ReplayFiles.of(study.log, log, study.tasks, task_file, Path(scratch), of_nodes)
                run = partial(self.run, each_s=study.result.wall_s, interrupted=interrupted)
                return with_table(study, settings, files, run)
            except (BftrainError, OSError) as error:  # the finished replay must not be lost
                self.out.warn(f"no sensitivity table and no advice: {error}")
                return study

    def run(
        self,
        table: str,
        passes: Sequence[SweepPass],
        each_s: float | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Mapping[str, PassOutcome] | None:
        """Run passes for a table; return ``None`` if interrupted, or if one fails.

        ``each_s`` is the expected time of one pass. ``interrupted`` is given if the caller already handles Ctrl-C.
        """
        from bftrain_replay.sweeping.alternatives import failure, outcomes_of, workers_for
        from bftrain_replay.sweeping.outcome_cache import OutcomeCache

        cache = OutcomeCache.of_user(wanted=self.cached)
        known = cache.count(passes) if cache else 0
        from_cache = f" ({known} from {cache.folder})" if cache and known else ""
        workers = workers_for(passes)
        about = f", about {each_s * -(-(len(passes) - known) // max(workers, 1)):,.0f} s" if each_s is not None else ""
        count = f"{len(passes)} more replays{from_cache}, {workers} at a time{about}"
        self.out.say(f"{table}: {count}; --quick leaves them out")
        name = table.partition(" to ")[0]
        with nullcontext(interrupted) if interrupted else interruption() as stopped, ShownProgress(self.out) as shown:

            def watch(done: float, of: int) -> bool:
                text = f"{int(done)} of {of} replays"
                shown.tell(name, done, of, lambda _: f"{name}, {text}", lambda _: f"{name}: {text}")
                return not stopped()

            outcomes = outcomes_of(passes, watch, cache)
        if cache and cache.remark:
            self.out.warn(cache.remark)
        if outcomes is None:
            self.interrupted = True
            self.out.warn(f"interrupted: {table} is left out")
            return None
        failed = failure(passes, outcomes)
        if failed:
            self.out.warn(f"{table} is left out, as a replay failed: {failed}")
            return None
        return outcomes

    def exit_if_interrupted(self, folder: Path) -> None:
        """Raise if the table was interrupted; the replay itself is complete."""
        if self.interrupted:
            what = f"interrupted; the result in {folder} is complete, only sensitivity table and advice are missing"
            raise Interrupted(what)


def sensitivity_table(rows: Sequence[SensitivityRow]) -> RenderableType:
    """Return the table: a row for each alternative, the chosen ones marked."""
    from bftrain_replay.reporting import report

    headings, cells = report.sensitivity_table(f"assumed ({_CHOSEN} here)", rows, f" {_CHOSEN}")
    headings = tuple(name.removeprefix("efficiency ") for name in headings)  # shorter headings fit into 80 columns
    return table("", headings, cells, compact=True)
