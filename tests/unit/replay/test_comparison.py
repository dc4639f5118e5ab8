"""Comparing replays: the right figures beside each other, the best of them, and what must not be compared."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import bftrain
from bftrain import BadInput, UsageError, compare
from tests.unit.replay.cases import log_of, summary_of, task, text_of
from tests.unit.replay.compared import LOG, TASKS

Comparison: TypeAlias = Any  # what bftrain.compare() returns

UNKNOWN = "-"
EQUAL = "the tasks ran out in every replay, and the harvests are equal: compare completion times instead"


def values(found: Comparison, name: str) -> tuple[float | None, ...]:
    return next(figure.amounts for figure in found.figures if figure.name == name)


def best(found: Comparison, name: str) -> list[str]:
    figure = next(figure for figure in found.figures if figure.name == name)
    return [found.labels[place] for place in figure.best]


def test_figures_are_those_of_the_summaries_and_tables(make: Callable[..., Path]) -> None:
    folders = [make("exact"), make("equal", solver="equal-share"), make("one", max_tasks=1)]
    found = compare(*folders)
    summaries = [summary_of(folder) for folder in folders]
    assert found.labels == ("exact", "equal", "one")
    assert values(found, "harvested") == tuple(each["harvested"] for each in summaries)
    assert values(found, "efficiency") == tuple(each["efficiency"] for each in summaries)
    assert values(found, "harvested_of_ceiling") == tuple(
        each["harvested"] / each["ceiling_samples"] for each in summaries
    )
    assert values(found, "coverage") == tuple(each["coverage"] for each in summaries)
    for reason in summaries[0]["unused_node_h"]:
        shares = tuple(each["unused_node_h"][reason] / each["idle_node_h"] for each in summaries)
        shown = [figure for figure in found.figures if figure.name == f"unused.{reason}"]
        assert [figure.amounts for figure in shown] == ([shares] if any(shares) else [])
    for cause in ("preemption", "rescaling", "start_up"):
        assert values(found, f"lost.{cause}") == tuple(
            each["lost"][cause]["node_h"] / each["idle_node_h"] for each in summaries
        )
    assert values(found, "rescales") == tuple(each["rescales"] for each in summaries)
    assert values(found, "preemptions") == tuple(each["preemptions"] for each in summaries)
    assert values(found, "decide_ms.p50") == tuple(each["decide_ms"]["p50"] for each in summaries)


def test_times_of_tasks_are_over_those_that_finish_everywhere(make: Callable[..., Path]) -> None:
    folders = [make("exact"), make("one", max_tasks=1)]
    found = compare(*folders)
    tables = []
    for folder in folders:
        with (folder / "tasks.csv").open(encoding="utf-8", newline="") as file:
            tables.append({row["name"]: row for row in csv.DictReader(file)})
    common = [name for name in tables[0] if all(table[name]["finish_s"] for table in tables)]
    assert 0 < len(common) < len([name for name in tables[0] if tables[0][name]["finish_s"]])
    taken = [[float(table[name]["finish_s"]) - float(table[name]["submit_s"]) for name in common] for table in tables]
    assert values(found, "tasks_finished_by_all") == (len(common), len(common))
    assert values(found, "time_to_finish_s.mean") == tuple(map(np.mean, taken))
    assert values(found, "time_to_finish_s.p50") == tuple(map(np.median, taken))
    arrived = [[float(row["waited_s"]) for row in table.values() if row["state"] != "not_arrived"] for table in tables]
    assert [len(each) for each in arrived] == [3, 3]
    assert values(found, "waited_s.mean") == tuple(map(np.mean, arrived))
    assert values(found, "waits") == tuple(sum(int(row["waits"]) for row in table.values()) for table in tables)


def test_u_is_not_ranked_across_objectives(make: Callable[..., Path]) -> None:
    tasks = [task("a", rate=(100.0, 200.0)), task("b", rate=(1.0, 2.0, 3.0, 4.0)), task("c", rate=(5.0, 6.0))]
    found = compare(make("most", tasks=tasks), make("fair", tasks=tasks, objective="max-min"))
    for name in ("efficiency", "ceiling_efficiency", "harvested_of_ceiling"):
        (shown,) = [figure for figure in found.figures if figure.name == name]
        assert (best(found, name), shown.change(1)) == ([], UNKNOWN)
    assert best(found, "harvested") == ["most"]
    assert any("objective" in note and "U" in note for note in found.notes)


def test_the_best_is_the_most_or_the_least_and_what_reads_alike_is_as_good(make: Callable[..., Path]) -> None:
    tasks = [task("a"), task("b", rate=(1.0, 2.0, 3.0, 4.0)), task("c", rate=(5.0, 6.0))]
    given = [("exact", "exact"), ("equal", "equal-share"), ("again", "exact")]
    found = compare(*(make(name, tasks=tasks, solver=solver) for name, solver in given))
    done = values(found, "harvested")
    assert done[0] == done[2] != done[1]
    assert best(found, "harvested") == ["exact", "again"]
    assert best(found, "idle_node_h") == []  # the same everywhere, and no merit of one
    assert best(found, "rescales") == []  # neither good nor bad in itself
    assert best(found, "lost") == []  # no replay loses anything
    costly = [task("a", grow_cost_s=40.0), task("b", rate=(8.0, 16.0, 20.0), grow_cost_s=40.0)]
    found = compare(*(make(name, tasks=costly, solver=solver) for name, solver in given))
    lost = values(found, "lost")
    assert lost[0] == lost[2] < lost[1]  # type: ignore[operator]  # all are known
    assert best(found, "lost") == ["exact", "again"]


def test_different_logs_are_refused_unless_forced(make: Callable[..., Path]) -> None:
    other = log_of((0.0, "ab", ""), end_s=1000.0)
    folders = [make("one"), make("other", log=other)]
    with pytest.raises(
        BadInput, match=r"one, other: these replays do not compare: they are of 2 different logs \(--force"
    ):
        compare(*folders)
    found = compare(*folders, force=True)
    assert found.forced == "they are of 2 different logs"
    assert found.to_dict()["forced"] == found.forced
    assert not any(figure.best for figure in found.figures if not figure.name.startswith("decide_ms"))


@pytest.mark.parametrize("part", [{"window": ":1000500"}, {"nodes": "a,b"}, {"skip_events": 2}])
def test_different_parts_of_a_log_are_refused_too(make: Callable[..., Path], part: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="different parts of the log"):
        compare(make("whole"), make("part", **part))


def test_the_same_part_may_be_written_in_two_ways(make: Callable[..., Path]) -> None:
    found = compare(make("all"), make("spelled", window="1000000:1001000", nodes="a,b,c,d,e,f"))
    assert found.forced == ""
    assert {"settings.window", "settings.nodes"} <= set(found.settings.differs)


def test_different_tasks_and_rules_are_said_and_nothing_is_best(make: Callable[..., Path]) -> None:
    found = compare(make("all"), make("fewer", tasks=TASKS[:2]), make("published", semantics="published"))
    assert len(found.notes) == 4
    assert found.notes[0] == "the tasks ran out in fewer: U is not comparable there; compare harvests"
    assert found.notes[1].startswith("they were given different tasks")
    assert found.notes[2].startswith("they follow different rules (published, realistic)")
    assert values(found, "tasks") == (4, 2, 4)
    assert not any(figure.best for figure in found.figures if not figure.name.startswith("decide_ms"))
    assert "tasks" in found.settings.differs


def test_a_replay_whose_tasks_ran_out_does_not_look_better_than_one_that_harvested_more(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    found = compare(make("few", tasks=TASKS[:1]), make("many", tasks=[task(str(number)) for number in range(9)]))
    few, many = (side.summary for side in found.sides)
    assert few["efficiency"] == 1.0
    assert many["harvested"] > 5 * few["harvested"]
    (row,) = [figure for figure in found.figures if figure.name == "efficiency"]
    assert (row.label, row.texts) == ("efficiency U (no bound)", ("100.0 % (tasks ran out)", "100.2 %"))
    for name in ("efficiency", "ceiling_efficiency", "harvested_of_ceiling"):
        (row,) = [figure for figure in found.figures if figure.name == name]
        assert (best(found, name), row.change(1)) == ([], UNKNOWN)
    (harvest,) = [figure for figure in found.figures if figure.name == "harvested"]
    assert "times" in harvest.change(1)
    found.write(tmp_path / "page.html")
    first, second = re.findall(r'<div class="card">.*?</div>', (tmp_path / "page.html").read_text(), flags=re.DOTALL)
    assert ("900" in first, f"{many['harvested']:,.0f}" in second) == (True, True)
    assert ("tasks ran out" in first, "tasks ran out" in second, "efficiency U" in first) == (True, False, False)


def test_interrupted_replays_are_named_with_what_they_cover(make: Callable[..., Path]) -> None:
    found = compare(make("whole"), make("part", watch=lambda _name, simulated_s, _decisions: simulated_s < 150.0))
    assert found.notes[0] == "part was interrupted: its figures are not final, and cover only 2.5 min"
    assert values(found, "simulated_s") == (1000.0, 150.0)
    assert values(found, "efficiency")[1] is None
    assert best(found, "harvested") == []


def test_where_the_tasks_ran_out_and_harvests_are_equal_finish_times_are_compared(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    tasks = [TASKS[0], task("late", submit_s=5000.0, work_samples=10.0)]  # which never arrives
    found = compare(make("a", tasks=tasks), make("b", tasks=tasks, start_cost_s=60.0))
    assert [note for note in found.notes if "compare" in note] == [EQUAL]
    found.write(tmp_path / "page.html")
    assert "Tasks were done soonest with a" in text_of((tmp_path / "page.html").read_text())


def test_one_replay_is_no_comparison(make: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="fewer than two replays"):
        compare(make("alone"))


@pytest.mark.parametrize(
    ("folders", "labels"),
    [
        (["a", "b"], ("a", "b")),
        (["runs/a/replay", "runs/b/replay"], ("a", "b")),
        (["r/2020/r1", "r/2021/r1", "r/2021/r2"], ("2020/r1", "2021/r1", "2021/r2")),
        (["q/summit-2-weeks-hpo-exact", "q/summit-2-weeks-hpo-equal-share"], ("exact", "equal-share")),
        (["q/solver=cbc,max_tasks=10,seed=1", "q/solver=cbc,max_tasks=35,seed=1"], ("max_tasks=10", "max_tasks=35")),
        (["q/a-very-long-name-of-a-folder", "q/a-very-long-name-of-a-folder-2"], ("folder", "folder-2")),
    ],
)
def test_labels_are_as_short_as_they_can_be(
    make: Callable[..., Path], folders: list[str], labels: tuple[str, ...]
) -> None:
    assert compare([make(folder) for folder in folders]).labels == labels


def test_the_same_folder_twice_is_a_matter_of_usage(make: Callable[..., Path]) -> None:
    folder = make("one")
    with pytest.raises(UsageError, match="is given twice"):
        compare(folder, folder / "x" / "..")


def test_in_python_replays_need_no_folder(make: Callable[..., Path]) -> None:
    folder = make("saved", max_tasks=1)
    done = [bftrain.replay(LOG, TASKS), bftrain.replay(LOG, TASKS, solver="equal-share"), bftrain.replay(LOG, TASKS)]
    found = bftrain.compare(*done, folder)
    assert found.labels == ("exact", "equal-share", "exact 2", "saved")
    exported = found.to_dict()
    assert [each["folder"] for each in exported["replays"]] == [None, None, None, str(folder)]
    frame = found.frame()
    assert list(frame.columns) == list(found.labels)
    assert frame.loc["harvested", "equal-share"] == done[1].result.harvested_samples
    assert frame.loc["harvested", "saved"] == summary_of(folder)["harvested"]
    assert np.isnan(frame.loc["makespan_s"]).all() if "makespan_s" in frame.index else True
    assert bftrain.compare(*done, labels=["a", "b", "c"]).labels == ("a", "b", "c")


def test_parquet_tables_compare_with_csv(make: Callable[..., Path]) -> None:
    found = compare(make("csv"), make("parquet", tables="parquet"))
    for figure in found.figures:
        if not figure.name.startswith(("decide_ms", "wall_s")):
            assert figure.amounts[0] == figure.amounts[1], figure.name
    np.testing.assert_array_equal(found.sides[0].run.course.harvested, found.sides[1].run.course.harvested)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda edited: edited.pop("harvested"), "missing required field `harvested`"),
        (lambda edited: edited.pop("inputs"), "missing required field `inputs`"),
        (lambda edited: edited["inputs"]["log"].pop("sha256"), "missing required field `sha256`"),
        (lambda edited: edited.update(tasks="many"), "tasks: must be a whole number, not text"),
        (lambda edited: edited.update(format="bftrain replay 9"), "of the format 'bftrain replay 9'"),
    ],
)
def test_a_summary_that_is_none_is_named(
    make: Callable[..., Path], change: Callable[[dict[str, Any]], object], words: str
) -> None:
    good, bad = make("good"), make("bad")
    edited = summary_of(bad)
    change(edited)
    (bad / "summary.json").write_text(json.dumps(edited), encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        compare(good, bad)
    assert words in str(refused.value)
    assert str(bad / "summary.json") in str(refused.value)


def test_a_table_that_is_gone_is_named(make: Callable[..., Path]) -> None:
    good, bad = make("good"), make("bad")
    (bad / "tasks.csv").unlink()
    with pytest.raises(BadInput, match="bad: contains no table of tasks"):
        compare(good, bad)
