"""The Slurm that the tests start: several at once, and nothing of them is left."""

from __future__ import annotations

import pytest

from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm


def test_two_run_side_by_side_and_nothing_is_left_of_either() -> None:
    with Slurm(nodes=2) as first, Slurm(nodes=3) as second:
        assert first.idle() == {"nid0001", "nid0002"}
        assert second.idle() == {"nid0001", "nid0002", "nid0003"}
        first.submit("sleep 600", "-N1")
        second.submit("trap '' TERM; sleep 600", "-N3")  # will not go by itself
        wait_until(lambda: len(first.idle()) == 1 and not second.idle(), "both jobs run", first.logs)
        assert len(first.processes()) > 4
    assert first.processes() == second.processes() == []
    assert not first.home.exists()
    assert not second.home.exists()


def test_jobs_end_too_when_their_controller_is_gone() -> None:
    with Slurm(nodes=1) as cluster:
        cluster.submit("sleep 600")
        wait_until(lambda: not cluster.idle(), "the job runs", cluster.logs)
        cluster.stop_controller()
        assert not cluster.answers()
    assert cluster.processes() == []
