"""Pictures of comparisons: harvests over time, where node-time went, when tasks were done, and how fairly."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bftrain import compare, text_formats
from bftrain_replay.comparing import comparison_charts
from bftrain_replay.comparing.compared_run import SummaryFigures
from bftrain_replay.comparing.comparison_page import page
from bftrain_replay.drawing.series import TimeAxis
from tests.unit.replay.cases import log_of, task
from tests.unit.replay.compared import LOG


def test_lines_grow_to_the_harvest_and_the_lead_to_its_difference(make: Callable[..., Path]) -> None:
    found = compare(make("exact"), make("equal", solver="equal-share"), make("few", max_tasks=1))
    moments = TimeAxis(LOG.start_s, LOG.span_s)
    harvested = [side.summary.harvested for side in found.sides]
    grown, ahead = comparison_charts.harvests(found.sides, moments), comparison_charts.leads(found.sides, moments)
    for figure, ends in ((grown, harvested), (ahead, [each - harvested[0] for each in harvested])):
        assert [part.of for part in figure.series] == list(found.labels)
        units = [next(iter(part.columns)) for part in figure.series]
        assert units == ["thousand samples"] * 3
        for part, end in zip(figure.series, ends, strict=True):
            line = part.columns["thousand samples"]
            assert (part.times_s[0], part.times_s[-1], line[0]) == (0.0, LOG.span_s, 0.0)
            assert line[-1] == pytest.approx(end / 1000.0)
            assert len(line) == 500


def test_an_interrupted_replay_is_held_against_the_same_time_of_the_others(make: Callable[..., Path]) -> None:
    found = compare(make("whole"), make("part", watch=lambda _name, simulated_s, _decisions: simulated_s < 150.0))
    ahead = comparison_charts.leads(found.sides, TimeAxis(LOG.start_s, LOG.span_s)).series[1]
    assert ahead.times_s[-1] == 150.0
    np.testing.assert_allclose(ahead.columns[next(iter(ahead.columns))], 0.0, atol=1e-9)  # it did the same up to then


def test_bars_add_up_to_the_idle_node_hours(make: Callable[..., Path]) -> None:
    found = compare(make("exact"), make("few", max_tasks=1))
    _, figure = comparison_charts.node_time(found.sides)
    rows = figure.spec["data"]["values"]
    for side in found.sides:
        hours = [row["hours"] for row in rows if row["replay"] == side.label]
        assert sum(hours) == pytest.approx(side.summary.idle_node_h)
        assert len(hours) > 2


def test_the_page_begins_with_who_harvested_most_and_the_cause(make: Callable[..., Path]) -> None:
    found = compare(make("exact"), make("few", max_tasks=1))
    best, few = (side.summary for side in found.sides)
    assert best.harvested > few.harvested
    rows = comparison_charts.node_time(found.sides)[1].spec["data"]["values"]
    hours = {(row["replay"], row["part"]): row["hours"] for row in rows}
    lost = {part: hours["few", part] - hours.get(("exact", part), 0.0) for name, part in hours if name == "few"}
    del lost["Work that counts"]
    cause = max(lost, key=lambda part: lost[part])
    lead = str(page(found).lead)
    assert lead.startswith("<strong>exact</strong> harvested most")
    assert (
        f"difference is <em>{cause.lower()}</em>: {text_formats.count(hours['few', cause])} node-hours with few" in lead
    )
    assert "difference is" not in str(page(compare(make("one"), make("two"))).lead)


def test_a_gap_that_no_loss_explains_is_traced_to_the_tasks_that_got_the_nodes(make: Callable[..., Path]) -> None:
    tasks = [
        task("fast", rate=(100.0, 200.0, 300.0, 400.0), start_cost_s=9.0),
        task("slow", rate=(1.0, 2.0, 3.0, 4.0), start_cost_s=9.0),
    ]
    found = compare(make("most", tasks=tasks), make("fair", tasks=tasks, objective="max-min"))
    best, fair = (side.summary for side in found.sides)
    assert isinstance(fair, SummaryFigures)
    assert best.harvested - fair.harvested > 10 * fair.lost["start_up"].samples > 0.0, "start-up is a small part"
    lead = str(page(found).lead)
    assert "start-up" not in lead
    assert "No loss explains most of it" in lead
    assert re.search(r"more by <em>fast</em> \([\d.,]+ samples, [\d.]+ node-hours\) with most", lead)
    assert re.search(r"more by <em>slow</em> \([\d.,]+ samples, [\d.]+ node-hours\) with fair", lead)


def test_who_finished_when_is_a_share_of_all_tasks(make: Callable[..., Path]) -> None:
    found = compare(make("exact"), make("few", max_tasks=1))
    figure = comparison_charts.completions(found.sides)
    assert figure is not None
    for side in found.sides:
        rows = [row for row in figure.spec["data"]["values"] if row["of"] == side.label]
        assert (rows[0]["at"], rows[0]["share"]) == (0.0, 0.0)
        assert [row["share"] for row in rows] == sorted(row["share"] for row in rows)
        assert rows[-1]["share"] == side.summary.tasks_finished / side.summary.tasks


def test_fairness_is_compared_over_those_that_finish_in_all(make: Callable[..., Path]) -> None:
    found = compare(make("exact"), make("few", max_tasks=1))
    rows = {figure.name: figure for figure in found.figures}
    finished = [side.tasks.columns.chosen(side.tasks.columns.finished) for side in found.sides]
    common = set(finished[0].name) & set(finished[1].name)
    for place, columns in enumerate(finished):
        shared = columns.chosen(np.array([name in common for name in columns.name]))
        assert rows["rho.mean"].amounts[place] == pytest.approx(float(shared.rho.mean()))
        assert rows["slowdown.max"].amounts[place] == pytest.approx(float(shared.slowdown.max()))
        assert rows["rho_over_1"].amounts[place] == pytest.approx(float((shared.rho > 1.0).mean()))
    picture = comparison_charts.fairness(found.sides)
    assert picture is not None
    lines, rule = picture.spec["layer"]
    assert {row["of"] for row in lines["data"]["values"]} == {"exact", "few"}
    assert rule["data"]["values"] == [{"at": 1.0}]
    assert "rho" in {figure.name for figure in page(found).figures}


def test_where_no_task_finished_there_is_no_such_picture(make: Callable[..., Path]) -> None:
    endless = [task("a"), task("b")]
    found = compare(make("a", tasks=endless), make("b", tasks=endless, max_tasks=1))
    assert comparison_charts.completions(found.sides) is None
    assert comparison_charts.fairness(found.sides) is None
    assert not {figure.name for figure in found.figures} & {"rho.mean", "slowdown.mean", "rho_over_1"}
    titles = [section.heading for section in page(found).sections]
    assert "When tasks were done" not in titles
    assert "Over time" in titles


def test_nothing_in_common_is_no_lead(make: Callable[..., Path]) -> None:
    found = compare(make("one"), make("other", log=log_of((0.0, "ab", ""), end_s=1000.0)), force=True)
    assert "ahead" not in [figure.name for figure in page(found).figures]
    assert page(found).warnings[0] == "These replays do not compare: they are of 2 different logs."
