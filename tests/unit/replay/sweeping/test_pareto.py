"""Two metrics against each other: which combinations no other beats, how they are drawn, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig
from tests.unit.replay.sweeping.sweep_case import planned, small, swept

METRICS = """\
POINTS = {points}

def x(run):
    return POINTS[run.settings.max_tasks - 1][0]

def y(run):
    return POINTS[run.settings.max_tasks - 1][1]
"""


def front(folder: Path, points: list[tuple[float, float]], *asked: str) -> list[int]:
    """Return which of these points, from 1 on, are on the front of a sweep that has them."""
    (folder / "mine.py").write_text(METRICS.format(points=points))
    spec = small(
        fixed={"metrics": f"{folder}/mine.py:x,{folder}/mine.py:y"},
        grid={"max_tasks": list(range(1, len(points) + 1))},
        pareto=list(asked),
        yardsticks=False,
    )
    kept = swept(spec, folder / "out").summary()["pareto"]["front"]
    return sorted(one["options"]["max_tasks"] for one in kept)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(1, 1)], [1]),
        ([(1, 2), (2, 1)], [1, 2]),
        ([(1, 1), (2, 2)], [2]),
        ([(1, 2), (2, 2)], [2]),  # as good in one is not enough
        ([(2, 2), (2, 2)], [1, 2]),
        ([(0, 5), (3, 3), (1, 4), (3, 2), (1, 3), (4, 0)], [1, 2, 3, 6]),
    ],
)
def test_the_front_is_what_no_other_beats(tmp_path: Path, points: list[tuple[float, float]], kept: list[int]) -> None:
    assert front(tmp_path, points, "metrics_x:more", "metrics_y:more") == kept


def test_less_is_better_where_it_is_asked_for(tmp_path: Path) -> None:
    # Where less of the second is better, 4 loses to 2, and 5 to 3
    points = [(1.0, 1.0), (2.0, 4.0), (5.0, 9.0), (2.0, 5.0), (4.0, 9.0)]
    assert front(tmp_path, points, "metrics_x:more", "metrics_y:less") == [1, 2, 3]
    assert front(tmp_path, points, "metrics_x:more", "metrics_y:more") == [3]
    assert front(tmp_path, points, "metrics_x:less", "metrics_y:less") == [1]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["harvested", "preemption"], r"no column of numbers 'preemption' \(did you mean 'preemptions'\?\)"),
        (["harvested", "status"], "no column of numbers 'status'"),
        (["harvested"], "must name two different columns"),
        (["harvested", "harvested:less"], "must name two different columns"),
        (["harvested", "coverage:up"], r"'coverage:up' names no direction \(write 'coverage:more' or"),
        (
            ["harvested", "decisions"],
            r"it is not known whether more of 'decisions' is better \(write 'decisions:more' or",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, asked: list[str], complaint: str) -> None:
    with pytest.raises(BadConfig, match=f"sweep: pareto: .*{complaint}"):
        planned(small(pareto=asked), tmp_path)


def test_a_sweep_has_the_front_on_its_page_as_svg_and_in_its_summary(tmp_path: Path) -> None:
    found = swept(small(grid={"max_tasks": [1, 2, 3]}, pareto=["harvested", "rescales"]), tmp_path)
    summary: dict[str, Any] = json.loads(json.dumps(found.summary()))["pareto"]
    assert summary["better"] == {"harvested": "more", "rescales": "less"}
    assert summary["combinations"] == 3
    table = {row.point.options["max_tasks"]: (row.cells["harvested"], row.cells["rescales"]) for row in found.rows}
    assert {
        one["options"]["max_tasks"]: (one["harvested"]["mean"], one["rescales"]["mean"]) for one in summary["front"]
    } == {
        tasks: (more, less)
        for tasks, (more, less) in table.items()
        if not any(a >= more and b <= less and (a, b) != (more, less) for a, b in table.values())
    }
    assert "<svg" in found.chart("pareto-harvested-rescales").svg
    assert "pareto" not in swept(small(), tmp_path / "without").summary()
