"""Rounds conserve work: none leaves a node idle beside a waiting task that fits on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import EventLog, TaskSpec, generate_log, registry, rounds
from bftrain_replay.rounds.round_engine import RoundEngine
from tests.helpers.round_cases import gang

POLICIES = sorted({*registry.parts("sharing"), *registry.parts("rounds")})
ONE_KIND = {"goodput", "optimus-by-one", "pollux"}  # these divide nodes of one kind
POOL = {"v": 3, "k": 2}


class CheckedEngine(RoundEngine):
    """Fails in the first round that leaves a node idle beside a waiting task that fits on it."""

    def _chosen(self) -> tuple[Any, Any]:
        run, kind = super()._chosen()
        gangs, free = self.gangs, self._holders.count.astype(np.int64)
        free -= np.bincount(kind, gangs.nodes[run], free.size).astype(np.int64)
        waiting = np.setdiff1d(self._here, run)
        fits = (gangs.speeds[waiting] > 0.0) & (gangs.nodes[waiting][:, None] <= free)
        assert not fits.any(), f"at {self.now_s:g} s: {[gangs.specs[place].name for place in waiting]} beside {free}"
        return run, kind


@st.composite
def task_lists(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[TaskSpec]:
    tasks = []
    for number in range(draw(st.integers(1, 8))):
        runs_on = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
        speeds = {kind: draw(st.sampled_from([0.5, 1.0, 4.0, 100.0])) for kind in runs_on}
        weight, nodes = draw(st.sampled_from([0.0, 1.0, 1.0, 3.0])), draw(st.integers(1, 2))
        work, submit_s = draw(st.floats(1.0, 3000.0)), draw(st.integers(0, 900))
        tasks.append(gang(f"t{number}", work, nodes, float(submit_s), speeds=speeds, weight=weight))
    return tasks


def check(source: Mapping[str, int] | EventLog, tasks: list[TaskSpec], **chosen: Any) -> None:  # noqa: ANN401 - as rounds() takes them
    with mock.patch("bftrain_replay.rounds.simulation.RoundEngine", CheckedEngine):
        done = rounds(source, tasks, round_s=60.0, **chosen)
    assert done.ended in {"all_done", "log_end"}


@settings(max_examples=40)
@given(
    tasks=task_lists(tuple(POOL)),
    policy=st.sampled_from([policy for policy in POLICIES if policy not in ONE_KIND]),
    kind_order=st.sampled_from(["priority", "listed", "drawn"]),
    shares_interval_s=st.sampled_from([0.0, 500.0]),
)
def test_on_a_cluster(tasks: list[TaskSpec], **chosen: Any) -> None:  # noqa: ANN401 - as above
    check(POOL, tasks, **chosen)


@settings(max_examples=50)
@given(tasks=task_lists(("",)), policy=st.sampled_from(POLICIES), seed=st.integers(0, 3))
def test_on_a_log(tasks: list[TaskSpec], policy: str, seed: int) -> None:
    check(generate_log(20, 0.05, seed), tasks, policy=policy)
