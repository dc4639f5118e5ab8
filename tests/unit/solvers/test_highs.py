"""HiGHS: a worker process for large programmes, which is given up soon after the deadline."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest

from bftrain import Limits, Quality, Termination, ValueTable
from bftrain_solvers.highs import HighsSolver
from bftrain_solvers.highs import maximised as maximised_with_highs
from tests.helpers.named_parts import EXACT
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


def test_small_programmes_start_no_process_and_large_ones_share_a_worker(solver: HighsSolver) -> None:
    assert solver.solve(rough(20), PATIENT).quality is Quality.PROVEN
    assert solver.worker.pid is None
    table, pids = rough(300), set()
    for _ in range(2):
        found = solver.solve(table, PATIENT)
        assert (found.quality, found.value) == (Quality.PROVEN, pytest.approx(EXACT.solve(table, Limits()).value))
        pids.add(solver.worker.pid)
    assert len(pids) == 1


def load() -> None:
    """Do what a worker does first: nothing here."""


def maximised(matrix: Any, limits: Limits) -> Any:  # noqa: ANN401 - of the library
    """Stand for a step of HiGHS in which it does not look at its clock."""
    sleep(0.0 if limits.deadline_s > 1.0 else 60.0)
    return maximised_with_highs(matrix, limits)


def test_a_step_that_overruns_the_deadline_by_seconds_is_stopped(solver: HighsSolver) -> None:
    solver.worker = type(solver.worker)(__name__)
    table = rough(300)
    assert solver.solve(table, PATIENT).quality is Quality.PROVEN
    begun = perf_counter()
    late = solver.solve(table, Limits(deadline_s=0.5))
    assert perf_counter() - begun < 30.0  # before the step ends
    assert (late.termination, late.quality) == (Termination.TIME_LIMIT, Quality.NONE)
    assert solver.worker.pid is None
