"""Jobs to schedule, the SWF log that holds them, and schedules made of them by ``bftrain.schedule``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from bftrain import EventLog, schedule

NEVER = float("inf")
LONGEST_S = 1e15


class Row(NamedTuple):
    """A job in seconds."""

    submit: float
    run: float
    size: int = 1
    limit: float = 0.0
    user: int = 1


class Made:
    """A schedule; ``result`` is all that ``bftrain.schedule`` returned."""

    def __init__(self, result: Any) -> None:  # noqa: ANN401 - of bftrain.schedule()
        self.result = result

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the schedule
        return getattr(self.result.schedule, name)


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
    max_backlog_s: float = LONGEST_S,
    **more: Any,  # noqa: ANN401 - further options
) -> Made:
    """Schedule jobs; times count from the first submission, and ``shares`` are those of the users in order."""
    given = {"backfill_depth": depth, "half_life_s": half_life_s, "campaign_gap_s": gap_s, **more}
    with tempfile.TemporaryDirectory() as folder:
        log, users = swf(Path(folder) / "log.swf", rows), Path(folder) / "shares"
        if shares:
            names = sorted({row.user for row in rows})
            users.write_text("".join(f"{name} {share}\n" for name, share in zip(names, shares, strict=True)))
            given["shares"] = str(users)
        if until_s < NEVER:
            given["until"] = repr(until_s)
        given |= {"nodes": nodes, "estimates": estimates, "max_backlog_s": max_backlog_s}
        if isinstance(policy, str):
            return Made(schedule(log, policy=policy, **given))
        with mock.patch("bftrain_datasets.scheduling.scheduling.find_policy", return_value=policy):
            return Made(schedule(log, **given))


def starts(rows: Sequence[Row], nodes: int, policy: str, estimates: str = "limit", **options: object) -> list[float]:
    return list(scheduled(rows, nodes, policy, estimates, **options).start_s)  # type: ignore[arg-type]  # see scheduled


def swf(path: Path, rows: Sequence[Row], *header: str) -> Path:
    lines = [f"; {line}" for line in header]
    for number, row in enumerate(rows, start=1):
        head = f"{number} {row.submit:.15g} -1 {row.run:.15g} {row.size} -1 -1 {row.size} {row.limit or -1:.15g}"
        lines.append(f"{head} -1 1 {row.user} 1 -1 1 -1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def figures(made: Made) -> Any:  # noqa: ANN401 - as schedules have them
    """Return the figures of each campaign."""
    return made.result.campaigns


def job_states(made: Made) -> list[str]:
    return list(made.result.jobs.state)


def placed(rows: Sequence[Row], nodes: int, *, per_node: int = 1, until_s: float = NEVER) -> tuple[list[str], EventLog]:
    """Schedule jobs by the policy easy; return their nodes, and the log that follows."""
    shared = {"sharing": "cores", "cores_per_node": per_node} if per_node > 1 else {}
    result = scheduled(rows, nodes // per_node, "easy", until_s=until_s, **shared).result
    return result.node_sets, result.log


def written(result: Any, folder: Path, **options: Any) -> Path:  # noqa: ANN401 - a result of schedule()
    """Write the files of a schedule into a folder."""
    result.write(folder, **options)
    return folder
