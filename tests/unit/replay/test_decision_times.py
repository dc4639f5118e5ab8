"""The picture of decision times names its lines where there is room for the words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bftrain_replay.reporting.idle_and_decision_times import decision_times
from bftrain_replay.reporting.report_data import ReportData


def names(p50: float, p99: float) -> dict[str, str]:
    """Draw decisions of 0.1 to 10 ms; return on which side of its line each name ends."""
    bins = [{"from_ms": 0.1 * 10**step, "to_ms": 10**step, "count": 5} for step in range(2)]
    summary: dict[str, Any] = {"decide_ms_bins": bins, "decide_ms": {"p50": p50, "p99": p99, "max": 10.0}}
    material = SimpleNamespace(summary={**summary, "decisions": 10, "solver": "exact"})
    figure = decision_times(cast("ReportData", material))
    assert figure is not None
    texts = [layer for layer in figure.spec["layer"] if layer["mark"]["type"] == "text"]
    assert len({layer["mark"]["y"] for layer in texts}) == 2, "each in a line of its own"
    return {layer["data"]["values"][0]["name"]: layer["mark"]["align"] for layer in texts}


@pytest.mark.parametrize(
    ("p50", "p99", "sides"),
    [(0.2, 9.0, ["left", "right"]), (0.2, 0.3, ["left", "left"]), (8.0, 9.0, ["right", "right"])],
)
def test_a_name_stands_on_the_side_with_room(p50: float, p99: float, sides: list[str]) -> None:
    assert list(names(p50, p99).values()) == sides
