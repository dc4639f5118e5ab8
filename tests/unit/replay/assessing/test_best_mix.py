"""Mixes of models: the figures are those of plain replays, and the models that scale come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import BadInput, SpeedCurve, generate_log
from bftrain.taskfiles.profile_files import save_profiles
from bftrain.taskfiles.records import Profile

LOG = generate_log(16, 0.5, 5)


def model(name: str, *rates: float, cost_s: float = 5.0) -> Profile:
    curve = SpeedCurve(nodes=tuple(2**place for place in range(len(rates))), rate=rates)
    return Profile(
        name=name, curve=curve, grow_cost_s=cost_s, shrink_cost_s=cost_s, start_cost_s=9.0, source="the test"
    )


# Samples a second say nothing about which does the most: the fastest one hardly scales
MODELS = {
    each.name: each
    for each in (model("fast", 900, 1000, 1100), model("even", 7, 14, 28), model("middling", 50, 90, 160))
}


@pytest.fixture(scope="module")
def mixes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("models") / "own.toml"
    save_profiles(MODELS.values(), path)
    found: list[dict[str, Any]] = bftrain.assess(LOG, what_ifs=True, profiles=[path], max_tasks=6).summary["mixes"]
    return found


def test_each_row_is_a_plain_replay_of_endless_tasks(mixes: list[dict[str, Any]]) -> None:
    found = {tuple(row["models"]): row for row in mixes}
    assert set(found) == {("fast",), ("even",), ("middling",), ("even", "middling"), ("even", "middling", "fast")}
    for each in MODELS.values():
        of_one = each.curve.rate[0]  # equal plans may be chosen otherwise in other units
        curve = SpeedCurve(nodes=each.curve.nodes, rate=tuple(rate / of_one for rate in each.curve.rate))
        costs = {"start_cost_s": 9.0, "grow_cost_s": 5.0, "shrink_cost_s": 5.0}
        tasks = [bftrain.TaskSpec(name=f"t{number}", curve=curve, max_nodes=4, **costs) for number in range(6)]
        hours = bftrain.replay(LOG, tasks, max_tasks=6).result.harvested_samples / 3600.0
        median = found[each.name,]["work"]["median"]
        assert median == pytest.approx(hours / (LOG.span_s / 604_800.0), rel=0.1)  # of resamples of days


def test_models_that_scale_come_first_and_not_those_with_most_samples(mixes: list[dict[str, Any]]) -> None:
    assert [row["models"] for row in mixes if len(row["models"]) == 1] == [("even",), ("middling",), ("fast",)]
    assert [row["work"]["median"] for row in mixes] == sorted((row["work"]["median"] for row in mixes), reverse=True)
    assert mixes[-1]["models"] == ("fast",)
    assert mixes[-1]["scaling"] < mixes[0]["scaling"] <= 1.0 + 1e-9


def test_models_are_not_too_many(tmp_path: Path) -> None:
    save_profiles([model(f"m{number}", 1, 2) for number in range(13)], tmp_path / "many.toml")
    with pytest.raises(BadInput, match="13 models"):
        bftrain.assess(LOG, profiles=[tmp_path / "many.toml"])
