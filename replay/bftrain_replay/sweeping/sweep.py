"""``bftrain.sweep``: a sweep from its file to its folder; finished passes are not repeated."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bftrain import summaries
from bftrain.errors import BadInput, former_name
from bftrain.files import write_text
from bftrain.result_folder import ADVICE, IN_PYTHON, REPORT_FILE, ResultFolder, ResultKind
from bftrain.short_repr import ShortRepr, some
from bftrain.values import wire
from bftrain_datasets.result_tables import CSV, ColumnType, TableColumn, check_form
from bftrain_replay.rounds.round_settings import DRAWN
from bftrain_replay.run.result import BOUND_FIGURES
from bftrain_replay.study.forked_pass import usable_cpus
from bftrain_replay.sweeping import sweep_table
from bftrain_replay.sweeping.dask_executor import DaskExecutor
from bftrain_replay.sweeping.local_executor import LocalExecutor
from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
from bftrain_replay.sweeping.sweep_passes import (
    FORMAT,
    POINTS,
    OutcomeFile,
    PassExecutor,
    PassOutcome,
    PassStatus,
    SweepPass,
    SweepPlan,
    known_in,
    planned,
)
from bftrain_replay.sweeping.sweep_spec import SEED, SweepPoint, SweepSpec, points_of, read_spec
from bftrain_replay.sweeping.sweep_table import PointState, check_plot, over_seeds

if TYPE_CHECKING:
    from pandas import DataFrame

    from bftrain_replay.drawing.vega import SvgChart


SUMMARY: Final = "sweep.json"
PRINTS: Final = "workers.log"  # what code in workers printed; deleted if empty
KIND: Final = ResultKind(
    title="sweep",
    form="bftrain sweep",
    summary=SUMMARY,
    names=frozenset({SUMMARY, REPORT_FILE, *sweep_table.FILES}),
    records={POINTS: b'{"format":"bftrain sweep '},
    prints=frozenset({PRINTS}),
)


class SweepStatus(NamedTuple):
    """The progress of a sweep: the numbers of all, finished and failed passes, and the share done of running ones."""

    passes: int
    passes_over: int
    failed: int
    at_work: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class PreparedSweep(ShortRepr):
    """A sweep whose points and passes are known."""

    spec: SweepSpec
    points: tuple[SweepPoint, ...]
    plan: SweepPlan

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        return f"sweep '{self.spec.title}'", {
            "options": some(self.spec.swept),
            "points": f"{len(self.points):,}",
            "replays": f"{len(self.plan.passes):,}",
        }

    @classmethod
    def of(cls, given: Path | str | Mapping[str, Any], folder: Path | None = None) -> PreparedSweep:
        """Read a sweep file and all its inputs; the paths in a mapping are relative to ``folder``."""
        spec = read_spec(given, folder)
        points = points_of(spec)
        check_plot(spec, points)
        return cls(spec, points, planned(spec, points))

    def open(self, known: Mapping[str, PassOutcome], *, retry_failed: bool = False) -> tuple[SweepPass, ...]:
        """Return the passes without a known outcome; with ``retry_failed`` also failed ones."""
        return tuple(
            job
            for name, job in self.plan.passes.items()
            if name not in known or (retry_failed and known[name].status is PassStatus.FAILED)
        )

    def run(
        self,
        outcomes: OutcomeFile,
        executor: PassExecutor,
        *,
        retry_failed: bool = False,
        watch: Callable[[SweepStatus], None] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the open passes, until all are done or ``stopping()``."""
        jobs, passes, known = self.open(outcomes.known, retry_failed=retry_failed), self.plan.passes, outcomes.known
        finished = passes.keys() - {job.id for job in jobs}
        failed = sum(known[name].status is PassStatus.FAILED for name in finished)
        status = SweepStatus(len(passes), len(passes) - len(jobs), failed, {})

        def tell(**changes: Any) -> None:  # noqa: ANN401 - fields of the status
            nonlocal status
            status = status._replace(**changes)
            if watch is not None:
                watch(status)

        tell()
        for outcome in executor.outcomes(jobs, lambda shares: tell(at_work=shares), stopping) if jobs else ():
            outcomes.add(outcome)
            failed += outcome.status is PassStatus.FAILED
            tell(passes_over=status.passes_over + 1, failed=failed)

    def swept(self, known: Mapping[str, PassOutcome]) -> SweepResult:
        """Return the results from the known outcomes."""
        passes = self.plan.passes
        found = Counter(words for name in passes if name in known for words in known[name].warnings)
        seeded = any(
            job.log.uses_seed
            or job.tasks.uses_seed
            or job.how.speed_error > 0.0
            or getattr(job.how, "order_of_kinds", "") == DRAWN
            for job in passes.values()
        )
        if SEED in self.spec.swept and not seeded:
            found["the seed is swept, but no log and no tasks are made from it: it has no effect"] += 1
        return SweepResult(self.spec, sweep_table.rows_of(self.points, self.plan.needs, known), dict(found), self)


