"""CBC in a worker process: however the worker ends, the program goes on and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import perf_counter, sleep

import numpy as np
import pytest

pytest.importorskip("mip", reason="needs: pip install '.[cbc]'")

from bftrain import (
    AllocationProblem,
    CompetingTask,
    Limits,
    NodesJoined,
    Quality,
    Settings,
    SpeedCurve,
    TaskSpec,
    TaskSubmitted,
    Termination,
    build_harvester,
)
from bftrain_solvers import exact
from bftrain_solvers.cbc import CbcSolver
from tests.helpers.tables import table_of, table_of_problem

EASY = table_of([[0, 5, 6, 7], [0, 4, 9, 9]], pool=3)
PATIENT = Limits(deadline_s=60.0)  # a worker that has to start first takes its time on a busy machine

NODES = 3203
CURVE = SpeedCurve(nodes=(1, 2, 4, 8, 16, 32, 64), rate=(28.3, 52.6, 99.9, 203.8, 389.0, 741.3, 1450.8))


def hard_problem() -> AllocationProblem:
    """Return a hundred tasks alike but for their sizes: CBC is busy with them for minutes."""
    rng = np.random.default_rng(0)
    tasks = [
        CompetingTask(
            name=f"t{place}",
            size=int(rng.choice([0, 1, 2, 4, 8, 16, 32, 64])),
            max_nodes=64,
            curve=CURVE,
            grow_cost_s=18.0,
            shrink_cost_s=12.0,
        )
        for place in range(100)
    ]
    return AllocationProblem(pool=NODES, horizon_s=120.0, tasks=tuple(tasks))


HARD = table_of_problem(hard_problem())


@pytest.fixture
def cbc() -> Iterator[CbcSolver]:
    solver = CbcSolver()
    assert solver.solve(EASY, PATIENT).termination is Termination.OPTIMAL
    yield solver
    solver.worker.close()


@contextmanager
def struck(solver: CbcSolver, with_signal: int, after_s: float = 0.5) -> Iterator[None]:
    """Send the worker a signal a moment from now, and again each second: CBC may go on where one strikes its start."""
    pid, over = solver.worker.pid, Event()
    assert pid is not None

    def strike() -> None:
        over.wait(after_s)
        while not over.is_set():
            with suppress(ProcessLookupError):
                os.kill(pid, with_signal)
            over.wait(1.0)

    thread = Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# CBC catches SIGABRT, as abort() sends it, and prints a stack trace. It dies of the signal, or of a second one that
# the printing raises where the first came in the middle of an allocation.
@pytest.mark.parametrize(("how", "ends"), [(signal.SIGKILL, {"SIGKILL"}), (signal.SIGABRT, {"SIGABRT", "SIGSEGV"})])
def test_a_death_in_mid_solve_is_a_failed_solution(cbc: CbcSolver, how: signal.Signals, ends: set[str]) -> None:
    pid = cbc.worker.pid
    with struck(cbc, how):
        solution = cbc.solve(HARD, Limits(deadline_s=60.0))
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert any(f"died ({name})" in solution.solver_words for name in ends), solution.solver_words
    assert solution.wall_s < 30.0, "long before the deadline"
    assert cbc.solve(EASY, PATIENT).value == 14.0
    assert cbc.worker.pid != pid


def test_a_death_between_solves_is_not_even_noticed(cbc: CbcSolver) -> None:
    pid = cbc.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    sleep(0.2)
    assert cbc.solve(EASY, PATIENT).value == 14.0


def test_an_overrun_is_stopped(cbc: CbcSolver) -> None:
    pid = cbc.worker.pid
    with struck(cbc, signal.SIGSTOP, after_s=0.2):  # it will not look at its clock again
        solution = cbc.solve(HARD, Limits(deadline_s=0.5))
    assert (solution.termination, solution.quality) == (Termination.TIME_LIMIT, Quality.NONE)
    assert "overran the deadline" in solution.solver_words
    assert solution.wall_s < 3.0
    assert cbc.solve(EASY, PATIENT).value == 14.0
    assert cbc.worker.pid != pid


def test_the_incumbent_is_kept_at_the_deadline(cbc: CbcSolver) -> None:
    for deadline_s in (4.0, 16.0, 60.0):  # on a busy machine the first answer comes late
        solution = cbc.solve(HARD, Limits(deadline_s=deadline_s))
        if solution.quality is not Quality.NONE:
            break
    best = exact.solver.solve(HARD, Limits()).value
    assert (solution.termination, solution.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert best is not None
    assert solution.value is not None
    assert solution.bound is not None
    assert 0.99 * best < solution.value <= best <= solution.bound
    assert solution.wall_s < deadline_s + 1.5


def test_the_worker_ends_with_a_program_that_is_killed() -> None:
    code = (
        "import os, sys; from bftrain_solvers.cbc import solver; from bftrain.values.solution import Limits;"
        "from tests.helpers.tables import table_of; solver.solve(table_of([[0, 1]], pool=1), Limits());"
        "print(solver.worker.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    worker = int(done.stdout)
    until = perf_counter() + 60.0
    while alive(worker) and perf_counter() < until:
        sleep(0.05)
    assert not alive(worker)


def alive(pid: int) -> bool:
    """Return whether the process runs; one that has ended and is not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - /proc is no ordinary path
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_harvest_goes_on_and_records_the_fallback(cbc: CbcSolver) -> None:
    harvester = build_harvester(Settings(fallback="greedy", solver_deadline_s=60.0), solver=cbc)
    for name in ("a", "b"):
        harvester.absorb(TaskSubmitted(time_s=0.0, spec=TaskSpec(name=name, max_nodes=64, curve=CURVE)))
    harvester.absorb(NodesJoined(time_s=1.0, nodes=("n1", "n2", "n3")))
    assert cbc.worker.pid is not None
    os.kill(cbc.worker.pid, signal.SIGSTOP)  # so that the problem is with the worker for sure when it is killed
    with struck(cbc, signal.SIGKILL):
        decision = harvester.decide(1.0)
    assert decision.termination is Termination.FAILED
    assert "SIGKILL" in decision.fallback
    assert "sizes of greedy taken" in decision.fallback
    assert decision.used == 3
    harvester.absorb(NodesJoined(time_s=2.0, nodes=("n4",)))
    after = harvester.decide(2.0)
    assert (after.termination, after.fallback, after.used) == (Termination.OPTIMAL, "", 4)
