"""One replay in a process of its own, which prints its figures as JSON.

Alone in its process, it shows how much memory a replay needs, and no other test's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from msgspec.structs import replace

from bftrain import Settings, TaskSpec, build_harvester, generate_log, generate_mix, load_log, load_tasks, save_log
from bftrain_datasets.log.eventlog import LogBuilder
from bftrain_datasets.workloads.task_generators import TaskShape, generate_trials
from bftrain_replay.simulation.engine import run

ROOT = Path(__file__).parents[2]
YEAR_S = 365 * 86400.0
_PIECE_DAYS = 4.0
PIECES = 123  # of some 8,137 events each: a year of a million


@dataclass(frozen=True, slots=True, kw_only=True)
class Figured:
    """What a replay took: seconds on the wall and of a core, decisions, and the peak of memory."""

    wall_s: float
    core_s: float
    solve_s: float
    events: int
    decisions: int
    finished: int
    tasks: int
    peak_mb: float


def figured(
    log: Path, *, max_tasks: int, tasks: Path | None = None, times: int = 1, work_samples: float = 1.3e8
) -> Figured:
    """Replay in a new process; without a task file tasks are generated, ``times`` says how often they all come."""
    given = [str(log), str(max_tasks), str(times), str(work_samples), *([str(tasks)] if tasks else [])]
    command = [sys.executable, "-m", "tests.helpers.replay_case", *given]
    ended = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return Figured(**json.loads(ended.stdout))


def save_year(path: Path, pieces: int) -> None:
    """Save ``pieces`` of the ``PIECES`` of a year of 10,000 nodes with a million events: one log again and again.

    In every piece other nodes play the parts, so that it never repeats. The year is made up of pieces because to
    generate so long a log in one go takes far more memory than to replay it.
    """
    piece = generate_log(10_000, _PIECE_DAYS, seed=0)
    count = len(piece.node_names)
    at = np.repeat(piece.times - piece.start_s, np.diff(piece.offsets))
    piece_s = YEAR_S / PIECES
    busy = np.arange(count)
    builder = LogBuilder(piece.node_names)
    for number in range(pieces):
        begin_s = number * piece_s
        shifted = (piece.nodes + 1237 * number) % count
        builder.add_columns(np.full(count, begin_s), busy, np.zeros(count, dtype=np.int8))  # a piece begins from none
        builder.add_columns(begin_s + at * (piece_s / piece.span_s), shifted, piece.states)
    save_log(builder.build(begin_s=0.0, end_s=piece_s * pieces), path)


def _tasks(path: str | None, span_s: float, times: int, work_samples: float) -> Sequence[TaskSpec]:
    shape = TaskShape(work_samples=work_samples)
    if path is not None:
        base = load_tasks(path)
    elif times == 1:
        base = generate_trials(max(1000, int(span_s / 80 * 1.3e8 / work_samples)), seed=0, shape=shape)
    else:
        base = generate_mix(1001, seed=0, shape=shape)
    return [replace(spec, name=f"{spec.name}-{number}") for number in range(times) for spec in base]


def _peak_mb() -> float:
    """Return the most memory this process ever held; the figure of getrusage begins with that of the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def _main(log_path: str, max_tasks: str, times: str, work_samples: str, task_path: str | None = None) -> None:
    log = load_log(log_path)
    tasks = _tasks(task_path, log.span_s, int(times), float(work_samples))
    begun_s, core_s = perf_counter(), process_time()
    done = run(log, tasks, build_harvester(Settings(max_tasks=int(max_tasks))))
    print(  # noqa: T201 - a program of its own, which tells its caller
        json.dumps(
            {
                "wall_s": perf_counter() - begun_s,
                "core_s": process_time() - core_s,
                "solve_s": sum(done.decisions.solve_s),
                "events": len(log),
                "decisions": len(done.decisions),
                "finished": sum(getattr(task, "finish_s", None) is not None for task in done.tasks),
                "tasks": len(tasks),
                "peak_mb": _peak_mb(),
            }
        )
    )


if __name__ == "__main__":
    _main(*sys.argv[1:])
