"""Small logs and tasks whose replay can be followed by hand; replays of them, and their files and pages."""

from __future__ import annotations

import csv
import html
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import bftrain
from bftrain import EventLog, ReplaySettings, Settings, SpeedCurve, TaskSpec, generate_mix
from bftrain_datasets.log.eventlog import LogBuilder, log_from_pool_changes
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.simulation.fixed_cluster import FixedCluster
from bftrain_replay.study.study import check_parts, cluster_study

__all__ = ["LogBuilder", "log_from_pool_changes"]

# What bftrain.replay() and bftrain.rounds() return, and parts of it
ReplayOutcome: TypeAlias = Any
ReplayResult: TypeAlias = Any
ReplayStudy: TypeAlias = Any
RoundResult: TypeAlias = Any
TaskRecord: TypeAlias = Any

START_S = 1_000_000.0  # logs begin at some epoch; everything in a replay counts from there
MEASURED = {"wall_s", "decisions_per_s", "decide_ms", "solve_ms", "decide_ms_bins"}  # the last one up to release 0.1.0


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


def mix(count: int, seed: int, **shape: Any) -> Sequence[TaskSpec]:  # noqa: ANN401 - the fields' own types
    """Generate tasks of several models."""
    return generate_mix(count, seed, shape=TaskShape(**shape))


def replayed(log: EventLog, tasks: Sequence[TaskSpec], **settings: Any) -> ReplayResult:  # noqa: ANN401 - the fields' own types
    """Replay by what tasks say of costs."""
    if settings.get("semantics") != "published":
        settings = {"progress": "task", **settings}
    return bftrain.replay(log, tasks, **settings).result


def on_cluster(
    nodes: Mapping[str, int],
    tasks: Sequence[TaskSpec],
    settings: Settings | None = None,
    *,
    until_s: float | None = None,
    baseline: str = "",
    watch: Callable[[str, float, int], bool] | None = None,
) -> ReplayStudy:
    """Replay on nodes that never leave."""
    parts = check_parts(settings or ReplaySettings(), baseline)
    return cluster_study(FixedCluster(nodes=nodes, until_s=until_s), tasks, parts, watch)


def rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary_of(folder: Path) -> dict[str, Any]:
    """Read the figures of a replay in a folder."""
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def page_of(done: ReplayOutcome, title: str = "") -> str:
    """Return the page of a replay."""
    with tempfile.TemporaryDirectory() as folder:
        done.report(Path(folder) / "page.html", title=title)
        return (Path(folder) / "page.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Return the words of a page, without its scripts and tags."""
    bare = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(bare))


def figures_of(page: str) -> dict[str, Any]:
    """Return the data of a page's figures, by name."""
    found: dict[str, Any] = json.loads(page.split('id="page-data">')[1].split("</script>", maxsplit=1)[0])["figures"]
    return found


def without_times(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures without those that a clock measured."""
    return {
        name: without_times(value) if isinstance(value, dict) else value
        for name, value in summary.items()
        if name not in MEASURED
    }


def replay_files(done: ReplayOutcome, folder: Path) -> dict[str, object]:
    """Write a replay; return its files that no clock affects, and its summary without measured times."""
    done.write(folder)
    clocked = {"summary.json", "report.html", "SHA256SUMS"}
    files: dict[str, object] = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in clocked}
    return {**files, "summary": without_times(summary_of(folder))}
