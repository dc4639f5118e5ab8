"""The page of a sweep: what it says, and that each plot shows what the table says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from bftrain import BadConfig, generate_log, save_log
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.results.headline import NOT_RANKED
from bftrain_replay.sweeping import sweep_table
from bftrain_replay.sweeping.sweep import PreparedSweep, SweepResult
from bftrain_replay.sweeping.sweep_charts import as_drawn, figures, varied
from bftrain_replay.sweeping.sweep_page import page, render, write_figures
from bftrain_replay.sweeping.sweep_runs import OutcomeFile
from bftrain_replay.sweeping.sweep_table import (
    EFFICIENCY,
    HARVEST,
    MAKESPAN,
    PointRow,
    PointState,
    metric_of,
    metrics_of,
)
from tests.unit.replay.sweeping.sweep_case import Here, done_rows, small


def rows(
    *grid: dict[str, Any], value: Callable[[dict[str, Any]], float | None], column: str = "efficiency"
) -> list[PointRow]:
    """Make rows with these options, whose figure is computed from them."""
    return done_rows(*grid, **{column: value})


def swept(found: list[PointRow], **spec: object) -> SweepResult:
    sweep = PreparedSweep.of(small(**spec))
    return SweepResult(sweep.spec, tuple(found), {}, sweep)


def by_name(found: list[PointRow]) -> dict[str, ChartFigure]:
    return {figure.name: figure for figure in figures(found, metrics_of((), found))}


def test_u_is_marked_and_not_drawn_where_tasks_ran_out() -> None:
    found = rows({"max_tasks": 1}, {"max_tasks": 2}, value=lambda one: 1.0 if one["max_tasks"] == 1 else 0.9)
    found = [row._replace(cells={**row.cells, "tasks_ran_out": int(row.cells["efficiency"] == 1.0)}) for row in found]
    assert metrics_of((), found) == (HARVEST,)
    text = render(swept(found)).replace("\xa0", " ").replace("&nbsp;", " ")
    assert "100.0 % (tasks ran out)" in text
    assert "90.0 % (tasks ran out)" not in text


def test_where_all_harvests_are_equal_the_ends_of_tasks_are_compared() -> None:
    options = [{"horizon_s": horizon_s} for horizon_s in (60.0, 120.0)]
    ends = {"tasks_ran_out": lambda _: 1.0, "completion_s_mean": lambda one: one["horizon_s"]}
    found = done_rows(*options, efficiency=lambda _: 1.0, **ends)
    assert metrics_of((), found) == (metric_of("completion_s_mean"),), "some tasks never arrived"
    note = "In 2 of 2 points the tasks ran out, and all harvests are equal: compare completion time, mean."
    drawn = page(swept(found))
    assert note in drawn.warnings
    assert note[:-1] in swept(found).notes
    assert str(drawn.lead).startswith("Completion time, mean: <strong>60 s with horizon_s = 60</strong> at best")
    assert not any("the harvest does" in text for text in drawn.warnings)
    found = done_rows(*options, makespan_s=lambda one: 2.0 * one["horizon_s"], **ends)
    assert metrics_of((), found) == (MAKESPAN,)
    assert any("compare all tasks finished after" in text for text in swept(found).notes)


def test_u_is_not_ranked_across_objectives_and_explained_above_100_per_cent() -> None:
    found = rows(
        {"objective": "throughput"}, {"objective": "max-min"}, value=lambda one: 0.9 + len(one["objective"]) / 50
    )
    assert metrics_of((), found) == (HARVEST,)
    drawn = page(swept(found, plot=["efficiency"]))
    assert (drawn.lead, [card.name for card in drawn.cards]) == ("", ["points"])
    for words in (NOT_RANKED, "no upper bound"):
        assert any(words in text for text in drawn.warnings)
    assert [sweep_table.text_of(EFFICIENCY, row) for row in found] == ["110.0 % (no bound)", "104.0 % (no bound)"]


def test_a_page_that_is_to_draw_u_does_not_say_where_it_is_best_if_tasks_ran_out() -> None:
    grid = ({"max_tasks": tasks} for tasks in (1, 2))
    found = rows(*grid, value=lambda one: 1.0 if one["max_tasks"] == 1 else 0.9)
    found = [row._replace(cells={**row.cells, "tasks_ran_out": int(row.cells["efficiency"] == 1.0)}) for row in found]
    drawn = page(swept(found, plot=["efficiency"]))
    assert drawn.lead == ""
    assert [card.name for card in drawn.cards] == ["points"]
    assert "What makes a difference" not in [section.heading for section in drawn.sections if section]
    (figure,) = [part for section in drawn.sections if section and section.heading == "Plots" for part in section.parts]
    assert figure.says == "In 1 of 2 points the tasks ran out: there efficiency U compares nothing."
    assert page(swept(found, plot=["efficiency", "harvested"])).lead.startswith("Harvest, samples")


def test_yardsticks_are_marked_as_u_is_where_tasks_ran_out() -> None:
    cells = {"efficiency": 1.0, "ceiling_efficiency": 0.99, "baseline_efficiency": 0.8}
    (row,) = rows({"max_tasks": 1}, value=lambda _: None)
    row = row._replace(cells={**row.cells, **cells, "tasks_ran_out": 1, "baseline_tasks_ran_out": 0})
    text = render(swept([row])).replace("\xa0", " ").replace("&nbsp;", " ")
    assert [f"{share} (tasks ran out)" in text for share in ("100.0 %", "99.0 %", "80.0 %")] == [True, True, False]


SOME = rows(
    *(
        {"max_tasks": tasks, "solver": solver, "seed": seed}
        for tasks in (20, 5)
        for solver in ("b", "a")
        for seed in (1, 2, 3)
    ),
    value=lambda one: one["max_tasks"] / 100 + (one["solver"] == "a") * 0.3 + one["seed"] / 1000,
)


def test_options_that_vary_are_in_order_and_numbers_by_size() -> None:
    assert varied(SOME) == {"max_tasks": [5, 20], "solver": ["b", "a"], "seed": [1, 2, 3]}
    assert varied([]) == {}


def test_options_that_go_together_are_one() -> None:
    grid = {"max_tasks": [1, 2]}
    cases = [{"objective": "speedup", "solver": "exact"}, {"objective": "speedup", "solver": "greedy"}]
    both = ({**case, "max_tasks": number} for case in cases for number in (1, 2))
    found = rows(*both, value=lambda one: one["max_tasks"])
    assert varied(as_drawn(found, PreparedSweep.of(small(cases=cases, grid=grid)).spec)) == {
        "solver": ["exact", "greedy"],
        "max_tasks": [1, 2],
    }
    cases = [{"horizon_s": h, "solver": s} for h, s in ((60.0, "exact"), (60.0, "greedy"), (30.0, "exact"))]
    found = rows(*cases, value=lambda one: one["horizon_s"])
    spec = PreparedSweep.of(small(cases=cases)).spec
    assert varied(as_drawn(found, spec)) == {"horizon_s, solver": ["60, exact", "60, greedy", "30, exact"]}
    assert as_drawn([], spec) == []
    assert as_drawn(SOME, PreparedSweep.of(small(grid=grid)).spec) == SOME


def test_each_option_has_a_plot_with_a_line_for_each_combination_of_the_others() -> None:
    drawn = by_name(SOME)
    assert list(drawn) == ["efficiency-by-max_tasks", "efficiency-by-solver"]
    figure = drawn["efficiency-by-max_tasks"]
    values = figure.spec["data"]["values"]
    assert {(value["x"], value["line"], round(value["mean"], 3)) for value in values} == {
        (5, "b", 0.052), (20, "b", 0.202), (5, "a", 0.352), (20, "a", 0.502),
    }  # fmt: skip
    assert all(value["high"] - value["low"] == pytest.approx(0.004 / 3) for value in values)
    assert figure.spec["encoding"]["color"]["scale"]["domain"] == ["b", "a"]
    assert figure.spec["encoding"]["x"]["type"] == "quantitative"
    assert drawn["efficiency-by-solver"].spec["encoding"]["x"]["sort"] == ["b", "a"]
    assert figure.says == "Highest on average: 35.2 % with max_tasks = 20; lowest: 20.2 % with max_tasks = 5."
    assert figure.spec["layer"][0]["mark"]["type"] == "area"
    assert drawn["efficiency-by-solver"].spec["layer"][0]["mark"]["type"] == "rule"
    assert figure.caption == (
        "Shaded or ruled: the 90 % interval of the mean over 3 seeds, by bootstrap, too narrow with fewer than 10. "
        "The axis need not begin at 0."
    )
    assert (
        "on average of 3, 35.1 % to 35.3 % (90 % interval of the mean, too narrow with fewer than 10)"
        in values[-1]["tooltip"]
    )


def test_values_that_span_much_stand_on_a_logarithmic_axis() -> None:
    def scale(*values: float) -> dict[str, Any]:
        found = rows(*({"horizon_s": value} for value in values), value=lambda one: one["horizon_s"])
        (figure,) = by_name(found).values()
        axis_scale: dict[str, Any] = figure.spec["encoding"]["x"]["scale"]
        return axis_scale

    assert scale(10.0, 600.0)["type"] == "log"
    assert "type" not in scale(10.0, 60.0)
    assert "type" not in scale(0.0, 600.0)


def test_many_lines_have_the_colour_of_the_option_that_matters_most() -> None:
    found = rows(
        *({"x": x, "small": little, "large": much} for x in (1, 2) for little in range(4) for much in range(3)),
        value=lambda one: one["x"] + one["small"] / 100 + one["large"],
    )
    figure = by_name(found)["efficiency-by-x"]
    assert figure.spec["encoding"]["color"]["legend"]["title"] == "large"
    assert {value["hue"] for value in figure.spec["data"]["values"]} == {"0", "1", "2"}
    assert len({value["line"] for value in figure.spec["data"]["values"]}) == 12
    assert figure.spec["layer"][-1]["encoding"]["y"]["aggregate"] == "mean"
    assert "12 combinations of small, large; the bold ones are means for each large" in figure.caption


def test_two_options_with_values_enough_have_a_map() -> None:
    found = rows(
        *({"a": a, "b": b} for a in range(3) for b in range(4)),
        value=lambda one: one["a"] + one["b"],
        column="harvested",
    )
    figure = by_name(found)["harvested-by-b-and-a"]
    assert figure.says == "Highest: 5 with b = 3, a = 2; lowest: 0 with b = 0, a = 0."
    assert len(figure.spec["data"]["values"]) == 12


def test_the_ceiling_and_the_baseline_stand_beside_few_lines() -> None:
    found = [
        PointRow(row.point, row.state, "", {**row.cells, "ceiling_efficiency": 0.9, "baseline_efficiency": 0.1})
        for row in SOME
    ]
    figure = by_name(found)["efficiency-by-max_tasks"]
    assert {value["kind"] for value in figure.spec["data"]["values"]} == {"replay", "without costs", "baseline"}
    legends = [
        layer["encoding"]["strokeDash"]["legend"]["values"]
        for layer in figure.spec["layer"]
        if "strokeDash" in layer["encoding"]
    ]
    assert legends == [["replay", "without costs", "baseline"]]


def test_what_is_drawn_is_the_usual_or_what_is_asked_for() -> None:
    assert metrics_of((), SOME) == (EFFICIENCY,)
    without = rows({"a": 1}, value=lambda _: None)
    assert metrics_of((), without) == (HARVEST,)
    done = rows({"a": 1}, value=lambda _: 7200.0, column="makespan_s")
    assert metrics_of((), done) == (MAKESPAN,)
    assert metrics_of(("rescales", "idle_node_h"), SOME) == (metric_of("rescales"), metric_of("idle_node_h"))
    assert metric_of("makespan_s").format(7200.0 * 3) == "6 h"
    (figure,) = figures(rows({"a": 1}, {"a": 2}, value=lambda one: one["a"] * 3600.0, column="makespan_s"), (MAKESPAN,))
    assert [value["mean"] for value in figure.spec["data"]["values"]] == [1.0, 2.0]


@pytest.mark.parametrize("name", ["efficency", "status", 3])
def test_what_is_no_column_of_numbers_cannot_be_drawn(name: object) -> None:
    with pytest.raises(BadConfig, match=f"sweep: plot: there is no column of numbers '{name}'"):
        PreparedSweep.of(small(plot=[name]))
    PreparedSweep.of(small(plot=["efficiency", "wall_s", "task_count"]))


def test_the_page_says_what_is_best_and_what_makes_the_difference() -> None:
    laid = page(swept(SOME, grid={"max_tasks": [5, 20], "solver": ["exact", "greedy"], "seed": [1, 2, 3]}))
    assert laid.lead == (
        "Efficiency U, on average over 3 seeds: <strong>50.2 % with max_tasks = 20, solver = a</strong> at best, "
        "5.2 % with max_tasks = 5, solver = b at worst. <strong>solver</strong> makes the largest difference: "
        "12.7 % to 42.7 % on average."
    )
    assert [(card.name, card.figure) for card in laid.cards] == [
        ("points", "12"),
        ("efficiency U, highest", "50.3 %"),
        ("efficiency U, lowest", "5.1 %"),
        ("widest spread over seeds", "0.1 %"),
    ]
    assert [section.heading for section in laid.sections] == [
        "What makes a difference",
        "Plots",
        "Points",
        "How it was made",
    ]


def test_where_less_is_better_the_least_is_best() -> None:
    found = rows({"a": 1}, {"a": 2}, value=lambda one: one["a"] * 36000.0, column="makespan_s")
    lead = page(swept(found)).lead
    assert lead.startswith(
        "All tasks finished after: <strong>10 h with a = 1</strong> at best, 20 h with a = 2 at worst."
    )


def test_points_that_failed_or_are_open_are_reported() -> None:
    found = rows({"a": 1}, {"a": 2}, {"a": 3}, value=lambda _: 0.5)
    found[1] = PointRow(found[1].point, PointState.FAILED, "it <rained>", {"a": 2})
    found[2] = PointRow(found[2].point, PointState.OPEN, "", {"a": 3})
    points = swept(found)
    laid = page(points)
    assert list(laid.warnings) == ["1 of 3 points are still to be done.", "1 of 3 points failed; the table says why."]
    text = render(points)
    assert "it &lt;rained&gt;" in text
    assert "it <rained>" not in text


def test_a_sweep_without_a_figure_has_a_page() -> None:
    found = [PointRow(row.point, PointState.FAILED, "no", {}) for row in SOME]
    laid = page(swept(found))
    assert (laid.lead, laid.figures) == ("", ())


def test_names_of_strangers_are_text() -> None:
    found = rows({"log": "<b>"}, {"log": "</script>"}, value=lambda one: len(one["log"]))
    text = render(swept(found))
    assert "<b>" not in text
    assert "</script>'" not in text
    assert not re.search(r'"</script>', text)


def test_plots_can_be_had_as_files(tmp_path: Path) -> None:
    if not vega.available():
        pytest.skip("vl-convert-python is not installed: pip install vl-convert-python")
    (first, _) = write_figures(swept(SOME), tmp_path, "svg")
    svg = first.read_text()
    assert first.name == "efficiency-by-max_tasks.svg"
    assert "Efficiency U by max_tasks" in svg
    assert "@" not in re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    assert svg.startswith(swept(SOME).chart(first.stem).svg)
    assert write_figures(swept(SOME), tmp_path, "png")[0].read_bytes().startswith(b"\x89PNG")


def test_a_sweep_on_gpus_speaks_of_gpus(tmp_path: Path) -> None:
    log = generate_log(12, 0.1, seed=3)
    save_log(replace(log, provenance=replace_struct(log.provenance, unit="gpu")), tmp_path / "gpus.npz")
    sweep = PreparedSweep.of(small(log="gpus.npz", grid={"max_tasks": [1, 2]}, plot=["harvest_node_h"]), tmp_path)
    with OutcomeFile(tmp_path) as outcomes:
        sweep.run(outcomes, Here())
        found = sweep.swept(outcomes.known)
    text = re.sub(r"<style.*?</style>|<script.*?</script>", "", render(found), flags=re.DOTALL)
    assert "GPU-hours" in text
    assert not re.findall(r"(?i)[^<>.]*\bnode-(?:hours|time)[^<>.]*", text)
    assert {each.title for each in page(found).sections[1].parts if hasattr(each, "title")} == {
        "Harvest, GPU-hours by max_tasks"
    }
