"""OStrich's figures (Emeras et al., PPAM 2013, and its simulator): stretch of campaigns compared with fair share.

Logs are scheduled as in the authors' simulator: run times are known, every job runs for a minute or longer, and
backfilling plans 24 hours ahead every 5 minutes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.files import write_text
from bftrain.values import wire
from bftrain_datasets.scheduling.jobs import read_workload
from bftrain_datasets.scheduling.schedule_settings import CORES, ScheduleSettings
from bftrain_datasets.scheduling.scheduling import campaigns_table, simulate, utilisation_table
from bftrain_replay.reproducing.experiment import PUBLISHED, Experiment, Figure, Mark, Request
from bftrain_replay.sweeping.outcome_cache import program_sha256

Runs = Mapping[str, tuple[Path, Mapping[str, Any]]]  # logs and options, by name

_RULES: Final[Mapping[str, Any]] = {
    "estimates": "actual",
    "least_run_s": 60.0,
    "backfill_interval_s": 300.0,
    "backfill_window_s": 86_400.0,
    "sharing": CORES,
    "max_backlog_s": 1e9,
}
_POLICIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "OStrich": {"policy": "ostrich", "done_campaigns": "oldest-first"},
    "fair share": {"policy": "fairshare", "decay": "published", "half_life_s": 86_400.0},
}
_QUICK_JOBS: Final = 3000
_PERIODS: Final = 100  # number of utilization periods
_MOST_STRETCH: Final = 10.0  # cap of the heat map; larger values count here


class ScheduleCurves(msgspec.Struct, frozen=True):
    """One schedule for figures: columns by campaign, and the utilization from each time on."""

    user: list[str]
    created_s: list[float]
    end_s: list[float]
    stretch: list[float]
    time_s: list[float]
    used: list[float]

    def mean_used(self, periods: int) -> list[float]:
        """Return the mean utilization in equal periods of the schedule."""
        times = np.array(self.time_s)
        done = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.array(self.used[:-1]))))
        edges = np.linspace(times[0], times[-1], periods + 1)
        means: list[float] = (np.diff(np.interp(edges, times, done)) / np.diff(edges)).tolist()
        return means

    def by_user(self) -> list[float]:
        """Return the mean stretch of each user's campaigns, in ascending order."""
        _, user = np.unique(self.user, return_inverse=True)
        return sorted((np.bincount(user, self.stretch) / np.bincount(user)).tolist())


def _schedule(log: Path, options: Mapping[str, Any], tell: Callable[[float, int], None]) -> ScheduleCurves:
    settings = ScheduleSettings(**options)
    workload = read_workload(log, settings)
    span_s = max(workload.jobs.submit_s[-1], 1.0)

    def watch(at_s: float, jobs: int) -> bool:
        tell(100.0 * min(at_s / span_s, 1.0), jobs)
        return True

    result = simulate(workload, settings, watch=watch)
    campaigns, over_time = campaigns_table(result), utilisation_table(result)
    finished = [row for row, end_s in enumerate(campaigns["end_s"]) if end_s is not None]
    by_campaign = {name: [campaigns[name][row] for row in finished] for name in ScheduleCurves.__struct_fields__[:4]}
    used = [busy / (busy + free) for busy, free in zip(over_time["busy"], over_time["free"], strict=True)]
    return ScheduleCurves(**by_campaign, time_s=list(over_time["time_s"]), used=used)


def _schedule_all(request: Request, runs: Runs) -> dict[str, ScheduleCurves]:
    """Return each run's schedule by name; schedules are stored in the request's folder.

    The name of a stored schedule contains a hash of the log, the options and the program, so a stale one is never used.
    """
    schedules: dict[str, ScheduleCurves] = {}
    for name, (log, options) in runs.items():
        digest = hashlib.sha256(log.read_bytes())
        digest.update(wire.encode((sorted(options.items()), program_sha256())))
        file_name = f"{name.replace(': ', '-').replace(' ', '-')}-{digest.hexdigest()[:16]}.json"
        path = request.folder / file_name
        if not path.exists():
            curves = _schedule(log, options, partial(request.tell, name))
            write_text(request.input_path(file_name, lambda _: True, "schedule"), wire.encode(curves).decode())
        schedules[name] = wire.decode(path.read_bytes(), ScheduleCurves, where=str(path), fix="delete this file")
    return schedules


