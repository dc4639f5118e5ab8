"""Kills, stops and preemptions of everything: nothing committed is lost, runs twice or is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.helpers.pace import busy_s
from tests.helpers.preemptions import survive
from tests.helpers.shared_nodes import shared
from tests.helpers.storms import survive_faults

pytestmark = [pytest.mark.torch, pytest.mark.apart]


@pytest.mark.parametrize(
    ("launcher", "changes"),
    [
        ("native", 5),
        pytest.param("process", 6, marks=pytest.mark.soak),
        pytest.param("horovod", 6, marks=[pytest.mark.horovod, pytest.mark.soak]),
    ],
)
def test_storms_end_with_the_work_done(tmp_path: Path, launcher: str, changes: int, figures: Figures) -> None:
    for what, number in survive_faults(tmp_path, launcher, changes=changes, seed=11, nodes=3).items():
        figures.add(what, number)


@pytest.mark.slurm
@pytest.mark.horovod
@pytest.mark.parametrize(("grace_s", "times"), [(0.0, 1), pytest.param(5.0, 1, marks=pytest.mark.soak)])
def test_preemptions_of_the_whole_pool_of_a_slurm_lose_nothing(grace_s: float, times: int, figures: Figures) -> None:
    for what, number in survive(6, times, load_s=2.0, grace_s=grace_s, seed=5).items():
        figures.add(f"grace {grace_s:g} s: {what}", number)


@pytest.mark.slurm
def test_main_jobs_share_no_node_with_a_worker_daemon_or_no_daemon(tmp_path: Path, figures: Figures) -> None:
    measured = shared(tmp_path, 4, kills=1, nodes=4)
    for what, number in measured.items():
        figures.add(what, number)
    # Other agents keep workers for 30 s without a daemon, and looks come every 2 s. The soak test has a sharper bound
    assert measured["the same with kills of the daemon, s"] < busy_s(5.0)
    assert measured["remarks"] == 0
