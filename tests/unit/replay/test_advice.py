"""Advice: which changes of settings are tried, that only those that gain are shown, and none that was not tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import ReplaySettings, generate_log, generate_mix
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.alternatives import advice
from bftrain_replay.alternatives.advice import AdviceRow
from bftrain_replay.api import ReplayOutcome
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.losses import CAUSES
from bftrain_replay.reporting.report_data import of_study
from bftrain_replay.results.result import ReplaySummary
from bftrain_replay.study import ReplayStudy, study

LOG = generate_log(16, 0.2, 3)
TASKS = generate_mix(8, 3, shape=TaskShape(max_nodes=3, work_samples=1e9, start_cost_s=18.0))
SOURCES = Path(advice.__file__).parent
ROW = AdviceRow(
    cause="task_cap",
    option="--max-tasks 4",
    gain=0.031,
    gain_samples=1.2e9,
    gain_node_h=39.0,
    rescales=120,
    starts=-2,
    preemptions=0,
)


def page_of(done: ReplayStudy) -> str:
    return report.render(of_study(done, InputSource()))


@pytest.fixture(scope="module")
def few() -> ReplayOutcome:
    """Replay with one task that may compete, which leaves most nodes unused, and with what is tried."""
    return bftrain.replay(LOG, TASKS, sensitivity=True, max_tasks=1)


@pytest.fixture(scope="module")
def plain() -> ReplayStudy:
    """Replay the same without trying anything, as with --quick."""
    return study(LOG, TASKS, ReplaySettings(max_tasks=1))


def options(figures: ReplaySummary, settings: ReplaySettings) -> dict[str, str]:
    return {each.cause: each.option for each in advice.trials(figures, settings)}


def test_a_change_that_gains_is_shown_with_the_gain_of_its_replay(few: ReplayOutcome) -> None:
    (row,) = [each for each in few.advice or () if each.cause == "task_cap"]
    alone = bftrain.replay(LOG, TASKS, max_tasks=2)
    assert row.option == "--max-tasks 2"
    assert row.gain_samples == alone.result.harvested_samples - few.result.harvested_samples > 0.0
    assert row.gain == row.gain_samples / few.result.harvested_samples
    headlines = alone.summary["headline"], few.summary["headline"]
    assert row.gain_node_h == pytest.approx(headlines[0]["harvest_node_h"] - headlines[1]["harvest_node_h"])
    assert row.rescales == alone.summary["rescales"] - few.summary["rescales"]
    assert few.summary["advice"][0]["option"] == "--max-tasks 2"
    assert "<code>--max-tasks 2</code>: <strong>+" in page_of(few.study)


def test_the_page_names_gain_and_cost(plain: ReplayStudy) -> None:
    page = page_of(replace(plain, advice=(ROW,))).replace("&nbsp;", " ")
    assert "<code>--max-tasks 4</code>: <strong>+3.1 % harvest (39 node-hours, 1.20 billion samples), tried" in page
    assert "; 120 more rescales, 2 fewer starts. Answers: Too few compete." in page


def test_a_step_with_advice_is_not_explained_besides() -> None:
    starting = replace(ROW, cause="start_up")
    said = "How much it is depends on what a start takes"
    full = study(LOG, TASKS, ReplaySettings(max_tasks=8))
    assert said in page_of(full)
    assert said not in page_of(replace(full, advice=(starting,)))
    assert "What the largest of the other steps depend on" in page_of(replace(full, advice=(ROW,)))


def test_a_change_without_a_gain_is_not_shown(plain: ReplayStudy) -> None:
    figures = plain.result.summary()
    found = advice.trials(figures, ReplaySettings(max_tasks=1))
    assert "--max-tasks 2" in {each.option for each in found}
    for gain in (-0.1, 0.0, 0.0009):
        same = replace(figures, harvested=figures.harvested * (1.0 + gain))
        rows = advice.rows_of(found, figures, dict.fromkeys(range(len(found)), same))
        assert advice.gaining(rows) == ()
        page = page_of(replace(plain, advice=rows)).replace("&nbsp;", " ")
        assert "No change of a setting is advised." in page
        assert "Tried, with a gain below 0.1 % of the harvest: <code>--max-tasks 2</code>" in page
    page = page_of(replace(plain, advice=()))
    assert "<code>--max-tasks" not in page
    assert "None of the settings that are tried answers a large step." in page


def test_more_tasks_are_tried_wherever_some_wait_even_if_those_that_compete_hold_all_nodes(plain: ReplayStudy) -> None:
    figures = plain.result.summary()
    full = replace(figures, unused_node_h=dict.fromkeys(figures.unused_node_h, 0.0))
    assert options(full, ReplaySettings(max_tasks=7, progress="memory"))["task_cap"] == "--max-tasks 14"
    assert "task_cap" not in options(full, ReplaySettings(max_tasks=8, progress="memory"))  # all eight compete


def test_nothing_is_shown_that_was_not_tried(plain: ReplayStudy) -> None:
    page = page_of(plain)
    assert summary_json.summary(plain, InputSource())["advice"] is None
    assert "No change of a setting was tried." in page
    assert "tried; " not in page
    assert "<code>--max-tasks" not in page
    tried = replace(plain, advice=(ROW,))
    assert (
        summary_json.summary(tried, InputSource())["figures_sha256"]
        == summary_json.summary(plain, InputSource())["figures_sha256"]
    )


def test_each_large_cause_has_the_change_that_answers_it(plain: ReplayStudy) -> None:
    figures = plain.result.summary()
    large = figures.idle_node_h / 10.0
    every = replace(
        figures,
        unused_node_h=dict.fromkeys(figures.unused_node_h, large) | {"task_cap": large, "undecided": large},
        lost={cause: replace(lost, node_h=large) for cause, lost in figures.lost.items()},
    )
    assert options(every, ReplaySettings()) == {"task_cap": "--max-tasks 70", "rescaling": "--min-interval 60"}
    assert options(every, ReplaySettings(progress="disk:300", min_interval_s=90.0, max_tasks=4)) == {
        "task_cap": "--max-tasks 8",
        "undecided": "--min-interval 0",
        "preemption": "--progress memory",
    }
    small = replace(every, idle_node_h=large * 1000.0)
    assert options(small, ReplaySettings(progress="task")) == {}


def test_no_words_of_a_cause_give_advice_that_was_not_tried() -> None:
    assert all("raise --" not in cause.explanation.lower() for cause in CAUSES)
    promised = re.compile(r"raise --?horizon|longer horizon|rarer: ", re.IGNORECASE)
    found = [path.name for path in SOURCES.rglob("*.py") if promised.search(path.read_text(encoding="utf-8"))]
    assert found == []
