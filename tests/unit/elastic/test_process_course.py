"""The process course on paper: everybody stops, and the next generation starts from the checkpoint."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from bftrain_elastic.courses import Exit, Left
from bftrain_elastic.courses.given_nodes import ABSENCE_S
from bftrain_elastic.courses.process import COMPANY_S, LONGEST_RETRY_S, SILENT_S, ProcessCourse
from bftrain_elastic.courses.torchrun import TorchrunCourse
from bftrain_elastic.jobs import Job
from tests.unit.elastic.floor import PaperFloor


class Play:
    """A process course and its floor."""

    def __init__(self, *nodes: str, **job: Any) -> None:  # noqa: ANN401 - a job's own fields
        self.floor = PaperFloor(*nodes)
        self.course = ProcessCourse("t", Job(argv=("./train",), folder="f", **job), self.floor)

    def want(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.course.want(nodes, at_once=frozenset(at_once))

    def started(self, port: int = 4000) -> list[str]:
        """Give rank 0's port, and all that were started then."""
        first = self.floor.spawned[0]
        self.course.spawned(first, port)
        new, self.floor.spawned = self.floor.spawned, []
        return new

    def report(self, worker: str, step: int) -> None:
        message = {"say": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None, "total": step}
        self.course.said(worker, message)

    def tick(self, seconds: float) -> None:
        self.floor.time += seconds
        self.course.tick(self.floor.time)

    def settle(self) -> None:
        """Let the time pass in which an end may turn out to be a preemption."""
        self.tick(self.floor.settle_s + 0.1)

    def lose(self, *nodes: str) -> None:
        """Let a scheduler take nodes."""
        for node in nodes:
            self.floor.there[node] = 0
            self.course.node_gone(node)

    def find(self, *nodes: str) -> None:
        """Let agents come back."""
        for node in nodes:
            self.floor.there[node] = 1
            self.course.node_up(node)


def test_the_others_start_when_rank_0_has_a_port_and_all_know_the_group() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    assert len(play.floor.spawned) == 1
    first, second = play.started(port=4711)
    assert (play.floor.env[first]["RANK"], play.floor.env[second]["RANK"]) == ("0", "1")
    env = play.floor.env[second]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"], env["BFTRAIN_SIZE"]) == (
        "a.example",
        "4711",
        "2",
        "2",
    )


def test_a_change_stops_all_and_starts_them_anew() -> None:
    play = Play("a", "b")
    play.want("a")
    (first,) = play.started()
    play.report(first, 1)
    assert play.floor.kinds() == ["report", "confirmed"] or play.floor.kinds() == ["confirmed", "report"]
    play.want("a", "b")
    assert play.floor.stopped == [(first, 10.0)]
    play.course.exited(first, Exit(143, ""))
    assert len(play.started()) == 2
    assert "note" not in play.floor.kinds(), "it was told to go"


def test_a_change_waits_until_the_command_runs() -> None:
    play = Play("a", "b")
    play.want("a")
    play.started()
    play.want("a", "b")
    assert play.floor.stopped == []
    play.floor.time += SILENT_S + 0.1
    play.course.tick(play.floor.time)
    assert len(play.floor.stopped) == 1, "a command that says nothing and lives runs"


def test_a_start_goes_on_without_agents_that_do_not_come() -> None:
    play = Play("a")
    play.want("a", "b")
    assert play.floor.spawned == []
    play.tick(COMPANY_S)
    assert play.floor.spawned == [], "an agent that lost its manager may still have processes of it"
    play.tick(ABSENCE_S)
    assert len(play.floor.spawned) == 1


def test_it_is_done_when_all_ended_well_and_the_nodes_stay() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.exited(second, Exit(0))
    play.settle()
    assert "done" not in play.floor.kinds()
    play.course.exited(first, Exit(0))
    assert "done" not in play.floor.kinds(), "it may have been preempted"
    play.settle()
    assert play.floor.told[-1] == {"told": "done", "step": 0, "finished": False}


