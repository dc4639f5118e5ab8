"""Run: the settings, provenance, figures and tables of one run, the same in memory and read from its folder.

``bftrain.replay``, ``bftrain.rounds`` and ``bftrain.schedule`` return one, and ``bftrain.load_run`` reads one. Pages,
comparisons and ``bftrain explain`` read nothing else. A :class:`RunKind` states what differs between replays, rounds
and schedules.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import config, summaries
from bftrain.errors import BadInput, UsageError, former_name, suggestion
from bftrain.files import prepare_folder, write_text
from bftrain.node_units import NODE, in_words_of, word_of
from bftrain.result_folder import IN_PYTHON, REPORT_FILE, ResultFolder, ResultKind, complete_replacement, write_page
from bftrain.short_repr import ShortRepr
from bftrain.values import wire
from bftrain_datasets import result_tables
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubtful_nodes
from bftrain_datasets.log.log_files import load_log, save_log
from bftrain_datasets.result_tables import CSV, RUN_AGAIN, TableColumn
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.html_page import HtmlPage, html
from bftrain_replay.drawing.series import StepSeries, TimeAxis, sum_by_key
from bftrain_replay.run import tables
from bftrain_replay.run.summary_figures import FIGURES
from bftrain_replay.run.tables import ALLOCATIONS
from bftrain_replay.run.task_figures import TaskColumns
from bftrain_replay.simulation.run_records import AllocationRows

if TYPE_CHECKING:
    from pandas import DataFrame

NAMED_TASKS: Final = 10_000  # a page names at most this many tasks: those with the most node-time
_WITH_THIS_VERSION: Final = "repeat the run with this version"
# Entries of a summary whose numbers are not figures of the run
_NO_FIGURES: Final = frozenset({"settings", "inputs", "baseline", "ceiling", "workload", "headline"})


class RunTable(NamedTuple):
    """A table: its columns, and its rows, which can be read once."""

    columns: Sequence[TableColumn]
    rows: Iterable[Sequence[Any]]

    @classmethod
    def of(cls, cells: result_tables.Table) -> RunTable:
        """Return a table from its columns of cells."""
        return cls(result_tables.columns_of(cells), result_tables.rows(cells))


class RunKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of run. ``form`` is the format in ``summary.json``; ``columns`` are the known columns of each table.

    ``log_file`` is the file with the log of nodes, "" if there is none; ``files`` are further files. ``page`` draws a
    run, with a title and the parts that ``early_parts`` drew while comparison replays were still running, or ``None``.
    ``shown`` returns the title and the figures for the short form of a run.
    """

    title: str
    form: str
    columns: Mapping[str, Sequence[TableColumn]]
    settings: type[msgspec.Struct]
    shown: Callable[[Mapping[str, Any]], tuple[str, Mapping[str, object]]]
    log_file: str = ""
    files: frozenset[str] = frozenset()
    page: Callable[[Run, str, Any], HtmlPage] | None = None
    early_parts: Callable[[Run], Any] | None = None

    @property
    def folder(self) -> ResultKind:
        """The result folder of such a run, with the names of its files."""
        names = {"summary.json", "config.toml", REPORT_FILE, self.log_file, *self.files} - {""}
        written = {f"{name}.{form}" for name in self.columns for form in result_tables.FORMS}
        return ResultKind(title=self.title, form=self.form.rpartition(" ")[0], names=frozenset(names | written))


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeContent:
    """The content of a run of this process: its result ``made``, and its settings as ``given``.

    ``held`` are the recorded allocations, ``part`` is the log of nodes during the run. Each call of a function in
    ``tables`` makes the rows of that table, and ``more`` writes the further ``files`` of the kind. ``command`` repeats
    the run; it lacks the settings and the output folder.
    """

    made: Any
    summarise: Callable[[], Mapping[str, Any]]
    given: msgspec.Struct
    tables: Mapping[str, Callable[[], RunTable]]
    held: AllocationRows | None = None
    part: EventLog | None = None
    command: Sequence[str] = ()
    more: Callable[[Path], None] = lambda _folder: None
    place: ClassVar = "run"  # place of errors about the content

    def summary(self) -> Mapping[str, Any]:
        """Compute the content of ``summary.json``."""
        return self.summarise()

    def settings(self) -> msgspec.Struct:
        """Return the given settings."""
        return self.given

    def names(self) -> Iterable[str]:
        """Return the tables that were recorded."""
        return (*self.tables, *([ALLOCATIONS] if self.held is not None else []))

    def table(self, name: str, wanted: Sequence[str] = ()) -> RunTable:
        """Return a table, with the ``wanted`` columns or with all."""
        columns, rows = self.tables[name]()
        if not wanted:
            return RunTable(columns, rows)
        places = [[column.name for column in columns].index(each) for each in wanted]
        return RunTable([columns[place] for place in places], ([row[place] for place in places] for row in rows))

    def allocations(self) -> AllocationRows:
        """Return the recorded allocations."""
        if self.held is None:
            raise BadInput("allocations were not recorded", where=self.place, fix="ask a replay for them")
        return self.held

    def log(self) -> EventLog:
        """Return the log of nodes during the run."""
        if self.part is None:
            raise BadInput("has no log", where=self.place, fix="ask a replay or a schedule for it")
        return self.part


