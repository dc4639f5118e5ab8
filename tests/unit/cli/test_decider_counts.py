"""Who decided where the chosen solver had no plan: counted, and named wherever the figures stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import ReplaySettings, compare, replay, save_log, save_tasks
from bftrain_replay.api import ReplayOutcome
from bftrain_replay.reporting import report
from bftrain_replay.results.decider_counts import column_label, sentence
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "a"), (200.0, "c", ""), end_s=300.0)
TASKS = [task("t", work_samples=1e6), task("u", work_samples=1e6)]
IMPOSSIBLE = """
class Impossible:
    name = "impossible"

    def values(self, task, sizes):
        return task.curve.rate[0] * sizes

    def couple(self, model):
        model.at_least(model.variable(lower=0, upper=1) * 1.0, 2.0)
        model.maximise(model.speed(0))

    def total(self, chosen, sizes, problem):
        return float(sum(chosen))
"""


@pytest.fixture
def impossible(tmp_path: Path) -> str:
    (tmp_path / "impossible.py").write_text(IMPOSSIBLE)
    return f"{tmp_path / 'impossible.py'}:Impossible"


@pytest.fixture
def done(impossible: str) -> ReplayOutcome:
    return replay(LOG, TASKS, ReplaySettings(solver="highs", objective=impossible), baseline="equal-share")


def test_the_sentence_says_who_decided_how_often_and_why() -> None:
    assert sentence("exact", 5, {}, {"exact": 5}) == ""
    assert sentence("highs", 1305, {"infeasible": 1000}, {"greedy": 1000, "highs": 305}) == (
        "highs found no plan in 1,000 of 1,305 decisions; greedy decided"
    )
    several = sentence("cbc", 9, {"failed": 1, "infeasible": 2, "time_limit": 3}, {"greedy": 4, "unchanged": 2})
    assert several == (
        "cbc failed in 1, found no plan in 2 and ran out of time in 3 of 9 decisions; "
        "greedy decided 4, sizes stayed as they were in 2"
    )
    assert sentence("cbc", 2, {"interrupted": 1}, {"unchanged": 1}, called="cbc without costs") == (
        "cbc without costs was interrupted in 1 of 2 decisions; sizes stayed as they were"
    )


def test_a_column_is_named_by_who_decided_what_it_shows() -> None:
    assert column_label("highs", 305, {"highs": 305}) == "highs"
    assert column_label("highs", 305, {"greedy": 305}) == "highs (greedy decided 100 %)"
    assert column_label("highs", 1000, {"greedy": 999, "highs": 1}) == "highs (greedy decided > 99 %)"
    assert column_label("highs", 1000, {"greedy": 9, "highs": 991}) == "highs"
    assert column_label("highs", 4, {"unchanged": 1, "highs": 3}) == "highs (25 % unchanged)"
    assert column_label("highs", 4, {"unchanged": 1, "greedy": 1, "highs": 2}) == "highs (others decided 50 %)"
    assert column_label("highs", 0, {}) == "highs"


def test_infeasible_decisions_are_counted_in_the_summary(done: ReplayOutcome) -> None:
    summary = done.summary
    count = summary["decisions"]
    assert count > 2
    assert (summary["infeasible_decisions"], summary["fallbacks"]) == (count, count)
    assert (summary["decided_by"], summary["fallback_causes"]) == ({"greedy": count}, {"infeasible": count})
    sentence = f"highs found no plan in {count} of {count} decisions; greedy decided"
    assert summary["headline"]["decided"] == sentence
    assert sentence in repr(done)
    assert summary["baseline"]["infeasible_decisions"] == 0
    assert summary["baseline"]["decided_by"] == {"equal-share": summary["baseline"]["decisions"]}


def test_headline_and_table_of_the_page_name_who_decided(done: ReplayOutcome) -> None:
    page = report.render(done._material)  # noqa: SLF001 - the page of what is in memory
    count = done.summary["decisions"]
    assert f"<strong>Highs found no plan in {count} of {count} decisions; greedy decided</strong>." in page
    assert "highs (greedy decided 100 %)" in page
    assert "without costs (greedy decided 100 %)" in page


def test_a_comparison_counts_them_and_notes_who_decided(done: ReplayOutcome) -> None:
    fine = replay(LOG, TASKS, ReplaySettings())
    found = compare(done, fine)
    count = done.summary["decisions"]
    assert found.to_dict()["figures"]["infeasible_decisions"]["values"] == [count, 0]
    assert f"highs: highs found no plan in {count} of {count} decisions; greedy decided" in found.notes
    assert not any("exact" in note for note in found.notes)


def test_terminal_and_sweep_name_them_too(tmp_path: Path, impossible: str, bftrain: CommandLine) -> None:
    log, tasks, folder = tmp_path / "log.npz", tmp_path / "tasks.toml", tmp_path / "out"
    save_log(LOG, log)
    save_tasks(TASKS, tasks)
    options = ("--solver", "highs", "--objective", impossible)
    ended = bftrain("replay", log, "--tasks", tasks, "-o", folder, *options)
    assert ended.code == 0
    count = json.loads((folder / "summary.json").read_text())["decisions"]
    said = f"highs found no plan in {count} of {count} decisions; greedy decided"
    assert f"warning: {said}. The first: highs: " in ended.err
    assert said in ended.out
    assert "highs (greedy decided 100 %)" in ended.out

    (tmp_path / "sweep.toml").write_text(
        f"""log = "{log}"
tasks = "{tasks}"
[fixed]
solver = "highs"
objective = "{impossible}"
[grid]
max_tasks = [1, 2]
"""
    )
    ended = bftrain("sweep", tmp_path / "sweep.toml", "-o", tmp_path / "swept", "--jobs", 1, "--json")
    assert ended.code == 0
    swept = json.loads(ended.out)
    assert [row["infeasible_decisions"] > 0 for row in swept["rows"]] == [True, True]
    assert "found no plan in" in ended.err
