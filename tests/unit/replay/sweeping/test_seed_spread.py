"""The interval of a mean over seeds, in the summary of a sweep."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import pytest

from tests.unit.replay.sweeping.sweep_case import small, swept

METRIC = "VALUES = {values}\n\ndef figure(run):\n    return VALUES[run.settings.max_tasks - 1][run.settings.seed]\n"


def spreads(folder: Path, *values: tuple[float, ...]) -> list[dict[str, Any]]:
    """Sweep over seeds and numbers of tasks with a metric of these values; return its intervals."""
    (folder / "mine.py").write_text(METRIC.format(values=values))
    spec = small(
        fixed={"metrics": f"{folder}/mine.py:figure"},
        grid={"max_tasks": list(range(1, len(values) + 1)), "seed": list(range(len(values[0])))},
        plot=["metrics_figure"],
        yardsticks=False,
    )
    found: list[dict[str, Any]] = swept(spec, folder / "out").summary()["over_seeds"]
    return found


def test_three_seeds_have_the_interval_of_all_their_27_draws(tmp_path: Path) -> None:
    values = (1.0, 4.0, 10.0)
    means = sorted(fmean(draw) for draw in product(values, repeat=3))
    # 1 of 27 means (3.7 %) is the least, 4 of 27 (14.8 %) are at most the next: the 5th percentile; likewise above
    assert (means[1], means[-2]) == (2.0, 8.0)
    first, second = spreads(tmp_path, values, (11.0, 12.0, 13.0))
    assert first == {
        "options": {"max_tasks": 1}, "metric": "metrics_figure", "seeds": 3, "mean": 5.0,
        "low": 2.0, "high": 8.0, "interval": "90 % interval of the mean",
    }  # fmt: skip
    assert (second["options"], second["mean"]) == ({"max_tasks": 2}, 12.0)
    assert (second["low"], second["high"]) == (pytest.approx(12.0 - 2 / 3), pytest.approx(12.0 + 2 / 3))


def test_the_interval_is_that_of_an_independent_bootstrap(tmp_path: Path) -> None:
    drawn = random.Random(7)  # noqa: S311 - figures of a test
    values = tuple(drawn.gauss(50.0, 8.0) for _ in range(12))
    means = [fmean(drawn.choices(values, k=len(values))) for _ in range(20_000)]
    low, *_, high = quantiles(means, n=20)
    (found,) = spreads(tmp_path, values)
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.25)  # of an interval 7 wide
    assert min(values) < found["low"] < found["mean"] < found["high"] < max(values)


def test_without_seeds_there_is_no_interval(tmp_path: Path) -> None:
    assert swept(small(grid={"max_tasks": [1, 2]}), tmp_path).summary()["over_seeds"] == []
