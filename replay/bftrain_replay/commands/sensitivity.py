"""The sensitivity table and the advice: replays after the main one, with progress, and the table for a terminal."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import rare
from bftrain.cli.interruption import interruption
from bftrain.cli.output import table
from bftrain.cli.value_completion import complete_parts
from bftrain.errors import BftrainError, Interrupted
from bftrain_replay.commands.progress import shown_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_replay.run.variations import SensitivityRow
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study.study import ReplayStudy
    from bftrain_replay.sweeping.sweep_passes import PassOutcome, SweepPass

P = ParamSpec("P")
R = TypeVar("R")

_CHOSEN: Final = "*"
QUICK: Final = "BFTRAIN_QUICK"  # set in the environment, it means --quick


class ClusterType(click.ParamType["Mapping[str, int]"]):
    """The number of nodes of each kind; nodes of a uniform cluster have an empty kind name."""

    name = "KIND=NODES,.."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Parse the text."""
        from bftrain.values.curve import CLUSTER_FORM, cluster_of

        try:
            return cluster_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; {CLUSTER_FORM}", param, ctx)


cluster_option = click.option(
    "--cluster", type=ClusterType(), help="Instead of LOG: nodes that never leave, such as v100=36,k80=4 or 128."
)
tables_option = click.option(
    "--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Format of the tables [csv]."
)
baseline_option = click.option(
    "--baseline",
    default="",
    metavar="SOLVER",
    help="Also replay with this solver, such as equal-share.",
    shell_complete=complete_parts("solver"),
)
quick_option = click.option(
    "--quick",
    is_flag=True,
    envvar=QUICK,
    help="Skip the sensitivity table, the advice and the bound of different tasks.",
)


def no_cache_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add the former option ``--no-cache`` to a command."""
    return rare("no_cache", hint="BFTRAIN_NO_CACHE=1 in the environment")(
        click.option("--no-cache", is_flag=True)(function)
    )


class SideReplays:
    """Runs the replays around the main one with progress, and reads cached ones from the user's cache."""

    def __init__(self, out: Output, *, cached: bool = True) -> None:
        self.out, self.cached = out, cached
        self.interrupted = False

    def with_table(
        self,
        study: ReplayStudy,
        log: Path,
        tasks: Path | Sequence[TaskSpec],
        settings: ReplaySettings,
        kinds: Path | None = None,
    ) -> ReplayStudy:
        """Return a complete ``study`` with table and advice; without them if interrupted or failed."""
        from bftrain_replay.simulation.replay_settings import PUBLISHED

        if not study.complete or settings.semantics == PUBLISHED:
            return study
        file, of_nodes = tasks if isinstance(tasks, Path) else None, str(kinds.absolute()) if kinds else ""
        # Installed early, because imports and planning before the first replay also take a moment
        with interruption() as interrupted, tempfile.TemporaryDirectory(prefix="bftrain-") as scratch:
            try:
                from bftrain_replay.sweeping.alternatives import ReplayFiles, with_table

                files = ReplayFiles.of(study.log, log, study.tasks, file, Path(scratch), of_nodes)
                run = partial(self.run, each_s=study.result.wall_s, interrupted=interrupted)
                return with_table(study, settings, files, run)
            except (BftrainError, OSError) as error:  # a failure here must not lose the finished replay
                self.out.warn(f"no sensitivity table and no advice: {error}")
                return study

    def run(
        self,
        table: str,
        passes: Sequence[SweepPass],
        each_s: float | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Mapping[str, PassOutcome] | None:
        """Run passes; return ``None`` if interrupted, or if one fails. ``each_s`` is the expected time of each."""
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
        with nullcontext(interrupted) if interrupted else interruption() as stopped, shown_progress(self.out) as shown:

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
        """Exit as interrupted if the table was; the replay itself is complete."""
        if self.interrupted:
            what = f"interrupted; the result in {folder} is complete, only sensitivity table and advice are missing"
            raise Interrupted(what)


def sensitivity_table(rows: Sequence[SensitivityRow]) -> RenderableType:
    """Return the table: a row for each alternative, the chosen ones marked."""
    from bftrain_replay.reporting import report

    headings, cells = report.sensitivity_table(f"assumed ({_CHOSEN} here)", rows, f" {_CHOSEN}")
    headings = tuple(name.removeprefix("efficiency ") for name in headings)  # shorter headings fit into 80 columns
    return table("", headings, cells, compact=True)
