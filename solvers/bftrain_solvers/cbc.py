"""``cbc``: the mixed-integer programme on CBC, in a process of its own that is kept warm.

The native library under python-mip can abort its process, and can overrun its time limit. Here that costs a failed
solution and a new process, not the program.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.ports import Availability
from bftrain.values.solution import Termination
from bftrain_solvers.cbc_messages import CbcReply, CbcRequest, packed
from bftrain_solvers.cbc_process import CbcProcess, WorkerDied, WorkerTimeout
from bftrain_solvers.milp import MilpSolver, RawAnswer

if TYPE_CHECKING:
    from bftrain.values.solution import Limits
    from bftrain_solvers.matrix import ModelMatrix

_MISSING: Final = "the package mip is not installed"
_HOW_TO_INSTALL: Final = "pip install 'bftrain[cbc]'"
_TERMINATIONS: Final = {
    "OPTIMAL": Termination.OPTIMAL,
    "FEASIBLE": Termination.TIME_LIMIT,
    "NO_SOLUTION_FOUND": Termination.TIME_LIMIT,
    "INFEASIBLE": Termination.INFEASIBLE,
    "INT_INFEASIBLE": Termination.INFEASIBLE,
}


class CbcSolver(MilpSolver):
    """CBC through python-mip in a worker process."""

    name = "cbc"

    def __init__(self) -> None:
        self._process = CbcProcess()

    def available(self) -> Availability:
        """Say whether python-mip is installed; no process is started for it."""
        try:
            return Availability(ok=True, version=f"python-mip {version('mip')}")
        except PackageNotFoundError:
            return Availability(ok=False, reason=_MISSING, fix=_HOW_TO_INSTALL)

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        if not self.available().ok:
            return RawAnswer(termination=Termination.FAILED, words=_MISSING)
        request = CbcRequest(
            fields=packed(matrix),
            seconds=limits.deadline_s,
            relative_gap=limits.relative_gap,
            threads=limits.threads,
        )
        try:
            return _raw(self._process.ask(request, limits.deadline_s))
        except WorkerDied as death:
            return RawAnswer(termination=Termination.FAILED, words=str(death))
        except WorkerTimeout as late:
            return RawAnswer(termination=Termination.TIME_LIMIT, words=str(late))

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, if one is running."""
        return self._process.pid

    def close(self) -> None:
        """End the worker; the next solve starts a new one."""
        self._process.close()


def _raw(reply: CbcReply) -> RawAnswer:
    return RawAnswer(
        termination=_TERMINATIONS.get(reply.status, Termination.FAILED),
        columns=None if reply.columns is None else np.frombuffer(reply.columns, dtype=np.float64),
        bound=reply.bound,
        words=reply.words,
    )


solver = CbcSolver()
