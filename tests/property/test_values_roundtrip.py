"""Any value that is written can be read back, is equal to what it was, and is written the same again."""

from __future__ import annotations

import copy
import pickle
import tomllib
from itertools import pairwise
from types import UnionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import (
    Action,
    AllocationProblem,
    CompetingTask,
    Decision,
    Event,
    Limits,
    Plan,
    Solution,
    SpeedCurve,
    TaskSpec,
    config,
)
from bftrain.values import wire
from tests.property import strategies

KINDS: list[tuple[Any, type | UnionType]] = [
    (strategies.curves(), SpeedCurve),
    (strategies.task_specs(), TaskSpec),
    (strategies.competing_tasks(), CompetingTask),
    (strategies.problems(), AllocationProblem),
    (strategies.limits, Limits),
    (strategies.solutions(), Solution),
    (strategies.plans(), Plan),
    (strategies.events, Event),
    (strategies.actions, Action),
    (strategies.decisions(), Decision),
    (strategies.settings, config.Settings),
]


@pytest.mark.parametrize(
    ("strategy", "kind"),
    KINDS,
    ids=[
        "curve",
        "task",
        "competing",
        "problem",
        "limits",
        "solution",
        "plan",
        "event",
        "action",
        "decision",
        "settings",
    ],
)
@settings(max_examples=30)
@given(data=st.data())
def test_values_survive_their_json_form(strategy: Any, kind: type, data: st.DataObject) -> None:  # noqa: ANN401 - any
    value = data.draw(strategy)
    written = wire.encode(value)
    read = wire.decode(written, kind)
    assert read == value
    assert type(read) is type(value)
    assert wire.encode(read) == written
    assert b"\n" not in written
    # And it can be copied, and travel to another process
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes


@given(strategies.settings)
def test_settings_survive_their_toml_form(value: config.Settings) -> None:
    text = config.dump(value)
    assert config.from_mapping(tomllib.loads(text), config.Settings, where="t.toml", text=text) == value


@settings(max_examples=30)
@given(strategies.curves(largest=200, fastest=1e9))
def test_a_curve_gives_its_points_and_stays_between_its_neighbours(curve: SpeedCurve) -> None:
    speeds = curve.speeds(220)
    assert speeds[0] == 0.0
    assert [speeds[size] for size in curve.nodes] == list(curve.rate)
    assert all(speeds[curve.last_measured :] == curve.rate[-1])
    points = list(zip((0, *curve.nodes), (0.0, *curve.rate), strict=True))
    for (size, speed), (next_size, next_speed) in pairwise(points):
        between = speeds[size : next_size + 1]
        assert between.min() == min(speed, next_speed)
        assert between.max() == max(speed, next_speed)
    assert curve.speed(220) == speeds[220]
