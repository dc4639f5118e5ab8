"""How long policies think, against the number of tasks: python docs/scripts/policy_times.py [--svg FILE].

Every sharing policy, objective and solver of the registry decides on the same problems, of 32 to 2,048 tasks that have
a past. Prints tables, and draws the picture of docs/explanation/performance.md. Parts that are not installed
are left out, and a part that takes more than a few seconds gets no larger problem.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from bftrain import assembly, registry, text_formats
from bftrain.errors import BftrainError
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.sharing import SharingProblem, SharingTask
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.vega import svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COUNTS: Final = (32, 128, 512, 2048)
KINDS: Final = ("v100", "p100", "k80")
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
NODES_A_TASK: Final = 10  # nodes per task of an allocation problem; sharing has six tasks per node
LONG_S: Final = 2.0  # slower policies are not measured with more tasks
ROUNDS: Final = 3
_HEIGHT: Final = 300  # pixels of a panel
_LETTERS: Final = 12.5  # pixels of a line of text
EXACT: Final = "exact"


Ask = Callable[[int], float]


class Time(NamedTuple):
    """The shortest of a few measured times of a policy, for a number of tasks."""

    group: str
    policy: str
    tasks: int
    seconds: float


def allocation(count: int, seed: int = 0) -> AllocationProblem:
    """Give tasks of sixteen users with curves that flatten out, half of which hold nodes."""
    rng = np.random.default_rng(seed)
    tasks = []
    for place in range(count):
        bend, single = rng.uniform(0.6, 1.0), rng.uniform(10.0, 1000.0)
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                size=int(rng.integers(0, NODES_A_TASK)) * (place % 2),
                max_nodes=64,
                curve=SpeedCurve(nodes=SIZES, rate=tuple(single * nodes**bend for nodes in SIZES)),
                weight=float(rng.choice([1.0, 2.0, 4.0])),
                user=f"user{place % 16}",
                work_left_samples=float(rng.uniform(1e3, 1e7)),
                deadline_in_s=float(rng.uniform(1e2, 1e6)),
                age_s=float(rng.uniform(0.0, 1e4)),
                done_samples=float(rng.uniform(0.0, 1e5)),
                held_node_s=float(rng.uniform(0.0, 1e5)),
                grow_cost_s=18.0,
                shrink_cost_s=12.0,
                start_cost_s=18.0,
            )
        )
    return AllocationProblem(pool=NODES_A_TASK * count, horizon_s=120.0, tasks=tuple(tasks))


def sharing(count: int, seed: int = 0) -> SharingProblem:
    """Give gangs of all kinds of speeds, six times as many as there is room for, of sixteen groups."""
    rng = np.random.default_rng(seed)
    speeds, gangs = rng.lognormal(0.0, 1.0, (count, 3)), rng.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.15, 0.05])
    tasks = tuple(
        SharingTask(
            name=f"t{place}",
            speeds=dict(zip(KINDS, row, strict=True)),
            nodes=int(gangs[place]),
            weight=float(rng.choice([1.0, 2.0, 5.0])),
            entity=f"group{place % 16}",
            work_left_samples=float(rng.lognormal(5.0, 1.0)),
        )
        for place, row in enumerate(speeds.tolist())
    )
    return SharingProblem(nodes=dict.fromkeys(KINDS, max(count // 18, 8)), tasks=tasks)


def groups() -> dict[str, dict[str, Ask]]:
    """Return all solvers, and how to call them."""
    return {
        "sharing policies, three kinds of nodes": {name: partial(_share, name) for name in registry.parts("sharing")},
        "objectives, by the solver exact": {name: partial(_solve, name, EXACT) for name in registry.parts("objective")},
        "solvers, for throughput": {name: partial(_solve, "throughput", name) for name in registry.parts("solver")},
    }


def _share(policy: str, count: int) -> float:
    given = sharing(count)
    return _timed(lambda: assembly.share(given, policy))


def _solve(objective: str, solver: str, count: int) -> float:
    given = replace(allocation(count), objective=objective)
    return _timed(lambda: assembly.solve(given, solver))


def _timed(ask: Callable[[], object]) -> float:
    best = np.inf
    for _ in range(ROUNDS):
        begun = perf_counter()
        ask()
        best = min(best, perf_counter() - begun)
        if best > LONG_S:
            break
    return float(best)


def times(counts: Sequence[int] = COUNTS, only: Iterable[str] = ()) -> Iterator[Time]:
    """Run all, or ``only`` some, with ever more tasks."""
    wanted = frozenset(only)
    for group, asked in groups().items():
        for name, ask in asked.items():
            if wanted and name not in wanted:
                continue
            for count in counts:
                try:
                    seconds = ask(count)
                except BftrainError as error:
                    print(f"{name}, {count} tasks: {error}", file=sys.stderr)  # noqa: T201 - for who runs it
                    break
                yield Time(group, name, count, seconds)
                if seconds > LONG_S:
                    break


def tables(found: Sequence[Time]) -> Iterator[str]:
    """Give a table for each group, the quickest first."""
    for group in dict.fromkeys(each.group for each in found):
        of_group = {(each.policy, each.tasks): each.seconds for each in found if each.group == group}
        policies = sorted({policy for policy, _ in of_group}, key=lambda name: _rank(of_group, name))
        yield f"| {group} | " + " | ".join(f"{count:,} tasks" for count in COUNTS) + " |"
        yield "|---" * (1 + len(COUNTS)) + "|"
        for policy in policies:
            cells = (_said(of_group.get((policy, count))) for count in COUNTS)
            yield f"| `{policy}` | " + " | ".join(cells) + " |"
        yield ""


def _rank(of_group: dict[tuple[str, int], float], policy: str) -> tuple[int, float]:
    """Who got further comes first, then who was quicker there."""
    most = max(count for name, count in of_group if name == policy)
    return -most, of_group[policy, most]


def _said(seconds: float | None) -> str:
    return text_formats.UNKNOWN if seconds is None else text_formats.milliseconds(1e3 * seconds)


def picture(found: Sequence[Time]) -> ChartFigure:
    """Draw all of them on logarithmic axes, a panel for each group."""
    rows: list[dict[str, Any]] = [
        {"group": each.group, "policy": each.policy, "tasks": each.tasks, "ms": 1e3 * each.seconds} for each in found
    ]
    last = {(each.group, each.policy): each.tasks for each in found}
    ends = [row for row in rows if row["tasks"] == last[row["group"], row["policy"]]]
    x = {
        "field": "tasks",
        "type": "quantitative",
        "title": "tasks",
        "scale": {"type": "log", "domain": [COUNTS[0], 10 * COUNTS[-1]], "nice": False},
        "axis": {"values": list(COUNTS), "format": ",d", "grid": False},
    }
    powers = range(
        math.floor(math.log10(min(row["ms"] for row in rows))),
        1 + math.ceil(math.log10(max(row["ms"] for row in rows))),
    )
    y = {
        "field": "ms",
        "type": "quantitative",
        "title": "milliseconds for one decision",
        "scale": {"type": "log", "domain": [10.0 ** powers[0], 10.0 ** powers[-1]]},
        "axis": {"format": ",~g", "values": [10.0**power for power in powers]},
    }
    apart = 10.0 ** (_LETTERS * (len(powers) - 1) / _HEIGHT)
    detail = {"detail": {"field": "policy", "type": "nominal"}}
    panels = [
        {
            "title": {"text": group, "anchor": "start", "fontSize": 13, "color": "@ink", "fontWeight": "normal"},
            "width": 620,
            "height": _HEIGHT,
            "layer": [
                {
                    "data": {"values": [row for row in rows if row["group"] == group]},
                    "mark": {"type": "line", "strokeWidth": 1.5, "color": "@used", "opacity": 0.6},
                    "encoding": {"x": x, "y": y, **detail},
                },
                {
                    "data": {"values": _spread_out([row for row in ends if row["group"] == group], apart)},
                    "mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 11},
                    "encoding": {"x": x, "y": {**y, "field": "at"}, "text": {"field": "policy", "type": "nominal"}},
                },
            ],
        }
        for group in dict.fromkeys(each.group for each in found)
    ]
    words_of_it = "How long one decision took against the number of tasks, a line a policy."
    return ChartFigure(name="policy-times", title="", alt=words_of_it, spec={"vconcat": panels})


def _spread_out(ends: list[dict[str, Any]], apart: float) -> list[dict[str, Any]]:
    """Keep names at the ends of lines apart: each is higher than the one below by at least this factor."""
    placed: list[dict[str, Any]] = []
    least: dict[int, float] = {}
    for row in sorted(ends, key=lambda row: (row["tasks"], row["ms"])):
        at = max(row["ms"], least.get(row["tasks"], 0.0))
        least[row["tasks"]] = at * apart
        placed.append({**row, "at": at})
    return placed


def main(arguments: Sequence[str]) -> None:
    """Measure, print, draw."""
    found = list(times())
    for line in tables(found):
        print(line)  # noqa: T201 - this is what it is for
    if "--svg" in arguments:
        Path(arguments[arguments.index("--svg") + 1]).write_text(svg(picture(found)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