@dataclass(frozen=True, repr=False)
class SweepResult(ShortRepr, sweep_table.SweptPoints):
    """The results of a sweep: one row for each point, including failed and open ones."""

    sweep: PreparedSweep

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        title, figures = self.sweep.shown()
        states = Counter(row.state for row in self.rows)
        return title, {**figures, **{str(state): f"{states[state]:,}" for state in PointState}}

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        """Return the columns of the table, in order."""
        return sweep_table.columns_of(self.sweep.points)

    def frame(self) -> DataFrame:
        """Return the table as a DataFrame."""
        import pandas as pd  # noqa: PLC0415 - only those who ask for a DataFrame pay for importing it

        kinds = {ColumnType.NUMBER: "float64", ColumnType.WHOLE: "Int64", ColumnType.TEXT: "object"}
        columns = {
            column.name: pd.Series([row.cells.get(column.name) for row in self.rows], dtype=kinds[column.kind])
            for column in self.columns
        }
        return pd.DataFrame(columns)

    def plot(self, name: str) -> SvgChart:
        """Return one plot of the page, such as ``efficiency-by-max_tasks``, for notebooks."""
        from bftrain_replay.drawing import vega  # noqa: PLC0415 - what draws takes a while to import
        from bftrain_replay.sweeping import sweep_page  # noqa: PLC0415 - as above

        return vega.chart(sweep_page.charts(self), name)

    chart = former_name(plot)  # name in version 0.1

    def summary(self) -> dict[str, Any]:
        """Return the content of ``sweep.json``: the sweep file, the inputs, and the progress."""
        sweep = self.sweep
        states = Counter(row.state for row in self.rows)
        versions = {
            name: number for job in sweep.plan.passes.values() for name, number in job.made_from.versions.items()
        }
        return {
            "format": FORMAT,
            "title": sweep.spec.title,
            "complete": self.complete,
            "points": len(self.rows),
            **{str(state): states[state] for state in PointState},
            "passes": len(sweep.plan.passes),
            "swept": list(sweep.spec.swept),
            "sweep_file": {"name": sweep.spec.document.name, "content": sweep.spec.document.data},
            "inputs": _inputs_of(sweep),
            "versions": versions,
            "warnings": dict(self.warnings),
            "over_seeds": over_seeds(self.rows, sweep_table.metrics_of(self.spec.plot, self.rows), self.spec),
            "figures_sha256": self.figures_sha256,
        }

    @property
    def figures_sha256(self) -> str:
        """SHA-256 of the table without measured times and bounds: sweeps with equal results have the same."""
        measured = {column.name for column in sweep_table.measured_columns(with_baseline=True)}
        columns = [column.name for column in self.columns if column.name not in measured.union(BOUND_FIGURES)]
        cells = [columns, *([row.cells.get(name) for name in columns] for row in self.rows)]
        return hashlib.sha256(wire.encode(cells)).hexdigest()

    def write(self, folder: Path | str, *, tables: str = CSV, overwrite: bool = False) -> None:
        """Write the table, ``sweep.json`` and, where charts can be drawn, the page.

        A finished result of an unrelated sweep is replaced only with ``overwrite``.
        """
        with result_folder(self.sweep, Path(folder), overwrite=overwrite, advice=IN_PYTHON) as result:
            result.replace(lambda draft: self.write_files(draft, tables))

    def write_files(self, folder: Path, tables: str = CSV) -> None:
        """Write the files into ``folder``, without locks and checks."""
        from bftrain_replay.drawing import vega  # noqa: PLC0415 - what draws takes a while to import
        from bftrain_replay.drawing.html_page import html  # noqa: PLC0415 - as above
        from bftrain_replay.sweeping import sweep_page  # noqa: PLC0415 - as above

        summary = self.summary()
        sweep_table.write(folder, self.columns, self.rows, tables)
        write_text(folder / SUMMARY, summaries.to_json(summary))
        if vega.available():
            write_text(folder / REPORT_FILE, html(sweep_page.page(self, summary)))


