"""A log and tasks whose replays tests compare."""

from __future__ import annotations

from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "abcd", ""), (100.0, "", "b"), (150.0, "bef", ""), (700.0, "", "ae"), end_s=1000.0)
TASKS = [
    task("quick", work_samples=900.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("long", rate=(5.0, 9.0, 12.0), work_samples=6000.0, grow_cost_s=20.0, shrink_cost_s=10.0, submit_s=50.0),
    task("endless", rate=(1.0, 2.0, 3.0, 4.0), start_cost_s=60.0),
    task("late", submit_s=5000.0),
]
