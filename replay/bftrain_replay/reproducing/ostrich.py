"""OStrich's figures (Emeras and others, PPAM 2013, and its simulator): stretch of campaigns beside fair share.

Jobs are scheduled as the authors' simulator does it: run times are known, no job runs for less than a minute, and
backfilling looks 24 hours ahead every 5 minutes.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from bftrain.errors import BadInput
from bftrain.files import write_text
from bftrain.values import wire
from bftrain_datasets.scheduling.schedule_settings import CORES, ScheduleOptions
from bftrain_datasets.scheduling.schedule_tables import campaigns_table, utilisation_table
from bftrain_datasets.scheduling.scheduling import schedule
from bftrain_replay.reproducing.experiment import Experiment, Figure, Mark, Request

_RULES: Final[ScheduleOptions] = {
    "estimates": "actual",
    "least_run_s": 60.0,
    "backfill_interval_s": 300.0,
    "backfill_window_s": 86_400.0,
    "sharing": CORES,
    "max_backlog_s": 1e9,
}
_POLICIES: Final[Mapping[str, ScheduleOptions]] = {
    "OStrich": {"policy": "ostrich", "done_campaigns": "oldest-first"},
    "fair share": {"policy": "fairshare", "decay": "published", "half_life_s": 86_400.0},
}
_QUICK_JOBS: Final = 3000
_PERIODS: Final = 100  # of the utilization
_MOST_STRETCH: Final = 10.0  # in the heat map, larger ones stand at it

FIGURES: Final = {
    "slides": "The authors' two examples: six processors, two users",
    "summary": "Stretch and utilization, all campaigns",
    "cdf": "Distribution of the stretch of campaigns",
    "users": "Mean stretch of each user's campaigns",
    "utilization": "Utilization over time",
    "heat": "Number of campaigns by stretch and utilization, OStrich less fair share",
}
# The jobs of both examples: of each campaign, in order, how many and how long; users have numbers from 1
_SLIDES: Final = {"slowdown": ((6, 1200), (6, 600)), "pareto": ((6, 600), (6, 600))}


class Course(msgspec.Struct, frozen=True):
    """One schedule for figures: columns by campaign, and the utilization from each time on."""

    user: tuple[str, ...]
    created_s: tuple[float, ...]
    end_s: tuple[float, ...]
    stretch: tuple[float, ...]
    time_s: tuple[float, ...]
    used: tuple[float, ...]

    def used_before(self, time_s: float) -> float:
        """Return the utilization just before a time."""
        place = bisect.bisect_left(self.time_s, time_s) - 1
        return self.used[place] if place >= 0 else 0.0

    def mean_used(self, periods: int) -> list[float]:
        """Return the mean utilization in equal periods of the schedule."""
        times = np.array(self.time_s)
        done = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.array(self.used[:-1]))))
        edges = np.linspace(times[0], times[-1], periods + 1)
        means: list[float] = (np.diff(np.interp(edges, times, done)) / np.diff(edges)).tolist()
        return means


def _course(log: Path, options: ScheduleOptions) -> Course:
    done = schedule(log, **options)
    campaigns, over_time = campaigns_table(done), utilisation_table(done)
    ended = [place for place, end_s in enumerate(campaigns["end_s"]) if end_s is not None]
    by_campaign = {name: tuple(campaigns[name][place] for place in ended) for name in Course.__struct_fields__[:4]}
    nodes = [busy + free for busy, free in zip(over_time["busy"], over_time["free"], strict=True)]
    used = tuple(busy / count for busy, count in zip(over_time["busy"], nodes, strict=True))
    return Course(**by_campaign, time_s=tuple(over_time["time_s"]), used=used)


def courses(request: Request, runs: Mapping[str, tuple[Path, ScheduleOptions]]) -> dict[str, Course]:
    """Return the schedule of each run by name, those that are not in the request's folder side by side."""

    def path(name: str) -> Path:
        return request.folder / f"{name.replace(' ', '-')}.json"

    todo = {name: run for name, run in runs.items() if not path(name).exists()}
    with ProcessPoolExecutor() as pool:
        for name, course in zip(
            todo, pool.map(_course, *zip(*todo.values(), strict=True)) if todo else (), strict=True
        ):
            write_text(path(name), wire.encode(course).decode())
    return {name: wire.decode(path(name).read_bytes(), Course) for name in runs}


def _slides(request: Request) -> dict[str, Course]:
    runs: dict[str, tuple[Path, ScheduleOptions]] = {}
    for name, campaigns in _SLIDES.items():
        log = request.folder / f"{name}.swf"
        jobs = [(user, run_s) for user, (count, run_s) in enumerate(campaigns, 1) for _ in range(count)]
        lines = [
            f"{n} 0 -1 {run_s} 1 -1 -1 1 {run_s} -1 1 {user} 1 1 1 1 -1 -1" for n, (user, run_s) in enumerate(jobs, 1)
        ]
        write_text(log, "; MaxProcs: 6\n" + "\n".join(lines) + "\n")
        for line, policy in {"FCFS": "fcfs", "OStrich": "ostrich"}.items():
            runs[f"{name} {line}"] = log, {"policy": policy, "estimates": "actual"}
    return courses(request, runs)


