"""The native course on paper: deaths, notices, and what the end of a worker means for its task."""

from __future__ import annotations

import pytest

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.group_choice import COMPANY_S
from bftrain_elastic.manager.task_lifecycles.health import UNHEEDED
from bftrain_elastic.manager.task_lifecycles.native import ASTRAY, NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.present_group import ABORT_S
from bftrain_elastic.manager.task_lifecycles.training_end import FAREWELL_S
from tests.unit.elastic.plays import NativePlay as Play
from tests.unit.elastic.plays import at


def test_three_deaths_without_a_step_further_are_a_failure() -> None:
    play = Play("a")
    play.want("a")
    for _ in range(2):
        play.course.exited(play.floor.spawned[-1], WorkerExit(1, "ValueError: odd"))
        play.tick(0.1)
    assert "note" not in play.floor.kinds(), "it may still turn out to be a preemption"
    play.course.exited(play.floor.spawned[-1], WorkerExit(1, "ValueError: odd"))
    assert len(play.floor.spawned) == 3, "it is not started again before it is clear why it dies"
    play.tick(play.floor.settle_s)
    assert play.floor.kinds().count("note") == 2
    play.tick(0.2)
    assert play.floor.messages[-1]["type"] == "failed"
    assert play.floor.messages[-1]["reason"].endswith("ended with 1\nValueError: odd")
    play.tick(1.0)
    assert len(play.floor.spawned) == 3
    play.want("a")
    assert len(play.floor.spawned) == 4, "another start is another try"


def test_deaths_on_a_node_that_leaves_are_no_failure_however_often() -> None:
    play = Play("a", "b")
    for _ in range(20):
        play.want("a", "b")
        workers, play.floor.spawned = play.floor.spawned, []
        for worker in workers:
            play.course.exited(worker, WorkerExit(-15, ""))
        play.tick(0.5)
        for node in ("a", "b"):
            play.floor.there[node] = 0
            play.course.node_gone(node)
        play.want()
        play.tick(10.0)
        play.floor.spawned.clear()
        for node in ("a", "b"):
            play.floor.there[node] = 1
            play.course.node_up(node)
    assert not {"failed", "note"} & set(play.floor.kinds())


def test_a_death_of_another_node_of_the_group_that_leaves_explains_a_crash() -> None:
    play = Play("a", "b")
    for _ in range(5):
        one, other = play.running("a", "b")
        play.course.exited(one, WorkerExit(1, "RuntimeError: DataLoader worker is killed"))
        play.floor.there["b"] = 0
        play.course.exited(other, WorkerExit(-9, ""))
        play.course.node_gone("b")
        play.tick(10.0)
        play.floor.there["b"] = 1
    assert not {"failed", "note"} & set(play.floor.kinds())


def test_every_crash_is_told_with_its_own_words_even_if_a_survivor_speaks_first() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    for generation in range(1, 4):
        play.ready(one, step=generation, generation=generation * 2 - 1, reason="[../gloo] Connection closed by peer")
        play.course.exited(other, WorkerExit(1, "Traceback\nValueError: odd"))
        assert play.go(generation) == [one]
        other = play.floor.spawned[-1]
        play.tick(play.floor.settle_s + 0.1)
        play.ready(other)
        play.ready(one, step=generation, generation=generation * 2)
        assert play.go(generation + 1) == [one, other]
    assert len(play.floor.notes()) == 3
    assert all("(ValueError: odd)" in text for text in play.floor.notes())


def test_a_notice_hands_the_state_over_or_saves_it() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.notice("a", 4.0)
    assert [worker for worker, _ in play.floor.heard("gather")] == [one, other]
    for worker in (one, other):
        play.ready(worker, 5, 1)
    assert play.go(5) == [other]
    assert play.floor.heard("leave") == [(one, {"type": "leave", "save": False})]
    play.course.exited(one, WorkerExit(0))
    play.course.notice("b", 4.0)
    play.floor.heard("gather")
    play.ready(other, 8, 2)
    assert play.floor.heard("leave") == [(other, {"type": "leave", "save": True, "grace_s": 10.0})]
    play.course.exited(other, WorkerExit(0))
    assert play.floor.kinds()[-1] == "paused"
    assert play.floor.spawned == [], "nothing is started on a node that will be taken"
    play.course.node_gone("a")
    play.floor.there["a"] = 1
    play.course.node_up("a")
    play.want("a", "b")
    assert [at(worker) for worker in play.floor.spawned] == ["a"], "a new agent is a new node"


