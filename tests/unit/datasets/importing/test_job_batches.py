"""Jobs that are taken in as columns are judged as those that come one by one."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from bftrain import ImportOptions, NodeState
from bftrain_datasets.importing.job_batches import JobBatch, take_jobs
from bftrain_datasets.importing.job_checks import RecordIntake
from tests.helpers.transitions import log_from_transitions

TEXTS = ("n[1-3]", "n2", "n[", "other", "n1,n1", "1-3")
LOG = log_from_transitions([(0.0, f"n{node}", NodeState.IDLE) for node in range(9)], end_s=100.0)


def jobs(seed: int) -> list[tuple[str, float, float, str, int, str, bool]]:
    chance = random.Random(seed)  # noqa: S311 - rows to try, no secrets
    times = (math.nan, *range(10, 100, 10))
    return [
        (
            str(chance.randint(1, 20)),
            float(chance.choice(times)),
            float(chance.choice((*times, math.inf))),
            chance.choice(("", *TEXTS)),
            chance.choice((0, 1, 3, 1 << 30)),
            chance.choice(("", "main", "spare")),
            chance.random() < 0.2,
        )
        for _ in range(200)
    ]


def batch_of(rows: list[tuple[str, float, float, str, int, str, bool]], first_line: int, texts: list[str]) -> JobBatch:
    return JobBatch(
        lines=np.arange(first_line, first_line + len(rows)),
        job=[row[0] for row in rows],
        start=np.array([row[1] for row in rows]),
        end=np.array([row[2] for row in rows]),
        sets=np.array([texts.index(row[3]) if row[3] else -1 for row in rows], dtype=np.int32),
        set_texts=texts,
        count=np.array([row[4] for row in rows]),
        queue=[row[5] for row in rows],
        preempted=np.array([row[6] for row in rows]),
        reason=np.full(len(rows), -1, dtype=np.int8),
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "options",
    [{}, {"counts": True}, {"nodes": ("n1", "n2", "n3", "n4")}, {"window": (25.0, 65.0), "preemptible": ("spare",)}],
)
def test_the_same_reasons_findings_and_stays(seed: int, options: dict[str, Any]) -> None:
    rows = jobs(seed)
    one, many = RecordIntake(ImportOptions(**options)), RecordIntake(ImportOptions(**options))
    for intake in (one, many):
        intake.begin_file("f")
    for line, (job, start, end, nodes, count, queue, preempted) in enumerate(rows, start=1):
        one.row(line)
        times = (None if math.isnan(start) else start, None if math.isnan(end) else end)
        one.job(job, *times, nodes, count=count, queue=queue, preempted=preempted)
    texts: list[str] = []  # grows from batch to batch
    for first in range(0, len(rows), 50):
        texts.extend(dict.fromkeys(row[3] for row in rows[first : first + 50] if row[3] and row[3] not in texts))
        take_jobs(many, batch_of(rows[first : first + 50], first + 1, texts))
    assert one.rows() == many.rows()
    counted = [[(each.name, each.count, each.node_s) for each in intake.findings()] for intake in (one, many)]
    assert counted[0] == counted[1]
    ours, theirs = one.stays.columns(), many.stays.columns()
    for name in ("start", "end", "job", "place", "count"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    doubtful = [
        [(stay.cause, stay.times, stay.nodes) for stay in intake.doubtful_stays.curves(LOG)] for intake in (one, many)
    ]
    assert doubtful[0] == doubtful[1] != []
    assert sorted(one.node_names) == sorted(many.node_names)
