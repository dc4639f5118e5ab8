"""Small logs and tasks whose replay can be followed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bftrain import EventLog, Settings, SpeedCurve, TaskSpec, build_harvester, summaries
from bftrain.values import wire
from bftrain_datasets.log.builder import log_from_pool_changes
from bftrain_replay import replay_folder
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import InputSource
from bftrain_replay.results.result import ReplayResult, result_of
from bftrain_replay.simulation.engine import run
from bftrain_replay.simulation.task_progress import TaskProgress
from bftrain_replay.study import ReplayStudy

MEASURED = {"summary.json", "report.html"}  # what a clock measured stands in them
START_S = 1_000_000.0  # logs begin at some epoch; everything in a replay counts from there


def log_of(*changes: tuple[float, Iterable[str], Iterable[str]], end_s: float, start_s: float = START_S) -> EventLog:
    """Make a log out of ``(seconds since its start, nodes that join, nodes that leave)``."""
    moved = [(start_s + time_s, tuple(joined), tuple(left)) for time_s, joined, left in changes]
    names = sorted({name for _, joined, left in moved for name in (*joined, *left)}) or ["a"]
    return log_from_pool_changes(moved, node_names=names, begin_s=start_s, end_s=start_s + end_s)


def curve_of(*rate: float) -> SpeedCurve:
    """Speeds on 1, 2, 3, ... nodes."""
    return SpeedCurve(nodes=tuple(range(1, len(rate) + 1)), rate=rate)


def task(name: str = "t", *, rate: tuple[float, ...] = (10.0, 18.0), **given: object) -> TaskSpec:
    """Make a task that takes up to as many nodes as it has speeds; it costs nothing unless said otherwise."""
    return TaskSpec(name=name, curve=curve_of(*rate), **({"max_nodes": len(rate)} | given))  # type: ignore[arg-type]  # the fields' own types


def replayed(log: EventLog, tasks: Sequence[TaskSpec], **settings: object) -> ReplayResult:
    how = Settings(**settings)  # type: ignore[arg-type]  # the fields' own types
    return result_of(run(log, tasks, build_harvester(how)), how)


def progress(spec: TaskSpec, now_s: float = 0.0) -> TaskProgress:
    return TaskProgress(spec, spec.curve.speeds(spec.max_nodes).tolist(), now_s)


def study_files(done: ReplayStudy, folder: Path) -> dict[str, bytes]:
    """Write a study; return its files that no clock affects, and its summary without measured times."""
    replay_folder.write(done, folder)
    content = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in MEASURED}
    return content | {
        "summary": wire.encode(
            summaries.without_measured(summary_json.summary(done, InputSource()), summary_json.MEASURED)
        )
    }
