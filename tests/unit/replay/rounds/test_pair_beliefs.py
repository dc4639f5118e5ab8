"""Rounds in which policies mistake speeds and tasks run in pairs."""

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


@pytest.mark.parametrize("learning", ["no", "yes", "completed"])
def test_speeds_alone_are_mistaken_and_the_parts_kept_in_pairs_are_known(table: str, learning: str) -> None:
    seen, done = watched(table, speed_error=0.5, seed=1, learning=learning)
    found = parts(seen[0])
    assert len(found) == 10 * 9 * 2
    for problem in seen:
        own = parts(problem)
        assert own == pytest.approx({key: true(*key) for key in own})
    speeds = [task.speeds["v"] / ALONE[task.name[0], "v"] for task in seen[0].tasks]
    assert 0.2 < np.log(speeds).std() < 0.8
    assert done.engine.ended == "all_done"
    assert done.engine.done_samples == pytest.approx(done.engine.gangs.work)


def test_pairs_run_as_fast_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text('{"node": {"a": {"null": 1.0, "b": [0.8, 0.8]}, "b": {"null": 1.0, "a": [0.8, 0.8]}}}')
    two = [gang("a-0", 800.0), gang("b-1", 800.0)]
    done = rounds({"": 1}, two, policy="throughput-packed", pairs=str(path), round_s=100.0, speed_error=0.05, seed=2)
    assert done.tasks_table["finish_s"] == pytest.approx([1000.0, 1000.0])
