"""Profiles of scripts from the speeds that a live run measured, for the tasks of the next one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.taskfiles.records import Profile
from bftrain.values.curve import SpeedCurve


def script_of(argv: Iterable[str]) -> str:
    """Return the name of a command's profile: its first word, without folder and suffix.

    >>> script_of(["/home/ada/cnn.py", "--steps", "500"])
    'cnn'
    """
    return Path(next(iter(argv), "")).stem


def learned_profiles(records: Iterable[LiveTaskRecord], source: str) -> tuple[Profile, ...]:
    """Return a profile for each script with measured tasks: of each size and cost the median over its tasks.

    Only sizes whose speed was measured well enough count.
    """
    rates: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        script, progress = script_of(record.run.argv), record.progress
        for size in progress.settled:
            if progress.speeds.get(size, 0.0) > 0.0:
                rates[script][size].append(progress.speeds[size])
        for change, cost_s in progress.costs.items():
            costs[script][change].append(cost_s)
    return tuple(
        Profile(
            name=script,
            curve=SpeedCurve(
                nodes=tuple(sorted(by_size)), rate=tuple(median(by_size[size]) for size in sorted(by_size))
            ),
            grow_cost_s=median(costs[script].get("grow", [0.0])),
            shrink_cost_s=median(costs[script].get("shrink", [0.0])),
            start_cost_s=median(costs[script]["start"]) if "start" in costs[script] else None,
            source=source,
        )
        for script, by_size in rates.items()
    )
