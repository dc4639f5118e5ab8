"""The process lifecycle on events from the test: all workers stop, and start again from the checkpoint."""

from __future__ import annotations

import os

from tests.helpers.lifecycles import ABSENCE_S, COMPANY_S, LONGEST_RETRY_S, SILENT_S, WorkerExit
from tests.helpers.lifecycles import ProcessCase as Play


def test_the_others_start_when_rank_0_has_a_port_and_all_know_the_group() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    assert len(case.context.spawned) == 1
    first, second = case.started(port=4711)
    assert (case.context.env[first]["RANK"], case.context.env[second]["RANK"]) == ("0", "1")
    env = case.context.env[second]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"], env["BFTRAIN_SIZE"]) == (
        "a.example",
        "4711",
        "2",
        "2",
    )


def test_the_batch_that_was_decided_is_in_the_environment() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    (first,) = case.started()
    assert "BFTRAIN_BATCH" not in case.context.env[first]
    case.report(first, 1)
    case.lifecycle.set_batch(256)
    assert case.context.stopped == [], "it is given at the next start"
    case.set_nodes("a", "b")
    case.lifecycle.exited(first, WorkerExit(143, ""))
    assert {case.context.env[name]["BFTRAIN_BATCH"] for name in case.started()} == {"256"}


def test_a_change_stops_all_and_starts_them_again() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    (first,) = case.started()
    case.report(first, 1)
    assert case.context.kinds() == ["report", "confirmed"] or case.context.kinds() == ["confirmed", "report"]
    case.set_nodes("a", "b")
    assert case.context.stopped == [(first, 10.0)]
    case.lifecycle.exited(first, WorkerExit(143, ""))
    assert len(case.started()) == 2
    assert "note" not in case.context.kinds(), "it was asked to go"


def test_a_change_waits_until_the_command_runs() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    case.started()
    case.set_nodes("a", "b")
    assert case.context.stopped == []
    case.context.time += SILENT_S + 0.1
    case.lifecycle.tick(case.context.time)
    assert len(case.context.stopped) == 1, "a command that says nothing and lives runs"


def test_a_start_goes_on_without_agents_that_do_not_come() -> None:
    case = Play("a")
    case.set_nodes("a", "b")
    assert case.context.spawned == []
    case.tick(COMPANY_S)
    assert case.context.spawned == [], "an agent that lost its manager may still have processes of it"
    case.tick(ABSENCE_S)
    assert len(case.context.spawned) == 1


def test_a_death_stops_the_others_soon_and_the_third_is_a_failure() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    for _ in range(3):
        first, second = case.started()
        case.lifecycle.exited(second, WorkerExit(1, "KeyError"))
        assert case.context.stopped[-1] == (first, 2.0)
        case.lifecycle.exited(first, WorkerExit(-15))
        case.tick(LONGEST_RETRY_S)
    assert case.context.messages[-1]["type"] == "failed"
    assert case.context.messages[-1]["reason"].endswith("KeyError")


def test_the_reason_of_a_failure_is_the_crash_and_not_what_others_noticed_of_it() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    for _ in range(3):
        first, second = case.started()
        case.tick(0.3)
        case.lifecycle.exited(first, WorkerExit(1, "RuntimeError: Connection closed by peer"))
        case.tick(0.3)
        case.lifecycle.exited(second, WorkerExit(1, "Traceback\nValueError: odd"))
        case.tick(LONGEST_RETRY_S)
    assert case.context.messages[-1]["reason"].endswith("ValueError: odd")
    assert len([text for text in case.context.notes() if "ValueError: odd" in text]) == 2


def test_who_only_lost_the_others_is_never_at_fault() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    for _ in range(20):
        first, second = case.started()
        case.tick(0.3)
        case.lifecycle.exited(
            first, WorkerExit(os.EX_TEMPFAIL, "bftrain: the other workers are lost: Connection closed")
        )
        case.lifecycle.exited(second, WorkerExit(-15))
        case.tick(LONGEST_RETRY_S)
    assert "failed" not in case.context.kinds()
    assert len(case.context.notes()) == 20


