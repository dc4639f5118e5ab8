"""Every value refuses what breaks its rules, names the field, and is the same however its fields were typed."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from bftrain import (
    AllocationProblem,
    BadValue,
    BatchScaling,
    Cause,
    CompetingTask,
    Decision,
    Entity,
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
from bftrain.values import wire
from tests.unit.core.samples import CURVE, GOOD, make

NOT_A_NUMBER = ("1", None, True, math.nan, math.inf, -math.inf, 10**400, [1.0], b"1")
NOT_WHOLE = ("1", None, True, 1.0, 1.5, Decimal(1), [1], 2**63, -(2**63))
NOT_A_NAME = ("", " a", "a ", "a\nb", "\x07", None, 3, b"a", "\ud800")
NOT_NODES = ("n1", b"n1", None, 3, ("",), ("n1", "n1"), ("n 1",), ("n1\n",), (1,), (None,), ("\ud800",))
NOT_SIZES = (None, 3, "a", {"a": -1}, {"a": 1.0}, {"a": True}, {"": 1}, {1: 1}, {"a": "1"}, ["a"], {"a": 2**63})

NOT_CURVES = (3, "a", {"a": 3.0}, {"a": None}, {1: CURVE}, ["a"])
NOT_POOLS = (None, 3, "a", {"a": -1}, {"a": 4.0}, {1: 4}, ["a"])

TASK_EVENTS = (TaskFinished, TaskCancelled, TaskPaused, TaskResumed, TaskFailed, TaskMeasured)
EVENTS = (NodesJoined, NodesLeft, TaskSubmitted, *TASK_EVENTS)
ACTIONS = (Release, Start, Grow, Shrink, Stop)

# kind, field, and what it must refuse
RULES: list[tuple[type, str, tuple[Any, ...]]] = [
    (SpeedCurve, "nodes", ((), (0, 1, 2), (1, 1, 2), (2, 1, 3), "124", (1, 2.5, 4), (1, 2, True), None, 3, (-1, 1, 2))),
    (SpeedCurve, "rate", ((), (1.0,), (1.0, 2.0, -3.0), (1.0, math.nan, 2.0), "123", (1.0, "2", 3.0), None)),
    *((kind, "name", NOT_A_NAME) for kind in (TaskSpec, CompetingTask)),
    *((kind, "min_nodes", (*NOT_WHOLE, 0, -1)) for kind in (TaskSpec, CompetingTask)),
    *((kind, "max_nodes", (*NOT_WHOLE, 0, -1)) for kind in (TaskSpec, CompetingTask)),
    *((kind, "curve", (None, {"nodes": [1], "rate": [1.0]}, 3)) for kind in (TaskSpec, CompetingTask)),
    *(
        (kind, field, (*NOT_A_NUMBER, -0.5))
        for kind in (TaskSpec, CompetingTask)
        for field in ("grow_cost_s", "shrink_cost_s", "start_cost_s", "weight")
    ),
    *(
        (kind, "batch", (3, {"initial": 1, "noise_scale": 1.0}, BatchScaling(initial=1, noise_scale=1.0, largest=3)))
        for kind in (TaskSpec, CompetingTask)
    ),
    (TaskSpec, "spread", (0.5, {"speeds": [{"share": 0.5}]})),
    (TaskSpec, "resources", (0.5, {"cpus": [1.0], "speed": [[0.5]]})),
    (ResourceSpeeds, "cpus", (None, "1", (), (0.0, 2.0), (2.0, 2.0), (1.0, math.inf))),
    (ResourceSpeeds, "memory_gb", (None, (3.0, 2.0), (True,))),
    (
        ResourceSpeeds,
        "speed",
        (3, ("12",), (0.5, 1.0), ((0.5,),), ((0.5, 1.0), (1.0,)), ((0.0,), (1.0,)), ((0.5,), (math.nan,))),
    ),
    (SpreadSpeed, "places", (*NOT_WHOLE, 1, 0)),
    (SpreadSpeed, "kind", NOT_A_NAME[1:]),
    (SpreadSpeed, "share", (*NOT_A_NUMBER, -0.5)),
    (SpreadSpeed, "curve", (3, CURVE)),
    (SpreadSpeeds, "per_place", (*(bad for bad in NOT_WHOLE if bad is not None), 0, -1)),
    (
        SpreadSpeeds,
        "speeds",
        ((), 3, (0.5,), (SpreadSpeed(share=0.5), SpreadSpeed(share=0.4)), (SpreadSpeed(places=3, share=1.0),) * 2),
    ),
    (BatchScaling, "initial", (*NOT_WHOLE, 0, -1)),
    *(
        (BatchScaling, field, (*(bad for bad in NOT_WHOLE if bad is not None), 0, -1))
        for field in ("largest", "per_node")
    ),
    (BatchScaling, "largest", (7,)),
    (BatchScaling, "noise_scale", (*NOT_A_NUMBER, -0.5)),
    (BatchScaling, "fixed_share", (*NOT_A_NUMBER, -0.5, 1.0)),
    *((kind, "curves", NOT_CURVES) for kind in (TaskSpec, CompetingTask, TaskMeasured)),
    *((kind, field, NOT_A_NAME[1:]) for kind, field in ((CompetingTask, "kind"), (CompetingTask, "user"))),
    *(
        (CompetingTask, field, (*NOT_A_NUMBER, -0.5))
        for field in ("age_s", "held_node_s", "done_samples", "tenure_s", "turn_s")
    ),
    (NodesJoined, "kind", NOT_A_NAME[1:]),
    (TaskSpec, "work_samples", ("1", True, math.nan, 0.0, -1.0)),
    (TaskSpec, "submit_s", NOT_A_NUMBER),
    (TaskSpec, "deadline_s", ("1", True, math.inf)),
    (TaskSpec, "user", NOT_A_NAME[1:]),
    (TaskSpec, "campaign", NOT_A_NAME[1:]),
    (CompetingTask, "size", (*NOT_WHOLE, -1)),
    (CompetingTask, "work_left_samples", ("1", True, math.nan)),
    (CompetingTask, "deadline_in_s", ("1", True, math.inf)),
    (AllocationProblem, "pool", (*NOT_WHOLE, -1)),
    (AllocationProblem, "horizon_s", (*NOT_A_NUMBER, 0.0, -1.0)),
    (AllocationProblem, "objective", NOT_A_NAME),
    (AllocationProblem, "tasks", (None, 3, ("a",), [None])),
    (AllocationProblem, "pools", (*NOT_POOLS, {"a": 3}, {"a": 4, "b": 1})),
    (AllocationProblem, "entities", (None, 3, {"a": 1.0}, {1: Entity()}, {"a": None})),
    (AllocationProblem, "prices", (None, 3, {"a": 0.0}, {"a": -1.0}, {"a": math.inf}, {"": 1.0}, {"a": "1"})),
    (Limits, "deadline_s", (*NOT_A_NUMBER, 0.0, -1.0)),
    (Limits, "relative_gap", (*NOT_A_NUMBER, -0.1)),
    (Limits, "threads", (*NOT_WHOLE, 0)),
    (Solution, "sizes", NOT_SIZES),
    *((kind, "kinds", (None, 3, "a", {"a": ""}, {"a": 1}, {"": "b"}, {1: "a"})) for kind in (Solution, Decision)),
    (Solution, "value", ("1", True, math.nan, math.inf)),
    (Solution, "bound", ("1", True, math.nan, math.inf)),
    (Solution, "termination", ("done", None, 3)),
    (Solution, "quality", ("good", None, 3)),
    (Solution, "solver", NOT_A_NAME),
    (Solution, "solver_words", (None, 3, b"ok")),
    (Solution, "wall_s", (*NOT_A_NUMBER, -1.0)),
    (
        Plan,
        "holdings",
        (None, 3, "a", {"a": ()}, {"a": "n1"}, {"a": (1,)}, {"": ("n1",)}, {"a": ("n1", "n1")}, {"a": None}),
    ),
    (Decision, "time_s", NOT_A_NUMBER),
    (Decision, "number", (*NOT_WHOLE, 0)),
    (Decision, "pool", (*NOT_WHOLE, -1)),
    (Decision, "used", (*NOT_WHOLE, -1, 5)),
    (Decision, "sizes", NOT_SIZES),
    (Decision, "batches", NOT_SIZES),
    (Decision, "value", NOT_A_NUMBER),
    (Decision, "bound", ("1", True, math.nan)),
    (Decision, "solver", NOT_A_NAME),
    (Decision, "termination", ("done", None, 3)),
    (Decision, "quality", ("good", None, 3)),
    (Decision, "solver_words", (None, 3)),
    (Decision, "fallback", (None, 3)),
    (Decision, "solve_s", (*NOT_A_NUMBER, -1.0)),
    (Decision, "at_once", (None, 3, "a", ("release",), (CURVE,))),
    (Decision, "actions", (None, 3, "a", ("release",), (CURVE,))),
    (Decision, "notes", (None, 3, "a note", (1,))),
    *((kind, "time_s", NOT_A_NUMBER) for kind in EVENTS),
    *((kind, "nodes", NOT_NODES) for kind in (NodesJoined, NodesLeft)),
    *((kind, "task", NOT_A_NAME) for kind in TASK_EVENTS),
    (TaskSubmitted, "spec", (None, {"name": "a"}, CURVE)),
    (TaskFailed, "reason", (None, 3, b"died")),
    (TaskMeasured, "curve", (3, {"nodes": [1], "rate": [1.0]})),
    *(
        (TaskMeasured, field, ("1", True, math.nan, -1.0))
        for field in ("grow_cost_s", "shrink_cost_s", "start_cost_s", "work_left_samples", "noise_scale")
    ),
    *((kind, "nodes", (*NOT_NODES, ())) for kind in ACTIONS),
    *((kind, "task", NOT_A_NAME) for kind in ACTIONS if kind is not Release),
    *((kind, "cause", ("because", None, 3)) for kind in (Shrink, Stop)),
    *((Settings, field, NOT_A_NAME) for field in ("solver", "objective", "admission", "placement")),
    (Settings, "fallback", NOT_A_NAME[1:]),
    *((Settings, field, (*NOT_A_NUMBER, 0.0)) for field in ("horizon_s", "solver_deadline_s")),
    *((Settings, field, (*NOT_A_NUMBER, -0.1)) for field in ("turn_s", "solver_gap")),
    *((Settings, field, (*NOT_WHOLE, 0)) for field in ("max_tasks", "solver_threads", "max_failures")),
    (Settings, "entities", (None, 3, {"a": 2.0}, {1: Entity()})),
    (Settings, "racks", (None, 3, {"r1": 3}, {"r1": ["n1"]})),
    (Settings, "prices", (None, 3, {"v100": 0.0}, {"v100": math.nan})),
]
CASES = [
    pytest.param(kind, field, bad, id=f"{kind.__name__}.{field}-{number}")
    for kind, field, bads in RULES
    for number, bad in enumerate(bads)
]


@pytest.mark.parametrize(("kind", "field", "bad"), CASES)
def test_a_field_that_breaks_its_rule_is_refused_by_name(kind: type, field: str, bad: object) -> None:
    with pytest.raises(BadValue) as refused:
        make(kind, **{field: bad})
    assert refused.value.where == f"{kind.__name__}.{field}"


@pytest.mark.parametrize("kind", [TaskSpec, CompetingTask])
def test_the_largest_size_is_not_below_the_smallest(kind: type) -> None:
    with pytest.raises(BadValue, match=r"max_nodes: is 4, below min_nodes = 5"):
        make(kind, min_nodes=5)
    assert make(kind, min_nodes=4).max_nodes == 4


def test_a_curve_needs_one_speed_per_size() -> None:
    with pytest.raises(BadValue, match=r"SpeedCurve\.rate: has 2 values for 3 sizes"):
        make(SpeedCurve, rate=(1.0, 2.0))


def test_competing_tasks_have_different_names_and_hold_what_the_pool_has() -> None:
    twice = (make(CompetingTask), make(CompetingTask))
    with pytest.raises(BadValue, match=r"AllocationProblem\.tasks: uses the name 'a' twice \(give every task"):
        make(AllocationProblem, tasks=twice)
    with pytest.raises(BadValue, match=r"AllocationProblem\.pool: is 4, but the tasks hold 5 nodes already"):
        make(AllocationProblem, tasks=(make(CompetingTask, size=3), make(CompetingTask, name="b", size=2)))


def test_nodes_of_a_kind_are_held_by_no_more_than_there_are() -> None:
    task = make(CompetingTask, size=3, kind="v100")
    assert make(AllocationProblem, pools={"v100": 3, "": 1}, tasks=(task,)).by_kind == {"v100": 3, "": 1}
    assert make(AllocationProblem, tasks=(task,)).by_kind == {"": 4}
    with pytest.raises(BadValue, match=r"pools: has 2 nodes of kind 'v100', but the tasks hold 3 already"):
        make(AllocationProblem, pools={"v100": 2, "k80": 2}, tasks=(task,))
    with pytest.raises(BadValue, match=r"pools: has 0 nodes of kind '', but the tasks hold 3 already"):
        make(AllocationProblem, pools={"v100": 4}, tasks=(make(CompetingTask, size=3),))


@pytest.mark.parametrize("kind", [TaskSpec, CompetingTask])
def test_a_task_with_curves_runs_on_the_kinds_that_they_name(kind: type) -> None:
    fast, slow = make(SpeedCurve), make(SpeedCurve, rate=(1.0, 2.0, 3.0))
    assert make(kind).curve_on("v100") == make(kind).curve_on("") == CURVE
    picky = make(kind, curve=slow, curves={"v100": fast})
    assert (picky.curve_on("v100"), picky.curve_on("k80"), picky.curve_on("")) == (fast, None, slow)
    assert make(kind, curves={"v100": fast, "": fast}, curve=slow).curve_on("") == fast


def test_a_node_serves_one_task() -> None:
    with pytest.raises(BadValue, match="node 'n1' serves both 'a' and 'b'"):
        Plan(holdings={"a": ("n1",), "b": ("n2", "n1")})


def test_a_solution_does_not_contradict_itself() -> None:
    with pytest.raises(BadValue, match=r"Solution\.quality: is 'none', but there are sizes"):
        make(Solution, quality="none")
    with pytest.raises(BadValue, match=r"Solution\.value: is missing, but there are sizes"):
        make(Solution, value=None)
    with pytest.raises(BadValue, match=r"Solution\.quality: must be 'proven'"):
        make(Solution, termination="optimal")


def test_a_failed_solution_has_no_sizes_and_says_why() -> None:
    failed = Solution.failed("mine", "no licence", termination=Termination.INTERRUPTED, wall_s=2.0)
    assert (failed.sizes, failed.value, failed.bound, failed.wall_s) == ({}, None, None, 2.0)
    assert (failed.termination, failed.quality) == (Termination.INTERRUPTED, Quality.NONE)
    assert (failed.solver, failed.solver_words) == ("mine", "no licence")
    assert Solution.failed("mine", "").termination is Termination.FAILED


def test_numpy_and_lists_become_plain_numbers_and_tuples() -> None:
    typed = SpeedCurve(nodes=np.array([1, 2]), rate=[np.float32(0.5), 3])  # type: ignore[arg-type]
    assert typed == SpeedCurve(nodes=(1, 2), rate=(0.5, 3.0))
    assert [type(item) for item in (*typed.nodes, *typed.rate)] == [int, int, float, float]
    assert type(typed.nodes) is type(typed.rate) is tuple
    assert wire.encode(typed) == b'{"nodes":[1,2],"rate":[0.5,3.0]}'


def test_tuples_of_numpy_numbers_become_plain_ones_too() -> None:
    typed = SpeedCurve(nodes=(np.int64(1), np.int64(2)), rate=(1, 2))  # type: ignore[arg-type]
    assert wire.encode(typed) == b'{"nodes":[1,2],"rate":[1.0,2.0]}'


@pytest.mark.parametrize("number", [3, np.int8(3), np.float64(3), Fraction(3), Decimal(3)])
def test_seconds_may_be_any_kind_of_number(number: Any) -> None:  # noqa: ANN401 - that is the point
    made = NodesJoined(time_s=number, nodes=["n1"])  # type: ignore[arg-type]
    assert type(made.time_s) is float
    assert wire.encode(made) == b'{"event":"nodes_joined","time_s":3.0,"nodes":["n1"]}'


def test_names_may_be_numpys_text_or_a_words_of_an_enumeration() -> None:
    made = Start(nodes=np.array(["n1"]), task=np.str_("a"))  # type: ignore[arg-type]
    assert [type(made.task), type(made.nodes[0])] == [str, str]
    assert wire.encode(Start(nodes=("n1",), task=Cause.FAILED)) == b'{"action":"start","nodes":["n1"],"task":"failed"}'


def test_sizes_and_nodes_inside_mappings_become_plain_too() -> None:
    sizes = make(Solution, sizes={np.str_("a"): np.int64(2)}).sizes
    assert [(type(name), type(size)) for name, size in sizes.items()] == [(str, int)]
    assert Plan(holdings={"a": ["n1"]}).holdings["a"] == ("n1",)  # type: ignore[dict-item]


def test_words_of_an_enumeration_may_be_plain_text() -> None:
    assert make(Stop, cause="failed").cause is Cause.FAILED
    assert make(Solution).termination is Termination.TIME_LIMIT


def test_generators_are_taken_for_lists() -> None:
    assert NodesJoined(time_s=0, nodes=(f"n{i}" for i in range(2))).nodes == ("n0", "n1")  # type: ignore[arg-type]


def test_too_large_numbers_are_called_too_large() -> None:
    with pytest.raises(BadValue, match=r"TaskSpec\.max_nodes: is too large: 9223372036854775808"):
        make(TaskSpec, max_nodes=2**63)
    assert make(TaskSpec, max_nodes=2**63 - 1).max_nodes == 2**63 - 1


@pytest.mark.parametrize("kind", list(GOOD), ids=lambda kind: kind.__name__)
def test_values_are_frozen_slotted_and_keyword_only(kind: type) -> None:
    value = make(kind)
    field = msgspec.structs.fields(kind)[0].name
    with pytest.raises(AttributeError):
        setattr(value, field, getattr(value, field))
    with pytest.raises(AttributeError):
        value.anything_else = 1
    assert not hasattr(value, "__dict__")
    with pytest.raises(TypeError):
        kind(*GOOD[kind].values() or (1,))


def test_mappings_inside_are_read_only_copies() -> None:
    given = {"a": 2}
    solution = make(Solution, sizes=given)
    given["a"] = 99
    assert solution.sizes == {"a": 2}
    with pytest.raises(TypeError):
        solution.sizes["a"] = 3
    with pytest.raises(TypeError):
        make(Plan).holdings["b"] = ("n3",)
    with pytest.raises(TypeError):
        make(Decision).sizes["a"] = 3


def test_a_curve_is_linear_between_points_proportional_below_and_flat_beyond() -> None:
    curve = SpeedCurve(nodes=(2, 4, 8), rate=(10.0, 30.0, 40.0))
    assert curve.last_measured == 8
    assert [curve.speed(size) for size in (0, 1, 2, 3, 4, 6, 8, 100)] == [0, 5, 10, 20, 30, 35, 40, 40]
    assert curve.speeds(6).tolist() == [0, 5, 10, 20, 30, 32.5, 35]
    assert curve.speeds(0).tolist() == [0]


def test_decisions_are_equal_regardless_of_solver_time_and_message() -> None:
    base = make(Decision)
    assert base.same_as(make(Decision, solve_s=3.0, solver_words="after 3 s"))
    for change in (
        {"sizes": {"a": 1}},
        {"value": 5.5},
        {"bound": 1.0},
        {"notes": ("n",)},
        {"fallback": "x"},
        {"actions": (make(Release),)},
        {"quality": "feasible"},
        {"number": 2},
        {"time_s": 2.0},
    ):
        assert not base.same_as(make(Decision, **change))
