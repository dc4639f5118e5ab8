"""A real Slurm takes all nodes again and again: no training is called done early, given up, or put back."""

from __future__ import annotations

import pytest

from tests.helpers.figures import Figures
from tests.helpers.preemptions import survive

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.horovod, pytest.mark.apart]


@pytest.mark.parametrize(("grace_s", "times"), [(0.0, 2), pytest.param(5.0, 1, marks=pytest.mark.soak)])
def test_whole_pool_preemptions_lose_nothing(grace_s: float, times: int, figures: Figures) -> None:
    for what, number in survive(6, times, load_s=2.0, grace_s=grace_s, seed=5).items():
        figures.add(f"grace {grace_s:g} s: {what}", number)
