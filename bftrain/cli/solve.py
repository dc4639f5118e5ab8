"""``bftrain solve``: one decision, read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import NarrowTable, Output, prints_results
from bftrain.cli.settings import DurationType, name_of, shares_option, with_shares
from bftrain.cli.value_completion import OF_SETTING, complete_parts
from bftrain.errors import NotAvailable, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.values.problem import AllocationProblem, CompetingTask
    from bftrain.values.solution import Solution

_SOLVER = "exact"
_NO_TASKS = "there are no tasks: all nodes stay idle"
_SIDE_BY_SIDE = 4  # solvers shown side by side on a usual screen
_DESCRIBED = "docs/reference/formats.md describes the problem file"


@click.command(
    cls=DocumentedCommand,
    example="bftrain solve problem.json --solver all\n"
    "bftrain solve problem.json --solver highs --set solver-deadline=30s",
    renamed={"--deadline": "--solver-deadline", "--gap": "--solver-gap", "--threads": "--solver-threads"},
    epilog="docs/reference/objectives.md lists the objectives and how to write your own; "
    "docs/reference/formats.md describes the problem file. Examples are in examples/problems.",
)
@click.argument("problem_file", metavar="PROBLEM.json", type=click.File("rb", lazy=True))
@heading("Problem")
@click.option(
    "--solver",
    default=_SOLVER,
    show_default=True,
    help='Solver; "all" compares all solvers.',
    shell_complete=complete_parts("solver", words=("all",)),
)
@click.option(
    "--objective",
    default=None,
    help="Objective: a name, or FILE.py:NAME [the problem's own].",
    shell_complete=OF_SETTING["objective"],
)
@click.option(
    "--policy",
    default=None,
    help="Policy for problems that share time: a name, or FILE.py:NAME [the problem's].",
    shell_complete=complete_parts("sharing"),
)
@shares_option
@rare("deadline_s", "relative_gap", "threads")
@click.option("--solver-deadline", "deadline_s", type=DurationType(), default=10.0)
@click.option("--solver-gap", "relative_gap", type=float, default=0.0)
@click.option("--solver-threads", "threads", type=int, default=1)
@prints_results
def command(  # noqa: PLR0913 - one parameter an option
    problem_file: IO[bytes],
    solver: str,
    objective: str | None,
    policy: str | None,
    *,
    shares: Path | None,
    deadline_s: float,
    relative_gap: float,
    threads: int,
    out: Output,
) -> None:
    """Divide a pool of nodes among competing tasks, as in one decision ("-" reads stdin).

    In a problem with `nodes` by kind instead of `pool`, tasks share the time on each kind.
    """
    data, where = problem_file.read(), name_of(problem_file)
    fields = with_shares({"shares": shares})
    has_kinds = _has_kinds(data)
    if policy is not None and not has_kinds:
        fix = "choose an objective: --objective"
        raise UsageError("is for problems with `nodes` by kind", where="--policy", fix=fix)
    if has_kinds:
        given = {"--objective": objective, "--solver": None if solver == _SOLVER else solver}
        for name in (name for name, value in given.items() if value is not None):
            fix = "choose a policy: --policy"
            raise UsageError("is not for problems with `nodes` by kind", where=name, fix=fix)
        _share(data, where, policy, fields, out)
        return
    from msgspec.structs import replace

    from bftrain.assembly import notes_on, solve, solve_with_all
    from bftrain.registry import note_on_name
    from bftrain.values import wire
    from bftrain.values.problem import AllocationProblem
    from bftrain.values.solution import Limits, Quality

    problem = replace(wire.decode(data, AllocationProblem, where=where, fix=_DESCRIBED), **fields)
    for note in (*notes_on(problem), note_on_name("objective", objective or problem.objective)):
        if note:
            out.warn(note)
    batches = (objective or problem.objective) == "goodput"
    limits = Limits(deadline_s=deadline_s, relative_gap=relative_gap, threads=threads)
    if solver == "all":
        solutions = list(solve_with_all(problem, objective=objective, limits=limits))
        out.result(solutions, lambda: _compared(problem, solutions, batches=batches))
    else:
        solutions = [solve(problem, solver, objective=objective, limits=limits)]
        out.result(solutions[0], lambda: _compared(problem, solutions, batches=batches))
    if all(solution.quality is Quality.NONE for solution in solutions):
        raise NotAvailable("no solution", where=where, fix="allow more seconds, or use another solver")


def _has_kinds(data: bytes) -> bool:
    """Return whether a problem counts nodes by kind; false for unreadable problems, which the caller reports."""
    from bftrain.errors import BadInput
    from bftrain.values import wire

    with suppress(BadInput):
        given = wire.decode(data, object)
        return isinstance(given, dict) and isinstance(given.get("nodes"), dict)
    return False


def _share(data: bytes, where: str, policy: str | None, fields: Mapping[str, object], out: Output) -> None:
    from msgspec.structs import replace

    from bftrain.assembly import share
    from bftrain.values import wire
    from bftrain.values.sharing import SharingProblem

    problem = replace(wire.decode(data, SharingProblem, where=where, fix=_DESCRIBED), **fields)
    shares = share(problem, policy or "")
    for note in shares.notes or ():
        out.warn(note)

    def shown() -> RenderableType:
        if not problem.tasks:
            return _NO_TASKS
        rows = []
        for task, speed in zip(problem.tasks, shares.speeds.values(), strict=True):
            parts = [shares.shares[task.name].get(kind) for kind in problem.nodes]
            rows.append((task.name, *("" if part is None else f"{part:.2%}" for part in parts), f"{speed:.6g}"))
        columns = ("", *(f"{count} {kind}" for kind, count in problem.nodes.items()), "speed")
        return NarrowTable(f"{shares.policy}: {shares.value:.10g} ({shares.value_is})", columns, rows)

    out.result(shares, shown)


def _compared(problem: AllocationProblem, solutions: Sequence[Solution], *, batches: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from bftrain.values.solution import Quality

    if not problem.tasks:
        return _NO_TASKS
    nodes = ", ".join(f"{count} {kind or 'nodes of no kind'}" for kind, count in problem.pools.items())
    title = f"{nodes or f'{problem.pool} nodes'}, {problem.horizon_s:g} s ahead"
    reasons = [Text(f"{found.solver}: {found.solver_words}") for found in solutions if found.quality is Quality.NONE]
    tables = _side_by_side if len(solutions) <= _SIDE_BY_SIDE else _by_plan
    sizes = [[_size(solution, task, batches=batches) for solution in solutions] for task in problem.tasks]
    return Group(*tables(title, problem, solutions, sizes), *reasons)


def _side_by_side(
    title: str, problem: AllocationProblem, solutions: Sequence[Solution], sizes: Sequence[Sequence[str]]
) -> Iterator[RenderableType]:
    columns = ["", *(solution.solver for solution in solutions)]
    rows = [[task.name, *cells] for task, cells in zip(problem.tasks, sizes, strict=True)]
    figures: dict[str, Sequence[str]] = {
        "nodes": [str(sum(solution.sizes.values())) if solution.sizes else "-" for solution in solutions],
        "value": [_figure(solution.value) for solution in solutions],
        "bound": [_figure(solution.bound) for solution in solutions],
        "termination": [solution.termination for solution in solutions],
        "wall ms": [f"{solution.wall_s * 1e3:.2f}" for solution in solutions],
    }
    yield NarrowTable(title, columns, [*rows, *([name, *cells] for name, cells in figures.items())])


def _by_plan(
    title: str, problem: AllocationProblem, solutions: Sequence[Solution], sizes: Sequence[Sequence[str]]
) -> Iterator[RenderableType]:
    """Yield two tables: a row per solver, the best first; then a column per distinct plan, to save space."""
    of_solver = zip(solutions, zip(*sizes, strict=True), strict=True)
    ordered = sorted(of_solver, key=lambda pair: -inf if pair[0].value is None else pair[0].value, reverse=True)
    plans: dict[tuple[str, ...], str] = {}
    rows = []
    for found, column in ordered:
        plan = plans.setdefault(column, str(len(plans) + 1)) if found.sizes else "-"
        figures = (_figure(found.value), _figure(found.bound), found.termination, f"{found.wall_s * 1e3:.2f}")
        rows.append([found.solver, plan, *figures])
    yield NarrowTable(title, ["", "plan", "value", "bound", "termination", "ms"], rows)
    of_tasks = [[task.name, *(column[place] for column in plans)] for place, task in enumerate(problem.tasks)]
    yield NarrowTable("", ["plan", *plans.values()], of_tasks)


def _size(solution: Solution, task: CompetingTask, *, batches: bool) -> str:
    """Return nodes and kind as text, and with ``batches`` the batch size with the most progress on them."""
    from bftrain.deciding.goodput import best_batch

    size, kind = solution.sizes.get(task.name), solution.kinds.get(task.name, "")
    if size is None:
        return "-"
    seen = task.on(kind) if batches and size else None
    batch = None if seen is None else best_batch(seen, size)
    return f"{size} {kind}".strip() + ("" if batch is None else f", batch {batch:,}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.10g}"
