"""What the facade gives shows a line of figures at the prompt and a small table in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import bftrain
from bftrain import RoundSettings, generate_log, generate_mix
from bftrain.short_repr import ShortRepr
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.rounds.simulation import simulate
from tests.unit.replay.cases import task

LONGEST = 500  # letters: about three lines of a terminal
LONGEST_HTML = 2500


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return one value of each kind, each of many parts."""
    folder = tmp_path_factory.mktemp("values")
    log, tasks = generate_log(300, 0.5, 1), generate_mix(200, 1, shape=TaskShape(max_nodes=8))
    bftrain.save_log(log, folder / "log.npz")
    bftrain.save_log(log, folder / "log.csv")
    bftrain.save_tasks(tasks, folder / "tasks.toml")
    done = bftrain.replay(log, tasks, baseline="greedy", solver="equal-share")
    done.write(folder / "one")
    spec = {"log": str(folder / "log.npz"), "tasks": str(folder / "tasks.toml"), "yardsticks": False}
    swept = bftrain.sweep({**spec, "fixed": {"solver": "greedy"}, "grid": {"max_tasks": [1, 2]}}, folder / "sw", jobs=1)
    gangs = [task(f"t{number}", rate=(1.0,), work_samples=100.0) for number in range(200)]
    return {
        "EventLog": log,
        "Replayed": done,
        "Study": done.study,
        "Result": done.result,
        "Comparison": bftrain.compare(folder / "one", done, force=True),
        "Swept": swept,
        "Sweep": swept.sweep,
        "rounds": simulate({"": 4}, gangs, RoundSettings(round_s=60.0)),
        "schedule": bftrain.schedule(schedule_file(folder)),
        "Imported": bftrain.import_logs(folder / "log.csv"),
        "Solution": bftrain.solve(
            bftrain.AllocationProblem(
                pool=100,
                horizon_s=60.0,
                objective="throughput",
                tasks=[
                    bftrain.CompetingTask(name=spec.name, curve=spec.curve, size=0, max_nodes=spec.max_nodes)
                    for spec in tasks
                ],
            ),
            "greedy",
        ),
    }


def schedule_file(folder: Path) -> Path:
    path = folder / "jobs.swf"
    jobs = (f"{job} {job} 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n" for job in range(1, 400))
    path.write_text("; UnixStartTime: 0\n; MaxNodes: 4\n; MaxProcs: 4\n" + "".join(jobs), encoding="utf-8")
    return path


NAMES = (
    "EventLog", "Replayed", "Study", "Result", "Comparison", "Swept", "Sweep", "rounds", "schedule", "Imported",
    "Solution",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_repr_is_short_and_names_figures(values: dict[str, object], name: str) -> None:
    text = repr(values[name])
    assert len(text) <= LONGEST
    assert "\n" not in text
    assert any(letter.isdigit() for letter in text)
    assert "object at 0x" not in text


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Solution"])
def test_in_a_notebook_it_is_a_small_table(values: dict[str, object], name: str) -> None:
    text = values[name]._repr_html_()  # type: ignore[attr-defined]
    assert text.startswith("<table><caption>")
    assert len(text) <= LONGEST_HTML


def test_what_is_shown_is_what_came_of_it(values: dict[str, object]) -> None:
    assert repr(values["Replayed"]).startswith("<replay by equal-share: headline Harvest: ")
    assert "greedy" not in repr(values["Result"])
    assert repr(values["EventLog"]).startswith("<log of idle nodes: nodes 300; ")
    assert repr(values["schedule"]).startswith("<simulated schedule by easy: ended all done; nodes 4; jobs done 399 of")
    assert repr(values["rounds"]).startswith("<run in rounds by fifo: ended all done; ")
    assert repr(values["Swept"]).startswith("<sweep 'sweep': options max_tasks; points 2; ")
    assert repr(values["Solution"]).startswith("<Solution of greedy: ")


class Hostile(ShortRepr):
    """A value whose names are markup, and long."""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return "<script>", {"<b>": "<img src=x>", "long": "x" * 1000, "lines": "one\ntwo"}


def test_names_of_strangers_are_escaped_and_cut() -> None:
    text = Hostile()._repr_html_()
    for words in ("<script>", "<b>", "<img"):
        assert words not in text
    assert "&lt;script&gt;" in text
    assert repr(Hostile()) == f"<<script>: <b> <img src=x>; long {'x' * 237}...; lines one two>"