@pytest.mark.parametrize("taken", ["the agent is gone", "the manager says so", "a notice"])
def test_an_exit_of_0_on_a_node_that_leaves_is_a_preemption(taken: str) -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for worker in play.started():
        play.course.exited(worker, Exit(0))
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
    play.course.exited(only, Exit(0))
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
        play.course.said(first, {"say": "finished"})
    if how == "train() returned":
        play.course.said(first, {"say": "done", "step": 60})
    play.course.exited(first, Exit(0, finished=how == "by its exit code"))
    play.course.exited(second, Exit(0))
    assert play.floor.told[-1]["told"] == "done"
    assert play.floor.told[-1]["finished"] is True


def test_finish_is_believed_even_if_the_node_is_taken_then() -> None:
    play = Play("a")
    play.want("a")
    (only,) = play.started()
    play.course.said(only, {"say": "finished"})
    play.lose("a")
    play.course.exited(only, Exit(-9))
    assert play.floor.kinds()[-1] == "done"


def test_those_who_do_not_end_after_the_first_is_finished_are_ended() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.said(first, {"say": "finished"})
    play.course.exited(first, Exit(0))
    play.tick(60.0)
    assert play.floor.stopped == [(second, 10.0)]
    play.course.exited(second, Exit(-9))
    assert play.floor.kinds()[-1] == "done"


def test_a_program_that_stopped_because_it_was_told_to_is_started_again() -> None:
    play = Play("a")
    play.want("a")
    (only,) = play.started()
    play.course.exited(only, Exit(0, stopped=True))
    play.settle()
    assert len(play.started()) == 1
    assert "done" not in play.floor.kinds()


def test_an_end_far_from_done_is_tried_again_and_the_third_is_a_failure() -> None:
    play = Play("a", work_samples=1000.0)
    play.want("a")
    for number in range(3):
        (only,) = play.started()
        play.report(only, 100)
        play.course.exited(only, Exit(0))
        play.settle()
        assert len(play.floor.notes()) == min(number + 1, 2)
    assert "after 100 of 1,000 samples, before its work was done" in play.floor.notes()[0]
    assert "3 times without a step between" in play.floor.told[-1]["reason"]


