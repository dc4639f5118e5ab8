"""Two metrics against each other: which combinations no other beats, how they are drawn, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, UsageError
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.static.picture import static_picture
from bftrain_replay.sweeping.pareto_chart import pareto_figures
from bftrain_replay.sweeping.pareto_front import ParetoPlane, front, in_summary
from bftrain_replay.sweeping.sweep import PreparedSweep
from bftrain_replay.sweeping.sweep_runs import OutcomeFile
from tests.unit.replay.sweeping.sweep_case import Here, done_rows, small

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


def test_seeds_are_means() -> None:
    options = ({"solver": solver, "seed": seed} for solver in ("a", "b") for seed in (1, 2, 3))
    rows = done_rows(
        *options,
        harvested=lambda one: 1.0 + (one["solver"] == "b") + one["seed"],
        preemptions=lambda one: 10.0 * one["seed"],
    )
    plane = ParetoPlane.of(rows, ASKED, ["solver"])
    assert [(point.cells, point.x.mean, point.y.mean, point.best) for point in plane.points] == [
        (("a",), 3.0, 20.0, False),
        (("b",), 4.0, 20.0, True),
    ]
    (figure,) = pareto_figures(rows, ASKED)
    assert "preemptions 20 on average of 3" in figure.spec["data"]["values"][0]["tooltip"]


def test_combinations_whose_tasks_ran_out_are_left_out_of_u() -> None:
    rows = done_rows(
        *({"max_tasks": tasks} for tasks in (1, 2, 3)),
        efficiency=lambda one: one["max_tasks"] / 3,
        preemptions=lambda one: one["max_tasks"],
        tasks_ran_out=lambda one: float(one["max_tasks"] == 3),
    )
    asked = ("efficiency", "preemptions")
    assert [point.cells for point in ParetoPlane.of(rows, asked, ["max_tasks"]).points] == [(1,), (2,)]
    (figure,) = pareto_figures(rows, asked)
    assert figure.says.endswith(" 1 combination left out: their tasks ran out.")


def test_the_picture_joins_and_names_the_front() -> None:
    (figure,) = pareto_figures(ROWS, ASKED)
    values = figure.spec["data"]["values"]
    assert figure.name == "pareto-harvested-preemptions"
    assert [(value["name"], value["of"], value["side"]) for value in values] == [
        ("a", "front", "right"),
        ("b", "front", "right"),
        ("d", "others", ""),
        ("e", "others", ""),
        ("c", "front", "left"),
    ]
    assert figure.says == (
        "3 of 5 combinations are beaten by no other in both: solver = a (1.00 million; 1); "
        "solver = b (2.00 million; 4); solver = c (5.00 million; 9)."
    )
    assert figure.caption == (
        "Better lies towards the bottom right; the line joins combinations that no other beats in both. "
        "They are labelled by solver."
    )
    drawn = static_picture(figure)
    assert drawn.count("<circle") == 5
    assert [name for name in PLACES if f">{name}</text>" in drawn] == ["a", "b", "c"]
    assert list(pareto_figures(ROWS[:1], ASKED)) == []
    (both,) = pareto_figures(ROWS[:2], ASKED)
    assert len(both.spec["layer"]) == 4  # line, dots and names on both sides: none is empty
    assert list(pareto_figures(ROWS, ())) == []


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


def test_the_option_counts_instead_of_the_file() -> None:
    prepared = PreparedSweep.of(small(pareto=["harvested", "coverage"]), pareto=["efficiency", "decisions:less"])
    assert prepared.spec.pareto == ("efficiency", "decisions:less")


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
