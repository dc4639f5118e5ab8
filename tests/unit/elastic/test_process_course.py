"""The process course on paper: everybody stops, and the next generation starts from the checkpoint."""

from __future__ import annotations

import os

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.given_nodes import ABSENCE_S
from bftrain_elastic.manager.task_lifecycles.process import COMPANY_S, LONGEST_RETRY_S, SILENT_S
from bftrain_elastic.manager.task_lifecycles.torchrun import TorchrunLifecycle
from tests.unit.elastic.floor import PaperFloor
from tests.unit.elastic.plays import ProcessPlay as Play


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
    play.course.exited(first, WorkerExit(143, ""))
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


def test_a_death_stops_the_others_soon_and_the_third_is_a_failure() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(3):
        first, second = play.started()
        play.course.exited(second, WorkerExit(1, "KeyError"))
        assert play.floor.stopped[-1] == (first, 2.0)
        play.course.exited(first, WorkerExit(-15))
        play.tick(LONGEST_RETRY_S)
    assert play.floor.messages[-1]["type"] == "failed"
    assert play.floor.messages[-1]["reason"].endswith("KeyError")


def test_the_reason_of_a_failure_is_the_crash_and_not_what_others_noticed_of_it() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(3):
        first, second = play.started()
        play.tick(0.3)
        play.course.exited(first, WorkerExit(1, "RuntimeError: Connection closed by peer"))
        play.tick(0.3)
        play.course.exited(second, WorkerExit(1, "Traceback\nValueError: odd"))
        play.tick(LONGEST_RETRY_S)
    assert play.floor.messages[-1]["reason"].endswith("ValueError: odd")
    assert len([text for text in play.floor.notes() if "ValueError: odd" in text]) == 2


def test_who_only_lost_the_others_is_never_at_fault() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(20):
        first, second = play.started()
        play.tick(0.3)
        play.course.exited(first, WorkerExit(os.EX_TEMPFAIL, "bftrain: the other workers are lost: Connection closed"))
        play.course.exited(second, WorkerExit(-15))
        play.tick(LONGEST_RETRY_S)
    assert "failed" not in play.floor.kinds()
    assert len(play.floor.notes()) == 20


def test_crashes_of_others_because_a_node_was_taken_are_no_failure_however_often() -> None:
    play = Play("a", "b")
    for _ in range(20):
        play.want("a", "b")
        first, second = play.started()
        play.course.exited(first, WorkerExit(1, "RuntimeError: Connection closed by peer"))
        play.lose("b")
        play.course.exited(second, WorkerExit(-9))
        play.tick(LONGEST_RETRY_S)
        play.find("b")
        play.want("a", "b")
        for worker in list(play.course._running):  # noqa: SLF001 - whoever runs on one node meanwhile
            play.course.exited(worker, WorkerExit(0, stopped=True))
        play.floor.spawned = play.floor.spawned[-1:]
    assert not {"failed", "note", "done"} & set(play.floor.kinds())


def test_preempted_nodes_are_cleared_at_once() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.want("a", at_once=("b",))
    assert (second, 0.0) in play.floor.stopped
    play.course.exited(second, WorkerExit(-9, ""))
    play.course.exited(first, WorkerExit(1, ""))
    assert play.started()
    play.want(at_once=("a",))
    assert play.floor.kinds().count("note") == 0


def test_torchrun_is_started_on_each_node_with_the_port_that_was_found() -> None:
    floor = PaperFloor("a", "b")
    seen: list[list[str]] = []
    plain = floor.spawn
    floor.spawn = lambda node, worker, **how: (seen.append(list(how["argv"])), plain(node, worker, **how))[0]  # type: ignore[method-assign]  # to look at it
    course = TorchrunLifecycle("t", LauncherJob(argv=("s.py", "--x"), folder="f"), floor)
    course.want(("a", "b"), at_once=frozenset())
    course.spawned(floor.spawned[0], 4711)
    assert [words[1:] for words in seen] == [
        ["2", "0", "1", "a.example:$MASTER_PORT", "s.py", "--x"],  # its agent puts the port there
        ["2", "1", "1", "a.example:4711", "s.py", "--x"],
    ]


def test_a_notice_lets_all_save_and_go_on_elsewhere() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.notice("b", 4.0)
    assert play.floor.stopped == [(first, 4.0), (second, 4.0)]
    for worker in (first, second):
        play.course.exited(worker, WorkerExit(0))
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
        play.course.exited(worker, WorkerExit(-9, ""))
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


def test_writes_that_fail_are_told_once_and_so_is_that_they_work_again() -> None:
    play = Play("a")
    play.want("a")
    (worker,) = play.started()
    for step in (4, 5):
        play.course.said(worker, {"type": "not_on_disk", "step": step, "reason": "No space left on device"})
    play.course.said(worker, {"type": "on_disk", "step": 6, "took_s": 0.1})
    first, second = play.floor.notes()
    assert "step 4 is not on disk: No space left on device" in first
    assert "written to disk again, at step 6" in second


def test_who_has_no_others_cannot_have_lost_them() -> None:
    play = Play("a")
    play.want("a")
    for _ in range(3):
        (worker,) = play.started()
        play.course.exited(worker, WorkerExit(os.EX_TEMPFAIL, "try again later"))
        for _ in range(20):
            play.tick(1.0)
    assert play.floor.messages[-1]["type"] == "failed"
    assert "try again later" in play.floor.messages[-1]["reason"]


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
