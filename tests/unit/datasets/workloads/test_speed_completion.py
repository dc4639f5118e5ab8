"""Speeds that were not measured are completed from other models, nearer than by going on in a line."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest

from bftrain import BadInput, SpeedCurve, speed_estimates
from bftrain.taskfiles.records import Profile, profiles
from bftrain_datasets.workloads.catalogue import catalogue
from bftrain_datasets.workloads.speed_completion import completed_profiles
from tests.helpers.site_data import site_data


def measured_at(model: Profile, *sizes: int) -> Profile:
    curve = SpeedCurve(nodes=sizes, rate=tuple(model.curve.speed(size) for size in sizes))
    return Profile(name=model.name, curve=curve, grow_cost_s=0.0, shrink_cost_s=0.0, source="")


def errors(models: Sequence[Profile], *sizes: int) -> tuple[list[float], list[float]]:
    """Return the relative errors at omitted sizes: completed, and by the line through the last two points."""
    found: tuple[list[float], list[float]] = ([], [])
    for place, model in enumerate(models):
        few = measured_at(model, *sizes)
        (full,) = completed_profiles([few], [*models[:place], *models[place + 1 :]])
        line = speed_estimates.curve(dict(zip(few.curve.nodes, few.curve.rate, strict=True)), None, 64)
        assert line is not None
        for size in set(model.curve.nodes) - set(sizes):
            for curve, of_curve in zip((full.curve, line), found, strict=True):
                of_curve.append(abs(curve.speed(size) / model.curve.speed(size) - 1.0))
    return found


def test_two_sizes_of_the_bundled_models_tell_the_others() -> None:
    by_models, by_line = errors(list(profiles().values()), 1, 4)
    assert median(by_models) < 0.031
    assert median(by_models) < median(by_line)


def test_one_size_of_adaptdls_models_tells_the_others() -> None:
    models = list(catalogue(sorted(site_data("profiles").glob("adaptdl_*.csv"))).values())
    by_models, by_line = errors(models, 6)
    assert median(by_models) < 0.1
    assert median(by_models) < median(by_line)


def test_what_was_measured_stays_and_one_size_scales_as_all() -> None:
    model = Profile(
        name="new", curve=SpeedCurve(nodes=(2,), rate=(200.0,)), grow_cost_s=1.0, shrink_cost_s=0.0, source="me"
    )
    (full,) = completed_profiles([model], list(profiles().values()))
    assert full.curve.nodes == (1, 2, 4, 8, 16, 32, 64)
    assert full.curve.speed(2) == 200.0
    assert 64 * 80.0 * 0.6 < full.curve.speed(64) < 64 * 130.0
    assert (full.grow_cost_s, full.source) == (1.0, "me; other sizes completed from 7 models")
    elsewhere = Profile(
        name="odd", curve=SpeedCurve(nodes=(3,), rate=(9.0,)), grow_cost_s=0.0, shrink_cost_s=0.0, source=""
    )
    with pytest.raises(BadInput, match="'odd' was measured at no size"):
        completed_profiles([elsewhere], list(profiles().values()))
