"""The interval of a mean over seeds, and what is said of it."""

from __future__ import annotations

import random
from itertools import product
from statistics import fmean, quantiles

import pytest

from bftrain_replay.sweeping.seed_spread import INTERVAL, SeedSpread, over_seeds
from bftrain_replay.sweeping.sweep_table import HARVEST
from tests.unit.replay.sweeping.sweep_case import PreparedSweep, done_rows, small


def test_three_seeds_have_the_interval_of_all_their_27_draws() -> None:
    values = (1.0, 4.0, 10.0)
    means = sorted(fmean(draw) for draw in product(values, repeat=3))
    # 1 of 27 means (3.7 %) is the least, 4 of 27 (14.8 %) are at most the next: the 5th percentile; likewise above
    assert (means[1], means[-2]) == (2.0, 8.0)
    spread = SeedSpread(values)
    assert (spread.mean, spread.ends, spread.kind) == (5.0, (2.0, 8.0), INTERVAL)


def test_the_interval_is_that_of_an_independent_bootstrap() -> None:
    drawn = random.Random(7)  # noqa: S311 - figures of a test
    values = tuple(drawn.gauss(50.0, 8.0) for _ in range(12))
    means = [fmean(drawn.choices(values, k=len(values))) for _ in range(20_000)]
    low, *_, high = quantiles(means, n=20)
    spread = SeedSpread(values)
    assert spread.ends == pytest.approx((low, high), abs=0.25)  # of an interval 7 wide
    assert min(values) < spread.ends[0] < spread.mean < spread.ends[1] < max(values)


def test_the_summary_has_each_interval() -> None:
    grid = {"max_tasks": [1, 2], "seed": [1, 2, 3]}
    spec = PreparedSweep.of(small(grid=grid)).spec
    options = ({"max_tasks": tasks, "seed": seed} for tasks in (1, 2) for seed in (1, 2, 3))
    rows = done_rows(*options, harvested=lambda one: 10.0 * one["max_tasks"] + one["seed"])
    first, second = over_seeds(rows, [HARVEST], spec)
    assert first == {
        "options": {"max_tasks": 1}, "metric": "harvested", "seeds": 3, "mean": 12.0,
        "low": pytest.approx(12.0 - 2 / 3), "high": pytest.approx(12.0 + 2 / 3), "interval": INTERVAL,
    }  # fmt: skip
    assert second["options"] == {"max_tasks": 2}
    assert over_seeds(rows, [HARVEST], PreparedSweep.of(small(grid={"max_tasks": [1, 2]})).spec) == []
