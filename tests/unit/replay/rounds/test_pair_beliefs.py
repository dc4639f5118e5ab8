"""Rounds in which policies mistake the speeds of pairs: pairs run as fast as they are, and policies may learn that."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bftrain import SharingProblem, SharingTask, TaskSpec, registry, rounds
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import RoundResult

KINDS = ("v", "k")
MODELS = "abcde"
SPEED = {"v": 3.0, "k": 1.0}
ALONE = {(model, kind): (1.0 + place) * SPEED[kind] for place, model in enumerate(MODELS) for kind in KINDS}
STAYS = {model: 0.95 - 0.1 * place for place, model in enumerate(MODELS)}  # how much of its speed it keeps
TAKES = {
    (model, kind): 0.9 - 0.07 * place - 0.2 * (kind == "k") for place, model in enumerate(MODELS) for kind in KINDS
}


def kept(own: str, beside: str, kind: str) -> float:
    return STAYS[own] * TAKES[beside, kind]


@pytest.fixture(name="table")
def a_table(tmp_path: Path) -> str:
    """Write a table in which a model keeps a product: how much it keeps at all, times what the other one leaves."""
    path, document = tmp_path / "speeds.json", dict[str, dict[str, dict[str, object]]]()
    for kind, one in product(KINDS, MODELS):
        row: dict[str, object] = {"null": ALONE[one, kind]}
        for other in MODELS:
            both = [ALONE[one, kind] * kept(one, other, kind), ALONE[other, kind] * kept(other, one, kind)]
            row[f"('{other}', 1)"] = both
        document.setdefault(kind, {})[f"('{one}', 1)"] = row
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def jobs(each: int = 2) -> list[TaskSpec]:
    return [
        gang(f"{model}-{number}", 3000.0, speeds={kind: ALONE[model, kind] for kind in KINDS})
        for number in range(each)
        for model in MODELS
    ]


class Watcher:
    """Shares time by another policy, and notes the problems that it is given."""

    name = "throughput-packed"
    seen: ClassVar[list[SharingProblem]] = []

    def share(self, problem: SharingProblem) -> object:
        self.seen.append(problem)
        return registry.load("sharing", self.name).share(problem)


def watched(table: str, **settings: Any) -> tuple[list[SharingProblem], RoundResult]:  # noqa: ANN401 - any setting
    Watcher.seen = []
    mine = Path(table).with_name("watcher.py")
    mine.write_text(f"from {__name__} import Watcher\n")
    done = rounds({"v": 2, "k": 2}, jobs(), policy=f"{mine}:Watcher", round_s=60.0, pairs=table, **settings)
    return Watcher.seen, done


def parts(problem: SharingProblem) -> dict[tuple[str, str, str], float]:
    """Return the part of its believed speed alone that each task is believed to keep beside another one, by kind."""
    found, of_model = {}, {task.model: task for task in problem.tasks}

    def alone(model: str, kind: str) -> float:
        task: SharingTask = of_model[model]
        return task.speeds[kind]

    for pair in problem.pairs:
        for kind, speeds in pair.speeds.items():
            for own, beside, speed in zip(pair.models, pair.models[::-1], speeds, strict=True):
                found[own, beside, kind] = speed / alone(own, kind)
    return found


def true(own: str, beside: str, kind: str) -> float:
    return kept(own[0], beside[0], kind)


def test_parts_are_mistaken_by_models_and_never_above_all(table: str) -> None:
    seen, done = watched(table, speed_error=0.5, seed=1)
    found = parts(seen[0])
    assert len(found) == 10 * 9 * 2
    assert {(own[0], beside[0]) for own, beside, _ in found} == set(product(MODELS, MODELS))
    for one, other, kind in product(MODELS, MODELS, KINDS):
        of_these = {round(found[key], 12) for key in found if (key[0][0], key[1][0], key[2]) == (one, other, kind)}
        assert len(of_these) == (1 if one != other else 2)  # of a model beside itself the first and the second
    off = np.array([np.log(part / true(*key)) for key, part in found.items() if part < 1.0])
    assert 0.3 < off.std() < 0.6
    assert max(found.values()) == 1.0
    assert all(parts(problem).items() <= found.items() for problem in seen)  # and nothing is learnt
    assert done.engine.ended == "all_done"
    assert done.engine.done_samples == pytest.approx(done.engine.gangs.work)


def test_pairs_run_as_fast_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text('{"node": {"a": {"null": 1.0, "b": [0.8, 0.8]}, "b": {"null": 1.0, "a": [0.8, 0.8]}}}')
    two = [gang("a-0", 800.0), gang("b-1", 800.0)]
    done = rounds({"": 1}, two, policy="throughput-packed", pairs=str(path), round_s=100.0, speed_error=0.05, seed=2)
    assert done.tasks_table["finish_s"] == pytest.approx([1000.0, 1000.0])


def test_what_was_profiled_is_known(table: str) -> None:
    found = parts(watched(table, speed_error=1.0, profiled=1.0, until_s=60.0)[0][0])
    assert found == pytest.approx({key: true(*key) for key in found})
    found = parts(watched(table, speed_error=1.0, profiled=0.5, seed=3, until_s=60.0)[0][0])
    known = [key for key, part in found.items() if part == pytest.approx(true(*key))]
    assert 0.3 < len(known) / len(found) < 0.7


def test_a_pair_that_ran_is_known_and_its_tasks_alone_are_not(table: str) -> None:
    how = {"speed_error": 1.0, "seed": 5, "learning": "yes"}
    _, done = watched(table, until_s=60.0, **how)
    first, after = watched(table, until_s=90.0, **how)[0]
    ran = {
        (done.engine.gangs.specs[one].name, done.engine.gangs.specs[other].name, KINDS[where])
        for (one, other), received in done.engine.progress.pairs.items()
        for where in np.flatnonzero(received)
    }
    assert ran
    before, found = parts(first), parts(after)
    learnt = {(*sorted((one[0], other[0])), kind) for one, other, kind in ran}
    for own, beside, kind in before:
        if (*sorted((own[0], beside[0])), kind) in learnt:
            assert found[own, beside, kind] == pytest.approx(true(own, beside, kind))
    assert any(before[key] != found[key] for key in before)
    alone = {task.name: task.speeds for task in first.tasks}
    for one, other, kind in ran:
        for name in (one, other):
            assert next(task for task in after.tasks if task.name == name).speeds[kind] == alone[name][kind]


@pytest.mark.parametrize("seed", range(3))
def test_a_few_profiled_pairs_tell_of_all_others(table: str, seed: int) -> None:
    """Logarithms are sums here, so least squares over the profiled pairs give the others exactly."""
    how = {"speed_error": 1.0, "profiled": 0.4, "seed": seed, "until_s": 60.0}
    guessed = parts(watched(table, **how)[0][0])
    known = [key for key, part in guessed.items() if part == pytest.approx(true(*key))]
    columns = {key: place for place, key in enumerate([*MODELS, *product(MODELS, KINDS)])}

    def row(key: tuple[str, str, str]) -> np.ndarray:
        found = np.zeros(len(columns))
        found[[columns[key[0][0]], columns[key[1][0], key[2]]]] = 1.0
        return found

    rows = np.array([row(key) for key in known])
    inverse = np.linalg.pinv(rows)
    fitted = inverse @ np.log([guessed[key] for key in known])
    reached = [key for key in guessed if np.allclose(row(key) @ inverse @ rows, row(key))]
    found = parts(watched(table, learning="completed", **how)[0][0])
    assert len(reached) > 1.1 * len(known)
    for key in reached:
        assert found[key] == pytest.approx(float(np.exp(row(key) @ fitted)), rel=0.02)
        assert found[key] == pytest.approx(true(*key), rel=0.02)


def test_what_is_learnt_and_completed_brings_the_mean_down(table: str) -> None:
    def mean_s(**more: Any) -> float:  # noqa: ANN401 - any setting
        done = [
            rounds({"v": 2, "k": 2}, jobs(), round_s=60.0, pairs=table, speed_error=1.0, seed=seed, **how, **more)
            for seed in range(4)
        ]
        return float(np.mean([each.task_figures.completion_s.mean for each in done]))

    how: Any = {"policy": "throughput-packed"}
    right, learnt, wrong = (
        mean_s(**more) for more in ({"profiled": 1.0}, {"profiled": 0.5, "learning": "completed"}, {})
    )
    assert right < learnt < wrong
