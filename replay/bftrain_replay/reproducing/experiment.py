"""The vocabulary of published experiments: figures, their points, and published values.

An experiment writes its input files and returns figures. A point of a figure is a point of a sweep: a set of options
as in a sweep file (docs/how-to/sweeps.md). :mod:`results` runs all points as one sweep and repeats none.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.files import check_replaceable, prepare_folder
from bftrain.taskfiles.files import MADE_BY, is_own_tasks, save_tasks
from bftrain.values.task import TaskSpec

P = ParamSpec("P")
T = TypeVar("T")
Options = Mapping[str, Any]  # point options by their names in a sweep file
Cells = Mapping[str, object]  # one row of the sweep's table, by column
XValue = float | str

HOUR_S: Final = 3600.0
RATE: Final = "tasks.rate"  # the option of a point's load


class Mark(NamedTuple):
    """One value in a figure. ``saturated``: the queue grows without bound, so the mean is undefined."""

    line: str
    x: XValue
    y: float | None
    saturated: bool = False

    def over(self, other: Mark) -> Mark:
        """Return the ratio to another value, saturated if one of both is."""
        ratio = self.y / other.y if self.y is not None and other.y else None
        return self._replace(y=ratio, saturated=self.saturated or other.saturated)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``options`` must contain its seed, if it has one; points with equal options run once.

    The value of a point that ``divides`` is the denominator of the other value with the same line, x and seed.
    """

    line: str
    x: XValue
    options: Options
    seed: int = 0
    divides: bool = False


ReadMarks = Callable[[Point, Cells], Iterable[Mark]]


def columns(names: Mapping[str, str], unit: float = 1.0, *, as_x: bool = False) -> ReadMarks:
    """Return a function that reads columns of the sweep's table, divided by ``unit``.

    The keys of ``names`` extend the point's line, or are the x values (``as_x``). Values of a run stopped by its
    backlog are saturated.
    """

    def read(point: Point, cells: Cells) -> Iterator[Mark]:
        for label, name in names.items():
            value = cells.get(name)
            number = float(value) / unit if isinstance(value, int | float) else None
            line, x = (point.line, label) if as_x else (f"{point.line}{label}", point.x)
            yield Mark(line, x, number, cells.get("ended") == "overload")

    return read


def distribution(line: str, shares: Iterable[tuple[float, float]]) -> Iterator[Mark]:
    """Yield the steps of a distribution from values and ascending shares; of equal values the last share counts."""
    return (Mark(line, value, share) for value, share in dict(shares).items())


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``marks`` reads the values of a point from its row; seeds are averaged.

    Axes are titled ``x`` and ``y``; ``form`` is how the lines are drawn: in a heat map, lines are the vertical axis.
    ``note`` explains differences on the page. ``computed_marks`` need no run. The values of a ``machine_dependent``
    figure are run times: its points run one by one, and are not compared in percent.
    """

    name: str = ""  # name and title are set by the experiment
    title: str = ""
    x: str
    y: str
    points: tuple[Point, ...] = ()
    marks: ReadMarks = columns({"": "completion_s_mean"}, HOUR_S)
    computed_marks: tuple[Mark, ...] = ()
    form: Literal["lines", "steps", "points", "heat"] = "lines"
    log_x: bool = False
    log_y: bool = False
    digits: int = 2  # decimal places in tables
    note: str = ""
    machine_dependent: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a user. ``figures`` are the wanted names; input files go to ``folder``."""

    folder: Path
    figures: tuple[str, ...]
    seeds: tuple[int, ...] = ()  # none: the published seeds
    traces: Path | None = None
    quick: bool = False
    tell: Callable[[str, float, int], None] = lambda *_: None  # receives a schedule, per cent done, and finished jobs
    made: dict[str, Any] = msgspec.field(default_factory=dict)  # results of ``once``

    @property
    def options(self) -> dict[str, Any]:
        """The options that determine the result, for its summary."""
        traces = str(self.traces) if self.traces else None
        return {"figures": [*self.figures], "quick": self.quick, "seeds": [*self.seeds], "traces": traces}

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return the result of the first call with this key."""
        if key not in self.made:
            self.made[key] = make()
        result: T = self.made[key]
        return result

    def published_files(self, *patterns: str, fix: str) -> list[Path]:
        """Return the files in the ``--traces`` folder that match a pattern, by name; raise if no file matches."""
        assert self.traces is not None  # noqa: S101 - the command asks for it
        paths = sorted(path for pattern in patterns for path in self.traces.glob(pattern) if path.is_file())
        if not paths:
            raise BadInput(f"contains no {' or '.join(patterns)}", where=str(self.traces), fix=f"--traces names {fix}")
        return paths

    def input_path(self, name: str, is_own: Callable[[Path], bool], kind: str) -> Path:
        """Return the path of a writable input file; raise if a file of other origin exists there."""
        prepare_folder(self.folder)
        check_replaceable(self.folder / name, is_own, kind)
        return self.folder / name

    def tasks(self, name: str, make: Callable[P, Iterable[TaskSpec]], *args: P.args, **options: P.kwargs) -> str:
        """Write the tasks that ``make`` returns to a file, once for each request; return its path."""

        def write() -> str:
            tasks, path = tuple(make(*args, **options)), self.input_path(name, is_own_tasks, "task file")
            save_tasks(tasks, path, note=f"{MADE_BY} reproduce")
            return str(path)

        return self.once(name, write)


class FigureMaker(NamedTuple):
    """The title of a figure, and the function that makes it."""

    title: str
    make: Callable[[Request], Figure]


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A published experiment. ``figures`` are in the published order.

    ``traces_help`` describes the folder that ``--traces`` names; empty if the experiment reads none. The figures in
    ``without_traces`` need no such folder.
    """

    name: str
    title: str
    source: str
    figures: Mapping[str, FigureMaker]
    traces_help: str = ""
    without_traces: frozenset[str] = frozenset()
    takes_seeds: bool = False

    def prepare(self, request: Request) -> tuple[Figure, ...]:
        """Write input files and return the requested figures."""
        makers = {name: self.figures[name] for name in request.figures}
        return tuple(replace(maker.make(request), name=name, title=maker.title) for name, maker in makers.items())


class Published(NamedTuple):
    """One published value. ``seeds`` are the seeds of its mean; none: not specified."""

    figure: str
    line: str
    x: XValue
    value: float
    seeds: tuple[int, ...]
    source: str


def published(experiment: str) -> Iterator[Published]:
    """Yield the published values of an experiment, from the CSV file of its name."""
    with files(__package__).joinpath("published", f"{experiment}.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            try:
                x: XValue = float(row["x"])
            except ValueError:
                x = row["x"]
            seeds = tuple(map(int, row["seeds"].split()))
            yield Published(row["figure"], row["line"], x, float(row["value"]), seeds, row["source"])