def test_a_noticed_node_that_is_given_again_has_another_agent() -> None:
    play = Play("a")
    (old,) = play.running("a")
    play.course.notice("a", 4.0)
    play.want()  # the manager gives it up, and tells no more of it
    play.floor.heard("gather")
    play.ready(old, 7, 1)
    play.course.exited(old, WorkerExit(0))
    play.want("a")
    assert [at(worker) for worker in play.floor.spawned] == ["a"]


def test_a_notice_to_the_only_holder_saves_before_anybody_else_starts() -> None:
    play = Play("a", "b")
    (old,) = play.running("a")
    play.want("a", "b")
    play.course.notice("a", 4.0)
    assert [worker for worker, _ in play.floor.heard("gather")] == [old], "there is no time to wait for the other"
    play.ready(old, 7, 1)
    assert play.floor.heard("leave") == [(old, {"type": "leave", "save": True, "grace_s": 10.0})]
    play.all_new_ready()
    play.tick(COMPANY_S + 1.0)
    assert play.floor.heard("go") == [], "it would begin from an older state"
    play.course.exited(old, WorkerExit(0))
    assert [at(worker) for worker in play.go(7)] == ["b"]


def test_who_does_not_leave_when_told_to_is_killed() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want("b")
    for worker in (one, other):
        play.ready(worker, 5, 1)
    play.go(5)
    play.tick(11.0)
    assert play.floor.stopped == [(one, 0.0)]


def test_deaths_with_steps_between_them_are_not() -> None:
    play = Play("a")
    for step in range(1, 6):
        (worker,) = play.running("a", step=step)
        play.course.exited(worker, WorkerExit(-9, ""))
    assert "failed" not in play.floor.kinds()


def test_a_script_that_never_calls_run_fails_at_once() -> None:
    play = Play("a")
    play.want("a")
    play.course.exited(play.floor.spawned[-1], WorkerExit(0, "hello"))
    play.tick(play.floor.settle_s + 0.1)
    assert play.floor.kinds() == ["vacated", "failed"]
    assert "never called bftrain_elastic.run\nhello" in play.floor.messages[-1]["reason"]


def test_a_script_that_trains_by_itself_on_each_node_fails_at_once() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    one, other = play.floor.spawned
    for step in range(1, ASTRAY + 1):
        play.course.said(one, {"type": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None})
    assert play.floor.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        play.course.exited(worker, WorkerExit(-9, ""))
    assert play.floor.messages[-1]["reason"] == f"{one} trains by itself: its script never called bftrain_elastic.run"
    assert "report" not in play.floor.kinds()


def test_a_death_is_told_with_its_last_word() -> None:
    play = Play("a")
    play.want("a")
    play.course.exited(play.floor.spawned[-1], WorkerExit(1, "Traceback ...\nValueError: odd\n"))
    play.tick(play.floor.settle_s + 0.1)
    assert "ended with 1 (ValueError: odd); it is started again" in play.floor.notes()[0]


def test_who_trains_on_without_a_commit_after_it_was_asked_to_gather_is_told_of_once() -> None:
    play = Play("a", "b")
    (old, _) = play.running("a", "b")
    play.want("a")
    for step in range(1, 3 * UNHEEDED):
        play.course.said(old, {"type": "report", "t": 1.0, "step": step, "size": 2, "samples": 1, "loss": None})
    (note,) = [one["text"] for one in play.floor.messages if one["type"] == "note"]
    assert f"{UNHEEDED} steps" in note
    assert "state.commit()" in note


def test_the_script_may_take_its_time_after_the_training_on_each_worker() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(other, {"type": "done", "step": 60})
    play.course.said(one, {"type": "done", "step": 60})
    play.tick(100 * FAREWELL_S)
    assert play.floor.stopped == [], "the first one evaluates what it has"
    play.course.exited(one, WorkerExit(0, ""))
    play.tick(100 * FAREWELL_S)
    assert play.floor.stopped == [], "and the other one its share"
    play.tick(1800.0)
    assert play.floor.stopped == [(other, 10.0)], "but not for ever"
    assert "did not end within" in play.floor.notes()[-1]
    play.course.exited(other, WorkerExit(-9, ""))
    assert play.floor.kinds()[-1] == "done"


def test_who_does_not_end_its_training_after_the_first_has_is_stopped_and_told() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(one, {"type": "done", "step": 60})
    play.course.exited(one, WorkerExit(0, ""))
    for _ in range(3):
        play.tick(FAREWELL_S + 0.1)
    assert play.floor.stopped == [(other, 10.0)]
    assert len(play.floor.notes()) == 1
    play.course.exited(other, WorkerExit(-9, ""))
    assert play.floor.kinds()[-1] == "done"


