"""The process lifecycle, new, finds processes that another manager started, or hears how they ended."""

from __future__ import annotations

import dataclasses

from tests.helpers.lifecycles import COMPANY_S, LeftWorker, StepReport, WorkerExit, left_worker
from tests.helpers.lifecycles import ProcessCase as Play


def left(node: str, rank: int, workers: int = 2, *, generation: int = 7, exit: WorkerExit | None = None) -> LeftWorker:  # noqa: A002 - the field's word
    return left_worker(f"t/{node}/0/3-{rank}", 40, (generation, rank, workers), exit=exit)


def come(case: Play, *workers: LeftWorker) -> list[bool]:
    """Let agents come to a new manager, each with one worker."""
    adopted = []
    for worker in workers:
        node = worker.worker.split("/")[1]
        case.context.there[node] = 1
        adopted.append(case.lifecycle.adopt(node, worker))
        case.lifecycle.node_up(node)
    return adopted


def test_a_group_that_is_found_whole_goes_on_untouched() -> None:
    case = Play()
    case.set_nodes("a", "b")
    assert come(case, left("a", 0), left("b", 1)) == [True, True]
    case.tick(10 * COMPANY_S)
    assert (case.context.stopped, case.context.spawned) == ([], [])
    assert case.context.kinds() == ["confirmed"]
    for rank, node in enumerate("ab"):
        case.lifecycle.exited(f"t/{node}/0/3-{rank}", WorkerExit(0))
    case.settle()
    assert case.context.kinds()[-1] == "done"


def test_commands_that_ended_while_no_manager_listened_are_not_run_again() -> None:
    case = Play()
    case.set_nodes("a", "b")
    assert come(case, left("a", 0, exit=WorkerExit(0, ago_s=9.0)), left("b", 1)) == [True, True]
    case.tick(10 * COMPANY_S)
    assert (case.context.stopped, case.context.spawned) == ([], [])
    case.lifecycle.exited("t/b/0/3-1", WorkerExit(0))
    case.settle()
    assert case.context.kinds()[-1] == "done"


def test_a_command_that_ended_a_moment_ago_may_still_have_been_preempted() -> None:
    case = Play()
    case.set_nodes("a")
    come(case, left("a", 0, 1, exit=WorkerExit(0, ago_s=0.1)))
    case.tick(0.1)
    assert "done" not in case.context.kinds()
    case.lose("a")
    case.settle()
    assert "done" not in case.context.kinds()


def test_a_finished_program_is_done_even_if_its_node_was_given_up_meanwhile() -> None:
    case = Play()
    case.set_nodes()
    assert come(case, left("a", 0, exit=WorkerExit(0, finished=True, ago_s=9.0))) == [True]
    case.tick(COMPANY_S + 0.1)  # others may have more to tell
    assert case.context.kinds() == ["done"]


def test_a_command_that_ended_by_itself_is_done_though_its_nodes_were_given_up_before_that_was_certain() -> None:
    case = Play()
    case.set_nodes()
    assert come(case, left("a", 0, exit=WorkerExit(0, ago_s=9.0)), left("b", 1, exit=WorkerExit(0, ago_s=9.0))) == [
        True,
        True,
    ]
    case.settle()
    assert case.context.kinds() == ["done"]


def test_a_command_that_ended_because_its_node_was_given_up_is_not_done() -> None:
    case = Play()
    case.set_nodes()
    assert come(case, left("a", 0, 1, exit=WorkerExit(0, stopped=True, ago_s=9.0))) == [False]
    assert come(case, left("a", 0, exit=WorkerExit(0, ago_s=9.0))) == [True]
    case.tick(10 * COMPANY_S)
    case.settle()
    assert "done" not in case.context.kinds(), "the other rank is unknown"
    case.set_nodes("a")
    case.tick(0.1)
    assert case.started()


def test_an_end_is_not_believed_while_a_younger_group_may_still_come() -> None:
    case = Play()
    case.set_nodes("b")
    come(case, left("a", 0, 1, generation=6, exit=WorkerExit(0, ago_s=99.0)))
    case.tick(2 * COMPANY_S)
    assert case.context.kinds() == []
    come(case, left("b", 0, 1, generation=7))
    case.tick(2 * COMPANY_S)
    assert case.context.kinds() == ["confirmed"]


def test_a_finished_program_is_done_once_all_its_ranks_have_repeated_their_reports() -> None:
    case = Play()
    case.set_nodes("a", "b")
    finished = WorkerExit(0, finished=True, ago_s=3.0)
    come(case, left("b", 1, exit=finished))
    case.tick(1.0)
    assert case.context.kinds() == []
    report = {"type": "report", "t": 1.0, "step": 69, "size": 2, "samples": 7, "loss": None, "total": 483, "since": 0}
    come(case, dataclasses.replace(left("a", 0, exit=finished), report=StepReport.read(report)))
    case.tick(0.1)
    assert [one["type"] for one in case.context.messages] == ["report", "done"]


def test_a_group_that_is_not_whole_is_stopped_and_started_again_once_all_is_known() -> None:
    case = Play()
    case.set_nodes("a", "b")
    come(case, left("a", 0))
    case.tick(2 * COMPANY_S)
    assert case.context.stopped == [], "the other one may still come"
    case.context.there["b"] = 1
    case.lifecycle.node_up("b")
    case.tick(2 * COMPANY_S)
    assert case.context.stopped == [("t/a/0/3-0", 10.0)]
    case.lifecycle.exited("t/a/0/3-0", WorkerExit(0))
    case.tick(0.1)
    assert len(case.started()) == 2
    assert not {"done", "note", "failed"} & set(case.context.kinds())


def test_of_two_groups_the_younger_goes_on_and_nothing_runs_twice() -> None:
    case = Play()
    case.set_nodes("a", "b")
    assert come(case, left("a", 1, generation=6), left("b", 0, 1, generation=7)) == [True, True]
    assert case.context.stopped == [("t/a/0/3-1", 0.0)]
    assert not case.lifecycle.adopt("a", left("a", 1, generation=6, exit=WorkerExit(-9)))


def test_nothing_of_another_manager_is_taken_over_once_it_is_started_again() -> None:
    case = Play("a")
    case.set_nodes("a")
    case.started()
    assert not case.lifecycle.adopt("a", left_worker("t/a/0/1", 40, (0, 0, 0)))


def test_a_process_that_its_agent_killed_for_want_of_a_manager_did_not_fail() -> None:
    case = Play()
    case.set_nodes("a")
    assert come(case, left("a", 0, 1, exit=WorkerExit(-9, stopped=True, ago_s=2.0))) == [True]
    case.settle()
    assert "note" not in case.context.kinds()
    assert len(case.context.spawned) == 1, "it is started again"
