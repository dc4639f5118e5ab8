"""The outputs of commands are the recorded ones; ``make golden`` records them again and shows the difference."""

from __future__ import annotations

import pytest

from tests.golden.run import Case, load_cases, record

pytestmark = pytest.mark.apart


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.soak] * case.soak, id=case.name) for case in load_cases()]
)
def test_outputs_are_the_recorded_ones(case: Case) -> None:
    assert record(case).splitlines() == case.expected.read_text().splitlines()
