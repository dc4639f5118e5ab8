"""The process lifecycle on paper: when the end of a program is believed, and when it is started again."""

from __future__ import annotations

import pytest

from tests.helpers.lifecycles import ProcessCase as Play
from tests.helpers.lifecycles import WorkerExit


def test_it_is_done_when_all_ended_well_and_the_nodes_stay() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.lifecycle.exited(second, WorkerExit(0))
    case.settle()
    assert "done" not in case.context.kinds()
    case.lifecycle.exited(first, WorkerExit(0))
    assert "done" not in case.context.kinds(), "it may have been preempted"
    case.settle()
    assert case.context.messages[-1] == {"type": "done", "step": 0, "finished": False}


@pytest.mark.parametrize("taken", ["the agent is gone", "the manager says so", "a notice"])
def test_an_exit_of_0_on_a_node_that_leaves_is_a_preemption(taken: str) -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    for worker in case.started():
        case.lifecycle.exited(worker, WorkerExit(0))
    case.tick(case.context.settle_s / 2)
    if taken == "the agent is gone":
        case.lose("b")
    elif taken == "a notice":
        case.lifecycle.notice("b", 4.0)
    else:
        case.set_nodes("a", at_once=("b",))
    case.tick(10 * case.context.settle_s)
    assert "done" not in case.context.kinds()
    assert len(case.started()) == 1, "it goes on where there are nodes"


def test_an_exit_of_0_before_its_agent_says_goodbye_is_a_preemption_too() -> None:
    case = Play("a")
    case.set_nodes("a")
    (only,) = case.started()
    case.lose("a")
    case.lifecycle.exited(only, WorkerExit(0))
    case.settle()
    case.find("a")
    assert "done" not in case.context.kinds()
    assert len(case.started()) == 1


@pytest.mark.parametrize("how", ["finish()", "by its exit code", "train() returned"])
def test_a_program_that_says_that_it_is_finished_is_believed_at_once(how: str) -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    if how == "finish()":
        case.hear(first, {"type": "finished"})
    if how == "train() returned":
        case.hear(first, {"type": "done", "step": 60})
    case.lifecycle.exited(first, WorkerExit(0, finished=how == "by its exit code"))
    case.lifecycle.exited(second, WorkerExit(0))
    assert case.context.messages[-1]["type"] == "done"
    assert case.context.messages[-1]["finished"] is True


def test_finish_is_believed_even_if_the_node_is_taken_then() -> None:
    case = Play("a")
    case.set_nodes("a")
    (only,) = case.started()
    case.hear(only, {"type": "finished"})
    case.lose("a")
    case.lifecycle.exited(only, WorkerExit(-9))
    assert case.context.kinds()[-1] == "done"


def test_those_who_do_not_end_after_the_first_is_finished_are_ended() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.hear(first, {"type": "finished"})
    case.lifecycle.exited(first, WorkerExit(0))
    case.tick(60.0)
    assert case.context.stopped == [(second, 10.0)]
    case.lifecycle.exited(second, WorkerExit(-9))
    assert case.context.kinds()[-1] == "done"


def test_a_program_that_stopped_because_it_was_asked_to_is_started_again() -> None:
    case = Play("a")
    case.set_nodes("a")
    (only,) = case.started()
    case.lifecycle.exited(only, WorkerExit(0, stopped=True))
    case.settle()
    assert len(case.started()) == 1
    assert "done" not in case.context.kinds()


def test_ranks_that_are_about_to_end_are_not_stopped_by_a_planned_change() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.lifecycle.exited(first, WorkerExit(0))
    case.set_nodes()
    assert case.context.stopped == []
    case.lifecycle.exited(second, WorkerExit(0))
    case.settle()
    assert case.context.kinds()[-1] == "done"


def test_ranks_that_train_on_after_one_ended_are_stopped_a_bit_later() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.lifecycle.exited(first, WorkerExit(0))
    case.set_nodes()
    case.tick(5.1)
    assert case.context.stopped == [(second, 10.0)]


def test_an_end_far_from_done_is_tried_again_and_the_third_is_a_failure() -> None:
    case = Play("a", work_samples=1000.0)
    case.set_nodes("a")
    for number in range(3):
        (only,) = case.started()
        case.report(only, 100)
        case.lifecycle.exited(only, WorkerExit(0))
        case.settle()
        assert len(case.context.notes()) == min(number + 1, 2)
    assert "after 100 of 1,000 samples, before its work was done" in case.context.notes()[0]
    assert "3 times with no step in between" in case.context.messages[-1]["reason"]


def test_an_end_near_the_end_of_its_work_is_believed() -> None:
    case = Play("a", work_samples=100.0)
    case.set_nodes("a")
    (only,) = case.started()
    case.report(only, 95)
    case.lifecycle.exited(only, WorkerExit(0))
    case.settle()
    assert case.context.kinds()[-1] == "done"