def test_crashes_of_others_because_a_node_was_taken_are_no_failure_however_often() -> None:
    case = Play("a", "b")
    for _ in range(20):
        case.set_nodes("a", "b")
        first, second = case.started()
        case.lifecycle.exited(first, WorkerExit(1, "RuntimeError: Connection closed by peer"))
        case.lose("b")
        case.lifecycle.exited(second, WorkerExit(-9))
        case.tick(LONGEST_RETRY_S)
        case.find("b")
        case.set_nodes("a", "b")
        for worker in list(case.context.spawned):  # the workers of one node
            case.lifecycle.exited(worker, WorkerExit(0, stopped=True))
        case.context.spawned = case.context.spawned[-1:]
    assert not {"failed", "note", "done"} & set(case.context.kinds())


def test_preempted_nodes_are_cleared_at_once() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.set_nodes("a", at_once=("b",))
    assert (second, 0.0) in case.context.stopped
    case.lifecycle.exited(second, WorkerExit(-9, ""))
    case.lifecycle.exited(first, WorkerExit(1, ""))
    assert case.started()
    case.set_nodes(at_once=("a",))
    assert case.context.kinds().count("note") == 0


def test_a_notice_lets_all_save_and_go_on_elsewhere() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.started()
    case.lifecycle.notice("b", 4.0)
    assert case.context.stopped == [(first, 4.0), (second, 4.0)]
    for worker in (first, second):
        case.lifecycle.exited(worker, WorkerExit(0))
    case.tick(0.1)
    assert len(case.started()) == 1
    assert not {"done", "note", "failed"} & set(case.context.kinds())


def test_a_program_that_loads_for_long_after_each_start_is_not_said_to_stall() -> None:
    case = Play("a")
    case.set_nodes("a")
    (worker,) = case.started()
    case.tick(50.0)  # its first start
    case.report(worker, 1)
    case.tick(0.5)
    case.report(worker, 2)
    for step in (3, 5):
        case.lose("a")
        case.lifecycle.exited(worker, WorkerExit(-9, ""))
        case.find("a")
        case.tick(1.0)
        (worker,) = case.started()
        for _ in range(14):
            case.tick(5.0)
        assert case.context.notes() == []
        case.report(worker, step)
        case.tick(0.5)
        case.report(worker, step + 1)
    for _ in range(8):
        case.tick(5.0)
    assert any(note.startswith("no step for") for note in case.context.notes()), "it made a step, and then no other"


def test_steps_that_are_longer_than_the_time_between_two_looks_are_watched_too() -> None:
    case = Play("a")
    case.set_nodes("a")
    (worker,) = case.started()
    for step in range(3):
        case.report(worker, step)
        for _ in range(4):
            case.tick(5.0)
    assert case.context.notes() == []
    for _ in range(45):  # ten steps' time and more
        case.tick(5.0)
    assert any(note.startswith("no step for") for note in case.context.notes())


def test_writes_that_fail_are_reported_once_and_so_is_that_they_work_again() -> None:
    case = Play("a")
    case.set_nodes("a")
    (worker,) = case.started()
    for step in (4, 5):
        case.hear(worker, {"type": "not_on_disk", "step": step, "reason": "No space left on device"})
    for step in (3, 6):  # the first is of a write that began before
        case.hear(worker, {"type": "on_disk", "step": step, "took_s": 0.1})
    first, second = case.context.notes()
    assert "step 4 is not on disk: No space left on device" in first
    assert "saving the state works again, since step 6" in second


def test_who_has_no_others_cannot_have_lost_them() -> None:
    case = Play("a")
    case.set_nodes("a")
    for _ in range(3):
        (worker,) = case.started()
        case.lifecycle.exited(worker, WorkerExit(os.EX_TEMPFAIL, "try again later"))
        for _ in range(20):
            case.tick(1.0)
    assert case.context.messages[-1]["type"] == "failed"
    assert "try again later" in case.context.messages[-1]["reason"]


def test_a_silent_command_is_watched_from_its_birth() -> None:
    case = Play("a")
    case.set_nodes("a")
    case.context.time += 2 * SILENT_S  # torch is still being imported there
    case.lifecycle.tick(case.context.time)
    case.started()
    case.context.time += SILENT_S / 2
    case.lifecycle.tick(case.context.time)
    assert "confirmed" not in case.context.kinds()
    case.context.time += SILENT_S
    case.lifecycle.tick(case.context.time)
    assert "confirmed" in case.context.kinds()
