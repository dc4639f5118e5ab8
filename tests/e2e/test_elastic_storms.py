"""Storms of changes, kills and stops of everything: they end with the work done, and nothing is lost or left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.helpers.storms import survive_faults

pytestmark = [pytest.mark.torch, pytest.mark.apart]

LAUNCHERS = [
    "native",
    pytest.param("process", marks=pytest.mark.soak),
    pytest.param("horovod", marks=[pytest.mark.horovod, pytest.mark.soak]),
]
CHANGES = {"native": 5, "process": 6, "horovod": 6}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_storms_end_with_the_work_done(tmp_path: Path, launcher: str, figures: Figures) -> None:
    for what, number in survive_faults(tmp_path, launcher, changes=CHANGES[launcher], seed=11, nodes=3).items():
        figures.add(what, number)
