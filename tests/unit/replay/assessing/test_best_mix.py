"""Mixes of models: the figures are those of plain replays, and the models that scale come first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import BadInput, SpeedCurve, generate_log

LOG = generate_log(16, 0.5, 5)


def model(*rates: float) -> SpeedCurve:
    return SpeedCurve(nodes=tuple(2**place for place in range(len(rates))), rate=rates)


def save_models(models: Mapping[str, SpeedCurve], path: Path) -> None:
    path.write_text(
        "".join(
            f"[[profile]]\nname = '{name}'\nnodes = {list(curve.nodes)}\nrate = {list(curve.rate)}\n"
            "grow_cost_s = 5.0\nshrink_cost_s = 5.0\nstart_cost_s = 9.0\nsource = 'the test'\n\n"
            for name, curve in models.items()
        )
    )


# Samples a second say nothing about which does the most: the fastest one hardly scales
MODELS = {"fast": model(900.0, 1000.0, 1100.0), "even": model(7.0, 14.0, 28.0), "middling": model(50.0, 90.0, 160.0)}


@pytest.fixture(scope="module")
def mixes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("models") / "own.toml"
    save_models(MODELS, path)
    found: list[dict[str, Any]] = bftrain.assess(LOG, what_ifs=True, profiles=[path], max_tasks=6).summary["mixes"]
    return found


def test_each_row_is_a_plain_replay_of_endless_tasks(mixes: list[dict[str, Any]]) -> None:
    found = {tuple(row["models"]): row for row in mixes}
    assert set(found) == {("fast",), ("even",), ("middling",), ("even", "middling"), ("even", "middling", "fast")}
    for name, model_curve in MODELS.items():
        of_one = model_curve.rate[0]  # equal plans may be chosen otherwise in other units
        curve = SpeedCurve(nodes=model_curve.nodes, rate=tuple(rate / of_one for rate in model_curve.rate))
        costs = {"start_cost_s": 9.0, "grow_cost_s": 5.0, "shrink_cost_s": 5.0}
        tasks = [bftrain.TaskSpec(name=f"t{number}", curve=curve, max_nodes=4, **costs) for number in range(6)]
        hours = bftrain.replay(LOG, tasks, max_tasks=6).result.harvested_samples / 3600.0
        median = found[name,]["work"]["median"]
        assert median == pytest.approx(hours / (LOG.span_s / 604_800.0), rel=0.1)  # of resamples of days


def test_models_that_scale_come_first_and_not_those_with_most_samples(mixes: list[dict[str, Any]]) -> None:
    assert [row["models"] for row in mixes if len(row["models"]) == 1] == [("even",), ("middling",), ("fast",)]
    assert [row["work"]["median"] for row in mixes] == sorted((row["work"]["median"] for row in mixes), reverse=True)
    assert mixes[-1]["models"] == ("fast",)
    assert mixes[-1]["scaling"] < mixes[0]["scaling"] <= 1.0 + 1e-9


def test_models_are_not_too_many(tmp_path: Path) -> None:
    save_models({f"m{number}": model(1.0, 2.0) for number in range(13)}, tmp_path / "many.toml")
    with pytest.raises(BadInput, match="13 models"):
        bftrain.assess(LOG, profiles=[tmp_path / "many.toml"])
