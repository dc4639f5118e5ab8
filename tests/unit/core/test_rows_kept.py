"""Rows of value tables are kept for the next decision, and not for ever."""

from __future__ import annotations

import numpy as np

from bftrain.deciding.objectives import throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask

CURVE = SpeedCurve(nodes=(1, 8), rate=(10.0, 50.0))


def problem(number: int) -> AllocationProblem:
    tasks = tuple(CompetingTask(name=name, max_nodes=8, curve=CURVE) for name in ("always", f"t{number}"))
    return AllocationProblem(pool=8, horizon_s=60.0, tasks=tasks)


def test_many_short_tasks_do_not_fill_the_memory_and_values_stay_right() -> None:
    kept = ValueTableBuilder(throughput)
    most = 0
    for number in range(5_000):
        table = kept.table(problem(number))
        most = max(most, len(kept._rows))  # noqa: SLF001 - what it keeps is not seen from outside
    assert 1_000 < most <= 1_400
    assert np.array_equal(table.values, ValueTableBuilder(throughput).table(problem(4_999)).values)
