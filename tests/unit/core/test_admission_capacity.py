"""Admission over nodes of several kinds: no kind is left idle because those who want another one are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import NodesJoined, Settings, SpeedCurve, TaskSpec, build_harvester
from tests.unit.core.samples import submitted

LINEAR = SpeedCurve(nodes=(1, 9), rate=(1.0, 9.0))
POOL = {"a": 1, "b": 9}


def task(name: str, kinds: str, smallest: int = 1, largest: int = 9) -> TaskSpec:
    curves = dict.fromkeys(kinds, LINEAR)
    return TaskSpec(
        name=name, curve=LINEAR, curves=curves, min_nodes=smallest, max_nodes=largest, work_samples=1e6, user="u"
    )


def compete(admission: str, pools: Mapping[str, int], tasks: Sequence[TaskSpec]) -> list[str]:
    harvester = build_harvester(Settings(admission=admission))
    nodes = (
        NodesJoined(time_s=0.0, nodes=tuple(f"{kind}{number}" for number in range(count)), kind=kind)
        for kind, count in pools.items()
        if count
    )
    harvester.absorb(*nodes, *(submitted(0, each) for each in tasks))
    return list(harvester.decide(0).sizes)


@pytest.mark.parametrize("admission", ["load", "load,demand=max", "campaigns", "campaigns,demand=min"])
def test_who_wants_one_kind_leaves_the_other_to_those_behind(admission: str) -> None:
    tasks = [*(task(f"a{number}", "a") for number in range(10)), task("b", "b")]
    assert compete(admission, POOL, tasks) == ["a0", "b"]


def test_who_demands_too_much_of_a_kind_bars_those_who_want_it_and_no_others() -> None:
    tasks = [task("b0", "b", 5), task("b1", "b", 5), task("b2", "b", 1), task("a", "a"), task("either", "ab")]
    assert compete("load", POOL, tasks) == ["b0", "a"]
    assert compete("load", {"a": 2, "b": 9}, tasks) == ["b0", "a", "either"]


@pytest.mark.parametrize("admission", ["load", "load,demand=max", "campaigns"])
def test_who_can_use_several_kinds_makes_room_for_who_can_not(admission: str) -> None:
    tasks = [task("either", "ab"), task("b", "b"), task("a", "a")]
    assert compete(admission, {"a": 4, "b": 5}, tasks[:2]) == ["either", "b"]
    chain = [task("ab", "ab", 2, 2), task("bc", "bc", 2, 2), task("c", "c", 2, 2), task("more", "abc", 2, 2)]
    assert compete(admission, {"a": 2, "b": 2, "c": 2}, chain) == ["ab", "bc", "c"]


def can_run_at_once(tasks: Sequence[TaskSpec], pools: Mapping[str, int]) -> bool:
    for kinds in product(*(each.curves for each in tasks)):
        used = dict.fromkeys(pools, 0)
        for each, kind in zip(tasks, kinds, strict=True):
            used[kind] += each.min_nodes
        if all(used[kind] <= pools[kind] for kind in pools):
            return True
    return False


KINDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)


@given(
    pools=st.fixed_dictionaries({kind: st.integers(0, 5) for kind in "abc"}),
    wants=st.lists(st.tuples(KINDS, st.integers(1, 4)), min_size=1, max_size=7),
)
@settings(max_examples=150, deadline=None)
def test_up_to_a_factor_of_1_all_who_compete_can_run_at_once(
    pools: dict[str, int], wants: list[tuple[list[str], int]]
) -> None:
    tasks = [task(f"t{number}", "".join(kinds), smallest) for number, (kinds, smallest) in enumerate(wants)]
    names = compete("load", pools, tasks)
    chosen = [each for each in tasks if each.name in names]
    assert can_run_at_once(chosen, pools)


@given(
    pools=st.fixed_dictionaries({kind: st.integers(0, 3) for kind in "abc"}),
    wants=st.lists(KINDS, min_size=1, max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_a_task_of_one_node_waits_only_if_it_cannot_run_beside_those_before_it(
    pools: dict[str, int], wants: list[list[str]]
) -> None:
    tasks = [task(f"t{number}", "".join(kinds), 1, 1) for number, kinds in enumerate(wants)]
    names = compete("load", pools, tasks)
    before: list[TaskSpec] = []
    barred: set[str] = set()
    for each in tasks:
        if each.name in names:
            before.append(each)
        else:
            assert barred & set(each.curves) or not can_run_at_once([*before, each], pools)
            barred.update(each.curves)


def test_with_a_factor_below_1_the_first_of_each_kind_competes() -> None:
    tasks = [task("b0", "b", 9), task("b1", "b", 1), task("a0", "a"), task("a1", "a")]
    assert compete("load=0.1", POOL, tasks) == ["b0", "a0"]


def test_without_nodes_no_task_competes() -> None:
    assert compete("load", {"a": 0}, [task("a", "a")]) == []
    assert compete("campaigns", {"a": 1}, [task("b", "b")]) == []
