"""``highs``: the mixed-integer programme on HiGHS, which scipy brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain.ports import Availability
from bftrain.values.solution import Termination
from bftrain_solvers.milp import MilpSolver, RawAnswer

if TYPE_CHECKING:
    from bftrain.values.solution import Limits
    from bftrain_solvers.matrix import Matrix

# scipy.optimize.milp: 0 optimal, 1 a limit was reached, 2 infeasible, 3 unbounded, 4 other
_TERMINATIONS: Final = {0: Termination.OPTIMAL, 1: Termination.TIME_LIMIT, 2: Termination.INFEASIBLE}


class Highs(MilpSolver):
    """HiGHS through scipy, which passes on no number of threads: HiGHS chooses it."""

    name = "highs"

    def available(self) -> Availability:
        """Say whether scipy is new enough."""
        import scipy  # noqa: PLC0415 - slow to import, and only this backend needs it

        return Availability(ok=True, version=f"scipy {scipy.__version__}")

    def run(self, matrix: Matrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

        rows = csr_array(
            (matrix.coefficients, matrix.columns, matrix.starts),
            shape=(matrix.row_lower.size, matrix.objective.size),
        )
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


solver = Highs()
