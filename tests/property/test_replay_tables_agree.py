"""For any log and tasks: the three tables agree, and an interruption changes none of them."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain.assembly import build_harvester
from bftrain.config import Settings
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.results.result import result_of
from bftrain_replay.resume.solver_cache import AnswerFile, origin_of
from bftrain_replay.simulation.engine import run
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study import study
from tests.property.test_replay_books import logs, solvers, task_lists
from tests.unit.replay.cases import study_files


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


@settings(max_examples=30, deadline=None)
@given(logs(), task_lists, st.lists(st.integers(0, 60), max_size=3), st.randoms(use_true_random=False))
def test_interrupted_anywhere_it_comes_to_the_same_files(
    log: EventLog, specs: tuple[TaskSpec, ...], stops: list[int], dice: object
) -> None:
    how = ReplaySettings(max_tasks=3)
    with TemporaryDirectory() as place:
        path = Path(place) / "answers"
        for stop in [*stops, None]:
            asked = iter(range(10**9))
            with AnswerFile(path, origin_of(log, specs, how, "greedy"), resume=True) as answers:
                done = study(
                    log,
                    specs,
                    how,
                    baseline="greedy",
                    watch=lambda *_, stop=stop, asked=asked: stop is None or next(asked) < stop,  # type: ignore[misc]  # a watch
                    answers=answers,
                )
            content = path.read_bytes()
            # A part of it, not a number of bytes: how many there are depends on how long a solver took
            path.write_bytes(content[: round(dice.random() * len(content))])  # type: ignore[attr-defined]  # a Random
        assert study_files(done, Path(place) / "part") == study_files(
            study(log, specs, how, baseline="greedy"), Path(place) / "whole"
        )
