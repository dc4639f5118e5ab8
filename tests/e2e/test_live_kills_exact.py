"""The daemon is killed at random points: what ended is not run again, no rank runs twice, every sample is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.daemon_kills import kill_daemon
from tests.helpers.figures import Figures

pytestmark = [pytest.mark.torch, pytest.mark.apart]


def test_kills_of_the_daemon_run_nothing_twice_and_lose_no_sample(tmp_path: Path, figures: Figures) -> None:
    for what, number in kill_daemon(tmp_path, 3, seed=3).items():
        figures.add(what, number)
