"""Admissions case by case: each file in ``admissions/`` has tasks, and the tasks that compete moment by moment.

A file has ``source`` and ``[tasks]``: name, then changes to a task of 1 to 50 nodes with a sample a second on each.
Each ``[[expected]]`` has ``admission`` (several: all give the same), settings, and ``moments``. A moment has its time
(``t``), what happens (``join``: number of nodes, or numbers by kind; ``leave``: node names; ``submit``, ``finish``,
``cancel``, ``pause``: task names; ``work``: remaining samples by task), and ``compete``: the names in order; ``held``:
nodes by task; ``notes``. Nodes are named by kind and number. Add a case by adding a file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bftrain

ROOT = Path(__file__).parents[2]
LINEAR = bftrain.SpeedCurve(nodes=(1, 100), rate=(1.0, 100.0))
RUNS = [
    pytest.param(case["tasks"], run, admission, id=f"{path.stem}-{number}-{admission}")
    for path in sorted((Path(__file__).parent / "admissions").glob("*.toml"))
    for case in [tomllib.loads(path.read_text())]
    for number, run in enumerate(case["expected"])
    for admission in run["admission"]
]


def events_of(moment: dict[str, Any], tasks: dict[str, Any], joined: dict[str, int]) -> Iterator[bftrain.Event]:
    time_s = float(moment["t"])
    join = moment.get("join", {})
    for kind, count in (join if isinstance(join, dict) else {"": join}).items():
        first = joined.get(kind, 0) + 1
        joined[kind] = first + count - 1
        nodes = tuple(f"{kind or 'n'}{number}" for number in range(first, first + count))
        yield bftrain.NodesJoined(time_s=time_s, nodes=nodes, kind=kind)
    if "leave" in moment:
        yield bftrain.NodesLeft(time_s=time_s, nodes=tuple(moment["leave"]))
    for name in moment.get("submit", ()):
        fields = {"max_nodes": 50, "work_samples": 1e6, **tasks[name.rstrip("0123456789")]}
        kinds = dict.fromkeys(fields.pop("kinds", ""), LINEAR)
        spec = bftrain.TaskSpec(name=name, **{"curve": LINEAR, "curves": kinds, "submit_s": time_s, **fields})
        yield bftrain.TaskSubmitted(time_s=time_s, spec=spec)
    for key, kind in (
        ("finish", bftrain.TaskFinished),
        ("cancel", bftrain.TaskCancelled),
        ("pause", bftrain.TaskPaused),
    ):
        for name in moment.get(key, ()):
            yield kind(time_s=time_s, task=name)
    for name, work in moment.get("work", {}).items():
        yield bftrain.TaskMeasured(time_s=time_s, task=name, work_left_samples=work)


@pytest.mark.parametrize(("tasks", "run", "admission"), RUNS)
def test_an_admission_lets_the_tasks_of_its_case_compete(
    tasks: dict[str, Any], run: dict[str, Any], admission: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    entities = {name: bftrain.Entity(**fields) for name, fields in run.get("entities", {}).items()}
    settings = bftrain.Settings(admission=admission, max_tasks=run.get("max_tasks", 35), entities=entities)
    harvester, joined = bftrain.build_harvester(settings), dict[str, int]()
    for moment in run["moments"]:
        harvester.absorb(*events_of(moment, tasks, joined))
        decision = harvester.decide(float(moment["t"]))
        if "compete" in moment:
            assert list(decision.sizes) == moment["compete"], moment
        if "count" in moment:
            assert len(decision.sizes) == moment["count"], moment
        if "held" in moment:
            assert {name: len(nodes) for name, nodes in harvester.held.items()} == moment["held"], moment
        for words in moment.get("notes", ()):
            assert any(words in note for note in decision.notes), decision.notes
