"""Results by model add up to those of the whole replay, and equal a plain sum over the table of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain import ReplaySettings, generate_log, generate_mix
from bftrain_datasets.workloads.task_generators import TaskShape, generate_trials
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report, report_data
from bftrain_replay.reporting.model_table import model_of, model_table
from bftrain_replay.study import study


@pytest.fixture(scope="module")
def done() -> report_data.ReportData:
    tasks = generate_mix(20, 3, models=("vgg16", "resnet18", "densenet"), shape=TaskShape(work_samples=2e7))
    whole = study(generate_log(48, 1.0, 5), tasks, ReplaySettings(max_tasks=6))
    return report_data.of_study(whole, InputSource())


def keys(table: HtmlTable) -> dict[str, list[Any]]:
    rows = [[cell.key for cell in row if isinstance(cell, HtmlCell)] for row in table.rows]
    return {str(row[0]): row[1:] for row in rows}


def test_rows_equal_a_plain_sum_over_the_tasks(done: report_data.ReportData) -> None:
    table = model_table(done.tasks)
    assert table is not None
    found = keys(table)
    assert set(found) == {"vgg16", "resnet18", "densenet"}
    for model, (count, finished, node_h, _, samples, a_node_hour, took_s, lost) in found.items():
        own = [task for task in done.tasks if task["name"].startswith(f"{model}-")]
        ended = [task for task in own if task["state"] == "finished"]
        assert (count, finished) == (len(own), len(ended))
        assert node_h == pytest.approx(sum(task["node_h"] for task in own))
        assert samples == pytest.approx(sum(task["done_samples"] for task in own))
        assert a_node_hour == pytest.approx(samples / node_h)
        assert took_s == pytest.approx(sum(task["finish_s"] - task["submit_s"] for task in ended) / len(ended))
        causes = ("preemption", "rescaling", "start_up", "unnoticed")
        gone = sum(task[f"lost_{cause}_samples"] for task in own for cause in causes)
        assert lost == pytest.approx(gone / (samples + gone))


def test_models_add_up_to_the_whole(done: report_data.ReportData) -> None:
    table, summary = model_table(done.tasks), done.summary
    assert table is not None
    rows = keys(table).values()
    assert sum(row[2] for row in rows) == pytest.approx(summary["used_node_h"])
    assert sum(row[3] for row in rows) == pytest.approx(1.0)
    assert sum(row[4] for row in rows) == pytest.approx(summary["harvested"])
    ended = sum(row[1] for row in rows)
    assert ended == summary["tasks_finished"] > 0
    assert sum(row[1] * row[6] for row in rows) / ended == pytest.approx(summary["completion_s"]["mean"])
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)


def test_the_page_shows_it_where_there_are_several_models(done: report_data.ReportData) -> None:
    def tables(material: report_data.ReportData) -> list[str]:
        (section,) = (each for each in report.page(material).sections if each.heading == "Tasks")
        return [part.label for part in section.parts if isinstance(part, HtmlTable)]

    assert tables(done) == ["Results by model", "Tasks"]
    trials = generate_trials(3, shape=TaskShape(work_samples=1e6))
    assert tables(report_data.of_study(study(generate_log(8, 0.1, 1), trials, ReplaySettings()), InputSource())) == [
        "Tasks"
    ]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["a-1", "a-2"]])
def test_one_model_or_tasks_of_their_own_need_no_table(names: list[str]) -> None:
    assert model_table({"name": name, "node_h": 1.0} for name in names) is None


@pytest.mark.parametrize(("name", "model"), [("a_12", "a"), ("resnet18-3", "resnet18"), ("42", "42"), ("x", "x")])
def test_a_model_is_the_name_up_to_its_number(name: str, model: str) -> None:
    assert model_of(name) == model