class SavedContent:
    """The content of a run in its folder, read when needed."""

    made: ClassVar = None
    command: ClassVar[Sequence[str]] = ()

    def __init__(self, folder: Path, kind: RunKind) -> None:
        self.place = str(folder)
        self._folder, self._kind = folder, kind

    def summary(self) -> Mapping[str, Any]:
        """Read the content of ``summary.json``."""
        return summary_in(self._folder)

    def settings(self) -> msgspec.Struct:
        """Read the settings."""
        return config.load(self._folder / "config.toml", self._kind.settings)

    def names(self) -> Iterable[str]:
        """Return the tables of this kind of run."""
        return self._kind.columns

    def table(self, name: str, wanted: Sequence[str] = ()) -> RunTable:
        """Read the table; an empty cell is ``None``, or ``""`` in a text column of a CSV file."""
        known = {column.name: column for column in self._kind.columns[name]}
        columns = [known[each] for each in wanted if each in known]
        if not wanted or len(columns) < len(wanted):
            columns = result_tables.saved_columns(self._folder, name, self._kind.columns[name])
            columns = [column for column in columns if not wanted or column.name in wanted]
        return RunTable(columns, result_tables.read_rows(self._folder, name, columns, tables.LATER))

    def allocations(self) -> AllocationRows:
        """Read the allocations, which spill to a temporary file."""
        return tables.read_allocations(self._folder)

    def log(self) -> EventLog:
        """Read the log of nodes during the run."""
        if not self._kind.log_file:
            raise BadInput("has no log", where=self.place, fix="ask a replay or a schedule for it")
        path = self._folder / self._kind.log_file
        if not path.is_file():
            what = f"contains no {path.name}, the log of nodes during the run"
            raise BadInput(what, where=self.place, fix=_WITH_THIS_VERSION)
        return load_log(path)

    def more(self, folder: Path) -> None:
        """Write nothing: the further files of a kind are not read."""


