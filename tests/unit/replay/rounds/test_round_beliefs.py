"""Rounds in which policies mistake speeds: tasks run as fast as they are, and policies may learn how fast that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bftrain import BadValue, SpeedCurve, TaskSpec, rounds
from tests.helpers.round_cases import gang

NODES = {"v": 2, "k": 2}
ROUND_S = 120.0


def jobs(count: int = 12, seed: int = 1) -> list[TaskSpec]:
    """Return tasks that are faster on v by factors of their own; more than there are nodes."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        slow = float(rng.lognormal(0.0, 0.5))
        speeds = {"v": slow * float(rng.uniform(2.0, 4.0)), "k": slow}
        found.append(gang(f"t{number}", float(rng.lognormal(6.5, 0.8)), 1, 30.0 * number, speeds=speeds))
    return found


def mean_s(tasks: list[TaskSpec], policy: str, **settings: object) -> float:
    done = rounds(NODES, tasks, policy=policy, round_s=ROUND_S, **settings)  # type: ignore[arg-type]  # fields of it
    assert done.engine.ended == "all_done"
    assert done.engine.done_samples == pytest.approx([task.work_samples for task in tasks])
    return done.task_figures.completion_s.mean


@pytest.mark.parametrize("policy", ["srtf", "optimus"])
def test_mistaken_speeds_change_what_is_chosen_and_not_how_fast_tasks_run(policy: str) -> None:
    right = mean_s(jobs(), policy)
    wrong = [mean_s(jobs(), policy, speed_error=1.0, seed=seed) for seed in range(3)]
    assert right < np.mean(wrong)
    assert mean_s(jobs(), policy, speed_error=1.0, seed=2) == wrong[2]
    assert mean_s(jobs(), policy, speed_error=1.0, seed=2, profiled=1.0) == right


def test_a_task_alone_runs_as_fast_as_it_is() -> None:
    alone = [gang("a", 600.0, speeds={"v": 2.0})]
    assert mean_s(alone, "srtf", speed_error=2.0, seed=1) == 300.0


class Watcher:
    """Runs the first task on v, then on k, and so on; notes which speeds it is shown."""

    name = "watcher"
    seen: ClassVar[list[list[list[float]]]] = []

    def priorities(self, contenders: Any) -> np.ndarray:  # noqa: ANN401 - as the port says
        self.seen.append(contenders.speeds.tolist())
        shown = [[task.curves[kind].speed(1) for kind in ("v", "k")] for task in contenders.tasks]
        assert shown == contenders.speeds.tolist()
        turn = len(self.seen) - 1
        given = np.full(contenders.speeds.shape, -np.inf)
        given[turn % len(contenders), turn // len(contenders) % 2] = 1.0
        return given


def seen(folder: Path, learning: str) -> list[list[list[float]]]:
    Watcher.seen = []
    mine = folder / "watcher.py"
    mine.write_text(f"from {__name__} import Watcher\n")
    tasks = [gang(f"t{each}", 1e6, speeds={"v": 30.0 * each, "k": 10.0 * each}) for each in (1, 2)]
    settings = {"speed_error": 1.0, "seed": 4, "learning": learning, "until_s": 300.0}
    rounds({"v": 1, "k": 1}, tasks, policy=f"{mine}:Watcher", round_s=60.0, **settings)  # type: ignore[arg-type]  # fields of it
    return Watcher.seen


def test_what_ran_a_round_is_known_from_then_on(tmp_path: Path) -> None:
    never, learnt = seen(tmp_path, "no"), seen(tmp_path, "yes")
    assert all(speeds == never[0] for speeds in never)
    guessed = never[0]
    assert learnt[0] == guessed
    assert learnt[1] == [[30.0, guessed[0][1]], guessed[1]]
    assert learnt[2] == [[30.0, guessed[0][1]], [60.0, guessed[1][1]]]
    assert learnt[4] == [[30.0, 10.0], [60.0, 20.0]]


def test_speeds_on_other_kinds_are_completed_from_tasks_that_ran_there(tmp_path: Path) -> None:
    found = seen(tmp_path, "completed")
    assert found[2] == seen(tmp_path, "yes")[2]  # no task has run on k yet
    # The first ran on both, so the second is taken to be three times as slow on k as on v, too
    assert found[3] == [[30.0, 10.0], [60.0, pytest.approx(20.0)]]


def test_what_is_known_or_learnt_brings_the_mean_down() -> None:
    right, learnt, wrong = (
        np.mean([mean_s(jobs(), "srtf", speed_error=1.0, seed=seed, **more) for seed in range(3)])
        for more in ({"profiled": 1.0}, {"profiled": 0.5, "learning": "completed"}, {})
    )
    assert right < learnt < wrong


def test_sizes_that_did_not_run_keep_the_shape_of_what_is_believed() -> None:
    curve = SpeedCurve(nodes=(1, 2, 4), rate=(1.0, 1.8, 3.0))
    tasks = [TaskSpec(name=f"t{each}", curve=curve, max_nodes=4, work_samples=2e3) for each in range(3)]
    for learning in ("no", "yes", "completed"):
        done = rounds({"": 4}, tasks, policy="optimus", round_s=60.0, speed_error=1.0, learning=learning)
        assert done.engine.ended == "all_done"


def test_shares_are_computed_again_where_a_speed_was_learnt() -> None:
    settings = {"policy": "throughput", "round_s": ROUND_S, "speed_error": 1.0}
    never, learnt = (
        rounds(NODES, jobs(4), learning=each, **settings).shares_computed  # type: ignore[arg-type]  # fields of it
        for each in ("no", "yes")
    )
    assert learnt > never


def test_what_is_refused() -> None:
    for wrong in ({"speed_error": -1.0}, {"speed_error": 11.0}, {"profiled": 1.1}, {"learning": "perhaps"}):
        with pytest.raises(BadValue, match=next(iter(wrong))):
            rounds(NODES, jobs(), **wrong)  # type: ignore[arg-type]  # that is what is tested
