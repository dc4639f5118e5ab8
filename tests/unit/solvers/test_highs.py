"""HiGHS: small programmes in this process, larger ones in a worker that is given up soon after the deadline."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, sleep

import numpy as np
import pytest

from bftrain import Limits, Quality, Termination, ValueTable
from bftrain_solvers import exact, highs
from bftrain_solvers.highs import HighsSolver
from bftrain_solvers.library_process import LibraryProcess
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import RawAnswer, programme_of
from tests.helpers.tables import table_of

PATIENT = Limits(deadline_s=60.0)  # a worker that has to start first takes its time on a busy machine


def rough(tasks: int) -> ValueTable:
    """Return a table in which every size is a piece of its own."""
    return table_of(np.cumsum(np.random.default_rng(tasks).random((tasks, 17)), axis=1), pool=5 * tasks)


@pytest.fixture
def solver() -> Iterator[HighsSolver]:
    found = HighsSolver()
    yield found
    found.worker.close()




def test_a_worker_is_kept_for_large_programmes_and_answers_as_this_process(solver: HighsSolver) -> None:
    table = rough(300)
    programme = programme_of(table)
    assert programme.matrix.coefficients.size > highs._MOST_IN_PROCESS  # noqa: SLF001 - it is to go to the worker
    pids = set()
    for _ in range(2):
        found = solver.solve(table, PATIENT)
        assert (found.quality, found.value) == (
            Quality.PROVEN,
            pytest.approx(exact.solver.solve(table, Limits()).value),
        )
        pids.add(solver.worker.pid)
    assert len(pids) == 1
    here, there = highs.maximised(programme.matrix, PATIENT), solver.worker.maximised(programme.matrix, PATIENT)
    assert here.columns is not None
    assert there.columns is not None
    assert here.columns.tolist() == there.columns.tolist()
    assert (here.termination, here.bound, here.words) == (there.termination, there.bound, there.words)


def load() -> None:
    """Do what a worker does first: nothing here."""


def maximised(matrix: ModelMatrix, limits: Limits) -> RawAnswer:
    """Stand for a step of HiGHS in which it does not look at its clock."""
    sleep(0.0 if limits.deadline_s > 1.0 else 60.0)
    return highs.maximised(matrix, limits)


def test_a_step_that_overruns_the_deadline_by_seconds_is_stopped(solver: HighsSolver) -> None:
    solver.worker = LibraryProcess(__name__)
    table = rough(300)
    assert solver.solve(table, PATIENT).quality is Quality.PROVEN
    begun = perf_counter()
    late = solver.solve(table, Limits(deadline_s=0.5))
    assert perf_counter() - begun < 30.0  # before the step ends
    assert (late.termination, late.quality) == (Termination.TIME_LIMIT, Quality.NONE)
    assert late.solver_words == "overran the deadline and was stopped"
    assert solver.worker.pid is None
