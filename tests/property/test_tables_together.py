"""Speeds of many tasks on an equal share: computed together they are those that are computed task by task."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import AllocationProblem, BadInput, BatchScaling, CompetingTask, SpeedCurve
from tests.helpers.named_parts import table_for
from tests.property.strategies import curves as any_curves

BY_SHARE = ("max-min", "water-filling", "hierarchical", "finish-time", "completion", "cost", "proportional")
KINDS = ("", "a", "b", "c")
rates = st.sampled_from([0.0, 0.0, 1.0, 1.1, 3.0, 7e-9, 1e9]) | st.floats(0.0, 1e6)
seconds = st.sampled_from([0.0, 0.0, 9.0, 1e7])

batches = st.builds(
    BatchScaling,
    initial=st.integers(1, 40),
    noise_scale=st.sampled_from([0.0, 1e300]) | st.floats(0.0, 1e6),
    largest=st.none() | st.integers(40, 10**6),
    per_node=st.none() | st.integers(1, 10**6),
    fixed_share=st.sampled_from([0.0, 0.3, 0.99]),
)


@st.composite
def curves(draw: st.DrawFn) -> SpeedCurve:
    points = draw(st.lists(st.tuples(st.integers(1, 9), rates), min_size=1, max_size=5))
    return SpeedCurve(nodes=tuple(accumulate(step for step, _ in points)), rate=tuple(rate for _, rate in points))


@st.composite
def problems(draw: st.DrawFn) -> AllocationProblem:
    pools = draw(st.dictionaries(st.sampled_from(KINDS), st.integers(0, 40), max_size=3))
    pool = sum(pools.values()) if pools else draw(st.integers(0, 40))
    left, tasks = dict(pools) or {"": pool}, []
    for place in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(list(left)))
        size = draw(st.integers(0, min(left[kind], 20)))
        left[kind] -= size
        fewest = draw(st.integers(1, 6))
        task = CompetingTask(
            name=f"t{place}",
            size=size,
            kind=kind if size else draw(st.sampled_from(KINDS)),
            curve=draw(curves()),
            curves=draw(st.dictionaries(st.sampled_from(KINDS), curves(), max_size=3)),
            min_nodes=fewest,
            max_nodes=fewest + draw(st.integers(0, 20)),
            work_left_samples=draw(st.none() | st.floats(0.0, 1e6)),
            deadline_in_s=draw(st.none() | st.floats(-10.0, 1e5)),
            weight=draw(st.sampled_from([0.0, 1.0, 3.0])),
            user=draw(st.sampled_from(["", "u", "v"])),
            batch=draw(st.none() | batches),
            **{f"{change}_cost_s": draw(seconds) for change in ("grow", "shrink", "start")},  # type: ignore[arg-type]
        )
        tasks.append(task)
    return AllocationProblem(pool=pool, pools=pools, horizon_s=draw(st.floats(0.1, 1e4)), tasks=tuple(tasks))


def both(problem: AllocationProblem, objective: str) -> list[np.ndarray | str]:
    """Return the table with shares computed task by task and all at once, or what is said to be wrong."""
    found: list[np.ndarray | str] = []
    for many in (10**9, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bftrain.deciding.objectives._MANY", many)
            try:
                found.append(table_for(objective, problem).values)
            except BadInput as error:
                found.append(str(error))
    return found


@given(problems(), st.sampled_from(BY_SHARE))
def test_speeds_on_an_equal_share_are_the_same_but_for_rounding(problem: AllocationProblem, objective: str) -> None:
    one, all_at_once = both(problem, objective)
    np.testing.assert_allclose(all_at_once, one, rtol=1e-14)


@given(st.lists(any_curves(largest=60) | any_curves(), min_size=1, max_size=6), st.sampled_from(BY_SHARE))
def test_numbers_and_sizes_that_are_too_large_are_answered_alike(
    given_curves: list[SpeedCurve], objective: str
) -> None:
    tasks = tuple(
        CompetingTask(name=f"t{place}", max_nodes=30, curve=curve, start_cost_s=9.0, work_left_samples=1e6)
        for place, curve in enumerate(given_curves)
    )
    one, all_at_once = both(AllocationProblem(pool=50, horizon_s=100.0, tasks=tasks), objective)
    if isinstance(one, str):
        assert all_at_once == one
    else:
        assert not isinstance(all_at_once, str)
        np.testing.assert_allclose(all_at_once, one, rtol=1e-13)
