"""The long versions of the tests on extreme numbers: 5,000 problems, over all solvers, objectives and policies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import AllocationProblem, SharingProblem
from tests.property.test_extreme_numbers import (
    OBJECTIVES,
    POLICIES,
    SOLVERS,
    check_claims,
    check_shares,
    problems,
    sharing_problems,
)


@pytest.mark.parametrize("name", SOLVERS)
@settings(max_examples=1000, deadline=None)
@given(problem=problems(), objective=OBJECTIVES)
def test_four_thousand_problems(name: str, problem: AllocationProblem, objective: str) -> None:
    check_claims(name, problem, objective)


@settings(max_examples=1000, deadline=None)
@given(problem=sharing_problems(), policy=st.sampled_from(POLICIES))
def test_a_thousand_problems_of_shared_time(problem: SharingProblem, policy: str) -> None:
    check_shares(problem, policy)