def test_an_end_near_the_end_of_its_work_is_believed() -> None:
    play = Play("a", work_samples=100.0)
    play.want("a")
    (only,) = play.started()
    play.report(only, 95)
    play.course.exited(only, Exit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_where_an_exit_code_says_that_it_is_finished_0_does_not() -> None:
    play = Play("a", finish_code=42)
    play.want("a")
    (only,) = play.started()
    assert play.floor.how[only]["finish_code"] == 42
    play.course.exited(only, Exit(0))
    play.settle()
    (only,) = play.started()
    assert "without saying that it is finished" in play.floor.notes()[0]
    play.course.exited(only, Exit(42, finished=True))
    assert play.floor.kinds()[-1] == "done"


def test_a_death_stops_the_others_soon_and_the_third_is_a_failure() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(3):
        first, second = play.started()
        play.course.exited(second, Exit(1, "KeyError"))
        assert play.floor.stopped[-1] == (first, 2.0)
        play.course.exited(first, Exit(-15))
        play.tick(LONGEST_RETRY_S)
    assert play.floor.told[-1]["told"] == "failed"
    assert play.floor.told[-1]["reason"].endswith("KeyError")


def test_the_reason_of_a_failure_is_the_crash_and_not_what_others_noticed_of_it() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(3):
        first, second = play.started()
        play.tick(0.3)
        play.course.exited(first, Exit(1, "RuntimeError: Connection closed by peer"))
        play.tick(0.3)
        play.course.exited(second, Exit(1, "Traceback\nValueError: odd"))
        play.tick(LONGEST_RETRY_S)
    assert play.floor.told[-1]["reason"].endswith("ValueError: odd")
    assert len([text for text in play.floor.notes() if "ValueError: odd" in text]) == 2


def test_who_only_lost_the_others_is_never_at_fault() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(20):
        first, second = play.started()
        play.tick(0.3)
        play.course.exited(first, Exit(os.EX_TEMPFAIL, "bftrain: the other workers are lost: Connection closed"))
        play.course.exited(second, Exit(-15))
        play.tick(LONGEST_RETRY_S)
    assert "failed" not in play.floor.kinds()
    assert len(play.floor.notes()) == 20


def test_crashes_of_others_because_a_node_was_taken_are_no_failure_however_often() -> None:
    play = Play("a", "b")
    for _ in range(20):
        play.want("a", "b")
        first, second = play.started()
        play.course.exited(first, Exit(1, "RuntimeError: Connection closed by peer"))
        play.lose("b")
        play.course.exited(second, Exit(-9))
        play.tick(LONGEST_RETRY_S)
        play.find("b")
        play.want("a", "b")
        for worker in list(play.course._running):  # noqa: SLF001 - whoever runs on one node meanwhile
            play.course.exited(worker, Exit(0, stopped=True))
        play.floor.spawned = play.floor.spawned[-1:]
    assert not {"failed", "note", "done"} & set(play.floor.kinds())


def test_preempted_nodes_are_cleared_at_once() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.want("a", at_once=("b",))
    assert (second, 0.0) in play.floor.stopped
    play.course.exited(second, Exit(-9, ""))
    play.course.exited(first, Exit(1, ""))
    assert play.started()
    play.want(at_once=("a",))
    assert play.floor.kinds().count("note") == 0


def test_torchrun_is_started_on_each_node_with_the_port_that_was_found() -> None:
    floor = PaperFloor("a", "b")
    seen: list[list[str]] = []
    plain = floor.spawn
    floor.spawn = lambda node, worker, **how: (seen.append(list(how["argv"])), plain(node, worker, **how))[0]  # type: ignore[method-assign]  # to look at it
    course = TorchrunCourse("t", Job(argv=("s.py", "--x"), folder="f"), floor)
    course.want(("a", "b"), at_once=frozenset())
    course.spawned(floor.spawned[0], 4711)
    assert [words[1:] for words in seen] == [
        ["2", "0", "1", "a.example:$MASTER_PORT", "s.py", "--x"],  # its agent puts the port there
        ["2", "1", "1", "a.example:4711", "s.py", "--x"],
    ]


def left(node: str, rank: int, workers: int = 2, *, generation: int = 7, exit: Exit | None = None) -> Left:  # noqa: A002 - the field's word
    return Left(f"t/{node}/0/3-{rank}", 0, 40, generation, rank, workers, None, done=False, exit=exit)


def come(play: Play, *workers: Left) -> list[bool]:
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
        play.course.exited(f"t/{node}/0/3-{rank}", Exit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_commands_that_ended_while_nobody_listened_are_not_run_again() -> None:
    play = Play()
    play.want("a", "b")
    assert come(play, left("a", 0, exit=Exit(0, ago_s=9.0)), left("b", 1)) == [True, True]
    play.tick(10 * COMPANY_S)
    assert (play.floor.stopped, play.floor.spawned) == ([], [])
    play.course.exited("t/b/0/3-1", Exit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"


def test_a_command_that_ended_a_moment_ago_may_still_have_been_preempted() -> None:
    play = Play()
    play.want("a")
    come(play, left("a", 0, 1, exit=Exit(0, ago_s=0.1)))
    play.tick(0.1)
    assert "done" not in play.floor.kinds()
    play.lose("a")
    play.settle()
    assert "done" not in play.floor.kinds()


def test_a_finished_program_is_done_even_if_its_node_was_given_up_meanwhile() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, exit=Exit(0, finished=True, ago_s=9.0))) == [True]
    play.tick(COMPANY_S + 0.1)  # others may have more to tell
    assert play.floor.kinds() == ["done"]


def test_a_command_that_ended_by_itself_is_done_though_its_nodes_were_given_up_before_that_was_certain() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, exit=Exit(0, ago_s=9.0)), left("b", 1, exit=Exit(0, ago_s=9.0))) == [True, True]
    play.settle()
    assert play.floor.kinds() == ["done"]


