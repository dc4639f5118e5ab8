"""The process course, new, finds processes that another manager started, or hears how they ended."""

from __future__ import annotations

import dataclasses

from bftrain_elastic.manager.task_lifecycles import LeftWorker, WorkerExit
from bftrain_elastic.manager.task_lifecycles.process import COMPANY_S
from tests.unit.elastic.plays import ProcessPlay as Play


def left(node: str, rank: int, workers: int = 2, *, generation: int = 7, exit: WorkerExit | None = None) -> LeftWorker:  # noqa: A002 - the field's word
    return LeftWorker(f"t/{node}/0/3-{rank}", 0, 40, generation, rank, workers, None, done=False, exit=exit)


def come(play: Play, *workers: LeftWorker) -> list[bool]:
    """Let agents come to a new manager, each with one worker."""
    adopted = []
    for worker in workers:
        node = worker.worker.split("/")[1]
        play.floor.there[node] = 1
        adopted.append(play.course.adopt(node, worker))
        play.course.node_up(node)
    return adopted


def test_a_group_that_is_found_whole_goes_on_untouched() -> None:
    play = Play()
    play.want("a", "b")
    assert come(play, left("a", 0), left("b", 1)) == [True, True]
    play.tick(10 * COMPANY_S)
    assert (play.floor.stopped, play.floor.spawned) == ([], [])
    assert play.floor.kinds() == ["confirmed"]
    for rank, node in enumerate("ab"):
        play.course.exited(f"t/{node}/0/3-{rank}", WorkerExit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_commands_that_ended_while_nobody_listened_are_not_run_again() -> None:
    play = Play()
    play.want("a", "b")
    assert come(play, left("a", 0, exit=WorkerExit(0, ago_s=9.0)), left("b", 1)) == [True, True]
    play.tick(10 * COMPANY_S)
    assert (play.floor.stopped, play.floor.spawned) == ([], [])
    play.course.exited("t/b/0/3-1", WorkerExit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_a_command_that_ended_a_moment_ago_may_still_have_been_preempted() -> None:
    play = Play()
    play.want("a")
    come(play, left("a", 0, 1, exit=WorkerExit(0, ago_s=0.1)))
    play.tick(0.1)
    assert "done" not in play.floor.kinds()
    play.lose("a")
    play.settle()
    assert "done" not in play.floor.kinds()


def test_a_finished_program_is_done_even_if_its_node_was_given_up_meanwhile() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, exit=WorkerExit(0, finished=True, ago_s=9.0))) == [True]
    play.tick(COMPANY_S + 0.1)  # others may have more to tell
    assert play.floor.kinds() == ["done"]


def test_a_command_that_ended_by_itself_is_done_though_its_nodes_were_given_up_before_that_was_certain() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, exit=WorkerExit(0, ago_s=9.0)), left("b", 1, exit=WorkerExit(0, ago_s=9.0))) == [
        True,
        True,
    ]
    play.settle()
    assert play.floor.kinds() == ["done"]


def test_a_command_that_ended_because_its_node_was_given_up_is_not_done() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, 1, exit=WorkerExit(0, stopped=True, ago_s=9.0))) == [False]
    assert come(play, left("a", 0, exit=WorkerExit(0, ago_s=9.0))) == [True]
    play.tick(10 * COMPANY_S)
    play.settle()
    assert "done" not in play.floor.kinds(), "the other rank is unknown"
    play.want("a")
    play.tick(0.1)
    assert play.started()


def test_an_end_is_not_believed_while_a_younger_group_may_still_come() -> None:
    play = Play()
    play.want("b")
    come(play, left("a", 0, 1, generation=6, exit=WorkerExit(0, ago_s=99.0)))
    play.tick(2 * COMPANY_S)
    assert play.floor.kinds() == []
    come(play, left("b", 0, 1, generation=7))
    play.tick(2 * COMPANY_S)
    assert play.floor.kinds() == ["confirmed"]


def test_a_finished_program_is_done_once_all_its_ranks_have_told_what_they_reported() -> None:
    play = Play()
    play.want("a", "b")
    finished = WorkerExit(0, finished=True, ago_s=3.0)
    come(play, left("b", 1, exit=finished))
    play.tick(1.0)
    assert play.floor.kinds() == []
    report = {"type": "report", "t": 1.0, "step": 69, "size": 2, "samples": 7, "loss": None, "total": 483, "since": 0}
    come(play, dataclasses.replace(left("a", 0, exit=finished), report=report))
    play.tick(0.1)
    assert [one["type"] for one in play.floor.messages] == ["report", "done"]


def test_a_group_that_is_not_whole_is_stopped_and_started_again_once_all_is_known() -> None:
    play = Play()
    play.want("a", "b")
    come(play, left("a", 0))
    play.tick(2 * COMPANY_S)
    assert play.floor.stopped == [], "the other one may still come"
    play.floor.there["b"] = 1
    play.course.node_up("b")
    play.tick(2 * COMPANY_S)
    assert play.floor.stopped == [("t/a/0/3-0", 10.0)]
    play.course.exited("t/a/0/3-0", WorkerExit(0))
    play.tick(0.1)
    assert len(play.started()) == 2
    assert not {"done", "note", "failed"} & set(play.floor.kinds())


def test_of_two_groups_the_younger_goes_on_and_nothing_runs_twice() -> None:
    play = Play()
    play.want("a", "b")
    assert come(play, left("a", 1, generation=6), left("b", 0, 1, generation=7)) == [True, True]
    assert play.floor.stopped == [("t/a/0/3-1", 0.0)]
    assert not play.course.adopt("a", left("a", 1, generation=6, exit=WorkerExit(-9)))


def test_nothing_of_another_manager_is_taken_over_once_it_is_started_anew() -> None:
    play = Play("a")
    play.want("a")
    play.started()
    assert not play.course.adopt("a", LeftWorker("t/a/0/1", 0, 40, 0, 0, 0, None, done=False))
