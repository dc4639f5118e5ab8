"""The rules that other systems use: who gets what, worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bftrain import (
    AllocationProblem,
    CompetingTask,
    Limits,
    NodesJoined,
    Quality,
    Settings,
    SpeedCurve,
    TaskSpec,
    TaskSubmitted,
    Termination,
    assembly,
    build_harvester,
    registry,
)
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.parts import resolve_objective
from bftrain_solvers import allocators
from tests.helpers.policy_cases import plain

RULES = ("fifo", "las", "srtf", "isolated", "proportional-share", "marginal-gain")


def sizes(rule: str, pool: int, *tasks: CompetingTask) -> list[int]:
    solution = assembly.solve(AllocationProblem(pool=pool, horizon_s=100.0, tasks=tasks), rule)
    assert (solution.termination, solution.quality, solution.bound) == (Termination.HEURISTIC, Quality.FEASIBLE, None)
    return [solution.sizes[task.name] for task in tasks]


def test_fifo_gives_the_oldest_all_that_it_can_use() -> None:
    young, old = plain("young", 10.0, 20.0, 30.0, age_s=5.0), plain("old", 10.0, 18.0, 17.0, age_s=50.0)
    assert sizes("fifo", 4, young, old) == [2, 2]  # a third node would slow the old one down
    assert sizes("fifo", 1, young, old) == [0, 1]
    assert sizes("fifo", 3, replace(young, age_s=50.0), old) == [3, 0]  # as old as each other: the first one


def test_fifo_skips_tasks_that_do_not_fit() -> None:
    big = plain("big", 1.0, 2.0, 3.0, min_nodes=3, age_s=9.0)
    assert sizes("fifo", 2, big, plain("small", 5.0)) == [0, 1]


def test_las_prefers_the_task_with_least_service_for_its_weight() -> None:
    tasks = (
        plain("a", 10.0, held_node_s=30.0),
        plain("b", 10.0, held_node_s=40.0, weight=2.0),
        plain("c", 10.0, weight=0.0),
    )
    assert sizes("las", 1, *tasks) == [0, 1, 0]
    assert sizes("las", 2, *tasks) == [1, 1, 0]


def test_srtf_prefers_the_task_that_is_done_first() -> None:
    long = plain("long", 10.0, 20.0, work_left_samples=1000.0)
    short, endless = plain("short", 1.0, 2.0, work_left_samples=50.0), plain("endless", 99.0)
    assert sizes("srtf", 3, endless, long, short) == [0, 1, 2]
    assert sizes("srtf", 2, endless, replace(long, work_left_samples=100.0), short) == [0, 2, 0]
    assert sizes("srtf", 5, endless, long, short) == [1, 2, 2]


def test_isolated_leaves_idle_what_is_not_ones_own() -> None:
    tasks = (plain("a", 10.0), plain("b", 10.0, 20.0, 30.0), plain("c", 10.0, 20.0, 30.0))
    assert sizes("isolated", 8, *tasks) == [1, 2, 2]


def test_isolated_lets_those_take_turns_whose_part_is_too_small() -> None:
    tasks = [plain(name, 10.0, 20.0, held_node_s=held) for name, held in zip("abc", (9.0, 0.0, 5.0), strict=True)]
    assert sizes("isolated", 2, *tasks) == [0, 1, 1]
    wide = plain("wide", 1.0, 2.0, 3.0, 4.0, min_nodes=4)
    assert sizes("isolated", 6, wide, plain("b", 10.0, 20.0, 30.0)) == [0, 3]
    assert sizes("isolated", 7, wide, plain("b", 10.0, 20.0, 25.0)) == [4, 3]


def test_proportional_share_goes_by_weight() -> None:
    steady = [10.0] * 12
    tasks = (plain("one", *steady), plain("two", *steady, weight=2.0), plain("none", *steady, weight=0.0))
    assert sizes("proportional-share", 9, *tasks) == [3, 6, 0]
    assert sizes("proportional-share", 30, *tasks) == [12, 12, 6]
    least = plain("least", *steady, min_nodes=5)
    assert sizes("proportional-share", 6, least, plain("b", *steady)) == [5, 1]
    assert sizes("proportional-share", 4, least, plain("b", *steady)) == [0, 4]


def test_marginal_gain_goes_where_a_node_saves_most_time() -> None:
    long = plain("long", 10.0, 20.0, 30.0, work_left_samples=6000.0)  # 600, 300, 200 s
    short = plain("short", 10.0, 20.0, 30.0, work_left_samples=300.0)  # 30, 15, 10 s
    assert sizes("marginal-gain", 1, long, short) == [0, 1]  # all are to run, the shortest first
    assert sizes("marginal-gain", 3, long, short) == [2, 1]
    assert sizes("marginal-gain", 5, long, short) == [3, 2]
    assert sizes("marginal-gain", 9, plain("peak", 10.0, 20.0, 5.0), long) == [2, 3]  # more would slow it down
    assert sizes("marginal-gain", 3, plain("never", 0.0, 0.0), short) == [0, 3]


def test_marginal_gain_looks_beyond_a_size_that_brings_nothing() -> None:
    flat = plain("flat", 10.0, 10.0, 90.0, work_left_samples=900.0)
    other = plain("other", 10.0, 11.0, 12.0, work_left_samples=900.0)
    assert sizes("marginal-gain", 4, flat, other) == [3, 1]
    assert sizes("marginal-gain", 3, flat, other) == [1, 2]  # two more would be needed


def test_on_several_kinds_every_task_takes_the_kind_where_it_is_fastest() -> None:
    both = {"v": SpeedCurve(nodes=(1, 2), rate=(30.0, 50.0)), "p": SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0))}
    tasks = tuple(plain(name, 10.0, 20.0, curves=both, work_left_samples=100.0) for name in "abc")
    problem = AllocationProblem(pool=5, pools={"v": 3, "p": 2}, horizon_s=10.0, tasks=tasks)
    for rule, given in {
        "fifo": [("v", 2), ("v", 1), ("p", 2)],
        "las": [("v", 2), ("v", 1), ("p", 2)],
        "srtf": [("v", 2), ("v", 1), ("p", 2)],
        "isolated": [("v", 1), ("v", 1), ("v", 1)],
        "proportional-share": [("v", 2), ("v", 1), ("p", 2)],
        "marginal-gain": [("v", 1), ("v", 1), ("v", 1)],
    }.items():
        solution = assembly.solve(problem, rule)
        assert [(solution.kinds[name], solution.sizes[name]) for name in "abc"] == given, rule


@pytest.mark.parametrize("rule", RULES)
def test_they_answer_for_every_objective(rule: str) -> None:
    tasks = tuple(plain(name, 10.0, 20.0) for name in "ab")
    problem = AllocationProblem(pool=3, horizon_s=10.0, tasks=tasks)
    for objective in ("throughput", "max-min", "hierarchical", "max-min-now"):
        table = ValueTableBuilder(resolve_objective(objective)).table(replace(problem, objective=objective))
        solution = registry.load("solver", rule).solve(table, Limits())
        assert solution.value == table.value_of(solution.sizes)
        assert table.allowed(solution.sizes)


def test_in_a_harvester_they_receive_the_history_that_they_use() -> None:
    """LAS lets the other one run once the first has had more."""
    harvester = build_harvester(Settings(solver="las"))
    assert not build_harvester(Settings(solver="fifo")).uses_work_left
    assert build_harvester(Settings(solver="srtf")).uses_work_left
    for name in "ab":
        spec = TaskSpec(name=name, max_nodes=1, curve=SpeedCurve(nodes=(1,), rate=(1.0,)))
        harvester.absorb(TaskSubmitted(time_s=0.0, spec=spec))
    harvester.absorb(NodesJoined(time_s=0.0, nodes=("n1",)))
    assert [dict(harvester.decide(time_s).sizes) for time_s in (0.0, 50.0, 90.0, 120.0)] == [
        {"a": 1, "b": 0},
        {"a": 0, "b": 1},
        {"a": 0, "b": 1},
        {"a": 1, "b": 0},
    ]


def test_proportional_share_divides_the_nodes_of_a_kind_that_are_left() -> None:
    def on(kind: str, *rates: float, **more: float) -> CompetingTask:
        task = plain(kind, *rates, **more)
        return replace(task, curves={kind: task.curve})

    def given(pools: dict[str, int], *tasks: CompetingTask) -> dict[str, int]:
        problem = AllocationProblem(pool=sum(pools.values()), pools=pools, horizon_s=100.0, tasks=tasks)
        return dict(assembly.solve(problem, "proportional-share").sizes)

    ten = tuple(10.0 * size for size in range(1, 9))
    # By weight four each, of which the first finds two: the second goes on to what is left of its kind
    assert given({"a": 2, "b": 6}, on("a", *ten), on("b", *ten)) == {"a": 2, "b": 6}
    # Its part is too small to run on at all; all nodes would stay idle
    assert given({"a": 0, "b": 4}, on("b", 0.0, 0.0, 0.0, 5.0), on("a", *ten)) == {"a": 0, "b": 4}
    # By weight, not to the first; what makes it no faster is left
    light, heavy = on("b", *ten), replace(on("b", *ten), name="heavy", weight=2.0)
    never = replace(on("b", *[0.0] * 8), name="never")
    assert given({"a": 0, "b": 8}, never, light, heavy) == {"never": 0, "b": 3, "heavy": 5}
    assert given({"a": 3, "b": 6}, on("b", 10.0, 20.0, 20.0)) == {"b": 2}


def test_proportional_share_goes_by_weight_within_what_kinds_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(name: str, kinds: str, weight: float) -> CompetingTask:
        task = plain(name, *(10.0 * size for size in range(1, 16)), weight=weight)
        return replace(task, curves=dict.fromkeys(kinds, task.curve))

    def given(*tasks: CompetingTask, **pools: int) -> list[tuple[str, int]]:
        problem = AllocationProblem(pool=sum(pools.values()), pools=pools, horizon_s=100.0, tasks=tasks)
        solution = assembly.solve(problem, "proportional-share")
        return [(solution.kinds.get(task.name, ""), solution.sizes[task.name]) for task in tasks]

    light, heavy = on("light", "b", 1.0), on("heavy", "b", 2.0)
    assert given(light, heavy, a=9, b=6) == [("b", 2), ("b", 4)]  # not as if there were fifteen nodes for them
    # A task that can go elsewhere does, and by weight nine of fifteen are its share
    assert given(on("anywhere", "ba", 4.5), light, heavy, a=9, b=6) == [("a", 9), ("b", 2), ("b", 4)]
    assert given(on("nowhere", "c", 9.0), light, heavy, a=9, b=6) == [("", 0), ("b", 2), ("b", 4)]
    # A task without weight takes what the others leave, however little choice it has
    last, first = replace(on("last", "a", 0.0), min_nodes=2), replace(on("first", "abc", 2.0), max_nodes=3)
    assert given(last, first, a=3, b=1, c=1) == [("", 0), ("a", 3)]
    three = (on("ab", "ab", 1.0), on("bc", "bc", 1.0), on("c", "c", 1.0))
    assert given(*three, a=4, b=4, c=4) == [("a", 4), ("b", 4), ("c", 4)]
    monkeypatch.setattr(allocators, "_MOST_SETS", 0)
    assert given(light, heavy, a=9, b=6) == [("b", 2), ("b", 4)]
