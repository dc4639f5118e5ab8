"""Advice: which changes of settings are tried, that only those that gain are shown, and none that was not tried."""

from __future__ import annotations

import pytest

import bftrain
from bftrain import generate_log
from tests.unit.replay.cases import ReplayOutcome, mix, page_of

LOG = generate_log(16, 0.2, 3)
TASKS = mix(8, 3, max_nodes=3, work_samples=1e9, start_cost_s=18.0)


@pytest.fixture(scope="module")
def few() -> ReplayOutcome:
    """Replay with one task that may compete, which leaves most nodes unused, and with what is tried."""
    return bftrain.replay(LOG, TASKS, sensitivity=True, max_tasks=1)


def test_a_change_that_gains_is_shown_with_the_gain_of_its_replay(few: ReplayOutcome) -> None:
    (row,) = [each for each in few.advice or () if each.cause == "task_cap"]
    alone = bftrain.replay(LOG, TASKS, max_tasks=2)
    assert row.option == "--max-tasks 2"
    assert row.gain_samples == alone.result.harvested_samples - few.result.harvested_samples > 0.0
    assert row.gain == row.gain_samples / few.result.harvested_samples
    headlines = alone.summary["headline"], few.summary["headline"]
    assert row.gain_node_h == pytest.approx(headlines[0]["harvest_node_h"] - headlines[1]["harvest_node_h"])
    assert row.rescales == alone.summary["rescales"] - few.summary["rescales"]
    assert few.summary["advice"][0]["option"] == "--max-tasks 2"
    assert "<code>--max-tasks 2</code>: <strong>+" in page_of(few)