def test_where_an_exit_code_says_that_it_is_finished_0_does_not() -> None:
    case = Play("a", finish_code=42)
    case.set_nodes("a")
    (only,) = case.started()
    case.lifecycle.exited(only, WorkerExit(0))
    case.settle()
    (only,) = case.started()
    assert "without saying that it is finished" in case.context.notes()[0]
    case.lifecycle.exited(only, WorkerExit(42, finished=True))
    assert case.context.kinds()[-1] == "done"


def test_ranks_that_said_that_they_are_done_may_take_their_time() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    for worker in (first, second):
        case.report(worker, 10)
        case.hear(worker, {"type": "done", "step": 10})
    case.lifecycle.exited(first, WorkerExit(0, "", finished=True))
    for _ in range(20):
        case.tick(2.0)
    assert case.context.stopped == [], "it evaluates"
    case.lifecycle.exited(second, WorkerExit(0, "", finished=True))
    assert case.context.messages[-1] == {"type": "done", "step": 10, "finished": True}


def test_a_program_that_does_not_end_after_it_said_that_it_is_finished_is_ended() -> None:
    case = Play("a")
    case.set_nodes("a")
    (worker,) = case.started()
    case.report(worker, 1)
    case.tick(0.5)
    case.report(worker, 2)
    case.hear(worker, {"type": "finished"})
    while not case.context.stopped:
        case.tick(10.0)
        assert case.context.time < 1000.0
    assert case.context.stopped == [(worker, 10.0)]
    assert [note.partition(" did not end")[0] for note in case.context.notes()] == [worker], (
        "and no remark says that it stalls"
    )
    case.lifecycle.exited(worker, WorkerExit(-9, ""))
    assert case.context.messages[-1]["type"] == "done"


def test_a_program_that_counts_from_0_at_each_start_is_believed_when_it_ends() -> None:
    case = Play("a", work_samples=200.0)
    case.set_nodes("a")
    (worker,) = case.started()
    case.report(worker, 100)
    case.lose("a")
    case.lifecycle.exited(worker, WorkerExit(0, ""))
    case.find("a")
    case.tick(1.0)
    (worker,) = case.started()
    case.report(worker, 1)
    case.tick(10.0)
    case.report(worker, 99)
    case.lifecycle.exited(worker, WorkerExit(0, ""))
    case.settle()
    assert case.context.messages[-1]["type"] == "done", "199 samples were done in two lives, as far as is known"


def test_an_end_while_the_order_to_stop_was_on_its_way_is_an_end_by_itself() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    (only,) = case.started()
    case.report(only, 1)
    case.set_nodes("a", "b")
    assert case.context.stopped == [(only, 10.0)]
    case.lifecycle.exited(only, WorkerExit(0))
    case.settle()
    assert case.context.kinds()[-1] == "done"


def test_a_program_that_dies_at_once_waits_between_its_starts_though_a_node_left_lately() -> None:
    """Its third failure makes the manager take its nodes and give them again: that explains no death that follows."""
    case = Play("a")
    case.set_nodes("a")
    (first,) = case.started()
    case.set_nodes(at_once=("a",))
    case.lifecycle.exited(first, WorkerExit(-9))
    starts = 0
    for _ in range(100):
        case.tick(0.01)
        case.set_nodes("a")
        for worker in list(case.context.spawned):
            starts += 1
            case.started()
            case.lifecycle.exited(worker, WorkerExit(1))
    assert 1 <= starts <= 10


def test_a_loss_that_is_no_number_is_reported_and_given_up_after_the_limit() -> None:
    case = Play("a", stall_limit_s=100.0)
    case.set_nodes("a")
    (only,) = case.started()
    case.report(only, 1, loss=1.0)
    for step in range(2, 200):
        case.report(only, step, nan=True)
        case.tick(1.0)
        if case.context.stopped:
            break
    assert 95 < step < 110
    assert case.context.notes()[0] == "its loss is not a number (NaN or infinite) since step 2"
    case.lifecycle.exited(only, WorkerExit(-9))
    assert "since step 2" in case.context.messages[-1]["reason"]


def test_a_task_that_never_had_a_loss_may_go_on() -> None:
    case = Play("a", stall_limit_s=10.0)
    case.set_nodes("a")
    (only,) = case.started()
    for step in range(1, 100):
        case.report(only, step, nan=True)
        case.tick(1.0)
    assert case.context.stopped == []


def test_ranks_that_hang_are_asked_where_they_are_and_a_stopped_one_is_named() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    for step in range(1, 4):
        case.report(first, step)
        case.tick(1.0)
    case.tick(31.0)
    assert set(case.context.inspected) == {first, second}
    case.hear(first, {"type": "position", "place": "commit", "line": "fit.py:9", "commits": 2})
    case.lifecycle.inspected(second, "T")
    case.tick(0.1)
    assert any("rank 1 on b is stopped (SIGSTOP)" in note for note in case.context.notes())
