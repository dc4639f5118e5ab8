"""Fixed clusters: nodes that never leave, how a replay on them ends, and what they can never hold."""

from __future__ import annotations

import pytest

from bftrain import BadInput, ReplaySettings, TaskSpec, UsageError
from tests.unit.replay.cases import curve_of, on_cluster, task


def rigid(name: str, size: int, work: float, **given: object) -> TaskSpec:
    return task(name, rate=(1.0,) * size, min_nodes=size, work_samples=work, **given)


def test_it_ends_when_all_is_done() -> None:
    tasks = [rigid("a", 2, 100.0), rigid("b", 2, 50.0), rigid("late", 1, 10.0, submit_s=400.0)]
    study = on_cluster({"": 3}, tasks, ReplaySettings())
    assert study.fixed is not None
    assert study.fixed.ended == {"exact": "all_done"}
    result = study.result
    assert [each.finish_s for each in result.tasks] == [100.0, 150.0, 410.0]
    assert (result.simulated_s, result.columns.makespan_s, study.log.end_s) == (410.0, 410.0, 410.0)
    assert result.idle_node_s == 3 * 410.0
    assert result.used_node_s == 2 * 150.0 + 10.0
    assert (result.yardsticks, study.ceiling, study.complete) == (None, None, True)
    assert float(result.harvest.samples[-1]) == 160.0
    assert result.harvest.ends_s[-1] == 410.0


def test_the_harvest_over_time_is_whole_though_the_end_is_not_known_before() -> None:
    tasks = [task(name, rate=(2.0,), work_samples=work) for name, work in (("a", 20.0), ("b", 3e3), ("c", 1e6))]
    harvest = on_cluster({"": 1}, tasks).result.harvest
    assert harvest.ends_s[-1] == 1_003_020.0 / 2.0
    assert harvest.samples == pytest.approx(2.0 * harvest.ends_s)


def test_it_ends_at_the_time_given() -> None:
    study = on_cluster({"": 1}, [task("endless")], ReplaySettings(), until_s=60.0)
    assert study.fixed is not None
    assert study.fixed.ended == {"exact": "until"}
    assert (study.result.simulated_s, study.result.harvested_samples) == (60.0, 600.0)


def test_it_may_be_interrupted() -> None:
    tasks = [rigid("a", 1, 10.0), rigid("b", 1, 10.0)]
    study = on_cluster({"": 1}, tasks, ReplaySettings(), watch=lambda _name, now_s, _done: now_s < 5.0)
    assert study.fixed is not None
    assert study.fixed.ended == {"exact": "interrupted"}
    assert (study.complete, study.result.complete) == (False, False)


def test_a_baseline_is_replayed_until_it_ends_by_itself() -> None:
    tasks = [task("a", work_samples=180.0), rigid("b", 1, 50.0)]
    study = on_cluster({"": 2}, tasks, ReplaySettings(), baseline="equal-share")
    assert study.baseline is not None
    assert study.fixed is not None
    assert study.fixed.ended == {"exact": "all_done", "equal-share": "all_done"}
    assert study.result.simulated_s == 60.0  # first a on both nodes, then b
    assert study.baseline.simulated_s == 50.0  # each has one


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"curves": {"tpu": curve_of(1.0)}}, "can never hold task 't', which runs on tpu only"),
        ({"min_nodes": 3, "max_nodes": 4}, "'t', which needs 3 nodes of one kind where it can have up to 2"),
        ({"min_nodes": 2, "curves": {"slow": curve_of(1.0, 2.0)}}, "which needs 2 nodes of one kind where .* up to 1"),
        ({"curves": {"fast": curve_of(0.0, 0.0)}}, "'t', with speed 0 at every possible size"),
    ],
)
def test_what_it_can_never_hold_is_refused_by_name(given: dict[str, object], says: str) -> None:
    spec = task("t", work_samples=1.0, **given)
    with pytest.raises(BadInput, match=says):
        on_cluster({"fast": 2, "slow": 1}, [task("ok", work_samples=1.0), spec], ReplaySettings())


def test_many_that_do_not_fit_are_counted() -> None:
    tasks = [rigid(f"t{number}", 9, 1.0) for number in range(5)]
    with pytest.raises(BadInput, match=r"'t0', which needs 9 nodes .*'t2', .*; and 2 others"):
        on_cluster({"": 2}, tasks)


def test_a_task_without_end_needs_a_time_to_end_at() -> None:
    with pytest.raises(BadInput, match=r"task 'a' never finishes, so the replay would not end .*--until"):
        on_cluster({"": 2}, [task("a")])
    on_cluster({"": 2}, [task("a")], until_s=1.0)


def test_what_is_for_logs_is_refused() -> None:
    with pytest.raises(UsageError, match="skip_events: is for logs"):
        on_cluster({"": 1}, [rigid("a", 1, 1.0)], ReplaySettings(skip_events=1))
