"""``bftrain.replay``: the numbers of the command as objects and DataFrames."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import bftrain
from bftrain import BadInput, CompetingTask, UsageError, generate_log, generate_mix
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of, task

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
LOG = log_of((0.0, "abcd", ""), (100.0, "", "b"), (120.0, "e", "c"), end_s=300.0)
TASKS = [task("x", work_samples=2500.0, start_cost_s=7.0), task("y", rate=(5.0, 9.0, 12.0), submit_s=50.0)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bftrain.save_log(generate_log(16, 0.5, seed=3), Path("log.npz"))
    bftrain.save_tasks(generate_mix(6, seed=3), Path("tasks.toml"))
    return tmp_path


def test_it_gives_the_numbers_of_the_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capfd)
    options = ("--max-tasks", 3, "--horizon", 60, "--baseline", "equal-share")
    assert command("replay", "log.npz", "--tasks", "tasks.toml", "-o", "typed", *options).code == 0
    done = bftrain.replay("log.npz", Path("tasks.toml"), max_tasks=3, horizon_s=60.0, baseline="equal-share")
    summary = json.loads((place / "typed" / "summary.json").read_text(encoding="utf-8"))
    assert done.summary["figures_sha256"] == summary["figures_sha256"]
    assert set(done.summary) == set(summary)
    done.write(place / "written")
    for name in ("decisions.csv", "tasks.csv", "allocations.csv", "over_time.csv", "config.toml", "log.npz"):
        assert (place / "typed" / name).read_bytes() == (place / "written" / name).read_bytes(), name


def test_frames_hold_what_the_files_hold(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    done = bftrain.replay(LOG, TASKS)
    done.write(tmp_path)
    frames = {name: done.result.table(name) for name in ("decisions", "tasks", "allocations", "over_time")}
    for name, frame in frames.items():
        read = pandas.read_csv(tmp_path / f"{name}.csv", keep_default_na=False, na_values={})
        assert list(frame.columns) == list(read.columns)
        assert len(frame) == len(read)
        for column in frame.columns:
            given = frame[column]
            if column == "sizes":
                assert list(given) == [json.loads(cell) for cell in read[column]]
            elif given.dtype == np.float64:
                numbers = pandas.to_numeric(read[column], errors="coerce")
                np.testing.assert_allclose(given, numbers, rtol=1e-15)  # before 3.0 it reads the last digit roughly
            else:
                assert list(given) == list(read[column])
    kinds = frames["tasks"].dtypes
    assert (kinds["starts"], kinds["finish_s"]) == (np.int64, np.float64)


def test_yardsticks_have_frames_but_no_allocations() -> None:
    done = bftrain.replay(LOG, TASKS, baseline="equal-share")
    assert done.baseline is not None
    assert done.ceiling is not None
    assert len(done.baseline.table("decisions")) == len(done.baseline.decisions)
    assert len(done.ceiling.table("tasks")) == 2
    with pytest.raises(BadInput, match="allocations were not recorded"):
        done.ceiling.table("allocations")


def test_a_replay_without_tasks_has_empty_frames() -> None:
    result = bftrain.replay(LOG, []).result
    assert [len(result.table(name)) for name in ("decisions", "tasks", "allocations")] == [0, 0, 0]


def test_settings_objectives_and_a_watch_can_be_given() -> None:
    def even(_task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        return (sizes > 0).astype(np.float64)

    heard: list[str] = []

    def watch(name: str, _simulated_s: float, _decisions: int) -> bool:
        heard.append(name)
        return name == "greedy"

    done = bftrain.replay(
        LOG, TASKS, bftrain.Settings(solver="greedy", max_tasks=1), objective=even, max_tasks=2, watch=watch
    )
    settings = done.result.settings
    assert (settings.solver, settings.max_tasks, settings.objective) == ("greedy", 2, "even")
    assert (done.complete, done.summary["complete"], set(heard)) == (False, False, {"greedy", "without costs"})
    assert bftrain.replay(LOG, TASKS, objective="speedup").result.settings.objective == "speedup"


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(UsageError, match=r"no setting 'max_task' \(did you mean 'max_tasks'"):
        bftrain.replay(LOG, TASKS, max_task=3)
    with pytest.raises(BadInput, match=r"log: 123 is not a log \(pass a file name"):
        bftrain.replay(123)  # type: ignore[arg-type]  # the case
    with pytest.raises(UsageError, match=r"no setting 'polcy' \(did you mean 'policy'"):
        bftrain.rounds({"v100": 1}, TASKS, polcy="fifo")
    with pytest.raises(UsageError, match=r"no setting 'polcy' \(did you mean 'policy'"):
        bftrain.schedule("jobs.swf", polcy="easy")
    with pytest.raises(BadInput, match=r"records: the log was not imported from records"):
        bftrain.assess(LOG, records=["jobs.txt"])
    with pytest.raises(BadInput, match=r"handback_delay_s: is -1"):
        bftrain.assess(LOG, handback_delay_s=-1.0)
    with pytest.raises(UsageError, match="is the solver itself"):
        bftrain.replay(LOG, TASKS, baseline="exact")


def test_a_page_and_pictures_are_those_of_the_command(tmp_path: Path) -> None:
    done = bftrain.replay(LOG, TASKS)
    done.write(tmp_path / "all")
    done.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "all" / "report.html").read_bytes()
    done.report(tmp_path / "page.html", title="Mine & yours")
    assert "<h1>Mine &amp; yours</h1>" in (tmp_path / "page.html").read_text()
    written = done.save_plots(tmp_path / "pictures", form="png")
    assert {path.name for path in written} >= {"waterfall.png", "nodes.png", "holders.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    with pytest.raises(UsageError, match="no form 'pgn'"):
        done.save_plots(tmp_path, form="pgn")
    with pytest.warns(DeprecationWarning, match=r"now plot\(\)"):
        assert done.chart("waterfall") == done.plot("waterfall")


@pytest.mark.parametrize(
    "call",
    [
        lambda: bftrain.replay("none.npz"),
        lambda: bftrain.replay(LOG, "none.toml"),
        lambda: bftrain.rounds("none.npz", TASKS),
        lambda: bftrain.rounds({"v100": 1}, "none.toml"),
        lambda: bftrain.schedule("none.swf"),
        lambda: bftrain.assess("none.npz"),
        lambda: bftrain.sweep("none.toml", "swept"),
        lambda: bftrain.load_run("none"),
        lambda: bftrain.import_logs("none.txt"),
        lambda: bftrain.Journal.open("none.db"),
    ],
)
def test_a_missing_file_is_named(call: Callable[[], object]) -> None:
    with pytest.raises(bftrain.BftrainError, match=r"none.*no such"):
        call()


@pytest.mark.usefixtures("place")
def test_the_example_in_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "docs/reference/results.md", "exec"), names)  # noqa: S102 - the example is ours
    said = capsys.readouterr().out
    assert "with equal shares" in said
    assert "seconds, until a node changes hands" in said
    assert Path("result/summary.json").is_file()
    assert Path("report.html").read_text().count("<figure") >= 5
    assert {path.suffix for path in Path("pictures").iterdir()} == {".svg"}