class EarlyFiles(msgspec.Struct, frozen=True):
    """Marks that all files but the page and ``summary.json`` are written; ``parts`` of the page were drawn, if any."""

    parts: Any


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run(ShortRepr):
    """One run: ``summary``, ``metrics``, ``settings``, DataFrames such as ``tasks``, and its page and files.

    A run of this process also has the attributes of its study or result, such as ``baseline`` or ``engine``.
    """

    kind: RunKind
    content: MadeContent | SavedContent

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the result
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)  # raises the error of that property again
        if name.startswith("_") or self.content.made is None:
            raise AttributeError(f"this {self.kind.title} has no attribute '{name}'", name=name, obj=self)
        return getattr(self.content.made, name)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        return self.kind.shown(self.summary)

    @property
    def result(self) -> Any:  # noqa: ANN401 - of its kind
        """The result in memory: a ``ReplayResult``, ``RoundResult`` or ``ScheduleResult``."""
        made = self.content.made
        if made is None:
            raise BadInput(
                "is not stored in the folder of a run", where="result", fix="use its summary, metrics and tables"
            )
        return getattr(made, "result", made)

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """All figures, the inputs and the versions: the content of ``summary.json``."""
        return self.content.summary()

    @cached_property
    def settings(self) -> msgspec.Struct:
        """The settings."""
        return self.content.settings()

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Every known figure by its name in ``bftrain explain``, such as ``completion_s.mean``, and your metrics."""
        figures = FIGURES if "lost" in self.summary else ()  # rounds and schedules have no computed figures
        named = {figure.name: figure.value_in(self.summary) for figure in figures}
        found = {**dict(_numbers(self.summary)), **{name: value for name, value in named.items() if value is not None}}
        own = {name.removeprefix("metrics."): value for name, value in found.items() if name.startswith("metrics.")}
        return {**found, **own}

    def table(self, name: str) -> DataFrame:
        """Return a table as a DataFrame; docs/reference/results.md explains its columns."""
        if name not in self.kind.columns:
            known = ", ".join(self.kind.columns)
            raise UsageError(f"a {self.kind.title} has no table '{name}'", where="table", fix=f"there are {known}")
        if name == ALLOCATIONS:
            return tables.allocations_frame(self.holdings.table())
        return tables.frame(*self.content.table(name))

    @property
    def tasks(self) -> DataFrame:
        """One row for each task."""
        return self.table("tasks")

    @property
    def decisions(self) -> DataFrame:
        """One row for each decision."""
        return self.table("decisions")

    @property
    def allocations(self) -> DataFrame:
        """One row for each uninterrupted allocation of a node; names are categories to save memory."""
        return self.table(ALLOCATIONS)

    @property
    def over_time(self) -> DataFrame:
        """Idle and used nodes, and samples done, in intervals of equal length."""
        return self.table("over_time")

    @property
    def losses(self) -> DataFrame:
        """One row for each cause: why idle nodes were unused, and how the work of used nodes was lost."""
        import pandas as pd  # noqa: PLC0415 - heavy, and only those who ask for a frame need it

        unused = [("unused", cause, node_h, None) for cause, node_h in self.summary.get("unused_node_h", {}).items()]
        lost = [("lost", cause, one["node_h"], one["samples"]) for cause, one in self.summary.get("lost", {}).items()]
        found = pd.DataFrame([*unused, *lost], columns=["kind", "cause", "node_h", "samples"])
        return found.astype({"node_h": "float64", "samples": "float64"})

    def rows(self, name: str, *columns: str) -> Iterator[Sequence[Any]]:
        """Yield these columns of a table, row by row; a missing value is ``None``, but "" for a text in CSV."""
        return iter(self.content.table(name, columns).rows)

    def write(self, folder: str | Path, *, tables: str = CSV, overwrite: bool = False) -> None:
        """Write the files that the command writes; a finished result is replaced only with ``overwrite``."""
        with ResultFolder(Path(folder), self.kind.folder, overwrite=overwrite, advice=IN_PYTHON) as result:
            result.replace(lambda draft: self.write_into(draft, tables))

    def write_early(self, folder: Path, form: str = CSV, *, draw: bool = True) -> EarlyFiles:
        """Write the files that comparison replays do not change; also ``draw`` the parts of the page that they keep."""
        for name in self.content.names():
            if name == ALLOCATIONS:
                tables.write_allocations(self.content.allocations(), folder, form, self.kind.form)
            else:
                result_tables.write(folder, name, *self.content.table(name), form, self.kind.form)
        write_text(folder / "config.toml", self._again(form) + config.dump(self.settings))
        if self.kind.log_file:
            save_log(self.log, folder / self.kind.log_file)
        self.content.more(folder)
        if not draw or self.kind.early_parts is None or not vega.available():
            return EarlyFiles(None)
        vega.script()  # built once per user, which takes seconds
        return EarlyFiles(self.kind.early_parts(self))

    def write_into(self, folder: Path, form: str = CSV, early: EarlyFiles | None = None) -> None:
        """Write all files into ``folder``; each appears complete or not at all.

        The tables are csv or parquet; ``early`` is the return value of ``write_early`` for the same folder.
        """
        summary = summaries.to_json(self.summary)  # first: a metric may raise, in which case no file may be written
        prepare_folder(folder)
        early = early or self.write_early(folder, form, draw=False)
        if self.kind.page is not None and vega.available():
            write_text(folder / REPORT_FILE, html(self.page(early=early)))
        else:
            (folder / REPORT_FILE).unlink(missing_ok=True)  # removes an earlier run's report
        write_text(folder / "summary.json", summary)

    def _again(self, form: str) -> str:
        """Return the command that repeats the run as a comment; "" if it is unknown or does not fit on one line."""
        tables = ["--tables", form] if form != CSV else []
        command = shlex.join([*self.content.command, *tables, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
        return f"# {command}\n" if self.content.command and command.isprintable() else ""

    def page(self, title: str = "", early: EarlyFiles | None = None) -> HtmlPage:
        """Return the page, with the parts that were drawn ``early``."""
        if self.kind.page is None:
            raise BadInput(f"there is no page for a {self.kind.title}", where="page", fix="call page() on a replay")
        return self.kind.page(self, title, early.parts if early is not None else None)

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write the page of the run, a single self-contained file; other files are not replaced."""
        write_page(Path(path), html(self.page(title)))

    def save_plots(self, folder: str | Path, *, form: str = "svg") -> list[Path]:
        """Write the plots of the page as svg or png files; return their paths."""
        if form not in vega.FORMS:
            raise UsageError(f"there is no form '{form}'", where="save_plots", fix=suggestion(form, vega.FORMS))
        prepare_folder(Path(folder))
        return vega.write(self.page().figures, Path(folder), form)

    def plot(self, name: str) -> vega.SvgChart:
        """Return one plot of the page, such as ``waterfall`` or ``nodes``, for notebooks."""
        return vega.chart(self.page().figures, name)

    # Names of version 0.1, which work for one release
    figures = former_name(save_plots)
    chart = former_name(plot)

    @property
    def unit(self) -> str:
        """The counted resource: nodes, or the GPUs or cores of a log."""
        return str(self.summary.get("unit", NODE))

    @property
    def node(self) -> str:
        """The noun for one of these: node, GPU or core."""
        return word_of(self.unit)

    def words(self, text: str) -> str:
        """Return one of our sentences about nodes as a sentence about the unit."""
        return in_words_of(self.unit, text)

    @cached_property
    def log(self) -> EventLog:
        """The log of the nodes during the run."""
        return self.content.log()

    @cached_property
    def end_s(self) -> float:
        """The time at which the run stopped, in seconds since its start."""
        return float(self.summary["simulated_s"])

    @cached_property
    def time_axis(self) -> TimeAxis:
        """Its time axis."""
        return TimeAxis(self.log.start_s if self.kind.log_file else 0.0, self.end_s)

    @cached_property
    def task_rows(self) -> list[dict[str, Any]]:
        """The table of tasks, row by row."""
        names = [column.name for column in self.kind.columns["tasks"]]
        return [dict(zip(names, row, strict=True)) for row in self.rows("tasks", *names)]

    @cached_property
    def measured_tasks(self) -> list[dict[str, Any]]:
        """The rows of tasks that means include: all, or in rounds those chosen by ``measure``."""
        return [row for row in self.task_rows if row.get("measured", True)]

    @cached_property
    def task_columns(self) -> TaskColumns:
        """The measured tasks by column, with derived times."""
        return TaskColumns.from_rows(self.measured_tasks)

    @cached_property
    def course(self) -> RunCourse:
        """Its course over time, in intervals of equal length."""
        columns = RunCourse._fields
        return RunCourse(
            *np.array(list(self.rows("over_time", *columns)), dtype=np.float64).reshape(-1, len(columns)).T
        )

    @cached_property
    def holdings(self) -> AllocationRows:
        """The allocations: tasks in the order of their table, nodes as in the log."""
        held, log = self.content.allocations(), self.log
        strange = set(held.nodes).difference(log.node_names)
        if strange:
            what = f"{self.kind.log_file} contains no node '{min(strange)}' of the table of allocations"
            raise BadInput(what, where=self.content.place, fix=RUN_AGAIN)
        known = frozenset(held.tasks)
        names = tuple(row["name"] for row in self.task_rows if row["name"] in known)
        unknown = known.difference(names)
        if unknown:
            what = f"the table of tasks contains no task '{min(unknown)}' of the table of allocations"
            raise BadInput(what, where=self.content.place, fix=RUN_AGAIN)
        return held.renumbered(names, log.node_names)

    @cached_property
    def named(self) -> NDArray[np.int64]:
        """The indices in ``holdings.tasks`` of the tasks that a page names."""
        held = self.holdings.tasks
        if len(held) <= NAMED_TASKS:
            return np.arange(len(held))
        node_h = {task["name"]: task["node_h"] for task in self.task_rows}
        most = np.argsort([-node_h[name] for name in held], kind="stable")[:NAMED_TASKS]
        return np.sort(most)

    @property
    def others(self) -> int:
        """The number of tasks with nodes that a page does not name."""
        return len(self.holdings.tasks) - len(self.named)

    @cached_property
    def nodes_over_time(self) -> StepSeries:
        """Idle and used nodes: at every change where allocations are known, otherwise in intervals."""
        if not self.kind.log_file:
            course = self.course
            return StepSeries(
                times_s=course.from_s, end_s=self.end_s, columns={"idle": course.idle, "used": course.used}
            )
        idle_times = self.log.times - self.log.start_s
        at_s, doubtful = doubtful_nodes(self.log)
        doubtful_s = at_s - self.log.start_s
        times, changes = sum_by_key(
            (when, change * count)
            for block in self.holdings.blocks()
            for whens, change in ((block.from_s, 1), (block.to_s, -1))
            for when, count in (np.unique(whens, return_counts=True),)
        )
        changed = np.concatenate((idle_times, times, doubtful_s))
        moments = np.unique(np.append(changed[changed < self.end_s], 0.0))
        counts = np.concatenate(((0,), np.cumsum(changes)))
        used = counts[np.searchsorted(times, moments, side="right")]
        idle = self.log.pool_sizes()[np.searchsorted(idle_times, moments, side="right") - 1]
        columns = {"idle": idle, "used": used}
        if doubtful.any():
            columns["doubtful"] = doubtful[np.searchsorted(doubtful_s, moments, side="right") - 1]
        return StepSeries(times_s=moments, end_s=self.end_s, columns=columns)


