"""Changing one option of generated jobs changes what it is about, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import TaskSpec
from bftrain_datasets.workloads.generator import ClusterShape, generate_cluster
from bftrain_datasets.workloads.task_generators import TaskArrivals

share = st.floats(0, 1)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "gangs": st.dictionaries(st.sampled_from([1, 2, 4, 8, 16]), st.floats(0.01, 1), min_size=1),
    "long_share": share,
    "high_share": share,
    "high_weight": st.floats(0, 100),
    "deadlines": st.lists(st.integers(1, 40).map(lambda n: n / 4), max_size=4).map(tuple),
    "burst_share": share,
    "burst_size": st.integers(1, 6),
    "users": st.integers(0, 9),
    "elastic": st.booleans(),
    "start_cost_s": st.floats(0, 100),
    "per_hour": st.none() | st.floats(0.01, 1000),
    "start_s": st.floats(0, 1e6),
}
# what each option may change
CHANGES = {
    "gangs": {"gang", "sizes"},
    "long_share": {"duration"},
    "high_share": {"weight"},
    "high_weight": {"weight"},
    "deadlines": {"slack"},
    "burst_share": {"submit", "campaign", "user"},
    "burst_size": {"submit", "campaign", "user"},
    "users": {"user"},
    "elastic": {"sizes"},
    "start_cost_s": {"start_cost"},
    "per_hour": {"submit"},
    "start_s": {"submit"},
}
everything = st.fixed_dictionaries(OPTIONS)


def made(count: int, seed: int, options: dict[str, Any]) -> tuple[TaskSpec, ...]:
    shape = {name: value for name, value in options.items() if name not in {"per_hour", "start_s"}}
    arrivals = TaskArrivals(start_s=options["start_s"], per_hour=options["per_hour"])
    return generate_cluster(count, seed, arrivals=arrivals, shape=ClusterShape(**shape))


def streams(tasks: tuple[TaskSpec, ...], options: dict[str, Any]) -> dict[str, list[object]]:
    rigid = not options["elastic"]
    gang = [task.min_nodes if rigid else None for task in tasks]
    times = [
        # Of an elastic task the gang is not given, and with any of them its duration is another
        round((task.work_samples or 0) / task.curve.speed(task.min_nodes), 3) if rigid else None
        for task in tasks
    ]
    slack = [
        None if task.deadline_s is None or duration is None else round((task.deadline_s - task.submit_s) / duration, 3)
        for task, duration in zip(tasks, times, strict=True)
    ]
    return {
        "gang": list(gang),
        "sizes": [(task.min_nodes, task.max_nodes) for task in tasks],
        "duration": list(times),
        "slack": list(slack),
        "weight": [task.weight for task in tasks],
        "submit": [task.submit_s for task in tasks],
        "campaign": [task.campaign for task in tasks],
        "user": [task.user for task in tasks],
        "model": [task.name for task in tasks],
        "start_cost": [task.start_cost_s for task in tasks],
    }


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_an_option_changes_its_own_stream_only(name: str, data: st.DataObject, seed: int, count: int) -> None:
    before = data.draw(everything)
    after = before | {name: data.draw(OPTIONS[name])}
    if name == "elastic":
        before, after = before | {"gangs": {4: 1.0}}, after | {"gangs": {4: 1.0}}
    first, second = streams(made(count, seed, before), before), streams(made(count, seed, after), after)
    hidden = {"gang", "duration", "slack"} if name == "elastic" else set()  # of which an elastic task tells nothing
    assert {key for key in first if first[key] != second[key]} - hidden <= CHANGES[name]


@settings(max_examples=50, deadline=None)
@given(options=everything, seed=st.integers(0, 2**32), count=st.integers(1, 40), more=st.integers(0, 400))
def test_more_tasks_begin_with_the_same_ones(options: dict[str, Any], seed: int, count: int, more: int) -> None:
    few, many = made(count, seed, options), made(count + more, seed, options)
    for one, other in zip(few, many, strict=False):
        assert one.name.rpartition("-")[0] == other.name.rpartition("-")[0]
        for field in ("curve", "min_nodes", "max_nodes", "work_samples", "submit_s", "deadline_s", "user", "campaign"):
            assert getattr(one, field) == getattr(other, field), field


@settings(max_examples=50, deadline=None)
@given(options=everything, seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_the_same_options_give_the_same_tasks(options: dict[str, Any], seed: int, count: int) -> None:
    assert made(count, seed, options) == made(count, seed, options)