@pytest.mark.parametrize("how", ["by its word", "by its exit code", "by its file"])
def test_a_program_that_says_it_is_finished_is_done_whatever_becomes_of_it(how: str) -> None:
    play = Play("a", "b")
    play.course = NativeLifecycle(
        "t", LauncherJob(argv=("s.py",), folder="/f", finish_code=7, finish_file="end"), play.floor
    )
    one, other = play.running("a", "b")
    assert play.floor.how[one] | {"finish_code": 7, "finish_file": "/f/end"} == play.floor.how[one]
    if how == "by its word":
        play.course.said(one, {"type": "finished"})
        play.course.exited(one, WorkerExit(1, "crashed later", finished=True))
    else:
        play.course.exited(one, WorkerExit(7 if how == "by its exit code" else 0, finished=True))
    play.ready(other, 5, 1, reason="Connection closed by peer")
    assert play.floor.heard("leave") == [(other, {"type": "leave", "save": False})]
    play.course.exited(other, WorkerExit(0))
    play.tick(60)
    assert play.floor.kinds()[-1] == "done"
    assert len(play.floor.spawned) == 0
    assert play.floor.notes() == []


def test_who_waits_for_one_that_is_finished_is_cut_off() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(one, {"type": "finished"})
    play.course.exited(one, WorkerExit(0, finished=True))
    play.tick(ABORT_S + 0.1)
    assert play.floor.heard("abort") == [(other, {"type": "abort"})]


def test_who_leaves_while_a_file_says_that_it_is_finished_is_not() -> None:
    play = Play("a")
    play.course = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="/f", finish_file="end"), play.floor)
    (only,) = play.running("a")
    play.want()
    play.ready(only, 5, 1)
    assert play.floor.heard("leave") == [(only, {"type": "leave", "save": True, "grace_s": 10.0})]
    play.course.exited(only, WorkerExit(0, finished=True))
    assert play.floor.kinds()[-1] == "paused"


def test_a_state_that_could_not_be_written_is_told_with_where_it_goes_on() -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.course.said(only, {"type": "on_disk", "step": 3, "took_s": 0.1})
    play.want()
    play.ready(only, 50, 1)
    play.course.exited(only, WorkerExit(74, "bftrain: no space\n"))
    (note,) = play.floor.notes()
    assert "ended with 74 before the state of step 50 was on disk (bftrain: no space)" in note
    assert note.endswith("the task goes on from step 3")


def test_writes_that_fail_are_told_once_and_that_they_work_again() -> None:
    play = Play("a")
    (only,) = play.running("a")
    for step in (4, 5):
        play.course.said(only, {"type": "not_on_disk", "step": step, "reason": "No space left on device"})
    for step in (6, 7):
        play.course.said(only, {"type": "on_disk", "step": step, "took_s": 1.0})
    failed, works = play.floor.notes()
    assert "step 4 is not on disk" in failed
    assert "again, at step 6" in works


def test_a_worker_that_writes_much_has_the_time_for_it() -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.course.said(only, {"type": "on_disk", "step": 3, "took_s": 100.0})
    play.want()
    play.ready(only, 50, 1)
    play.tick(300)
    assert play.floor.stopped == []
    play.tick(300)
    assert play.floor.stopped == [(only, 0.0)]


@pytest.mark.parametrize("code", [1, -9])
def test_an_end_that_went_wrong_is_tried_again(code: int) -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.course.said(only, {"type": "done", "step": 60})
    play.course.exited(only, WorkerExit(code, "OSError: disk full"))
    assert "done" not in play.floor.kinds()
    assert len(play.floor.spawned) == 1


def test_nodes_are_given_up_in_the_middle_of_the_end_too() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    for worker in (one, other):
        play.course.said(worker, {"type": "done", "step": 60})
    play.want()
    assert play.floor.stopped == [(one, 10.0), (other, 10.0)]
    play.course.exited(other, WorkerExit(0, ""))
    play.course.exited(one, WorkerExit(-15, ""))
    assert play.floor.kinds()[-1] == "paused", "it was not through with its end"


def test_done_is_told_when_all_have_ended() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(one, {"type": "done", "step": 60})
    play.course.exited(one, WorkerExit(0, ""))
    assert "done" not in play.floor.kinds()
    play.course.exited(other, WorkerExit(0, ""))
    assert play.floor.messages[-1] == {"type": "done", "step": 60, "finished": True}
    play.tick(1.0)
    assert play.floor.kinds().count("done") == 1


@pytest.mark.parametrize("what", ["ready", "confirmed", "report"])
def test_words_of_a_worker_that_is_gone_change_nothing(what: str) -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.want()
    play.course.exited(only, WorkerExit(-9, ""))
    told = list(play.floor.messages)
    play.course.said(only, {"type": what, "step": 99, "generation": 1, "store": ["a", 1], "reason": ""})
    assert play.floor.messages == told
