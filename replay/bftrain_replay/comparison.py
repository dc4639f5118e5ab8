"""The same figures of several replays side by side, in words; the terminal and the report show them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bftrain_replay import words
from bftrain_replay.progress import Loss
from bftrain_replay.result import Result
from bftrain_replay.study import Study

_ROWS: Final[tuple[tuple[str, Callable[[Result], str]], ...]] = (
    ("harvest, samples", lambda result: words.large(result.harvested_samples)),
    ("efficiency U", lambda result: words.percent(result.efficiency)),
    ("idle node-time used", lambda result: words.percent(result.coverage)),
    ("lost to preemption", lambda result: words.percent(result.lost_share(Loss.PREEMPTION))),
    (
        "lost to rescaling and start-up",
        lambda result: words.percent(result.lost_share(Loss.RESCALING, Loss.START_UP)),
    ),
    ("tasks finished", lambda result: f"{result.tasks_finished:,} of {len(result.tasks):,}"),
)


def columns(study: Study) -> dict[str, Result]:
    """Name the replays that are compared: by their solver, and the ceiling."""
    named = {study.result.settings.solver: study.result}
    if study.baseline is not None:
        named[study.baseline.settings.solver] = study.baseline
    if study.ceiling is not None:
        named["ceiling (no costs)"] = study.ceiling
    return named


def rows(study: Study, *, measured: bool) -> list[tuple[str, ...]]:
    """Give a label and one cell a replay in each row; with ``measured``, the decision times too."""
    results = list(columns(study).values())
    table = [(label, *(tell(result) for result in results)) for label, tell in _ROWS]
    if any(result.makespan_s is not None for result in results):
        table.append(("all tasks finished after", *(words.duration(result.makespan_s) for result in results)))
    if measured:
        spreads = [result.timings().decide_ms for result in results]
        table.append(("decision time, median", *(words.milliseconds(spread.p50) for spread in spreads)))
        table.append(("decision time, p99", *(words.milliseconds(spread.p99) for spread in spreads)))
    return table
