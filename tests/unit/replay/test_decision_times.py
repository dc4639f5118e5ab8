"""Measured times of decisions are summarised as they were measured."""

from __future__ import annotations

import numpy as np
import pytest

import bftrain
from tests.unit.replay.cases import log_of, task


def test_percentiles_are_those_of_all_decisions() -> None:
    tasks = [task(f"t{number}", work_samples=50.0, submit_s=10.0 * number) for number in range(40)]
    done = bftrain.replay(log_of((0.0, "ab", ""), end_s=1000.0), tasks)
    seconds = list(done.result.decisions.solve_s)
    assert len(seconds) > 40
    found = done.summary["solve_ms"]
    expected = [float(np.percentile(seconds, at)) * 1000.0 for at in (50, 99, 100)]
    assert [found["p50"], found["p99"], found["max"]] == pytest.approx(expected)
