"""Copies of states on nodes outside their tasks, with real agents and workers: the loss of all nodes costs little."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.helpers.copying import CopySite
from tests.helpers.figures import Figures
from tests.helpers.pace import busy_s

pytestmark = [pytest.mark.torch, pytest.mark.apart]


@pytest.mark.parametrize(
    ("times", "state_mb"),
    [(10, 40.0), pytest.param(50, 40.0, marks=pytest.mark.soak), pytest.param(50, 1000.0, marks=pytest.mark.soak)],
)
def test_a_task_that_loses_its_only_node_goes_on_from_the_copy(
    tmp_path: Path, times: int, state_mb: float, figures: Figures
) -> None:
    """Each fifth time its agent is killed as well."""
    repeated = []
    with CopySite(tmp_path, "n1", "n2", state_mb=state_mb) as site:
        assert site.start("n1") == 0
        for number in range(times):
            confirmed = site.copied()["step"]
            site.messages.steps(site.task, 1, number * 7 % 40)
            site.kill("n1", agents=number % 5 == 0)
            seen = len(site.messages.all)
            step = site.start("n1")
            assert step >= confirmed, "what was confirmed is not lost"
            repeated.append(site.repeated_s(seen, step))
    figures.add("median repeated, s", statistics.median(repeated))
    figures.add("most repeated, s", max(repeated))
    assert statistics.median(repeated) < busy_s(2.0)


def test_the_copy_moves_when_its_node_joins_the_task_or_is_lost_and_the_disk_is_the_last_resort(tmp_path: Path) -> None:
    with CopySite(tmp_path, "n1", "n2", "n3", state_mb=8.0, disk=True) as site:
        site.start("n1")
        first = site.copied(0)["node"]
        since = len(site.messages.all)
        site.do("grow", site.task, first)
        (second,) = {"n2", "n3"} - {first}
        assert site.moved_to(since) == second, "a node of the task is no place for its copy"
        since = len(site.messages.all)
        site.kill(second, of_task=False)
        assert site.moved_to(since) == second, "its agent is there again"
        on_disk = site.of("on_disk")[-1]["step"]
        site.kill("n1", "n2", "n3")
        step = site.start("n2")
        assert step >= on_disk > 0


def test_a_state_that_is_too_large_for_all_agents_is_noted_and_training_goes_on(tmp_path: Path) -> None:
    with CopySite(tmp_path, "n1", "n2", state_mb=40.0, copies_mb=70.0) as site:
        site.start("n1")
        note = site.first("note", true=lambda one: "no agent has room" in one["text"])
        assert "40 MB" in note["text"]
        assert "70 MB (copies_memory)" in note["text"]
        site.messages.steps(site.task, 1, 20)
        assert site.of("copied") == []
