"""Harvest by block: what a replay gave in each week or day adds up, and the interval is that of a plain bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import bftrain
from bftrain import ReplaySettings, sample_log
from bftrain_datasets.workloads.task_generators import sample_tasks
from bftrain_replay.reporting.headline_section import lead
from bftrain_replay.results.harvest_by_block import DAY_S, RESAMPLES, SEED, WEEK_S, HarvestCurve, TimeBlocks
from bftrain_replay.results.headline import harvest_node_h
from tests.unit.replay.cases import material_of


@pytest.fixture(scope="module")
def curve() -> HarvestCurve:
    return HarvestCurve(bftrain.replay(sample_log(), sample_tasks(), ReplaySettings(start_cost_s=90.0)).result)


@pytest.mark.parametrize(
    ("days", "unit", "lengths"),
    [
        (28.0, "week", [7, 7, 7, 7]),
        (27.9, "day", [1] * 27 + [0.9]),
        (31.0, "week", [7, 7, 7, 10]),  # three days are no block of their own
        (32.0, "week", [7, 7, 7, 7, 4]),
        (0.3, "day", [0.3]),
        (1.4, "day", [1.4]),
    ],
)
def test_a_log_is_cut_into_weeks_or_if_it_is_short_into_days(days: float, unit: str, lengths: list[float]) -> None:
    blocks = TimeBlocks.of_span(days * DAY_S)
    assert blocks.unit == unit
    assert (blocks.hours / 24).tolist() == pytest.approx(lengths)


def test_the_interval_is_that_of_a_plain_bootstrap_over_blocks() -> None:
    blocks, amounts = TimeBlocks.of_span(4.5 * WEEK_S), [40.0, 10.0, 90.0, 20.0, 30.0]
    draws = np.random.default_rng(SEED).integers(0, 5, (RESAMPLES, 5))
    hours = [168.0, 168.0, 168.0, 168.0, 84.0]
    figures = sorted(
        168.0 * sum(amounts[place] for place in draw) / sum(hours[place] for place in draw) for draw in draws.tolist()
    )
    found = blocks.a_week(np.array(amounts))
    at = [share * (RESAMPLES - 1) for share in (0.05, 0.5, 0.95)]
    low, median, high = (
        figures[int(place)] + (place % 1.0) * (figures[int(place) + 1] - figures[int(place)]) for place in at
    )
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high))


def test_days_of_a_long_log_are_drawn_by_whole_weeks() -> None:
    days, weeks = TimeBlocks.in_days(5 * WEEK_S), TimeBlocks.of_span(5 * WEEK_S)
    amounts = np.random.default_rng(1).uniform(0.0, 50.0, 35)
    assert days.drawn == weeks.drawn == (5, "week")
    found, expected = days.a_week(amounts), weeks.a_week(amounts.reshape(5, 7).sum(axis=1))
    assert (found.low, found.median, found.high) == pytest.approx((expected.low, expected.median, expected.high))
    assert TimeBlocks.in_days(3 * WEEK_S).drawn == (21, "day")


def test_blocks_add_up_to_the_figures_of_the_replay(curve: HarvestCurve) -> None:
    result = curve.result
    edges_s = np.linspace(0.0, result.simulated_s, 38)
    summary = result.summary()
    assert curve.idle_node_h(edges_s).sum() == pytest.approx(summary.idle_node_h)
    assert curve.used_node_h(edges_s).sum() == pytest.approx(summary.used_node_h)
    assert curve.harvest_node_h(edges_s).sum() == pytest.approx(harvest_node_h(summary))
    causes = curve.causes_node_h(edges_s)
    for cause, lost in summary.lost.items():
        assert causes[cause].sum() == pytest.approx(lost.node_h)
    for why, hours in summary.unused_node_h.items():
        assert causes[why].sum() == pytest.approx(hours)


def test_a_report_says_what_a_week_comes_to_and_how_sure_that_is() -> None:
    done = bftrain.replay(sample_log(), sample_tasks(), ReplaySettings(max_tasks=2))
    material = material_of(done)
    weekly = material.summary["weekly"]
    assert (weekly["block"], weekly["blocks"]) == ("day", 3)
    low, median, high = (weekly["harvest"][name] for name in ("low", "median", "high"))
    a_week = harvest_node_h(done.result.summary()) / done.result.simulated_s * WEEK_S
    assert low < a_week < high
    assert median == pytest.approx(a_week, rel=0.2)
    assert f"A week comes to <strong>{median:,.0f} ({low:,.0f} to {high:,.0f}) node-hours</strong>" in lead(material)
    older = replace(material, summary={name: what for name, what in material.summary.items() if name != "weekly"})
    assert "A week comes to" not in lead(older)
