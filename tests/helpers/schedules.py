"""Jobs to schedule, without a file; and schedules made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bftrain import EventLog
from bftrain_datasets.log.provenance import LogProvenance
from bftrain_datasets.scheduling import schedule_figures, schedule_folder
from bftrain_datasets.scheduling.job_placement import PlacedJobs, place
from bftrain_datasets.scheduling.jobs import UNLIMITED, JobTable, RuntimeEstimator
from bftrain_datasets.scheduling.schedule_engine import JobSchedule, ScheduleEngine
from bftrain_datasets.scheduling.schedule_settings import OLDEST_FIRST, PolicyOptions
from bftrain_datasets.scheduling.scheduling import find_policy

NEVER = float("inf")


class Row(NamedTuple):
    """A job in seconds."""

    submit: float
    run: float
    size: int = 1
    limit: float = 0.0
    user: int = 1


def jobs_of(rows: Sequence[Row], shares: Sequence[float] = ()) -> JobTable:
    """Make jobs out of rows, which must be in order of submission."""
    users = sorted({row.user for row in rows})
    fields = [
        [str(number), f"{row.submit}", "-1", f"{row.run}", str(row.size), *["-1"] * 6, str(row.user), *["-1"] * 6]
        for number, row in enumerate(rows, start=1)
    ]
    return JobTable(
        begin_s=0.0,
        submit_s=[float(row.submit) for row in rows],
        run_s=[float(row.run) for row in rows],
        limit_s=[float(row.limit) or UNLIMITED for row in rows],
        size=[row.size for row in rows],
        procs=[row.size for row in rows],
        user=[users.index(row.user) for row in rows],
        users=tuple(map(str, users)),
        shares=tuple(shares) or (1.0,) * len(users),
        fields=fields,
    )


def scheduled(  # noqa: PLR0913 - one option each
    rows: Sequence[Row],
    nodes: int,
    policy: Any,  # noqa: ANN401 - a name, or a policy
    estimates: str = "limit",
    *,
    shares: Sequence[float] = (),
    depth: int = 50,
    half_life_s: float = 0.0,
    gap_s: float = 600.0,
    until_s: float = NEVER,
    max_backlog_s: float = NEVER,
    **more: Any,  # noqa: ANN401 - further options of the policy
) -> JobSchedule:
    jobs = jobs_of(rows, shares)
    if isinstance(policy, str):
        options = PolicyOptions(backfill_depth=depth, half_life_s=half_life_s, shares=jobs.shares, **more)
        policy = find_policy(policy, options)
    whole = more.get("done_campaigns") == OLDEST_FIRST
    engine = ScheduleEngine(jobs, nodes, policy, RuntimeEstimator(estimates, jobs), gap_s, whole_seconds=whole)
    return engine.run(until_s, max_backlog_s)


def starts(rows: Sequence[Row], nodes: int, policy: str, estimates: str = "limit", **options: object) -> list[float]:
    return list(scheduled(rows, nodes, policy, estimates, **options).start_s)  # type: ignore[arg-type]  # see scheduled


def swf(path: Path, rows: Sequence[Row], *header: str) -> Path:
    lines = [f"; {line}" for line in header]
    for number, row in enumerate(rows, start=1):
        head = f"{number} {row.submit:.15g} -1 {row.run:g} {row.size} -1 -1 {row.size} {row.limit or -1:g}"
        lines.append(f"{head} -1 1 {row.user} 1 -1 1 -1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def figures(made: JobSchedule) -> schedule_figures.CampaignFigures:
    """Return the figures of each campaign."""
    return schedule_figures.figures(made)


def job_states(made: JobSchedule) -> list[str]:
    return list(schedule_figures.job_figures(made).state)


def placed(
    rows: Sequence[Row], nodes: int, placement: str, *, per_node: int = 1, until_s: float = NEVER
) -> tuple[PlacedJobs, EventLog]:
    """Schedule jobs by the policy easy; return their nodes, and the log that follows."""
    places = place(scheduled(rows, nodes, "easy", until_s=until_s), placement, per_node=per_node)
    return places, places.log(0.0, LogProvenance())


def written(result: Any, folder: Path, **options: str) -> Path:  # noqa: ANN401 - a result of schedule()
    """Write the files of a schedule into a folder."""
    folder.mkdir(exist_ok=True)
    schedule_folder.write(result, folder, **options)
    return folder