def _slide_marks(done: Mapping[str, Course]) -> Iterator[Mark]:
    for run, course in done.items():
        name, line = run.split()
        values = course.stretch if name == "slowdown" else [end_s / 600.0 for end_s in course.end_s]
        what = "stretch" if name == "slowdown" else "end, 10 min"
        for user, value in zip(course.user, values, strict=True):
            if name == "slowdown" or line == "OStrich":
                yield Mark(line, f"{name}: {what}, user {user}", value)


def _by_user(course: Course) -> list[float]:
    stretches: dict[str, list[float]] = {}
    for user, stretch in zip(course.user, course.stretch, strict=True):
        stretches.setdefault(user, []).append(stretch)
    return sorted(sum(each) / len(each) for each in stretches.values())


def _summary(line: str, course: Course) -> Iterator[Mark]:
    yield Mark(line, "mean of campaigns", float(np.mean(course.stretch)))
    yield Mark(line, "mean of users", float(np.mean(_by_user(course))))
    for percent in (50, 90, 95, 100):
        value = float(np.percentile(course.stretch, percent, method="higher"))
        yield Mark(line, f"{percent} % of campaigns", value)
    yield Mark(line, "utilization, %", 100.0 * course.mean_used(1)[0])


def _cdf(line: str, course: Course) -> Iterator[Mark]:
    for percent in range(1, 101):
        yield Mark(line, float(np.percentile(course.stretch, percent, method="higher")), percent / 100.0)


def _users(line: str, course: Course) -> Iterator[Mark]:
    for index, stretch in enumerate(_by_user(course)):
        yield Mark(line, float(index), stretch)


def _utilization(line: str, course: Course) -> Iterator[Mark]:
    for period, used in enumerate(course.mean_used(_PERIODS)):
        yield Mark(line, (period + 0.5) / _PERIODS, used)


def _heat(pairs: Sequence[Mapping[str, Course]]) -> Iterator[Mark]:
    counts: dict[tuple[float, float], int] = {}
    for pair in pairs:
        for course, sign in ((pair["OStrich"], 1), (pair["fair share"], -1)):
            for created_s, stretch in zip(course.created_s, course.stretch, strict=True):
                used = math.ceil(max(course.used_before(created_s), 0.51) * 20.0) / 20.0
                place = used, min(math.ceil(2.0 * stretch) / 2.0, _MOST_STRETCH)
                counts[place] = counts.get(place, 0) + sign
    for (used, stretch), count in sorted(counts.items()):
        yield Mark(f"{stretch:g}", used, float(count))


_BY_RUN: Final[Mapping[str, Callable[[str, Course], Iterator[Mark]]]] = {
    "summary": _summary,
    "cdf": _cdf,
    "users": _users,
    "utilization": _utilization,
}
_AXES: Final[Mapping[str, Mapping[str, Any]]] = {
    "slides": {"x": "", "y": "stretch, or end in 10 minutes", "form": "bars"},
    "summary": {"x": "", "y": "stretch, or utilization in %", "form": "bars", "digits": 3},
    "cdf": {"x": "stretch", "y": "share of campaigns", "form": "steps", "log_x": True},
    "users": {"x": "users by mean stretch", "y": "mean stretch of campaigns", "log_y": True},
    "utilization": {"x": "share of the time", "y": "utilization"},
    "heat": {"x": "utilization at the submission", "y": "stretch", "form": "heat", "digits": 0},
}


def _prepare(request: Request) -> list[Figure]:
    folder = request.traces or Path()
    logs = sorted(path for path in folder.iterdir() if path.name.endswith((".swf", ".swf.gz")))
    wanted = [name for name in request.figures if name != "slides"]
    if wanted and not logs:
        raise BadInput("contains no *.swf or *.swf.gz", where=str(folder), fix=f"name {OSTRICH.needs}")
    logs = logs[: 1 if request.quick else None] if wanted else []
    first: ScheduleOptions = {"first": _QUICK_JOBS} if request.quick else {}
    label = {log: f"{log.name.partition('.')[0]}{', quick' if request.quick else ''}" for log in logs}
    runs = {
        f"{label[log]}: {line}": (log, ScheduleOptions(**_RULES, **own, **first))
        for log in logs
        for line, own in _POLICIES.items()
    }
    done = courses(request, runs)
    pairs = [{line: done[f"{label[log]}: {line}"] for line in _POLICIES} for log in logs]

    def marks(name: str) -> Iterator[Mark]:
        if name == "slides":
            yield from _slide_marks(_slides(request))
        elif name == "heat":
            yield from _heat(pairs)
        else:
            for run, course in done.items():
                yield from _BY_RUN[name](run, course)

    return [Figure(name=name, title=FIGURES[name], ready=tuple(marks(name)), **_AXES[name]) for name in request.figures]


OSTRICH: Final = Experiment(
    name="ostrich",
    title="OStrich",
    source="Emeras, Pinheiro, Rzadca, Trystram, PPAM 2013",
    figures=FIGURES,
    prepare=_prepare,
    needs="a folder with logs of the Parallel Workloads Archive, *.swf or *.swf.gz",
)
