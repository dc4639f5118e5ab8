"""The published study, replayed by its own rules: the figures that its accounting gives with an exact allocator."""

from __future__ import annotations

import pytest

from bftrain import EventLog, TaskSpec, load_log, load_tasks
from tests.helpers.published_study import (
    TRIALS,
    SampleLoss,
    save_published_tasks,
    save_summit,
    settings,
    study,
    to_the_end,
)

WORK = 1000 * 1.3e8
WINDOW = ":2021-02-17T12:21:15"  # 160 h after event 1,000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> EventLog:
    path = tmp_path_factory.mktemp("summit") / "summit.npz"
    save_summit(path)
    return load_log(path)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskSpec, ...]:
    path = tmp_path_factory.mktemp("trials") / "trials.toml"
    save_published_tasks(path, TRIALS)
    return load_tasks(path)


def test_ten_compete_until_all_are_done(log: EventLog, trials: tuple[TaskSpec, ...]) -> None:
    result = to_the_end(log, trials, 10)
    assert result.tasks_finished == 1000
    assert result.summary().makespan_s == pytest.approx(203.52 * 3600, rel=0.01)
    assert len(result.decisions) == pytest.approx(8719, rel=0.01)
    assert 100 * result.lost_samples[SampleLoss.RESCALING] / WORK == pytest.approx(0.66, abs=0.05)
    assert 100 * result.lost_samples[SampleLoss.PREEMPTION] / WORK == pytest.approx(2.69, abs=0.1)


def test_thirty_five_compete_until_all_are_done(log: EventLog, trials: tuple[TaskSpec, ...]) -> None:
    assert to_the_end(log, trials, 35).summary().makespan_s == pytest.approx(179.96 * 3600, rel=0.01)


@pytest.mark.soak
@pytest.mark.parametrize(("max_tasks", "efficiency", "ceiling"), [(10, 0.880, 0.907), (35, 0.940, 0.963)])
def test_a_hundred_and_sixty_hours(
    log: EventLog, trials: tuple[TaskSpec, ...], max_tasks: int, efficiency: float, ceiling: float
) -> None:
    baseline = "equal-share-published" if max_tasks == 10 else ""
    done = study(log, trials, settings(max_tasks, window=WINDOW), baseline=baseline)
    assert done.ceiling is not None
    assert done.result.efficiency == pytest.approx(efficiency, abs=0.01)
    assert done.ceiling.efficiency == pytest.approx(ceiling, abs=0.01)
    if done.baseline is not None:
        assert done.baseline.efficiency == pytest.approx(0.794, abs=0.01)
