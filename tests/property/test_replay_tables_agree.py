"""For any log and tasks: the three tables agree, and an interruption changes none of them."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import EventLog, Settings, TaskSpec, build_harvester
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.results.result import result_of
from bftrain_replay.simulation.engine import run
from tests.property.test_replay_books import logs, solvers, task_lists


@settings(max_examples=100)
@given(logs(), task_lists, solvers, st.integers(1, 6))
def test_the_tables_agree(log: EventLog, specs: tuple[TaskSpec, ...], solver: str, max_tasks: int) -> None:
    how = Settings(solver=solver, max_tasks=max_tasks)
    taken = AllocationRecorder(log.node_names)
    result = result_of(run(log, specs, build_harvester(how), allocations=taken), how)
    held: dict[str, list[float]] = {}
    of_node: dict[int, list[tuple[float, float]]] = {}
    for block in taken.blocks():
        for task, node, from_s, to_s in zip(
            block.task.tolist(), block.node.tolist(), block.from_s.tolist(), block.to_s.tolist(), strict=True
        ):
            held.setdefault(taken.tasks[task], []).append(to_s - from_s)
            of_node.setdefault(node, []).append((from_s, to_s))
    for record in result.tasks:
        assert math.isclose(math.fsum(held.get(record.name, ())), record.node_s, rel_tol=1e-9, abs_tol=1e-6)
        lives_s = result.simulated_s if record.finish_s is None else record.finish_s
        if record.state != "not_arrived":
            assert 0.0 <= record.waited_s <= lives_s - max(record.submit_s, 0.0) + 1e-6
            assert record.waits <= record.starts + 1
    for stretches in of_node.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(stretches)))
    for row, sizes in zip(result.decisions.rows(), result.decisions.sizes(), strict=True):
        assert sum(sizes.values()) == row[3]
        assert all(sizes.values())
