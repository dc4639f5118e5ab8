"""Sweeps that block, or run slowly, until a test releases them."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_PATIENCE_S: Final = 120.0

OBJECTIVES: Final = """\
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def free(task, sizes):
    return task.curve.speeds(sizes[-1])

def held(task, sizes):
    (HERE / f"at-work-{os.getpid()}").touch()
    while (HERE / "hold").exists():
        time.sleep(0.01)
    return task.curve.speeds(sizes[-1])

def slow(task, sizes):
    (HERE / f"at-work-{os.getpid()}").touch()
    time.sleep(0.05 if (HERE / "hold").exists() else 0.0)
    return task.curve.speeds(sizes[-1])
"""

SPEC: Final = """\
log = "log.npz"
tasks = "tasks.toml"
baseline = "greedy"

[grid]
objective = ["gate.py:free", "gate.py:held"]
max_tasks = [1, 3]
"""


def prepare(folder: Path, spec: str = SPEC) -> Path:
    """Write a small log, tasks, objectives and the sweep file; gives the last."""
    from bftrain import generate_log, generate_mix, save_log, save_tasks  # noqa: PLC0415 - costs a second
    from bftrain_datasets.workloads.task_generators import TaskShape  # noqa: PLC0415

    save_log(generate_log(12, 0.2, 3), folder / "log.npz")
    save_tasks(generate_mix(3, 1, shape=TaskShape(max_nodes=4, work_samples=1e7)), folder / "tasks.toml")
    (folder / "gate.py").write_text(OBJECTIVES)
    (folder / "hold").touch()
    path = folder / "sweep.toml"
    path.write_text(spec)
    return path


def release(folder: Path) -> None:
    (folder / "hold").unlink(missing_ok=True)


def at_work(folder: Path) -> set[int]:
    """Return the processes that have reached the blocking, or slow, objective."""
    return {int(path.name.rpartition("-")[2]) for path in folder.glob("at-work-*")}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait until ``holds()``."""
    until = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"it is still not so that {what}"
        time.sleep(0.02)


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """Read what is kept in the folder of a sweep, whole lines only."""
    path = folder / "points.jsonl"
    lines = path.read_bytes().split(b"\n")[1:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def repeatable(folder: Path) -> str:
    """Return the table of a sweep without the columns that a clock measured, as text."""
    rows = list(csv.reader((folder / "table.csv").read_text().splitlines()))
    end = rows[0].index("point") + 1
    return "\n".join(",".join(row[:end]) for row in rows)
