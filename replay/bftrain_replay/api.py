"""``bftrain.replay``: the command's function for use in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from bftrain.config import Settings
from bftrain.errors import UsageError, suggestion
from bftrain.files import prepare_folder
from bftrain.parts import as_objective
from bftrain.ports import Objective
from bftrain.result_folder import IN_PYTHON, ResultFolder, write_page
from bftrain.short_repr import ShortRepr
from bftrain.taskfiles.files import load_tasks
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import load_log
from bftrain_datasets.result_tables import CSV
from bftrain_replay import replay_folder
from bftrain_replay.drawing import vega
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.report_data import ReportData, of_study
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.timeline import saturating_workload
from bftrain_replay.study import ReplayStudy, Watch, study, with_auto_cap
from bftrain_replay.sweeping.alternatives import ReplayFiles, runner, with_table
from bftrain_replay.variations import AdviceRow, SensitivityRow, check_rules, gaining

_IN_HEADLINE: Final = frozenset({"objective", "idle node-hours", "used", "harvested samples"})
_TABLE: Final = "sensitivity"  # its name for watchers


@dataclass(frozen=True, repr=False)
class ReplayOutcome(ShortRepr):
    """A replay and its comparison runs; its results have ``decisions_frame()`` and the like."""

    study: ReplayStudy
    source: InputSource

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        title, figures = self.study.shown()
        headline = self.study.headline
        if headline is None:
            return title, figures
        found = {
            "headline": ". ".join(
                filter(None, (headline.sentence.rstrip("."), headline.decided, *headline.caveats, headline.assumed))
            ),
            "objective": figures["objective"],
        }
        return title, {**found, **{name: figures[name] for name in figures if name not in _IN_HEADLINE}}

    @property
    def result(self) -> ReplayResult:
        """The main replay."""
        return self.study.result

    @property
    def baseline(self) -> ReplayResult | None:
        """The same replay with the baseline solver, if one was named."""
        return self.study.baseline

    @property
    def ceiling(self) -> ReplayResult | None:
        """The same replay without costs."""
        return self.study.ceiling

    @property
    def sensitivity(self) -> tuple[SensitivityRow, ...] | None:
        """The figures of the usual alternatives to the assumptions, if requested."""
        return self.study.sensitivity

    @property
    def advice(self) -> tuple[AdviceRow, ...] | None:
        """Tried changes of settings that gain, the largest gain first, if ``sensitivity`` was requested."""
        return None if self.study.advice is None else gaining(self.study.advice)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All figures, as in ``summary.json``."""
        return summary_json.summary(self.study, self.source)

    def write(self, folder: str | Path, *, tables: str = CSV, overwrite: bool = False) -> None:
        """Write the files that the command writes; a finished result is replaced only with ``overwrite``."""
        with ResultFolder(Path(folder), replay_folder.KIND, overwrite=overwrite, advice=IN_PYTHON) as result:
            result.replace(lambda draft: replay_folder.write(self.study, draft, self.source, tables=tables))

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write the page of the replay, a single self-contained file; other files are not replaced."""
        write_page(Path(path), report.render(self._material, title))

    def figures(self, folder: str | Path, *, form: str = "svg") -> list[Path]:
        """Write the figures of the page as svg or png files; return their paths."""
        if form not in vega.FORMS:
            raise UsageError(f"there is no form '{form}'", where="figures", fix=suggestion(form, vega.FORMS))
        prepare_folder(Path(folder))
        return report.write_figures(self._material, Path(folder), form)

    def chart(self, name: str) -> vega.SvgChart:
        """Return one figure of the page, such as ``waterfall`` or ``nodes``, for notebooks."""
        return vega.chart(report.figures(self._material), name)

    @cached_property
    def _material(self) -> ReportData:
        return of_study(self.study, self.source)


def replay(
    log: EventLog | str | Path,
    tasks: Sequence[TaskSpec] | str | Path | None = None,
    settings: Settings | None = None,
    *,
    baseline: str = "",
    objective: str | Objective | Callable[..., object] | None = None,
    watch: Watch | None = None,
    sensitivity: bool = False,
    **options: Any,  # noqa: ANN401 - the fields of ReplaySettings
) -> ReplayOutcome:
    """Replay ``log`` against ``tasks``, each a value or a file name; the numbers equal the command's.

    Without ``tasks`` identical trials are replayed, more than the log's idle nodes can finish.

    ``options`` are settings by name, such as ``max_tasks=10``, and override ``settings``. ``max_tasks="auto"`` sets the
    limit beyond which more competing tasks add less than 1 % to the proven bound. ``objective`` is a name, or a
    function ``(task, sizes) -> values``. ``watch(replay, simulated_seconds, decisions)`` is called at every moment;
    return False to stop. ``baseline`` is the name of another solver to replay for comparison. With ``sensitivity`` the
    usual alternative assumptions and candidate setting changes are also replayed, in separate processes; this takes
    about four times as long on two processors.

    Raises :class:`bftrain.errors.UsageError` for an unknown setting, :class:`bftrain.errors.BadInput` for an invalid
    log, task, value, name or objective, and ``OSError`` for an unreadable file.

    >>> from bftrain import replay
    >>> done = replay("log.npz", "tasks.toml", progress="disk:300")
    >>> round(done.result.efficiency, 2)
    0.96
    """
    metric = None
    if isinstance(objective, str):
        options["objective"] = objective
    elif objective is not None:
        called = str(getattr(objective, "name", None) or getattr(objective, "__name__", type(objective).__name__))
        metric = as_objective(called, objective)
        options["objective"] = metric.name
    auto_cap = options.get("max_tasks") == AUTO
    if auto_cap:
        del options["max_tasks"]
    how = ReplaySettings.with_options(options, "replay", settings)
    if sensitivity:
        check_rules(how)
        if metric is not None:
            what = "replays in other processes, which a function cannot be handed to"
            raise UsageError(what, where="sensitivity", fix="name the objective as FILE.py:FUNCTION")
    events = load_log(Path(log)) if isinstance(log, str | Path) else log
    given = load_tasks(Path(tasks)) if isinstance(tasks, str | Path) else tasks
    if auto_cap:
        how = with_auto_cap(events, how, given)
    workload = saturating_workload(events, how) if given is None else None
    specs = workload.tasks if workload is not None else given or ()
    source = InputSource(
        log=str(log) if isinstance(log, str | Path) else "",
        tasks=str(tasks) if isinstance(tasks, str | Path) else "",
        baseline=baseline,
        workload=workload,
    )
    done = study(events, specs, how, baseline=baseline, objective=metric, watch=watch)
    if sensitivity and done.complete:
        done = _with_table(done, how, source, watch)
    return ReplayOutcome(done, source)


def _with_table(done: ReplayStudy, how: ReplaySettings, source: InputSource, watch: Watch | None) -> ReplayStudy:
    """Return the study with its sensitivity table; inputs given as values are written to files for the workers."""
    span_s = done.part.span_s

    def going(over: float, of: int) -> bool:
        return watch is None or watch(_TABLE, span_s * over / of, int(over))

    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        log_file, task_file = Path(source.log or f"{folder}/log.npz"), Path(source.tasks) if source.tasks else None
        files = ReplayFiles.of(done.log, log_file, done.tasks, task_file, Path(folder))
        return with_table(done, how, files, runner(_TABLE, going))
