"""Agents on all nodes of a real Slurm with both hooks: a main job has its nodes for itself, daemon or no daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.helpers.shared_nodes import shared

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


def test_main_jobs_share_no_node_with_a_worker(tmp_path: Path, figures: Figures) -> None:
    measured = shared(tmp_path, 4, kills=1, nodes=4)
    for what, number in measured.items():
        figures.add(what, number)
    # Other agents keep workers for 30 s without a daemon, and looks come every 2 s. The soak test has a sharper bound
    assert measured["the same with kills of the daemon, s"] < 1.0
    assert measured["remarks"] == 0