def _is_of_file(spec: SweepSpec, summary: Path) -> bool:
    """Return whether a result is from a sweep file of the same content; its inputs may have differed."""
    content = wire.decode(wire.encode(spec.document.data), dict[str, Any])
    try:
        found = wire.decode(summary.read_bytes(), dict[str, Any])
        return bool(found["sweep_file"]["content"] == content)
    except (OSError, BadInput, LookupError, TypeError):
        return False  # no file, or a file that ResultFolder rejects


def result_folder(sweep: PreparedSweep, folder: Path, *, overwrite: bool = False, advice: str = ADVICE) -> ResultFolder:
    """Return the folder of a sweep's result; the sweep continues one with the same sweep file, or any of its passes."""
    continues = not sweep.plan.passes.keys().isdisjoint(known_in(folder)) or _is_of_file(sweep.spec, folder / SUMMARY)
    return ResultFolder(folder, KIND, overwrite=overwrite, advice=advice, continues=continues)


def sweep(  # noqa: PLR0913 - all but two are options by name
    spec: Path | str | Mapping[str, Any],
    folder: Path | str,
    *,
    jobs: int | None = None,
    dask: str = "",
    retry_failed: bool = False,
    tables: str = CSV,
    overwrite: bool = False,
    cache: bool = True,
    watch: Callable[[SweepStatus], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """Run the sweep ``spec``, a file or an equivalent mapping, and write its table into ``folder``.

    ``jobs`` processes share the work (default: one per processor); alternatively, ``dask`` is the scheduler address of
    a Dask cluster. Finished passes are kept; with ``cache``, replays of earlier sweeps in other folders are reused if
    all their inputs are equal. A finished result of an unrelated sweep is replaced only with ``overwrite``. ``watch``
    is called with the progress; once ``stopping()``, the sweep stops and returns the passes finished so far. ``tables``
    is ``csv`` or ``parquet``. With ``retry_failed`` failed points are tried again.

    Raises :class:`bftrain.errors.BadInput` for an invalid sweep (nothing is started),
    :class:`bftrain.errors.UsageError` if ``folder`` has an unrelated result, :class:`bftrain.errors.NotAvailable`
    without a Dask scheduler at the address, and ``OSError`` for an unreadable file. A point that fails raises nothing:
    its row has the reason.

    >>> from bftrain import sweep
    >>> grid = {"objective": ["throughput", "speedup"]}
    >>> done = sweep({"log": "log.npz", "tasks": "tasks.toml", "grid": grid}, "result", jobs=1)
    >>> len(done.rows), done.complete
    (2, True)
    """
    check_form(tables)
    ready = PreparedSweep.of(spec)
    folder = Path(folder)
    runs: PassExecutor = DaskExecutor(dask) if dask else LocalExecutor(jobs or usable_cpus(), folder / PRINTS)
    executor = CachedExecutor(runs, OutcomeCache.of_user(wanted=cache), keeps=not dask)
    target = result_folder(ready, folder, overwrite=overwrite, advice=IN_PYTHON)
    with target as result, OutcomeFile(folder) as outcomes:
        ready.run(outcomes, executor, retry_failed=retry_failed, watch=watch, stopping=stopping)
        done = ready.swept(outcomes.known)
        if done.complete or not result.holds_finished:
            result.replace(lambda draft: done.write_files(draft, tables))
    return done


def _inputs_of(sweep: PreparedSweep) -> dict[str, list[dict[str, object]]]:
    """Return every log, cluster and task set, by name and SHA-256, with the seed if it matters."""
    inputs: dict[str, dict[tuple[str, int | None], str]] = {"logs": {}, "clusters": {}, "tasks": {}}
    for point, need in zip(sweep.points, sweep.plan.needs, strict=True):
        job, seed = sweep.plan.passes[need.replay], point.settings.seed
        kind, nodes = ("clusters", point.cluster) if point.cluster else ("logs", point.log)
        inputs[kind][nodes, seed if job.log.uses_seed else None] = job.log_sha256
        inputs["tasks"][point.tasks, seed if job.tasks.uses_seed else None] = job.tasks_sha256
    return {
        kind: [{"name": name, "seed": seed, "sha256": sha256} for (name, seed), sha256 in found.items()]
        for kind, found in inputs.items()
    }
