"""``bftrain submit --trace``: play the tasks of a trace against a live run, each at its time.

A synthetic program stands in for each training: it counts samples at the speeds of the trace. ``bftrain rounds``
simulates the same tasks, so that simulation and reality can be compared.
"""

from __future__ import annotations

import json
import re
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bftrain.errors import BadInput, Interrupted, NotAvailable
from bftrain.live.model.schemas import Submission
from bftrain.taskfiles.files import load_tasks
from bftrain.values.curve import ANY_KIND
from bftrain.values.job import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bftrain.live.client import Client
    from bftrain.live.model.schemas import TaskView
    from bftrain.values.task import TaskSpec

_PROGRAM = "bftrain_elastic.synthetic"
_RETRY_S = 1.0
_NUMBER = re.compile(r"-\d+$")


def play(path: Path, scale: float, client: Client) -> Iterator[TaskView]:
    """Submit each task of a file at its time, ``scale`` times as fast as written; yield the submitted tasks."""
    if path.suffix == ".trace":
        fix = f"bftrain generate from-trace {path} --speeds TABLE -o tasks.csv"
        raise BadInput("is not a task file", where=str(path), fix=fix)
    tasks = sorted(load_tasks(path), key=lambda task: task.submit_s)
    endless = next((task.name for task in tasks if task.work_samples is None), None)
    if endless is not None:
        raise BadInput("has no work_samples, so it would never end", where=f"{path}: task '{endless}'")
    begin_s, number = time.monotonic(), 0
    try:
        for number, task in enumerate(tasks):  # noqa: B007 - the message of an interruption tells it
            due_s = begin_s + (task.submit_s - tasks[0].submit_s) / scale
            time.sleep(max(0.0, due_s - time.monotonic()))
            yield _submit(_submission(task, scale), client)
    except KeyboardInterrupt as error:
        raise Interrupted(f"{number:,} of {len(tasks):,} tasks were submitted; they continue") from error


def _submission(task: TaskSpec, scale: float) -> Submission:
    """Return the request for a synthetic task."""
    sizes = range(task.min_nodes, task.max_nodes + 1)
    speeds = {
        kind: dict(zip(sizes, curve.speeds(task.max_nodes)[task.min_nodes :].tolist(), strict=True))
        for kind, curve in (task.curves or {ANY_KIND: task.curve}).items()
    }
    assert task.work_samples is not None  # noqa: S101 - checked before
    work = task.work_samples / scale
    found = find_spec(_PROGRAM)
    script = str(found.origin) if found is not None else _PROGRAM
    deadline_s = None if task.deadline_s is None else time.time() + (task.deadline_s - task.submit_s) / scale
    return Submission(
        run=Run(argv=(script, json.dumps({"work": work, "speeds": speeds})), workers_per_node=1),
        name=task.name,
        launcher="process",
        min_nodes=task.min_nodes,
        max_nodes=task.max_nodes,
        curve=task.curve,
        curves={kind: curve for kind, curve in task.curves.items() if kind != ANY_KIND},
        work_samples=work,
        weight=task.weight,
        deadline_s=deadline_s,
        campaign=task.campaign or _NUMBER.sub("", task.name),  # traces number the tasks of a model
    )


def _submit(submission: Submission, client: Client) -> TaskView:
    """Submit a task, once, even if the live run is restarted meanwhile."""
    lost = False
    while True:
        try:
            stored = [task for task in client.tasks(over=True) if task.name == submission.name] if lost else []
            return stored[0] if stored else client.submit(submission)
        except NotAvailable:
            lost = True
            time.sleep(_RETRY_S)
