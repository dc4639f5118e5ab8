"""The tables of docs/reproduce.md, from the results of its sweeps: python docs/scripts/reproduce_tables.py DIR."""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click

SETS: Final = {"hpo": "HPO", "nas-throughput": "NAS, throughput", "nas-speedup": "NAS, speedup"}
SOLVERS: Final = {"exact": "exact", "greedy": "greedy", "equal-share-published": "equal shares"}
HORIZONS: Final = {f"{value}.0": f"{value} s" for value in (10, 30, 60, 120, 300, 600)}
CAPS: Final = {str(value): str(value) for value in (2, 5, 10, 20, 35)}
COSTS: Final = {"0.25": "1/4", "0.5": "1/2"} | {f"{value}.0": str(value) for value in (1, 2, 4, 8, 16)}

Point = Mapping[str, str]
Row = list[str]


def share(point: Point, column: str = "efficiency") -> str:
    """Write a share as the page does: .882, or 1.004."""
    return f"{float(point[column]):.3f}".removeprefix("0")


def count(column: str) -> Callable[[Point], str]:
    """Write a column in whole numbers."""
    return lambda point: f"{float(point[column]):,.0f}"


class SweepPoints:
    """The points of one sweep, by set of tasks and the values of ``option`` (value in the table -> heading)."""

    def __init__(self, folder: Path, option: str, values: Mapping[str, str]) -> None:
        """Read the table."""
        with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
            self._points = list(csv.DictReader(file))
        self._option, self.values = option, values

    def row(self, tasks: str, write: Callable[[Point], str], solver: str = "exact") -> Iterator[str]:
        """Give what ``write`` makes of each point of one set of tasks and one solver."""
        found = {
            point[self._option]: point
            for point in self._points
            if (point["tasks"], point.get("solver", solver)) == (tasks, solver)
        }
        return (write(found[value]) for value in self.values)

    def table(self, title: str, rows: Iterable[Row], *more: str) -> str:
        """Write a table in Markdown, with the values of the option as headings."""
        lines = [[title, *self.values.values(), *more], ["---"] * (1 + len(self.values) + len(more)), *rows]
        return "".join(f"|{'|'.join(line)}|\n" if line[0] == "---" else f"| {' | '.join(line)} |\n" for line in lines)


def tables(folder: Path) -> Iterator[str]:
    """Write the tables of the sweeps that are done."""
    if (folder / "t-fwd" / "table.csv").exists():
        points = SweepPoints(folder / "t-fwd", "horizon_s", HORIZONS)
        rows = [
            [name, *points.row(key, share), list(points.row(key, lambda point: share(point, "ceiling_efficiency")))[3]]
            for key, name in SETS.items()
        ]
        yield points.table("U, 10 tasks compete: horizon", rows, "without costs")
        lost = count("lost_rescaling_node_h")
        rows = [[name, *points.row(key, lost)] for key, name in SETS.items()]
        yield points.table("node-hours lost to rescaling: horizon", rows)
    if (folder / "p-jmax" / "table.csv").exists():
        points = SweepPoints(folder / "p-jmax", "max_tasks", CAPS)
        rows = [[name, *points.row(key, _with_ceiling)] for key, name in SETS.items()]
        used = [sorted(set(each)) for each in zip(*(points.row(key, _used) for key in SETS), strict=True)]
        rows.append(["idle node-time used, all sets", *(" to ".join(each) for each in used)])
        yield points.table("U (without costs): tasks that compete", rows)
    if (folder / "rescale-cost" / "table.csv").exists():
        points = SweepPoints(folder / "rescale-cost", "cost_factor", COSTS)
        rows = [[name, *points.row(key, share)] for key, name in SETS.items()]
        for name, column in (
            ("node-hours lost to preemption", "lost_preemption_node_h"),
            ("node-hours lost to rescaling", "lost_rescaling_node_h"),
            ("rescales", "rescales"),
        ):
            rows.append([f"{name}, HPO", *points.row("hpo", count(column))])
        yield points.table("U, 10 tasks compete: costs multiplied by", rows)
    if (folder / "heuristic" / "table.csv").exists():
        points = SweepPoints(folder / "heuristic", "max_tasks", CAPS)
        rows = [
            [f"{name}: {label}" if solver == "exact" else label, *points.row(key, share, solver)]
            for key, name in SETS.items()
            for solver, label in SOLVERS.items()
        ]
        yield points.table("U: tasks that compete", rows)


def _with_ceiling(point: Point) -> str:
    return f"{share(point)} ({share(point, 'ceiling_efficiency')})"


def _used(point: Point) -> str:
    return f"{100 * float(point['coverage']):.0f} %"


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True))
def main(folder: Path) -> None:
    """Print the tables of the sweeps in DIR in Markdown."""
    click.echo("\n".join(tables(folder)), nl=False)


if __name__ == "__main__":
    main()