def _slides(request: Request) -> Iterator[Mark]:
    """Yield the stretch of each user's campaigns in the first example, and their ends by OStrich in the second."""
    runs = {
        f"{example} {line}": (PUBLISHED / f"{example}.swf", {"policy": line.lower(), "estimates": "actual"})
        for example, line in (("slowdown", "FCFS"), ("slowdown", "OStrich"), ("pareto", "OStrich"))
    }
    for run, curves in _schedule_all(request, runs).items():
        example, line = run.split()
        stretches = [("stretch", stretch) for stretch in curves.stretch]
        ends = [("end, 10 min", end_s / 600.0) for end_s in curves.end_s]
        for user, (quantity, value) in zip(curves.user, stretches if example == "slowdown" else ends, strict=True):
            yield Mark(line, f"{example}: {quantity}, user {user}", value)


def _of_run(figure: str, line: str, curves: ScheduleCurves) -> Iterator[Mark]:
    """Yield the values of one schedule in a figure."""
    percents = {"cdf": range(1, 101), "summary": (50, 90, 95, 100)}.get(figure, ())
    stretches = zip(percents, np.percentile(curves.stretch, percents, method="higher").tolist(), strict=True)
    if figure == "cdf":
        yield from (Mark(line, stretch, percent / 100.0) for percent, stretch in stretches)
    elif figure == "users":
        yield from (Mark(line, float(index), stretch) for index, stretch in enumerate(curves.by_user()))
    elif figure == "utilization":
        means = enumerate(curves.mean_used(_PERIODS))
        yield from (Mark(line, (period + 0.5) / _PERIODS, mean) for period, mean in means)
    else:
        yield Mark(line, "mean of campaigns", fmean(curves.stretch))
        yield Mark(line, "mean of users", fmean(curves.by_user()))
        yield from (Mark(line, f"{percent} %", stretch) for percent, stretch in stretches)
        yield Mark(line, "utilization, %", 100.0 * curves.mean_used(1)[0])


def _heat(schedules: Mapping[str, ScheduleCurves]) -> Iterator[Mark]:
    counts: Counter[tuple[float, float]] = Counter()
    for run, curves in schedules.items():
        before = np.searchsorted(curves.time_s, curves.created_s)  # the utilization just before the submission
        used = np.append(0.0, curves.used)[before]
        x = np.ceil(np.maximum(used, 0.51) * 20.0) / 20.0
        y = np.minimum(np.ceil(2.0 * np.array(curves.stretch)) / 2.0, _MOST_STRETCH)
        for cell in zip(x.tolist(), y.tolist(), strict=True):
            counts[cell] += 1 if run.endswith(": OStrich") else -1
    return (Mark(f"{stretch:g}", used, float(count)) for (used, stretch), count in sorted(counts.items()))


def _log_runs(request: Request) -> Runs:
    paths = request.published_files("*.swf", "*.swf.gz", fix=OSTRICH.traces)
    first: Mapping[str, Any] = {"first": _QUICK_JOBS} if request.quick else {}
    logs: dict[str, Path] = {}
    for path in paths[: 1 if request.quick else None]:
        label = path.name.removesuffix(".gz").removesuffix(".swf") + (", quick" if request.quick else "")
        if label in logs:
            raise BadInput(f"has the same name as {logs[label].name}", where=str(path), fix="remove one")
        logs[label] = path
    return {
        f"{label}: {line}": (log, {**_RULES, **policy, **first})
        for label, log in logs.items()
        for line, policy in _POLICIES.items()
    }


def _make(request: Request, figure: Figure) -> Figure:
    """Add the values of all schedules: of the two examples, or of the logs by both policies."""
    if figure.name == "slides":
        return replace(figure, computed_marks=tuple(_slides(request)))
    schedules = request.once("schedules", lambda: _schedule_all(request, _log_runs(request)))
    if figure.name == "heat":
        return replace(figure, computed_marks=tuple(_heat(schedules)))
    marks = (mark for run, curves in schedules.items() for mark in _of_run(figure.name, run, curves))
    return replace(figure, computed_marks=tuple(marks))


OSTRICH: Final = Experiment.read("ostrich", _make)
