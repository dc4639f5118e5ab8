"""Two metrics against each other: which combinations no other beats, how they are drawn, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, UsageError
from bftrain_replay.drawing import vega
from bftrain_replay.sweeping.pareto_front import ParetoPlane, front, in_summary
from tests.unit.replay.sweeping.sweep_case import Here, OutcomeFile, PreparedSweep, done_rows, small

ASKED = ("harvested", "preemptions")
# harvested (more is better), preemptions (less is better): "d" loses to "b", "e" to "c"
PLACES: dict[str, tuple[float, float]] = {
    "a": (1e6, 1.0), "b": (2e6, 4.0), "c": (5e6, 9.0), "d": (2e6, 5.0), "e": (4e6, 9.0),
}  # fmt: skip
ROWS = done_rows(
    *({"solver": name} for name in PLACES),
    harvested=lambda one: PLACES[one["solver"]][0],
    preemptions=lambda one: PLACES[one["solver"]][1],
)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([], []),
        ([(1, 1)], [True]),
        ([(1, 2), (2, 1)], [True, True]),
        ([(1, 1), (2, 2)], [False, True]),
        ([(1, 2), (2, 2)], [False, True]),  # as good in one is not enough
        ([(2, 2), (2, 2)], [True, True]),
        ([(0, 5), (3, 3), (1, 4), (3, 2), (1, 3), (4, 0)], [True, True, True, False, False, True]),
    ],
)
def test_the_front_is_what_no_other_beats(points: list[tuple[float, float]], kept: list[bool]) -> None:
    assert front(points) == kept


def test_less_is_better_where_the_metric_says_so_or_is_asked_to() -> None:
    def best(*asked: str) -> list[object]:
        return [point.cells[0] for point in ParetoPlane.of(ROWS, asked, ["solver"]).front]

    assert best(*ASKED) == ["a", "b", "c"]
    assert best("harvested", "preemptions:more") == ["c"]
    assert best("harvested:less", "preemptions") == ["a"]


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
def test_what_cannot_be_drawn_is_refused(asked: list[str], complaint: str) -> None:
    with pytest.raises(BadConfig, match=f"sweep: pareto: .*{complaint}"):
        PreparedSweep.of(small(pareto=asked))
    with pytest.raises(UsageError, match=f"--pareto: .*{complaint}"):
        PreparedSweep.of(small(), pareto=asked)


def test_a_sweep_has_the_front_on_its_page_as_svg_and_in_its_summary(tmp_path: Path) -> None:
    sweep = PreparedSweep.of(small(grid={"max_tasks": [1, 2, 3]}, pareto=["harvested", "rescales"]), tmp_path)
    with OutcomeFile(tmp_path) as outcomes:
        sweep.run(outcomes, Here())
        found = sweep.swept(outcomes.known)
    summary: dict[str, Any] = json.loads(json.dumps(found.summary()))["pareto"]
    assert summary["better"] == {"harvested": "more", "rescales": "less"}
    assert summary["combinations"] == 3
    table = {row.point.options["max_tasks"]: (row.cells["harvested"], row.cells["rescales"]) for row in found.rows}
    kept = summary["front"]
    assert {one["options"]["max_tasks"]: (one["harvested"]["mean"], one["rescales"]["mean"]) for one in kept} == {
        tasks: (more, less)
        for tasks, (more, less) in table.items()
        if not any(a >= more and b <= less and (a, b) != (more, less) for a, b in table.values())
    }
    assert in_summary(found.rows, PreparedSweep.of(small()).spec) == {}
    if vega.available():
        assert "<svg" in found.chart("pareto-harvested-rescales").svg
