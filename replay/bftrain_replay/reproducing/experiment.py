"""Published experiments: their figures, the points of a figure, and published values.

``published/NAME.toml`` has the figures of an experiment: their texts, lines and x values; its module makes the input
files. A point of a figure is a point of a sweep: a set of options as in a sweep file (docs/how-to/sweeps.md).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain import toml_io
from bftrain.errors import BadInput, UsageError
from bftrain.files import check_replaceable, prepare_folder
from bftrain.taskfiles.files import MADE_BY, is_own_tasks, save_tasks
from bftrain.values.task import TaskSpec

T = TypeVar("T")
Options = Mapping[str, Any]  # options of a point by their names in a sweep file; files are relative to FOLDER
Cells = Mapping[str, object]  # one row of the sweep's table, by column
XValue = float | str

FOLDER: Final = Path(__file__).parent
PUBLISHED: Final = FOLDER / "published"
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


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a figure: its policy, its jobs (``stream``), and the options of its points.

    The values of a line that ``divides`` are the denominators of the other line with this name.
    """

    name: str
    policy: str = ""
    stream: str = ""
    options: dict[str, Any] = {}
    divides: bool = False


class Quick(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The points of ``--quick``: lines, x values and seeds (default: all), further options, a suffix of line names."""

    lines: tuple[str, ...] = ()
    values: tuple[XValue, ...] = ()
    seeds: tuple[int, ...] = ()
    options: dict[str, Any] = {}
    suffix: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``options`` must contain its seed, if it has one; points with equal options run once."""

    line: str
    x: XValue
    options: Options
    seed: int = 0
    divides: bool = False


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published figure. Seeds are averaged.

    Axes are titled ``x`` and ``y``; ``form`` is how the lines are drawn: in a heat map, lines are the vertical axis.
    ``note`` explains differences on the page. ``columns`` are read from the sweep's table and divided by ``unit``;
    their labels extend the point's line. With ``distribution``, a label is the percentage of jobs up to the value.
    ``computed_marks`` need no run. The values of a ``machine_dependent`` figure are run times: its points run one by
    one, and are not compared in percent.
    """

    name: str = ""
    title: str
    x: str = ""
    y: str
    lines: tuple[Line, ...] = ()
    values: tuple[XValue, ...] = ()
    seeds: tuple[int, ...] = (0,)
    options: dict[str, Any] = {}
    quick: Quick = Quick()
    columns: dict[str, str] = {}
    unit: float = 1.0
    distribution: bool = False
    form: Literal["lines", "steps", "points", "heat"] = "lines"
    log_x: bool = False
    log_y: bool = False
    digits: int = 2  # decimal places in tables
    note: str = ""
    machine_dependent: bool = False
    points: tuple[Point, ...] = ()
    computed_marks: tuple[Mark, ...] = ()

    def marks(self, point: Point, cells: Cells) -> Iterator[Mark]:
        """Yield the values of a point from its row; they are saturated if the backlog stopped the run."""
        for label, name in self.columns.items():
            value, saturated = cells.get(name), cells.get("ended") == "overload"
            number = float(value) / self.unit if isinstance(value, int | float) else None
            if not self.distribution:
                yield Mark(f"{point.line}{label}", point.x, number, saturated)
            elif number is not None:
                yield Mark(point.line, number, float(label) / 100.0)

    def over_x(
        self,
        request: Request,
        options: Callable[[Line, Any, int], Options],
        values: Callable[[Line], Sequence[XValue]] | None = None,
    ) -> Figure:
        """Return the figure with a point for each line, x value and seed; ``options`` are those of one point."""
        quick, lines = self.quick if request.quick else Quick(), self.lines
        seeds, points = request.seeds or quick.seeds or self.seeds, []
        for line in (line for line in lines if not quick.lines or line.name in quick.lines):
            for x, seed in product(quick.values or (values(line) if values else self.values), seeds):
                own = {**self.options, **options(line, x, seed), **line.options, **quick.options}
                name = f"{line.name}{quick.suffix}"
                points.append(Point(line=name, x=x, seed=seed, options=own, divides=line.divides))
        return replace(self, points=tuple(points))


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a user. ``figures`` are the wanted names; input files go to ``folder``."""

    folder: Path
    figures: tuple[str, ...]
    seeds: tuple[int, ...] = ()  # none: the published seeds
    traces: Path | None = None
    quick: bool = False
    tell: Callable[[str, float, int], None] = lambda *_: None  # receives a schedule, percent done, and finished jobs
    made: dict[str, Any] = msgspec.field(default_factory=dict)  # results of ``once`` by key

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
        if self.traces is None:
            raise UsageError("is missing", where="--traces DIR", fix=f"name {fix}")
        paths = sorted(path for pattern in patterns for path in self.traces.glob(pattern) if path.is_file())
        if not paths:
            raise BadInput(f"contains no {' or '.join(patterns)}", where=str(self.traces), fix=f"--traces names {fix}")
        return paths

    def input_path(self, name: str, is_own: Callable[[Path], bool], kind: str) -> Path:
        """Return the path of a writable input file; raise if a file of other origin exists there."""
        prepare_folder(self.folder)
        check_replaceable(self.folder / name, is_own, kind)
        return self.folder / name

    def tasks(self, name: str, make: Callable[[], Iterable[TaskSpec]]) -> str:
        """Write the tasks that ``make`` returns to a file, once for each request; return its path."""

        def write() -> str:
            specs = tuple(make())  # an error leaves no folder
            path = self.input_path(name, is_own_tasks, "task file")
            save_tasks(specs, path, note=f"{MADE_BY} reproduce")
            return str(path)

        return self.once(name, write)


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published experiment. ``figures`` are in the published order.

    ``traces`` describes the folder that ``--traces`` names; empty if the experiment reads none. ``make`` adds the
    points or values of a requested figure.
    """

    name: str
    title: str
    source: str
    traces: str = ""
    figures: dict[str, Figure]
    make: Callable[[Request, Figure], Figure]

    @classmethod
    def read(cls, name: str, make: Callable[[Request, Figure], Figure]) -> Experiment:
        """Return the experiment of a TOML file. Its ``common`` table has fields that most figures share."""
        about = toml_io.parse((PUBLISHED / f"{name}.toml").read_text(encoding="utf-8"), name)
        common, described = about.pop("common", {}), about.pop("figures")
        figures = {key: msgspec.convert({**common, **own, "name": key}, Figure) for key, own in described.items()}
        return cls(name=name, figures=figures, make=make, **about)

    def prepare(self, request: Request) -> tuple[Figure, ...]:
        """Write input files and return the requested figures."""
        return tuple(self.make(request, self.figures[name]) for name in request.figures)


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
    with (PUBLISHED / f"{experiment}.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            try:
                x: XValue = float(row["x"])
            except ValueError:
                x = row["x"]
            seeds = tuple(map(int, row["seeds"].split()))
            yield Published(row["figure"], row["line"], x, float(row["value"]), seeds, row["source"])
