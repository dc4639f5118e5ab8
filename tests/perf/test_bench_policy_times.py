"""How long policies think about ever more tasks: every policy in the registry is timed, and none may grow too fast."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from tests.helpers.figures import Figures
from tests.helpers.pages import ROOT

pytestmark = pytest.mark.bench

SCRIPT = ROOT / "docs" / "scripts" / "policy_times.py"
MILPS = {"highs", "cbc", "gurobi"}  # their time is that of other people's solvers
MOST_S = 2.0  # for 512 tasks
STEEPEST = 64.0  # times as long for four times as many tasks


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_policies_against_the_number_of_tasks(script: dict[str, Any], figures: Figures) -> None:
    found = list(script["times"](counts=(128, 512)))
    by_policy: dict[tuple[str, str], list[float]] = {}
    for each in found:
        figures.add(f"{each.policy} ({each.group}), {each.tasks} tasks, best of 3", 1e3 * each.seconds, "ms")
        by_policy.setdefault((each.group, each.policy), []).append(each.seconds)
    for (group, policy), seconds in by_policy.items():
        if policy in MILPS:
            continue
        assert seconds[-1] < MOST_S, f"{policy} ({group})"
        assert len(seconds) == 2, f"{policy} ({group}) took too long for 128 tasks to be asked about 512"
        assert seconds[1] < max(STEEPEST * seconds[0], 0.2), f"{policy} ({group})"
