"""The process course on paper: when the end of a program is believed, and when it is started again."""

from __future__ import annotations

import pytest

from bftrain_elastic.manager.task_lifecycles import WorkerExit
from tests.unit.elastic.plays import ProcessPlay as Play


def test_it_is_done_when_all_ended_well_and_the_nodes_stay() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.exited(second, WorkerExit(0))
    play.settle()
    assert "done" not in play.floor.kinds()
    play.course.exited(first, WorkerExit(0))
    assert "done" not in play.floor.kinds(), "it may have been preempted"
    play.settle()
    assert play.floor.messages[-1] == {"type": "done", "step": 0, "finished": False}


@pytest.mark.parametrize("taken", ["the agent is gone", "the manager says so", "a notice"])
def test_an_exit_of_0_on_a_node_that_leaves_is_a_preemption(taken: str) -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for worker in play.started():
        play.course.exited(worker, WorkerExit(0))
    play.tick(play.floor.settle_s / 2)
    if taken == "the agent is gone":
        play.lose("b")
    elif taken == "a notice":
        play.course.notice("b", 4.0)
    else:
        play.want("a", at_once=("b",))
    play.tick(10 * play.floor.settle_s)
    assert "done" not in play.floor.kinds()
    assert len(play.started()) == 1, "it goes on where there are nodes"


def test_an_exit_of_0_before_its_agent_says_goodbye_is_a_preemption_too() -> None:
    play = Play("a")
    play.want("a")
    (only,) = play.started()
    play.lose("a")
    play.course.exited(only, WorkerExit(0))
    play.settle()
    play.find("a")
    assert "done" not in play.floor.kinds()
    assert len(play.started()) == 1


@pytest.mark.parametrize("how", ["finish()", "by its exit code", "train() returned"])
def test_a_program_that_says_that_it_is_finished_is_believed_at_once(how: str) -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    if how == "finish()":
        play.course.said(first, {"type": "finished"})
    if how == "train() returned":
        play.course.said(first, {"type": "done", "step": 60})
    play.course.exited(first, WorkerExit(0, finished=how == "by its exit code"))
    play.course.exited(second, WorkerExit(0))
    assert play.floor.messages[-1]["type"] == "done"
    assert play.floor.messages[-1]["finished"] is True


def test_finish_is_believed_even_if_the_node_is_taken_then() -> None:
    play = Play("a")
    play.want("a")
    (only,) = play.started()
    play.course.said(only, {"type": "finished"})
    play.lose("a")
    play.course.exited(only, WorkerExit(-9))
    assert play.floor.kinds()[-1] == "done"


def test_those_who_do_not_end_after_the_first_is_finished_are_ended() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.said(first, {"type": "finished"})
    play.course.exited(first, WorkerExit(0))
    play.tick(60.0)
    assert play.floor.stopped == [(second, 10.0)]
    play.course.exited(second, WorkerExit(-9))
    assert play.floor.kinds()[-1] == "done"


def test_a_program_that_stopped_because_it_was_told_to_is_started_again() -> None:
    play = Play("a")
    play.want("a")
    (only,) = play.started()
    play.course.exited(only, WorkerExit(0, stopped=True))
    play.settle()
    assert len(play.started()) == 1
    assert "done" not in play.floor.kinds()


def test_an_end_far_from_done_is_tried_again_and_the_third_is_a_failure() -> None:
    play = Play("a", work_samples=1000.0)
    play.want("a")
    for number in range(3):
        (only,) = play.started()
        play.report(only, 100)
        play.course.exited(only, WorkerExit(0))
        play.settle()
        assert len(play.floor.notes()) == min(number + 1, 2)
    assert "after 100 of 1,000 samples, before its work was done" in play.floor.notes()[0]
    assert "3 times without a step between" in play.floor.messages[-1]["reason"]


def test_an_end_near_the_end_of_its_work_is_believed() -> None:
    play = Play("a", work_samples=100.0)
    play.want("a")
    (only,) = play.started()
    play.report(only, 95)
    play.course.exited(only, WorkerExit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_where_an_exit_code_says_that_it_is_finished_0_does_not() -> None:
    play = Play("a", finish_code=42)
    play.want("a")
    (only,) = play.started()
    assert play.floor.how[only]["finish_code"] == 42
    play.course.exited(only, WorkerExit(0))
    play.settle()
    (only,) = play.started()
    assert "without saying that it is finished" in play.floor.notes()[0]
    play.course.exited(only, WorkerExit(42, finished=True))
    assert play.floor.kinds()[-1] == "done"


def test_ranks_that_said_that_they_are_done_may_take_their_time() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    for worker in (first, second):
        play.report(worker, 10)
        play.course.said(worker, {"type": "done", "step": 10})
    play.course.exited(first, WorkerExit(0, "", finished=True))
    for _ in range(20):
        play.tick(2.0)
    assert play.floor.stopped == [], "it evaluates"
    play.course.exited(second, WorkerExit(0, "", finished=True))
    assert play.floor.messages[-1] == {"type": "done", "step": 10, "finished": True}


def test_a_program_that_does_not_end_after_it_said_that_it_is_finished_is_ended() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    play.report(worker, 1)
    play.tick(0.5)
    play.report(worker, 2)
    play.course.said(worker, {"type": "finished"})
    while not play.floor.stopped:
        play.tick(10.0)
        assert play.floor.time < 1000.0
    assert play.floor.stopped == [(worker, 10.0)]
    assert [note.partition(" did not end")[0] for note in play.floor.notes()] == [worker], (
        "and no remark says that it stalls"
    )
    play.course.exited(worker, WorkerExit(-9, ""))
    assert play.floor.messages[-1]["type"] == "done"


def test_a_program_that_counts_from_0_at_each_start_is_believed_when_it_ends() -> None:
    play = Play("a", work_samples=200.0)
    play.want("a")
    (worker,) = play.started()
    play.report(worker, 100)
    play.lose("a")
    play.course.exited(worker, WorkerExit(0, ""))
    play.find("a")
    play.tick(1.0)
    (worker,) = play.started()
    play.report(worker, 1)
    play.tick(10.0)
    play.report(worker, 99)
    play.course.exited(worker, WorkerExit(0, ""))
    play.settle()
    assert play.floor.messages[-1]["type"] == "done", "199 samples were done in two lives, as far as is known"


def test_an_end_while_the_order_to_stop_was_on_its_way_is_an_end_by_itself() -> None:
    play = Play("a", "b")
    play.want("a")
    (only,) = play.started()
    play.report(only, 1)
    play.want("a", "b")
    assert play.floor.stopped == [(only, 10.0)]
    play.course.exited(only, WorkerExit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"
