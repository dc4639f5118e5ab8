"""The outputs of commands are the recorded ones; ``make golden`` records them again and shows the difference."""

from __future__ import annotations

import pytest

from tests.golden.run import Case, load_cases, record


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_outputs_are_the_recorded_ones(case: Case) -> None:
    assert record(case).splitlines() == case.expected.read_text().splitlines()
