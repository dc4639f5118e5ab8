"""Metrics of one's own: asked for by name or out of a file, in summaries, comparisons and sweeps."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path

import pytest

import bftrain
from bftrain import BadInput, BftrainError, BrokenPlugin, UnknownName, save_log, save_tasks
from tests.helpers import part_conformance as conformance
from tests.helpers.campaigns import CAMPAIGN_STRETCH
from tests.helpers.part_conformance import Nonconformance
from tests.unit.core.plugins import register
from tests.unit.replay.cases import ReplayResult, log_of, task

HERE = __name__
LOG = log_of((0.0, "abcd", ""), end_s=1000.0)
TASKS = [task("a", work_samples=100.0, user="ann"), task("b", work_samples=300.0, user="bob")]


def starts_each(run: ReplayResult) -> float:
    return sum(record.starts for record in run.tasks) / len(run.tasks)


class Ends:
    name = "ends"
    figures = ("first_end_s", "nothing")

    def measure(self, run: ReplayResult) -> dict[str, object]:
        return {"first_end_s": run.table("tasks")["finish_s"].min(), "nothing": math.nan}


class Chatty(Ends):
    name = "chatty"

    def measure(self, run: ReplayResult) -> dict[str, object]:
        return {**super().measure(run), "more": 1.0}


class Forgetful(Ends):
    name = "forgetful"

    def measure(self, run: ReplayResult) -> dict[str, object]:  # noqa: ARG002 - it forgets
        return {}


class Greedy(Ends):
    def __init__(self, more: object) -> None:
        raise AssertionError(more)


def fickle(run: object, seen: list[object] = []) -> int:  # noqa: B006 - that is its fault
    seen.append(run)
    return len(seen)


no_metric = 3


def test_what_is_asked_for_stands_in_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("metric", "ends", f"{HERE}:Ends"))
    (tmp_path / "mine.py").write_text("def longest(run):\n    return max(task.waited_s for task in run.tasks)\n")
    said = f"ends, {tmp_path}/mine.py:longest,{CAMPAIGN_STRETCH}"
    done = bftrain.replay(LOG, TASKS, metrics=said, baseline="equal-share")
    metrics = done.summary["metrics"]
    assert list(metrics)[:3] == ["first_end_s", "nothing", "longest"]
    assert metrics["first_end_s"] == min(record.finish_s or 0.0 for record in done.result.tasks)
    assert metrics["nothing"] is None
    said = "metric 'ends': 'nothing' is nan, which JSON cannot hold, so it is null; return None where it is unknown"
    assert [each for each in done.summary["warnings"] if "metric" in each] == [said]
    assert metrics["campaigns"] == 2
    assert set(done.summary["baseline"]["metrics"]) == set(metrics)
    assert done.summary["ceiling"]["metrics"] == {}  # a yardstick is not what was asked about
    assert bftrain.replay(LOG, TASKS).summary["metrics"] == {}


def test_they_are_rows_of_a_comparison(tmp_path: Path) -> None:
    for name in ("one", "two"):
        bftrain.replay(LOG, TASKS, metrics=CAMPAIGN_STRETCH if name == "one" else "").write(tmp_path / name)
    found = bftrain.compare(tmp_path / "one", tmp_path / "two")
    (group,) = (group for group in found.groups if group.title == "Requested metrics")
    rows = {figure.name: figure.amounts for figure in group.figures}
    assert rows["metrics.campaigns"] == (2, None)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("thre", "no metric is called 'thre' (did you mean 'three'?)"),
        (f"{CAMPAIGN_STRETCH},{CAMPAIGN_STRETCH}", "metrics: two metrics have a number called 'campaigns'"),
        ("three", "metric 'three': does not implement bftrain.ports: needs name, figures and measure(run)"),
        ("greedy", "metric 'greedy': cannot be created without arguments: TypeError"),
    ],
)
def test_what_is_no_metric_is_refused_before_any_work(said: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("metric", "three", f"{HERE}:no_metric"), ("metric", "greedy", f"{HERE}:Greedy"))
    with pytest.raises(BftrainError) as refused:
        bftrain.replay(LOG, TASKS, metrics=said)
    assert str(refused.value).startswith(words)
    assert isinstance(refused.value, BrokenPlugin | BadInput | UnknownName)


def test_what_a_metric_gives_must_be_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, *(("metric", name, f"{HERE}:{name.title()}") for name in ("chatty", "forgetful")))
    for name, said in (("chatty", "returned 'more', which is not among its figures"), ("forgetful", "raised KeyError")):
        done = bftrain.replay(LOG, TASKS, metrics=f"{name},{CAMPAIGN_STRETCH}", baseline="equal-share")
        metrics = done.summary["metrics"]
        assert (metrics["first_end_s"], metrics["nothing"], metrics["campaigns"]) == (None, None, 2)
        (warning,) = [each for each in done.summary["warnings"] if "metric" in each]
        assert warning.startswith(f"metric '{name}': {said}")
        assert warning.endswith("; its numbers are null")


def test_a_point_of_a_sweep_whose_metric_is_broken_fails_and_can_be_done_again(tmp_path: Path) -> None:
    save_log(LOG, tmp_path / "log.npz")
    save_tasks(TASKS, tmp_path / "tasks.toml")
    (tmp_path / "mine.py").write_text("def answer(run):\n    return [][0]\n")
    text = 'log = "log.npz"\ntasks = "tasks.toml"\n[fixed]\nmetrics = "mine.py:answer"\n[grid]\nmax_tasks = [1, 2]\n'
    (tmp_path / "sweep.toml").write_text(text)
    (first, second) = bftrain.sweep(tmp_path / "sweep.toml", tmp_path / "out", jobs=1).failed
    assert first.error == second.error
    assert "metric 'answer': raised IndexError" in first.error


def test_a_sweep_names_points_whose_metric_is_infinite(tmp_path: Path) -> None:
    save_log(LOG, tmp_path / "log.npz")
    save_tasks(TASKS, tmp_path / "tasks.toml")
    (tmp_path / "mine.py").write_text("def endless(run):\n    return float('inf') if run.settings.seed == 2 else 1\n")
    text = 'log = "log.npz"\ntasks = "tasks.toml"\n[fixed]\nmetrics = "mine.py:endless"\n[grid]\nseed = [1, 2]\n'
    (tmp_path / "sweep.toml").write_text(text)
    swept = bftrain.sweep(tmp_path / "sweep.toml", tmp_path / "out", jobs=1)
    said = "metric 'endless': 'endless' is inf, which JSON cannot hold, so it is null; return None where it is unknown"
    assert f"{said} (at seed = 2)" in swept.warnings
    assert not swept.failed
    json.loads((tmp_path / "out" / "sweep.json").read_text(), parse_constant=pytest.fail)


def test_the_suite_for_metrics() -> None:
    done = bftrain.replay(LOG, TASKS)
    conformance.check_metric(starts_each, done)
    conformance.check_metric(Ends, done.result)
    with pytest.raises(Nonconformance, match="other numbers when called again"):
        conformance.check_metric(fickle, done)
    with pytest.raises(Nonconformance, match="not among its figures"):
        conformance.check_metric(Chatty, done)


def test_a_sweep_has_a_column_for_each(tmp_path: Path) -> None:

    save_log(LOG, tmp_path / "log.npz")
    save_tasks(TASKS, tmp_path / "tasks.toml")
    (tmp_path / "sweep.toml").write_text(
        f'log = "log.npz"\ntasks = "tasks.toml"\nbaseline = "equal-share"\n[fixed]\nmetrics = "{CAMPAIGN_STRETCH}"\n'
        '[grid]\nadmission = ["first-come", "all", "load=2"]\n'
    )
    swept = bftrain.sweep(tmp_path / "sweep.toml", tmp_path / "out", jobs=1)
    header, *rows = (tmp_path / "out" / "table.csv").read_text().splitlines()
    columns = header.split(",")
    assert len(rows) == 3
    for prefix in ("", "baseline_"):
        place = columns.index(f"{prefix}metrics_campaigns")
        assert {row.split(",")[place] for row in rows} == {"2.0"}
    assert swept is not None


def test_a_sweep_looks_for_files_beside_itself_and_sees_that_they_changed(tmp_path: Path) -> None:
    save_log(LOG, tmp_path / "log.npz")
    save_tasks(TASKS, tmp_path / "tasks.toml")
    mine = tmp_path / "mine.py"
    text = (
        "class Few:\n    name = 'few'\n    def __init__(self, max_tasks, count=1):\n        self.count = count\n"
        "    def choose(self, queue):\n        return list(queue)[: self.count]\n\n\n"
        "def answer(run):\n    return 42\n"
    )
    mine.write_text(text)
    (tmp_path / "sweep.toml").write_text(
        'log = "log.npz"\ntasks = "tasks.toml"\n[fixed]\nmetrics = "mine.py:answer"\n'
        '[grid]\nadmission = ["mine.py:Few", "mine.py:Few,count=2"]\n'
    )
    for answer in (42, 43):
        mine.write_text(text.replace("42", str(answer)))
        os.utime(mine, (1_700_000_000, 1_700_000_000))  # Python tells bytecode by time and size
        bftrain.sweep(tmp_path / "sweep.toml", tmp_path / "out", jobs=1)
        header, *rows = (tmp_path / "out" / "table.csv").read_text().splitlines()
        place = header.split(",").index("metrics_answer")
        cells = list(csv.reader(rows))
        assert [row[0] for row in cells] == ["mine.py:Few", "mine.py:Few,count=2"]
        assert {row[place] for row in cells} == {f"{answer}.0"}
