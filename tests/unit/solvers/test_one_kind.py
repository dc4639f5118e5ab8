"""Plans that are equally good for a fair objective: the one that does most is found, or what is not known is said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, Solution, Termination
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.parts import resolve_objective
from bftrain_solvers import exact
from bftrain_solvers.max_min import one_kind
from bftrain_solvers.max_min.one_kind import at_most
from tests.helpers.policy_cases import plain


def solved(policy: str, pool: int, *tasks: CompetingTask, **pools: int) -> Solution:
    problem = AllocationProblem(pool=pool, pools=pools, horizon_s=100.0, tasks=tasks, objective=policy)
    return exact.solver.solve(ValueTableBuilder(resolve_objective(policy)).table(problem), Limits())


# Of three new tasks two can run, each then at the same level; the third would do a hundred times as much
SLOW = (plain("a", 1.0, 2.0), plain("b", 1.0, 2.0))
FAST = plain("c", 100.0, 200.0)


@pytest.mark.parametrize("policy", ["max-min", "water-filling"])
def test_where_some_tasks_must_wait_the_slower_ones_do(policy: str) -> None:
    found = solved(policy, 1, *SLOW, FAST)
    assert (dict(found.sizes), found.solver_words) == ({"a": 0, "b": 0, "c": 1}, "")
    assert (found.termination, found.quality) == (Termination.OPTIMAL, Quality.PROVEN)


def test_over_kinds_too() -> None:
    for policy in ("max-min", "water-filling"):
        found = solved(policy, 1, *SLOW, FAST, v=1, k=0)
        assert (found.sizes["c"], found.kinds) == (1, {"c": "v"})
        assert "more could be done" not in found.solver_words


def test_without_time_to_compare_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = (replace(plain("a", 0.0, 5.0), min_nodes=2), replace(plain("b", 0.0, 9.0), min_nodes=2))
    assert solved("max-min", 3, *wide, FAST).solver_words == ""
    filled, late = one_kind._filled, []  # noqa: SLF001 - the time ends once the levels are known
    monkeypatch.setattr(one_kind, "_filled", lambda *given: late.append(True) or filled(*given))
    monkeypatch.setattr(one_kind, "perf_counter", lambda: 1e12 if late else 0.0)
    assert "were not compared" in solved("max-min", 3, *wide, FAST).solver_words


def test_the_possible_gain_is_never_estimated_too_small() -> None:
    assert at_most("so", 0.0, 5.0) == ""
    assert at_most("so", 1e-12, 5.0) == ""
    assert at_most("so", 1.0, 8.0) == "so 13 % more could be done, at most"
    assert at_most("so", 0.1234, 0.0) == "so 0.13 more could be done, at most"
