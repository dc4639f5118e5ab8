"""Hundreds of main jobs on watched nodes, the daemon killed again and again: none shares a node with a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.shared_nodes import shared
from tests.soak.conftest import Log

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


def test_two_hundred_main_jobs_share_no_node_with_a_worker(tmp_path: Path, soak_log: Log) -> None:
    figures = shared(tmp_path, 200, kills=10, nodes=8)
    soak_log(figures)
    assert figures["the same with kills of the daemon, s"] <= 0.2
    assert figures["remarks"] == 0
