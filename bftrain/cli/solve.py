"""``bftrain solve``: one decision, taken from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.source import name_of
from bftrain.errors import NotAvailable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.values.problem import AllocationProblem
    from bftrain.values.solution import Solution


@click.command(
    epilog="docs/objectives.md lists the objectives and tells how to write your own; docs/formats.md describes the "
    "problem file. Examples are in examples/problems."
)
@click.argument("problem_file", metavar="PROBLEM.json", type=click.File("rb", lazy=True))
@click.option("--solver", default="exact", show_default=True, help='Who solves it; "all" compares all there are.')
@click.option("--objective", default=None, help="What is largest: a name, or FILE.py:NAME [the problem's own].")
@click.option("--deadline", "deadline_s", type=float, default=10.0, show_default=True, help="Seconds to solve in.")
@click.option("--gap", "relative_gap", type=float, default=0.0, show_default=True, help="Relative gap to stop at.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads a solver may use.")
@prints_results
def command(
    problem_file: IO[bytes],
    solver: str,
    objective: str | None,
    deadline_s: float,
    relative_gap: float,
    threads: int,
    out: Output,
) -> None:
    """Divide a pool of nodes over competing tasks, as at one event ("-" reads stdin)."""
    from bftrain.solving import notes_on, solve, solve_with_all
    from bftrain.values import wire
    from bftrain.values.problem import AllocationProblem
    from bftrain.values.solution import Limits, Quality

    where = name_of(problem_file)
    described = "docs/formats.md describes the problem file"
    problem = wire.decode(problem_file.read(), AllocationProblem, where=where, fix=described)
    for note in notes_on(problem):
        out.warn(note)
    limits = Limits(deadline_s=deadline_s, relative_gap=relative_gap, threads=threads)
    if solver == "all":
        solutions = list(solve_with_all(problem, objective=objective, limits=limits))
        out.result(solutions, lambda: _compared(problem, solutions))
    else:
        solutions = [solve(problem, solver, objective=objective, limits=limits)]
        out.result(solutions[0], lambda: _compared(problem, solutions))
    if all(solution.quality is Quality.NONE for solution in solutions):
        raise NotAvailable("there is no answer", where=where, fix="ask for more seconds, or another solver")


def _compared(problem: AllocationProblem, solutions: Sequence[Solution]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from bftrain.values.solution import Quality

    columns = ["", *(solution.solver for solution in solutions)]
    rows: list[list[object]] = [
        [task.name, *(solution.sizes.get(task.name, "-") for solution in solutions)] for task in problem.tasks
    ]
    rows.append(["nodes", *(sum(solution.sizes.values()) if solution.sizes else "-" for solution in solutions)])
    rows.append(["value", *(_figure(solution.value) for solution in solutions)])
    rows.append(["bound", *(_figure(solution.bound) for solution in solutions)])
    rows.append(["termination", *(solution.termination for solution in solutions)])
    rows.append(["wall ms", *(f"{solution.wall_s * 1e3:.2f}" for solution in solutions)])
    reasons = [Text(f"{found.solver}: {found.solver_words}") for found in solutions if found.quality is Quality.NONE]
    return Group(table(f"{problem.pool} nodes, {problem.horizon_s:g} s ahead", columns, rows), *reasons)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.10g}"
