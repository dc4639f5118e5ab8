"""Hypothesis strategies for every value, event and action of the core."""

from __future__ import annotations

from typing import Any, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import fields

from bftrain import (
    Action,
    AllocationProblem,
    BatchScaling,
    Cause,
    CompetingTask,
    Decision,
    Entity,
    Event,
    Limits,
    NodesJoined,
    NodesLeft,
    Plan,
    Quality,
    ResourceSpeeds,
    Settings,
    Solution,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
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

T = TypeVar("T")
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


some_curves = st.dictionaries(st.just("") | names, curves(), max_size=2)
# Fields that mean the same in every value
FIELDS: dict[str, SearchStrategy[Any]] = {
    **dict.fromkeys(("name", "task", "solver", "objective", "admission", "placement"), names),
    **dict.fromkeys(("user", "campaign", "fallback", "kind"), st.just("") | names),
    **dict.fromkeys(("time_s", "submit_s"), times),
    **dict.fromkeys(("deadline_s", "deadline_in_s", "work_left_samples", "bound"), st.none() | times),
    **dict.fromkeys(("grow_cost_s", "shrink_cost_s", "start_cost_s", "weight", "wall_s", "solve_s"), amounts),
    **dict.fromkeys(("age_s", "held_node_s", "done_samples", "relative_gap", "solver_gap"), amounts),
    **dict.fromkeys(("horizon_s", "solver_deadline_s"), positive),
    **dict.fromkeys(("max_tasks", "threads", "solver_threads", "max_failures"), st.integers(1, LARGEST)),
    **dict.fromkeys(("solver_words", "reason"), texts),
    "curve": curves(),
    "curves": some_curves,
    "batch": st.none() | batches,
    "spread": st.none() | spreads,
    "resources": st.none() | resources,
    "work_samples": st.none() | positive,
    "nodes": some_nodes,
    "cause": st.sampled_from(Cause),
    "kinds": kinds_by_name,
    "entities": st.dictionaries(
        names, st.builds(Entity, weight=positive, nodes=st.none() | st.integers(1, LARGEST)), max_size=2
    ),
    "prices": st.dictionaries(names, positive, max_size=2),
}


def built(kind: type[T], /, **more: SearchStrategy[Any]) -> SearchStrategy[T]:
    """Build values of a struct: its fields by their names, or those of ``more``; now and then a default is left."""
    drawn = {field.name: field for field in fields(kind) if field.name in FIELDS and field.name not in more}
    needed = {name: FIELDS[name] for name, field in drawn.items() if field.required}
    optional = {name: FIELDS[name] for name in drawn.keys() - needed.keys()}
    given = st.fixed_dictionaries({**needed, **more}, optional=dict(sorted(optional.items())))
    return given.map(lambda values: kind(**values))


def sized(kind: type[T], /, **more: SearchStrategy[Any]) -> SearchStrategy[T]:
    """Build tasks with a range of sizes."""
    return bounds().flatmap(lambda both: built(kind, **{name: st.just(size) for name, size in both.items()}, **more))


def task_specs() -> SearchStrategy[TaskSpec]:
    return sized(TaskSpec)


def competing_tasks(size: int | None = None) -> SearchStrategy[CompetingTask]:
    size_of_task = st.integers(0, LARGEST) if size is None else st.just(size)
    return sized(CompetingTask, size=size_of_task, kind=st.just(""), curve=curves())


@st.composite
def problems(draw: DrawFn) -> AllocationProblem:
    tasks = draw(st.lists(competing_tasks(size=draw(st.integers(0, 9))), max_size=3, unique_by=lambda task: task.name))
    held = sum(task.size for task in tasks)
    pool = draw(st.integers(held, LARGEST))
    some = draw(st.integers(0, pool - held))
    pools = st.sampled_from(({}, {"": pool}, {"": pool - some, "v100": some}))
    return draw(built(AllocationProblem, pool=st.just(pool), tasks=st.just(tuple(tasks)), pools=pools))


limits = built(Limits, deadline_s=positive)


@st.composite
def solutions(draw: DrawFn) -> Solution:
    termination = draw(st.sampled_from(Termination))
    quality = Quality.PROVEN if termination is Termination.OPTIMAL else draw(st.sampled_from(Quality))
    none = quality is Quality.NONE
    return draw(
        built(
            Solution,
            sizes=st.just({}) if none else sizes_by_name,
            value=st.none() | times if none else times,
            termination=st.just(termination),
            quality=st.just(quality),
        )
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


actions: SearchStrategy[Action] = st.one_of([built(kind) for kind in get_args(Action)])
_measured = dict.fromkeys(("grow_cost_s", "shrink_cost_s", "start_cost_s", "work_left_samples"), st.none() | amounts)
events: SearchStrategy[Event] = st.one_of(
    *(built(kind, nodes=node_lists) for kind in (NodesJoined, NodesLeft)),
    built(TaskSubmitted, spec=task_specs()),
    *(built(kind) for kind in (TaskFinished, TaskCancelled, TaskPaused, TaskResumed, TaskFailed)),
    built(TaskMeasured, curve=st.none() | curves(), curves=st.none() | some_curves, **_measured),
)


@st.composite
def decisions(draw: DrawFn) -> Decision:
    used = draw(st.integers(0, LARGEST))
    some_actions = st.lists(actions, max_size=2).map(tuple)
    return draw(
        built(
            Decision,
            number=st.integers(1, LARGEST),
            pool=st.integers(used, LARGEST),
            used=st.just(used),
            sizes=sizes_by_name,
            value=times,
            termination=st.sampled_from(Termination),
            quality=st.sampled_from(Quality),
            fallback=texts,
            at_once=some_actions,
            actions=some_actions,
            notes=st.lists(names, max_size=2).map(tuple),
        )
    )


settings = built(Settings)


@st.composite
def broken(draw: st.DrawFn, sample: bytes, pieces: list[bytes]) -> bytes:
    """A sample in which some parts are replaced by ``pieces``, left out or doubled, and whose end may be missing."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(sample)))
        end = draw(st.integers(begin, min(len(sample), begin + 12)))
        piece = draw(st.sampled_from(pieces) | st.binary(max_size=6) | st.just(sample[begin:end] * 2))
        sample = sample[:begin] + piece + sample[end:]
    return sample[: draw(st.integers(0, len(sample)))] if draw(st.booleans()) else sample
