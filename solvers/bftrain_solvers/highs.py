"""``highs``: the mixed-integer programme on HiGHS, which is part of scipy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from time import perf_counter
from typing import Final

from bftrain.ports import Availability
from bftrain.values.solution import Limits, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import unchanged
from bftrain_solvers.library_process import LibraryProcess
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import MilpSolver, RawAnswer

_STDOUT: Final = Lock()
_STRAY: Final = b"HighsMipSolverData::"  # start of the line that HiGHS prints
# scipy.optimize.milp: 0 optimal, 1 a limit was reached, 2 infeasible or no valid model, 3 unbounded, 4 other
_TERMINATIONS: Final = {0: Termination.OPTIMAL, 1: Termination.TIME_LIMIT, 2: Termination.INFEASIBLE}
_INFEASIBLE: Final = "HiGHS Status 8"  # text of the message: the status number is ambiguous


# Measured overruns of deadlines of 1 ms to 1 s, by number of non-zero coefficients: up to 20 ms for this many,
# 140 ms for 25,000, 10 s for 180,000
_MOST_IN_PROCESS: Final = 4_000


class HighsSolver(MilpSolver):
    """HiGHS through scipy, which has no option for the number of threads: HiGHS chooses it.

    HiGHS checks its clock only between its own steps. These are short for small programmes; larger programmes are
    solved in a worker process, which is abandoned when it is late.
    """

    name = "highs"

    def __init__(self) -> None:
        self.worker = LibraryProcess(__name__)

    def available(self) -> Availability:
        """Return that it is always available: scipy is installed with bftrain."""
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        return Availability(ok=True, version=f"scipy {version('scipy')}")

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        if matrix.coefficients.size > _MOST_IN_PROCESS:
            return self.worker.maximised(matrix, limits)
        with suppress_stdout() if not matrix.integer.all() else nullcontext():
            return maximised(matrix, limits)


def load() -> None:
    """Import the library, in the worker."""
    import scipy.optimize  # noqa: F401, PLC0415 - slow to import


def maximised(matrix: ModelMatrix, limits: Limits) -> RawAnswer:
    """Solve, in this process."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import

    result = milp(
        -matrix.objective,
        integrality=matrix.integer.astype(int),
        bounds=Bounds(matrix.lower, matrix.upper),
        constraints=LinearConstraint(matrix.sparse(), matrix.row_lower, matrix.row_upper),
        options={"time_limit": limits.deadline_s, "mip_rel_gap": limits.relative_gap},
    )
    bound, termination = result.mip_dual_bound, _TERMINATIONS.get(result.status, Termination.FAILED)
    if termination is Termination.INFEASIBLE and _INFEASIBLE not in result.message:
        termination = Termination.FAILED
    return RawAnswer(
        termination=termination,
        columns=result.x,
        bound=None if bound is None else -float(bound),
        words=str(result.message),
    )


@contextmanager
def suppress_stdout() -> Iterator[None]:
    """Drop what HiGHS prints to stdout, and print the output of other threads afterwards.

    HiGHS prints a line with printf when it repairs a solution with continuous columns, although scipy switches its
    output off (``output_flag``; seen in scipy 1.17). The line would corrupt JSON on stdout, and no option prevents it.
    """
    from ctypes import CDLL  # noqa: PLC0415 - where HiGHS is used only

    with _STDOUT, os.fdopen(os.memfd_create("stdout"), "w+b") as caught:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(caught.fileno(), 1)
        try:
            yield
        finally:
            CDLL(None).fflush(None)  # the line waits in the C library's buffer
            os.dup2(kept, 1)
            os.close(kept)
            caught.seek(0)
            for line in caught:
                if not line.startswith(_STRAY):
                    os.write(1, line)


class StayOnTimeout(HighsSolver):
    """HiGHS by the rule of the published study: after a timeout, all tasks keep their current sizes."""

    name = "highs-or-stay"

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task, or the current ones."""
        started = perf_counter()
        found = super().solve(table, limits)
        return unchanged(table, self.name, started) if found.termination is Termination.TIME_LIMIT else found


solver = HighsSolver()
or_stay = StayOnTimeout()
