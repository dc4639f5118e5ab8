"""The sensitivity table: what is varied, what is left out, and that its rows are those of replays."""

from __future__ import annotations

import pytest

import bftrain
from bftrain import UsageError, generate_log
from tests.unit.replay.cases import mix

LOG = generate_log(16, 0.2, 3)
TASKS = mix(8, 3, max_nodes=6, work_samples=3e7, start_cost_s=18.0)


def test_rows_are_those_of_replays() -> None:
    done = bftrain.replay(LOG, TASKS, sensitivity=True, max_tasks=4)
    rows = {(row.what, row.setting): row for row in done.sensitivity or ()}
    assert len(rows) == 11
    for (what, setting), options in {
        ("progress", "memory"): {},
        ("progress", "disk:300"): {"progress": "disk:300"},
        ("progress", "disk:3600"): {"progress": "disk:3600"},
        ("costs", "4"): {"cost_factor": 4.0},
        ("start", "60"): {"start_cost_s": 60.0},
    }.items():
        alone = bftrain.replay(LOG, TASKS, max_tasks=4, **options).result
        row = rows[what, setting]
        assert (row.harvested, row.efficiency) == (alone.harvested_samples, alone.efficiency), (what, setting)
        assert row.lost_preemption == pytest.approx(alone.lost_node_s["preemption"] / alone.idle_node_s)
    assert done.summary["sensitivity"][0] == {
        "what": "progress",
        "setting": "memory",
        "chosen": True,
        "efficiency": done.result.efficiency,
        "harvested": done.result.harvested_samples,
        "lost_preemption": pytest.approx(done.result.lost_node_s["preemption"] / done.result.idle_node_s),
    }


def test_it_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(UsageError, match="realistic rules"):
        bftrain.replay(LOG, TASKS, semantics="published", sensitivity=True)
    with pytest.raises(UsageError, match=r"FILE\.py:FUNCTION"):
        bftrain.replay(LOG, TASKS, objective=lambda _task, sizes: sizes, sensitivity=True)


def test_stopped_it_gives_the_replay_without_the_table() -> None:
    done = bftrain.replay(LOG, TASKS, sensitivity=True, watch=lambda name, *_: name != "sensitivity")
    assert done.sensitivity is None
    assert done.result.complete
    assert done.complete