def test_a_command_that_ended_because_its_node_was_given_up_is_not_done() -> None:
    play = Play()
    play.want()
    assert come(play, left("a", 0, 1, exit=Exit(0, stopped=True, ago_s=9.0))) == [False]
    assert come(play, left("a", 0, exit=Exit(0, ago_s=9.0))) == [True]
    play.tick(10 * COMPANY_S)
    play.settle()
    assert "done" not in play.floor.kinds(), "of the other rank nobody knows"
    play.want("a")
    play.tick(0.1)
    assert play.started()


def test_an_end_is_not_believed_while_a_younger_group_may_still_come() -> None:
    play = Play()
    play.want("b")
    come(play, left("a", 0, 1, generation=6, exit=Exit(0, ago_s=99.0)))
    play.tick(2 * COMPANY_S)
    assert play.floor.kinds() == []
    come(play, left("b", 0, 1, generation=7))
    play.tick(2 * COMPANY_S)
    assert play.floor.kinds() == ["confirmed"]


def test_a_finished_program_is_done_once_all_its_ranks_have_told_what_they_reported() -> None:
    play = Play()
    play.want("a", "b")
    finished = Exit(0, finished=True, ago_s=3.0)
    come(play, left("b", 1, exit=finished))
    play.tick(1.0)
    assert play.floor.kinds() == []
    report = {"say": "report", "t": 1.0, "step": 69, "size": 2, "samples": 7, "loss": None, "total": 483, "since": 0}
    come(play, dataclasses.replace(left("a", 0, exit=finished), report=report))
    play.tick(0.1)
    assert [one["told"] for one in play.floor.told] == ["report", "done"]


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
    play.course.exited("t/a/0/3-0", Exit(0))
    play.tick(0.1)
    assert len(play.started()) == 2
    assert not {"done", "note", "failed"} & set(play.floor.kinds())


def test_of_two_groups_the_younger_goes_on_and_nothing_runs_twice() -> None:
    play = Play()
    play.want("a", "b")
    assert come(play, left("a", 1, generation=6), left("b", 0, 1, generation=7)) == [True, True]
    assert play.floor.stopped == [("t/a/0/3-1", 0.0)]
    assert not play.course.adopt("a", left("a", 1, generation=6, exit=Exit(-9)))


def test_nothing_of_another_manager_is_taken_over_once_it_is_started_anew() -> None:
    play = Play("a")
    play.want("a")
    play.started()
    assert not play.course.adopt("a", Left("t/a/0/1", 0, 40, 0, 0, 0, None, done=False))


def test_a_notice_lets_all_save_and_go_on_elsewhere() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.notice("b", 4.0)
    assert play.floor.stopped == [(first, 4.0), (second, 4.0)]
    for worker in (first, second):
        play.course.exited(worker, Exit(0))
    play.tick(0.1)
    assert len(play.started()) == 1
    assert not {"done", "note", "failed"} & set(play.floor.kinds())


def test_a_program_that_loads_for_long_after_each_start_is_not_said_to_stall() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    play.tick(50.0)  # its first start
    play.report(worker, 1)
    play.tick(0.5)
    play.report(worker, 2)
    for step in (3, 5):
        play.lose("a")
        play.course.exited(worker, Exit(-9, ""))
        play.find("a")
        play.tick(1.0)
        (worker,) = play.started()
        for _ in range(14):
            play.tick(5.0)
        assert play.floor.notes() == []
        play.report(worker, step)
        play.tick(0.5)
        play.report(worker, step + 1)
    for _ in range(8):
        play.tick(5.0)
    assert any(note.startswith("no step for") for note in play.floor.notes()), "it made a step, and then no other"


