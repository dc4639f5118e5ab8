"""Hypothesis strategies for every value, event and action of the core."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from bftrain import (
    Action,
    AllocationProblem,
    BatchScaling,
    Cause,
    CompetingTask,
    Decision,
    Entity,
    Event,
    Grow,
    Limits,
    NodesJoined,
    NodesLeft,
    Plan,
    Quality,
    Release,
    ResourceSpeeds,
    Settings,
    Shrink,
    Solution,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
    Start,
    Stop,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    Termination,
)

LARGEST = 2**63 - 1

texts = st.text()  # what programs say: anything at all, lone surrogates included
node_names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6)
names = st.builds(lambda words: " ".join(words), st.lists(node_names, min_size=1, max_size=2))  # noqa: PLW0108 - typed
node_lists = st.lists(node_names, max_size=5, unique=True).map(tuple)
some_nodes = st.lists(node_names, min_size=1, max_size=5, unique=True).map(tuple)

times = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=False)
sizes_by_name = st.dictionaries(names, st.integers(0, LARGEST), max_size=4)
kinds_by_name = st.dictionaries(names, names, max_size=2)


@st.composite
def curves(draw: DrawFn, largest: int = LARGEST, fastest: float = 1e300) -> SpeedCurve:
    nodes = sorted(draw(st.sets(st.integers(1, largest), min_size=1, max_size=6)))
    rate = draw(st.lists(st.floats(0.0, fastest), min_size=len(nodes), max_size=len(nodes)))
    return SpeedCurve(nodes=tuple(nodes), rate=tuple(rate))


@st.composite
def bounds(draw: DrawFn, largest: int = LARGEST) -> dict[str, int]:
    smallest = draw(st.integers(1, largest))
    return {"min_nodes": smallest, "max_nodes": draw(st.integers(smallest, largest))}


costs = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("grow_cost_s", "shrink_cost_s", "start_cost_s", "weight"), amounts)
)

batches = st.builds(
    BatchScaling, initial=st.integers(1, LARGEST), noise_scale=amounts, per_node=st.none() | st.integers(1, LARGEST)
)

spreads = st.builds(
    SpreadSpeeds,
    per_place=st.none() | st.integers(1, LARGEST),
    speeds=st.lists(st.integers(2, LARGEST), min_size=1, max_size=3, unique=True).map(
        lambda places: tuple(SpreadSpeed(places=each, share=1.0 / each) for each in sorted(places))
    ),
)

resources = st.sampled_from(
    (
        ResourceSpeeds(cpus=(1.0, 3.0, 6.5), speed=((1 / 3,), (0.9,), (1.0,))),
        ResourceSpeeds(memory_gb=(16.0,), speed=((0.5,),)),
        ResourceSpeeds(cpus=(2.0,), memory_gb=(16.0, 64.0), speed=((0.5, 1.0),)),
    )
)


@st.composite
def task_specs(draw: DrawFn) -> TaskSpec:
    more = st.fixed_dictionaries(
        {},
        optional={
            "work_samples": st.none() | positive,
            "submit_s": times,
            "deadline_s": st.none() | times,
            "user": st.just("") | names,
            "campaign": st.just("") | names,
            "batch": st.none() | batches,
            "spread": st.none() | spreads,
            "resources": st.none() | resources,
            "curves": st.dictionaries(st.just("") | names, curves(), max_size=2),
        },
    )
    return TaskSpec(name=draw(names), curve=draw(curves()), **draw(bounds()), **draw(costs), **draw(more))


@st.composite
def competing_tasks(draw: DrawFn, size: int | None = None) -> CompetingTask:
    more = st.fixed_dictionaries(
        {},
        optional={
            "work_left_samples": st.none() | times,
            "deadline_in_s": st.none() | times,
            "curves": st.dictionaries(st.just("") | names, curves(), max_size=2),
            "user": st.just("") | names,
            "batch": st.none() | batches,
            **dict.fromkeys(("age_s", "held_node_s", "done_samples"), amounts),
        },
    )
    return CompetingTask(
        name=draw(names),
        size=draw(st.integers(0, LARGEST)) if size is None else size,
        curve=draw(curves()),
        **draw(bounds()),
        **draw(costs),
        **draw(more),
    )


@st.composite
def problems(draw: DrawFn) -> AllocationProblem:
    tasks = draw(st.lists(competing_tasks(size=draw(st.integers(0, 9))), max_size=3, unique_by=lambda task: task.name))
    pool = draw(st.integers(sum(task.size for task in tasks), LARGEST))
    some = draw(st.integers(0, pool - sum(task.size for task in tasks)))
    return AllocationProblem(
        pool=pool,
        horizon_s=draw(positive),
        objective=draw(names),
        tasks=tuple(tasks),
        pools=draw(st.sampled_from(({}, {"": pool}, {"": pool - some, "v100": some}))),
        entities=draw(st.dictionaries(names, st.builds(Entity, weight=positive), max_size=2)),
        prices=draw(st.dictionaries(names, positive, max_size=2)),
    )


limits = st.builds(Limits, deadline_s=positive, relative_gap=amounts, threads=st.integers(1, LARGEST))


@st.composite
def solutions(draw: DrawFn) -> Solution:
    common: dict[str, Any] = {
        "solver": draw(names),
        "solver_words": draw(texts),
        "wall_s": draw(amounts),
        "bound": draw(st.none() | times),
        "kinds": draw(kinds_by_name),
    }
    termination = draw(st.sampled_from(Termination))
    proven = termination is Termination.OPTIMAL
    quality = Quality.PROVEN if proven else draw(st.sampled_from(Quality))
    none = quality is Quality.NONE
    return Solution(
        sizes={} if none else draw(sizes_by_name),
        value=draw(st.none() | times) if none else draw(times),
        termination=termination,
        quality=quality,
        **common,
    )


@st.composite
def plans(draw: DrawFn) -> Plan:
    nodes = draw(st.lists(node_names, max_size=8, unique=True))
    tasks = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    holdings: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        task = draw(st.sampled_from(tasks))
        holdings[task] = (*holdings.get(task, ()), node)
    return Plan(holdings=holdings)


causes = st.sampled_from(Cause)
actions: SearchStrategy[Action] = st.one_of(
    st.builds(Release, nodes=some_nodes),
    st.builds(Start, nodes=some_nodes, task=names),
    st.builds(Grow, nodes=some_nodes, task=names),
    st.builds(Shrink, nodes=some_nodes, task=names, cause=causes),
    st.builds(Stop, nodes=some_nodes, task=names, cause=causes),
)
events: SearchStrategy[Event] = st.one_of(
    st.builds(NodesJoined, time_s=times, nodes=node_lists, kind=st.just("") | names),
    st.builds(NodesLeft, time_s=times, nodes=node_lists),
    st.builds(TaskSubmitted, time_s=times, spec=task_specs()),
    st.builds(TaskFinished, time_s=times, task=names),
    st.builds(TaskCancelled, time_s=times, task=names),
    st.builds(TaskPaused, time_s=times, task=names),
    st.builds(TaskResumed, time_s=times, task=names),
    st.builds(TaskFailed, time_s=times, task=names, reason=texts),
    st.builds(
        TaskMeasured,
        time_s=times,
        task=names,
        curve=st.none() | curves(),
        curves=st.none() | st.dictionaries(st.just("") | names, curves(), max_size=2),
        grow_cost_s=st.none() | amounts,
        shrink_cost_s=st.none() | amounts,
        start_cost_s=st.none() | amounts,
        work_left_samples=st.none() | amounts,
    ),
)


@st.composite
def decisions(draw: DrawFn) -> Decision:
    used = draw(st.integers(0, LARGEST))
    return Decision(
        time_s=draw(times),
        number=draw(st.integers(1, LARGEST)),
        pool=draw(st.integers(used, LARGEST)),
        used=used,
        sizes=draw(sizes_by_name),
        value=draw(times),
        bound=draw(st.none() | times),
        solver=draw(names),
        termination=draw(st.sampled_from(Termination)),
        quality=draw(st.sampled_from(Quality)),
        solver_words=draw(texts),
        fallback=draw(texts),
        solve_s=draw(amounts),
        at_once=tuple(draw(st.lists(actions, max_size=2))),
        actions=tuple(draw(st.lists(actions, max_size=2))),
        notes=tuple(draw(st.lists(names, max_size=2))),
        kinds=draw(kinds_by_name),
    )


settings = st.builds(
    Settings,
    solver=names,
    fallback=st.just("") | names,
    objective=names,
    admission=names,
    placement=names,
    horizon_s=positive,
    max_tasks=st.integers(1, LARGEST),
    solver_deadline_s=positive,
    solver_gap=amounts,
    solver_threads=st.integers(1, LARGEST),
    max_failures=st.integers(1, LARGEST),
    entities=st.dictionaries(
        names, st.builds(Entity, weight=positive, nodes=st.none() | st.integers(1, LARGEST)), max_size=2
    ),
    prices=st.dictionaries(names, positive, max_size=2),
)


@st.composite
def broken(draw: st.DrawFn, sample: bytes, pieces: list[bytes]) -> bytes:
    """A sample in which some parts are replaced by ``pieces``, left out or doubled, and whose end may be missing."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(sample)))
        end = draw(st.integers(begin, min(len(sample), begin + 12)))
        piece = draw(st.sampled_from(pieces) | st.binary(max_size=6) | st.just(sample[begin:end] * 2))
        sample = sample[:begin] + piece + sample[end:]
    return sample[: draw(st.integers(0, len(sample)))] if draw(st.booleans()) else sample
