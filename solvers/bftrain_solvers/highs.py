"""``highs``: the mixed-integer programme on HiGHS, which scipy brings along."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from threading import Lock
from typing import TYPE_CHECKING, Final

from bftrain.ports import Availability
from bftrain.values.solution import Termination
from bftrain_solvers.milp import MilpSolver, RawAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain.values.solution import Limits
    from bftrain_solvers.matrix import ModelMatrix

_STDOUT: Final = Lock()
_STRAY: Final = b"HighsMipSolverData::"
# scipy.optimize.milp: 0 optimal, 1 a limit was reached, 2 infeasible, 3 unbounded, 4 other
_TERMINATIONS: Final = {0: Termination.OPTIMAL, 1: Termination.TIME_LIMIT, 2: Termination.INFEASIBLE}


class HighsSolver(MilpSolver):
    """HiGHS through scipy, which passes on no number of threads: HiGHS chooses it."""

    name = "highs"

    def available(self) -> Availability:
        """It is always available: scipy is installed with bftrain."""
        return Availability(ok=True, version=f"scipy {version('scipy')}")

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

        rows = csr_array(
            (matrix.coefficients, matrix.columns, matrix.starts),
            shape=(matrix.row_lower.size, matrix.objective.size),
        )
        with without_stray_lines() if not matrix.integer.all() else nullcontext():
            result = milp(
                -matrix.objective,
                integrality=matrix.integer.astype(int),
                bounds=Bounds(matrix.lower, matrix.upper),
                constraints=LinearConstraint(rows, matrix.row_lower, matrix.row_upper),
                options={"time_limit": limits.deadline_s, "mip_rel_gap": limits.relative_gap},
            )
        bound = result.mip_dual_bound
        return RawAnswer(
            termination=_TERMINATIONS.get(result.status, Termination.FAILED),
            columns=result.x,
            bound=None if bound is None else -float(bound),
            words=str(result.message),
        )


@contextmanager
def without_stray_lines() -> Iterator[None]:
    """Leave out what HiGHS prints to stdout, and print later what others do meanwhile.

    Where it repairs a solution with continuous columns it prints a line with printf, although scipy switches its
    output off (``output_flag``; seen in the release inside scipy 1.17). That would spoil a program's JSON, and no
    option prevents it.
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


solver = HighsSolver()
