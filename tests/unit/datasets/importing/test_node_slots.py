"""GPUs and cores as slots of their nodes, held against a plain loop over all moments."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bftrain import EventLog, ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.occupancy import log_from_jobs
from bftrain_datasets.log.eventlog import BUSY
from tests.helpers.slot_loops import Stay, idle_slot_s

DAY = 1_700_000_000.0
Job = tuple[float, float, str, str]


def taken(*jobs: Job, **options: Any) -> tuple[EventLog, dict[str, tuple[int, float]]]:  # noqa: ANN401 - see ImportOptions
    """Build the log of these jobs on their nodes; times count from DAY."""
    intake = RecordIntake(ImportOptions(unit="gpu", window=(DAY, DAY + 100), **options))
    intake.begin_file("jobs")
    for line, (start_s, end_s, nodes, units) in enumerate(jobs, 1):
        intake.row(line)
        intake.job(str(line), DAY + start_s, DAY + end_s, nodes, units=units)
    log = log_from_jobs(intake)
    return log, {each.name: (each.count, each.node_s) for each in intake.findings()}


def busy(log: EventLog, at_s: float) -> set[str]:
    states = log.states_at(DAY + at_s).tolist()
    return {name for name, state in zip(log.node_names, states, strict=True) if state == BUSY}


def test_the_lowest_free_gpus_are_taken_when_a_job_starts() -> None:
    jobs = [(0, 30, "n1", "2"), (10, 40, "n1", "1"), (30, 60, "n1", "3"), (0, 5, "n2", "1")]
    log, found = taken(*jobs, node_units=4)
    assert log.node_names == tuple(f"n{node}/gpu{slot}" for node in (1, 2) for slot in range(4))
    assert busy(log, 0) == {"n1/gpu0", "n1/gpu1", "n2/gpu0"}
    assert busy(log, 10) == {"n1/gpu0", "n1/gpu1", "n1/gpu2"}
    assert busy(log, 30) == {f"n1/gpu{slot}" for slot in range(4)}
    assert busy(log, 50) == {"n1/gpu0", "n1/gpu1", "n1/gpu3"}
    assert found["units_numbered"] == (4, 0.0)
    assert "node_overfull" not in found


def test_gpus_with_numbers_are_those_and_others_make_room() -> None:
    log, found = taken((0, 50, "n1", "1"), (10, 20, "n1", "0:n1"), (0, 9, "n2", "1,3:n2"))
    assert log.node_names == ("n1/gpu0", "n1/gpu1", *(f"n2/gpu{slot}" for slot in range(4)))
    assert busy(log, 0) == {"n1/gpu0", "n2/gpu1", "n2/gpu3"}
    assert busy(log, 15) == {"n1/gpu0", "n1/gpu1"}
    assert busy(log, 25) == {"n1/gpu1"}
    assert found["units_inferred"] == (2, 0.0)


def test_more_than_a_node_has_is_a_finding_and_waits_for_what_is_freed() -> None:
    log, found = taken((0, 20, "n1", "3"), (10, 40, "n1", "3"), (0, 100, "n1", "7:n1"), node_units=4)
    assert [len(busy(log, at)) for at in (0, 10, 20, 40)] == [3, 4, 3, 0]
    assert found["node_overfull"] == (2, 100.0 + 2 * 10)  # the eighth GPU, and two more than the four for 10 s
    log, _ = taken((0, 20, "n1", "4"), (10, 40, "n1", "4"), node_units=4)
    assert (len(log), log.idle_node_s) == (2, 4 * 60.0)


def test_jobs_without_gpus_hold_none() -> None:
    log, found = taken((0, 50, "n1", "1"), (0, 50, "n2", ""), (0, 50, "n2", "0"))
    assert log.node_names == ("n1/gpu0",)
    assert found["no_units"][0] == 2


def test_capacity_may_differ_by_node() -> None:
    log, _ = taken((0, 50, "n[1-3]", "3"), node_units_of=(("n[1-2]", 2), ("n9", 4)), node_units=1)
    assert [name for name in log.node_names if name.startswith("n1")] == ["n1/gpu0", "n1/gpu1"]
    assert [name for name in log.node_names if name.startswith("n3")] == ["n3/gpu0"]


@pytest.mark.parametrize("seed", range(12))
def test_random_jobs_leave_as_much_idle_as_a_plain_loop_says(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same jobs every time
    jobs: list[Job] = []
    stays: list[Stay] = []
    for _ in range(60):
        start_s = chance.randrange(0, 95)
        end_s = start_s + chance.randrange(1, 30)
        nodes = chance.sample(["n1", "n2", "n3"], chance.choice((1, 1, 2)))
        held: dict[str, int | set[int]] = {}
        for node in nodes:
            held[node] = chance.randrange(1, 5) if chance.random() < 0.6 else set(chance.sample(range(6), 2))
        lines = (
            f"{each}*{node}" if isinstance(each, int) else f"{','.join(map(str, sorted(each)))}:{node}"
            for node, each in held.items()
        )
        jobs.append((start_s, end_s, ",".join(nodes), "\n".join(lines)))
        stays.append((start_s, end_s, held))
    given = {"n1": 8, "n2": 5, "n3": 3}
    log, _ = taken(*jobs, node_units_of=tuple(given.items()), nodes=tuple(given))
    assert log.idle_node_s == idle_slot_s(stays, given, 0, 100)
    log, found = taken(*jobs)
    seen = {node: sum(name.startswith(f"{node}/") for name in log.node_names) for node in given}
    assert log.idle_node_s == idle_slot_s(stays, seen, 0, 100)
    assert "node_overfull" not in found