def test_steps_that_are_longer_than_the_time_between_two_looks_are_watched_too() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    for step in range(3):
        play.report(worker, step)
        for _ in range(4):
            play.tick(5.0)
    assert play.floor.notes() == []
    for _ in range(45):  # ten steps' time and more
        play.tick(5.0)
    assert any(note.startswith("no step for") for note in play.floor.notes())


def test_ranks_that_said_that_they_are_done_may_take_their_time() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    for worker in (first, second):
        play.report(worker, 10)
        play.course.said(worker, {"say": "done", "step": 10})
    play.course.exited(first, Exit(0, "", finished=True))
    for _ in range(20):
        play.tick(2.0)
    assert play.floor.stopped == [], "it evaluates"
    play.course.exited(second, Exit(0, "", finished=True))
    assert play.floor.told[-1] == {"told": "done", "step": 10, "finished": True}


def test_a_program_that_does_not_end_after_it_said_that_it_is_finished_is_ended() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    play.report(worker, 1)
    play.tick(0.5)
    play.report(worker, 2)
    play.course.said(worker, {"say": "finished"})
    while not play.floor.stopped:
        play.tick(10.0)
        assert play.floor.time < 1000.0
    assert play.floor.stopped == [(worker, 10.0)]
    assert [note.partition(" did not end")[0] for note in play.floor.notes()] == [worker], "and nobody says it stalls"
    play.course.exited(worker, Exit(-9, ""))
    assert play.floor.told[-1]["told"] == "done"


def test_a_program_that_counts_from_0_at_each_start_is_believed_when_it_ends() -> None:
    play = Play("a", work_samples=200.0)
    play.want("a")
    (worker,) = play.started()
    play.report(worker, 100)
    play.lose("a")
    play.course.exited(worker, Exit(0, ""))
    play.find("a")
    play.tick(1.0)
    (worker,) = play.started()
    play.report(worker, 1)
    play.tick(10.0)
    play.report(worker, 99)
    play.course.exited(worker, Exit(0, ""))
    play.settle()
    assert play.floor.told[-1]["told"] == "done", "199 samples were done in two lives, as far as anybody can tell"


def test_writes_that_fail_are_told_once_and_so_is_that_they_work_again() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    for step in (4, 5):
        play.course.said(worker, {"say": "not_on_disk", "step": step, "reason": "No space left on device"})
    play.course.said(worker, {"say": "on_disk", "step": 6, "took_s": 0.1})
    first, second = play.floor.notes()
    assert "step 4 is not on disk: No space left on device" in first
    assert "written to disk again, at step 6" in second


def test_who_has_no_others_cannot_have_lost_them() -> None:
    play = Play("a")
    play.want("a")
    for _ in range(3):
        (worker,) = play.started()
        play.course.exited(worker, Exit(os.EX_TEMPFAIL, "try again later"))
        for _ in range(20):
            play.tick(1.0)
    assert play.floor.told[-1]["told"] == "failed"
    assert "try again later" in play.floor.told[-1]["reason"]


def test_a_silent_command_is_watched_from_its_birth() -> None:
    play = Play("a")
    play.want("a")
    play.floor.time += 2 * SILENT_S  # torch is still being imported there
    play.course.tick(play.floor.time)
    play.started()
    play.floor.time += SILENT_S / 2
    play.course.tick(play.floor.time)
    assert "confirmed" not in play.floor.kinds()
    play.floor.time += SILENT_S
    play.course.tick(play.floor.time)
    assert "confirmed" in play.floor.kinds()


def test_an_end_while_the_order_to_stop_was_on_its_way_is_an_end_by_itself() -> None:
    play = Play("a", "b")
    play.want("a")
    (only,) = play.started()
    play.report(only, 1)
    play.want("a", "b")
    assert play.floor.stopped == [(only, 10.0)]
    play.course.exited(only, Exit(0))
    play.settle()
    assert play.floor.kinds()[-1] == "done"