class RunCourse(NamedTuple):
    """Mean idle and used nodes, and all samples done by its end, for each interval; seconds since the run's start."""

    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]
    idle: NDArray[np.float64]
    used: NDArray[np.float64]
    harvested: NDArray[np.float64]


def load(folder: Path, kinds: Iterable[RunKind]) -> Run:
    """Read the folder of a run of one of these kinds; raise ``BadInput`` for any other folder."""
    summary = summary_in(folder)
    form, known = summary.get("format"), {kind.form: kind for kind in kinds}
    if form not in known:
        same = any(str(form).startswith(each.rpartition(" ")[0]) for each in known)
        raise BadInput(
            f"is of the format {form!r}, not {' or '.join(map(repr, known))}",
            where=str(folder / "summary.json"),
            fix=_WITH_THIS_VERSION if same else "name the folder of a run",
        )
    return Run(kind=known[form], content=SavedContent(folder, known[form]))


def summary_in(folder: Path) -> dict[str, Any]:
    """Read the summary in the folder of a run, after completing an interrupted replacement of its files."""
    complete_replacement(folder)
    path = folder / "summary.json"
    if not folder.exists():
        raise BadInput("there is no such folder", where=str(folder), fix="name the folder of a run")
    if (folder / "replay" / "summary.json").is_file():  # folder of bftrain demo
        raise BadInput("contains a replay in a folder of its own", where=str(folder), fix=f"name {folder / 'replay'}")
    if not path.is_file():
        raise BadInput("contains no summary.json", where=str(folder), fix="name the folder of a run")
    return wire.decode(path.read_bytes(), dict[str, Any], where=str(path), fix=RUN_AGAIN)


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a summary by their paths."""
    for name, value in values.items():
        if isinstance(value, Mapping) and name not in _NO_FIGURES:
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value
