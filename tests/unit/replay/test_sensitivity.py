"""The sensitivity table: what is varied, what is left out, and that its rows are those of replays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import ReplaySettings, TaskSpec, UsageError, generate_log, generate_mix
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.alternatives.sensitivity import SensitivityRow, alternatives
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.alternatives_section import label
from bftrain_replay.reporting.report_data import of_study
from bftrain_replay.simulation.rules import as_replayed
from bftrain_replay.study import study
from tests.unit.replay.cases import log_of, task

LOG = generate_log(16, 0.2, 3)
TASKS = generate_mix(8, 3, shape=TaskShape(max_nodes=6, work_samples=3e7, start_cost_s=18.0))


def named(settings: ReplaySettings, *tasks: TaskSpec) -> list[tuple[str, str, bool, bool]]:
    """Return what, setting, whether it is chosen, and whether it has to be replayed."""
    return [(each.what, each.setting, each.chosen, each.settings is not None) for each in alternatives(settings, tasks)]


def test_the_usual_alternatives() -> None:
    assert named(ReplaySettings(), task(start_cost_s=18.0, shrink_cost_s=2.0)) == [
        ("progress", "memory", True, False),
        ("progress", "disk:300", False, True),
        ("progress", "disk:1800", False, True),
        ("progress", "disk:3600", False, True),
        ("costs", "1/4", False, True),
        ("costs", "1", True, False),
        ("costs", "4", False, True),
        ("start", "18", True, False),
        ("start", "0", False, True),
        ("start", "60", False, True),
        ("start", "300", False, True),
    ]


def test_what_is_chosen_stands_among_them() -> None:
    chosen = [each for each in named(ReplaySettings(progress="disk:600"), task(start_cost_s=60.0)) if each[2]]
    assert chosen == [("progress", "disk:600", True, False), ("costs", "1", True, False), ("start", "60", True, False)]
    differing = named(ReplaySettings(), task("a", start_cost_s=60.0), task("b"))
    assert ("start", "as the tasks say", True, False) in differing


def test_costs_that_are_none_are_not_multiplied() -> None:
    varied = {what for what, *_ in named(ReplaySettings(), task())}
    assert varied == {"progress", "start"}
    assert "costs" in {what for what, *_ in named(ReplaySettings(grow_cost_s=5.0), task())}


@pytest.mark.parametrize("factor", [0.0, 0.5, 4.0])
def test_a_start_takes_what_its_row_says_for_any_cost_factor(factor: float) -> None:
    given = ReplaySettings(cost_factor=factor)
    spec = task(start_cost_s=18.0, grow_cost_s=4.0, shrink_cost_s=2.0)
    starts = [each for each in alternatives(given, [spec]) if each.what == "start" and each.settings is not None]
    for each in starts:
        assert each.settings is not None
        (found,) = as_replayed([spec], each.settings)
        assert found.start_cost_s == pytest.approx(float(each.setting))
        assert (found.grow_cost_s, found.shrink_cost_s) == (4.0 * factor, 2.0 * factor)
    assert {each.setting for each in starts} >= {"60", "300"}


def test_rows_are_those_of_replays() -> None:
    done = bftrain.replay(LOG, TASKS, sensitivity=True, max_tasks=4)
    rows = {(row.what, row.setting): row for row in done.sensitivity or ()}
    assert len(rows) == 11
    for (what, setting), options in {
        ("progress", "memory"): {},
        ("progress", "disk:300"): {"progress": "disk:300"},
        ("progress", "disk:3600"): {"progress": "disk:3600"},
        ("costs", "4"): {"cost_factor": 4.0},
        ("start", "60"): {"start_cost_s": 60.0},
    }.items():
        alone = bftrain.replay(LOG, TASKS, max_tasks=4, **options).result
        row = rows[what, setting]
        assert (row.harvested, row.efficiency) == (alone.harvested_samples, alone.efficiency), (what, setting)
        assert row.lost_preemption == pytest.approx(alone.lost_share("preemption"))
    assert done.summary["sensitivity"][0] == {
        "what": "progress",
        "setting": "memory",
        "chosen": True,
        "efficiency": done.result.efficiency,
        "harvested": done.result.harvested_samples,
        "lost_preemption": pytest.approx(done.result.lost_share("preemption")),
    }


def test_it_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(UsageError, match="realistic rules"):
        bftrain.replay(LOG, TASKS, semantics="published", sensitivity=True)
    with pytest.raises(UsageError, match=r"FILE\.py:FUNCTION"):
        bftrain.replay(LOG, TASKS, objective=lambda _task, sizes: sizes, sensitivity=True)


def test_stopped_it_gives_the_replay_without_the_table() -> None:
    done = bftrain.replay(LOG, TASKS, sensitivity=True, watch=lambda name, *_: name != "sensitivity")
    assert done.sensitivity is None
    assert done.result.complete
    assert done.study.complete


ROWS = tuple(
    SensitivityRow(what=what, setting=setting, chosen=chosen, efficiency=0.5, harvested=1e9, lost_preemption=0.25)
    for what, setting, chosen in (
        ("progress", "memory", True),
        ("progress", "memory:30", False),
        ("progress", "disk:300", False),
        ("progress", "task", False),
        ("costs", "1/4", False),
        ("start", "0", False),
        ("start", "as the tasks say", True),
    )
)


def test_rows_are_named_in_words() -> None:
    assert [label(row) for row in ROWS] == [
        "progress in memory",
        "progress in memory, on disk every 30 s",
        "progress on disk every 5 min",
        "progress as the tasks say",
        "costs x 1/4",
        "start 0 s",
        "start as the tasks say",
    ]


def test_the_page_has_the_table_near_its_top_and_the_sum_leaves_it_out() -> None:
    plain = study(log_of((0.0, "ab", ""), end_s=100.0), [task()], ReplaySettings())
    done = replace(plain, sensitivity=ROWS)
    page = report.render(of_study(done, InputSource()))
    assert "progress in memory (assumed here)" in page
    assert page.index("If other things were assumed") < page.index("Where the idle node-time went")
    assert "If other things were assumed" not in report.render(of_study(plain, InputSource()))
    assert (
        summary_json.summary(done, InputSource())["figures_sha256"]
        == summary_json.summary(plain, InputSource())["figures_sha256"]
    )
