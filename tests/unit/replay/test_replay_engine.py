"""The engine with the real decision core: small cases by hand, moments, ends, and odd inputs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import BadInput
from tests.unit.replay.cases import ReplayResult, log_of, replayed, task

ONE_LOSS = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)
COSTLY = task(work_samples=3000.0, start_cost_s=7.0, grow_cost_s=5.0, shrink_cost_s=3.0)


def unused(result: ReplayResult) -> dict[str, float]:
    return {str(why): value for why, value in result.unused_node_s.items() if value}


def test_one_task_two_nodes_one_preemption() -> None:
    result = replayed(ONE_LOSS, [COSTLY])
    (record,) = result.tasks
    assert (record.state, record.submit_s, record.first_start_s) == ("finished", 0.0, 0.0)
    assert record.finish_s == 238.0  # 1,800 - 126 done at 100 s; then 1,326 + 54 at 10 a second
    assert (record.starts, record.rescales, record.preemptions) == (1, 0, 1)
    assert (record.done_samples, record.owed_samples) == (3000.0, 0.0)
    assert (record.lost_start_up_samples, record.lost_preemption_samples) == (126.0, 54.0)
    assert record.node_s == result.used_node_s == 338.0
    assert result.lost_node_s == {
        "start_up": 14.0, "preemption": 5.4, "rescaling": 0.0, "unnoticed": 0.0,
    }  # fmt: skip
    assert result.idle_node_s == 400.0
    assert unused(result) == {"no_task": 62.0}
    assert (result.columns.makespan_s, result.simulated_s, len(result.decisions)) == (238.0, 300.0, 3)


def test_many_nodes_lost_at_once_are_one_preemption() -> None:
    log = log_of((0.0, "abcd", ""), (100.0, "", "bcd"), end_s=200.0)
    (record,) = replayed(log, [task(rate=(10.0, 18.0, 24.0, 28.0), shrink_cost_s=3.0)]).tasks
    assert (record.preemptions, record.lost_preemption_samples) == (1, 3 * 28.0)
    assert record.done_samples == 2800.0 + 1000.0 - 84.0


def test_too_few_nodes_left_is_a_stop_and_the_rest_goes_to_others() -> None:
    log = log_of((0.0, "abc", ""), (100.0, "", "c"), end_s=200.0)
    large = task("large", rate=(0.0, 0.0, 90.0), min_nodes=3, shrink_cost_s=2.0)
    small = task("small", rate=(1.0,))
    result = replayed(log, [large, small])
    by_name = {record.name: record for record in result.tasks}
    assert (by_name["large"].state, by_name["large"].done_samples) == ("waiting", 9000.0)
    assert (by_name["large"].preemptions, by_name["large"].owed_samples) == (1, 180.0)
    assert by_name["small"].first_start_s == 100.0
    assert unused(result) == {"below_minimum": 100.0}


def test_what_happens_at_one_moment_is_one_decision() -> None:
    log = log_of((0.0, "ab", ""), (50.0, "c", "a"), end_s=100.0)
    tasks = [task("first", rate=(10.0,), work_samples=500.0), task("second", rate=(10.0,), submit_s=50.0)]
    result = replayed(log, tasks)
    assert len(result.decisions) == 2  # at 50 s a node leaves, one joins, a task ends and one arrives
    assert [record.finish_s for record in result.tasks] == [50.0, None]
    assert result.tasks[1].first_start_s == 50.0


def test_a_task_that_completes_as_its_nodes_leave_was_not_preempted() -> None:
    log = log_of((0.0, "ab", ""), (100.0, "", "ab"), end_s=200.0)
    (record,) = replayed(log, [task(work_samples=1800.0, shrink_cost_s=60.0)]).tasks
    assert (record.finish_s, record.preemptions, record.lost_preemption_samples) == (100.0, 0, 0.0)


def test_completions_between_events_free_nodes_at_once() -> None:
    log = log_of((0.0, "a", ""), end_s=1000.0)
    tasks = [task(name, rate=(10.0,), work_samples=1234.5) for name in "xyz"]
    result = replayed(log, tasks)
    assert [record.finish_s for record in result.tasks] == pytest.approx([123.45, 246.9, 370.35], abs=1e-9)
    assert [record.first_start_s for record in result.tasks] == pytest.approx([0.0, 123.45, 246.9], abs=1e-9)


def test_a_completion_exactly_at_the_end_counts() -> None:
    (record,) = replayed(log_of((0.0, "a", ""), end_s=100.0), [task(rate=(10.0,), work_samples=1000.0)]).tasks
    assert (record.state, record.finish_s) == ("finished", 100.0)


def test_rounding_does_not_split_a_moment() -> None:
    log = log_of((0.0, "a", ""), (0.3, "b", ""), end_s=10.0, start_s=0.0)
    result = replayed(log, [task("t", rate=(3.0,), work_samples=0.9), task("u", rate=(1.0,))])
    assert len(result.decisions) == 2
    assert result.tasks[0].finish_s == 0.3


def test_overload_ends_with_the_log() -> None:
    tasks = [task(f"t{number}", rate=(1.0,), work_samples=1e12) for number in range(50)]
    result = replayed(log_of((0.0, "abc", ""), end_s=100.0), tasks, max_tasks=10)
    assert result.complete
    assert (result.tasks_finished, result.columns.makespan_s, result.harvested_samples) == (0, None, 300.0)
    assert {record.state for record in result.tasks} == {"running", "waiting"}


@pytest.mark.parametrize("end_s", [0.0, 100.0])
def test_a_log_in_which_nothing_happens(end_s: float) -> None:
    result = replayed(log_of(end_s=end_s), [COSTLY])
    assert (result.idle_node_s, result.used_node_s, result.harvested_samples) == (0.0, 0.0, 0.0)
    assert (result.coverage, result.efficiency, result.simulated_s) == (None, None, end_s)
    result.summary()


def test_a_log_of_one_event() -> None:
    result = replayed(log_of((40.0, "ab", ""), end_s=100.0), [task()])
    assert (result.idle_node_s, result.used_node_s, result.harvested_samples) == (120.0, 120.0, 60 * 18.0)


def test_an_event_at_the_very_end_changes_nothing() -> None:
    result = replayed(log_of((0.0, "a", ""), (100.0, "b", "a"), end_s=100.0), [task(shrink_cost_s=9.0)])
    assert (result.harvested_samples, result.tasks[0].preemptions, len(result.decisions)) == (1000.0, 0, 1)


def test_tasks_after_the_end_never_arrive() -> None:
    result = replayed(log_of((0.0, "ab", ""), end_s=100.0), [task(submit_s=100.0), task("u", submit_s=1e6)])
    assert [record.state for record in result.tasks] == ["not_arrived"] * 2
    assert unused(result) == {"no_task": 200.0}


def test_tasks_from_before_the_log_arrive_at_its_start() -> None:
    (record,) = replayed(log_of((0.0, "a", ""), end_s=100.0), [task(submit_s=-50.0)]).tasks
    assert (record.submit_s, record.first_start_s) == (-50.0, 0.0)


def test_no_tasks_at_all() -> None:
    result = replayed(log_of((0.0, "ab", ""), (10.0, "", "a"), end_s=100.0), [])
    assert unused(result) == {"no_task": 110.0}
    assert (len(result.decisions), result.idle_node_s) == (0, 110.0)


def test_why_nodes_are_not_used() -> None:
    log = log_of((0.0, "abcd", ""), end_s=100.0)
    assert unused(replayed(log, [task()])) == {"at_maximum": 200.0}
    assert unused(replayed(log, [task("t"), task("u")], max_tasks=1)) == {"task_cap": 200.0}
    assert unused(replayed(log, [task(rate=(10.0, 10.0, 10.0))])) == {"not_worth": 200.0, "at_maximum": 100.0}
    never = task("u", rate=(0.0,) * 4 + (50.0,), min_nodes=5)
    assert unused(replayed(log, [task(), never])) == {"below_minimum": 200.0}


def test_a_rescale_that_is_not_worth_it_is_distinguished_from_an_impossible_one() -> None:
    log = log_of((0.0, "a", ""), (50.0, "b", ""), end_s=100.0)
    result = replayed(log, [task(grow_cost_s=600.0)], horizon_s=120.0)
    assert unused(result) == {"not_worth": 50.0}


def test_the_same_inputs_give_the_same_result() -> None:
    tasks = [replace(COSTLY, name=f"t{number}", submit_s=17.0 * number) for number in range(9)]
    first, second = (replayed(ONE_LOSS, tasks) for _ in range(2))
    assert first.tasks == second.tasks
    assert first.summary() == second.summary()
    assert list(first.decisions.rows()) == list(second.decisions.rows())


def test_exact_and_highs_come_to_the_same_figures() -> None:
    log = log_of((0.0, "abcde", ""), (70.0, "fg", "ab"), (140.0, "hi", "c"), (500.0, "", "defghi"), end_s=900.0)
    tasks = [
        task("x", rate=(10.0, 19.0, 25.0), work_samples=5000.0, grow_cost_s=5.0, shrink_cost_s=3.0),
        task("y", rate=(11.3, 16.1, 22.7, 31.0), work_samples=9000.0, start_cost_s=4.0, grow_cost_s=2.0),
        task("z", rate=(7.1, 15.3), submit_s=33.0, shrink_cost_s=8.0),
    ]
    assert replayed(log, tasks, solver="exact").tasks == replayed(log, tasks, solver="highs").tasks


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="two tasks are called 't'"):
        replayed(ONE_LOSS, [task("s"), task("t"), task("t")])


def stopped_after(decisions: int) -> ReplayResult:
    def watch(_name: str, _simulated_s: float, made: int) -> bool:
        return made < decisions

    return bftrain.replay(ONE_LOSS, [COSTLY], progress="task", watch=watch).result


def test_a_run_that_is_stopped_has_its_books_in_order() -> None:
    result = stopped_after(1)
    assert not result.complete
    assert (result.simulated_s, result.idle_node_s, result.used_node_s) == (100.0, 200.0, 200.0)
    assert (result.tasks[0].done_samples, result.tasks[0].state) == (1674.0, "running")
    assert stopped_after(99).complete


def test_a_task_may_ask_for_more_nodes_than_any_memory_counts() -> None:
    log = log_of((0.0, "ab", ""), end_s=100.0)
    assert replayed(log, [task(max_nodes=2**62)]).harvested_samples == replayed(log, [task()]).harvested_samples


def test_a_node_that_just_suffices_and_is_not_worth_its_start_is_not_one_too_few() -> None:
    result = replayed(log_of((0.0, "a", ""), end_s=100.0), [task(rate=(10.0,), start_cost_s=600.0)], horizon_s=120.0)
    assert unused(result) == {"not_worth": 100.0}
