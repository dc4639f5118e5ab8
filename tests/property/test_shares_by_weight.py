"""Nodes by weight over several kinds: nodes of a kind are divided as if alone, where no task can choose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, assembly
from tests.helpers.policy_cases import plain

_POOLS = st.fixed_dictionaries({"a": st.integers(0, 12), "b": st.integers(0, 12)})


@st.composite
def confined(draw: st.DrawFn) -> CompetingTask:
    """Return a task that runs on one kind only, faster the more nodes it has."""
    most = draw(st.integers(1, 12))
    task = plain("any", *(float(size) for size in range(1, most + 1)))
    kind = draw(st.sampled_from(["a", "b"]))
    weight = draw(st.sampled_from([0.0, 1.0, 1.0, 2.0, 5.0]))
    return replace(task, curves={kind: task.curve}, weight=weight, min_nodes=draw(st.integers(1, most)))


def shares(tasks: list[CompetingTask], **pools: int) -> dict[str, int]:
    by_kind = pools if len(pools) > 1 else {}
    problem = AllocationProblem(pool=sum(pools.values()), pools=by_kind, horizon_s=60.0, tasks=tuple(tasks))
    return dict(assembly.solve(problem, "proportional-share").sizes)


@given(st.lists(confined(), max_size=6), _POOLS)
def test_shares_follow_weights_within_what_kinds_allow(tasks: list[CompetingTask], pools: dict[str, int]) -> None:
    tasks = [replace(task, name=f"t{place}") for place, task in enumerate(tasks)]
    found = shares(tasks, **pools)
    for kind, count in pools.items():
        own = [replace(task, curves={}) for task in tasks if kind in task.curves]
        assert {task.name: found[task.name] for task in own} == shares(own, **{kind: count})


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=1, max_size=6), _POOLS)
def test_no_task_has_more_for_its_weight_than_a_step_beyond_a_confined_one(
    weights: list[float], pools: dict[str, int]
) -> None:
    """A task that can go anywhere takes nothing from those that cannot, beyond its own part."""
    curve = plain("any", *(float(size) for size in range(1, 25))).curve
    tasks = [
        CompetingTask(name=f"t{place}", max_nodes=24, curve=curve, curves={"b": curve}, weight=weight)
        for place, weight in enumerate(weights)
    ]
    free = CompetingTask(name="free", max_nodes=24, curve=curve, curves={"b": curve, "a": curve})
    found = shares([free, *tasks], **pools)
    alone = shares(tasks, b=pools["b"])
    if pools["a"] >= pools["b"]:
        assert {task.name: found[task.name] for task in tasks} == alone
