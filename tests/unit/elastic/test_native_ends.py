"""The native lifecycle on paper: deaths, notices, and what the end of a worker means for its task."""

from __future__ import annotations

import pytest

from tests.helpers.lifecycles import (
    ABORT_S,
    ASTRAY,
    COMPANY_S,
    FAREWELL_S,
    UNHEEDED,
    LauncherJob,
    NativeLifecycle,
    WorkerExit,
    at,
)
from tests.helpers.lifecycles import NativeCase as Play


def test_three_deaths_without_a_step_further_are_a_failure() -> None:
    case = Play("a")
    case.set_nodes("a")
    for _ in range(2):
        case.lifecycle.exited(case.context.spawned[-1], WorkerExit(1, "ValueError: odd"))
        case.tick(0.1)
    assert "note" not in case.context.kinds(), "it may still turn out to be a preemption"
    case.lifecycle.exited(case.context.spawned[-1], WorkerExit(1, "ValueError: odd"))
    assert len(case.context.spawned) == 3, "it is not started again before it is clear why it dies"
    case.tick(case.context.settle_s)
    assert case.context.kinds().count("note") == 2
    case.tick(0.2)
    assert case.context.messages[-1]["type"] == "failed"
    assert case.context.messages[-1]["reason"].endswith("ended with 1\nValueError: odd")
    case.tick(1.0)
    assert len(case.context.spawned) == 3
    case.set_nodes("a")
    assert len(case.context.spawned) == 4, "another start is another try"


def test_deaths_on_a_node_that_leaves_are_no_failure_however_often() -> None:
    case = Play("a", "b")
    for _ in range(20):
        case.set_nodes("a", "b")
        workers, case.context.spawned = case.context.spawned, []
        for worker in workers:
            case.lifecycle.exited(worker, WorkerExit(-15, ""))
        case.tick(0.5)
        for node in ("a", "b"):
            case.context.there[node] = 0
            case.lifecycle.node_gone(node)
        case.set_nodes()
        case.tick(10.0)
        case.context.spawned.clear()
        for node in ("a", "b"):
            case.context.there[node] = 1
            case.lifecycle.node_up(node)
    assert not {"failed", "note"} & set(case.context.kinds())


def test_a_death_of_another_node_of_the_group_that_leaves_explains_a_crash() -> None:
    case = Play("a", "b")
    for _ in range(5):
        one, other = case.running("a", "b")
        case.lifecycle.exited(one, WorkerExit(1, "RuntimeError: DataLoader worker is killed"))
        case.context.there["b"] = 0
        case.lifecycle.exited(other, WorkerExit(-9, ""))
        case.lifecycle.node_gone("b")
        case.tick(10.0)
        case.context.there["b"] = 1
    assert not {"failed", "note"} & set(case.context.kinds())


def test_members_that_find_out_long_after_a_node_was_taken_are_no_news() -> None:
    """They are in the midst of a step that is longer than a preemption takes to settle."""
    case = Play("a", "b", "c")
    one, gone, other = case.running("a", "b", "c")
    case.set_nodes("a", "c", at_once=("b",))
    case.lifecycle.exited(gone, WorkerExit(-9, ""))
    case.tick(3 * case.context.settle_s + 60.0)
    for worker in (one, other):
        case.ready(worker, step=1, generation=1, reason="[../gloo] Connection closed by peer")
    case.tick(3 * case.context.settle_s)
    assert case.go(1) == [one, other]
    assert case.context.notes() == []


def test_every_crash_is_reported_with_its_own_words_even_if_a_survivor_speaks_first() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    for generation in range(1, 4):
        step = 10 * generation
        case.hear(one, {"type": "in_memory", "step": step})
        case.ready(one, step=step, generation=generation * 2 - 1, reason="[../gloo] Connection closed by peer")
        case.lifecycle.exited(other, WorkerExit(1, "Traceback\nValueError: odd"))
        assert case.go(step) == [one]
        other = case.context.spawned[-1]
        case.tick(case.context.settle_s + 0.1)
        case.ready(other)
        case.ready(one, step=step, generation=generation * 2)
        assert case.go(step + 1) == [one, other]
    assert len(case.context.notes()) == 3
    assert all("(ValueError: odd)" in text for text in case.context.notes())


def test_a_notice_hands_the_state_over_or_saves_it() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.lifecycle.notice("a", 4.0)
    assert [worker for worker, _ in case.context.take_sent("gather")] == [one, other]
    for worker in (one, other):
        case.ready(worker, 5, 1)
    assert case.go(5) == [other]
    assert case.context.take_sent("leave") == [(one, {"type": "leave", "save": False, "grace_s": 0.0})]
    case.lifecycle.exited(one, WorkerExit(0))
    case.lifecycle.notice("b", 4.0)
    case.context.take_sent("gather")
    case.ready(other, 8, 2)
    assert case.context.take_sent("leave") == [(other, {"type": "leave", "save": True, "grace_s": 10.0})]
    case.lifecycle.exited(other, WorkerExit(0))
    assert case.context.kinds()[-1] == "paused"
    assert case.context.spawned == [], "nothing is started on a node that will be taken"
    case.lifecycle.node_gone("a")
    case.context.there["a"] = 1
    case.lifecycle.node_up("a")
    case.set_nodes("a", "b")
    assert [at(worker) for worker in case.context.spawned] == ["a"], "a new agent is a new node"


def test_a_noticed_node_that_is_given_again_has_another_agent() -> None:
    case = Play("a")
    (old,) = case.running("a")
    case.lifecycle.notice("a", 4.0)
    case.set_nodes()  # the manager gives it up, and tells no more of it
    case.context.take_sent("gather")
    case.ready(old, 7, 1)
    case.lifecycle.exited(old, WorkerExit(0))
    case.set_nodes("a")
    assert [at(worker) for worker in case.context.spawned] == ["a"]


def test_a_notice_to_the_only_holder_saves_before_any_other_starts() -> None:
    case = Play("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    case.lifecycle.notice("a", 4.0)
    assert [worker for worker, _ in case.context.take_sent("gather")] == [old], "there is no time to wait for the other"
    case.ready(old, 7, 1)
    assert case.context.take_sent("leave") == [(old, {"type": "leave", "save": True, "grace_s": 10.0})]
    case.all_new_ready()
    case.tick(COMPANY_S + 1.0)
    assert case.context.take_sent("go") == [], "it would begin from an older state"
    case.lifecycle.exited(old, WorkerExit(0))
    assert [at(worker) for worker in case.go(7)] == ["b"]


def test_a_worker_that_does_not_leave_when_asked_is_killed() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.set_nodes("b")
    for worker in (one, other):
        case.ready(worker, 5, 1)
    case.go(5)
    case.tick(11.0)
    assert case.context.stopped == [(one, 0.0)]


def test_deaths_with_steps_between_them_are_not() -> None:
    case = Play("a")
    for step in range(1, 6):
        (worker,) = case.running("a", step=step)
        case.lifecycle.exited(worker, WorkerExit(-9, ""))
    assert "failed" not in case.context.kinds()


def test_a_script_that_never_calls_run_fails_at_once() -> None:
    case = Play("a")
    case.set_nodes("a")
    case.lifecycle.exited(case.context.spawned[-1], WorkerExit(0, "hello"))
    case.tick(case.context.settle_s + 0.1)
    assert case.context.kinds() == ["vacated", "failed"]
    assert "never called bftrain_elastic.run\nhello" in case.context.messages[-1]["reason"]


def test_a_script_that_trains_by_itself_on_each_node_fails_at_once() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    one, other = case.context.spawned
    for step in range(1, ASTRAY + 1):
        case.hear(one, {"type": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None})
    assert case.context.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        case.lifecycle.exited(worker, WorkerExit(-9, ""))
    assert case.context.messages[-1]["reason"] == f"{one} trains alone: its script never called bftrain_elastic.run"
    assert "report" not in case.context.kinds()


def test_a_death_is_reported_with_its_last_word() -> None:
    case = Play("a")
    case.set_nodes("a")
    case.lifecycle.exited(case.context.spawned[-1], WorkerExit(1, "Traceback ...\nValueError: odd\n"))
    case.tick(case.context.settle_s + 0.1)
    assert "ended with 1 (ValueError: odd); it is started again" in case.context.notes()[0]


def test_the_note_on_a_death_keeps_all_of_an_error_that_says_what_to_do() -> None:
    own = f"bftrain_elastic.errors.BadScript: state['optimizer']: cannot load its values: {'size ' * 80}(make it first)"
    for error, end in [
        (own, "(make it first)); it is started again"),
        (f"{own[:-1]}{'x' * 5000})", "xxx); it is started again"),
    ]:
        case = Play("a")
        case.set_nodes("a")
        case.lifecycle.exited(case.context.spawned[-1], WorkerExit(1, f"Traceback ...\n{error}\n"))
        case.tick(case.context.settle_s + 0.1)
        (note,) = case.context.notes()
        assert note.endswith(end)
        assert len(note) < 2100


def test_who_trains_on_without_a_commit_after_it_was_asked_to_gather_is_reported_once() -> None:
    case = Play("a", "b")
    (old, _) = case.running("a", "b")
    case.set_nodes("a")
    for step in range(1, 3 * UNHEEDED):
        case.hear(old, {"type": "report", "t": 1.0, "step": step, "size": 2, "samples": 1, "loss": None})
    (note,) = [one["text"] for one in case.context.messages if one["type"] == "note"]
    assert f"{UNHEEDED} steps" in note
    assert "state.commit()" in note


def test_the_script_may_take_its_time_after_the_training_on_each_worker() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.hear(other, {"type": "done", "step": 60})
    case.hear(one, {"type": "done", "step": 60})
    case.tick(100 * FAREWELL_S)
    assert case.context.stopped == [], "the first one evaluates what it has"
    case.lifecycle.exited(one, WorkerExit(0, ""))
    case.tick(100 * FAREWELL_S)
    assert case.context.stopped == [], "and the other one its share"
    case.tick(1800.0)
    assert case.context.stopped == [(other, 10.0)], "but not for ever"
    assert "did not end within" in case.context.notes()[-1]
    case.lifecycle.exited(other, WorkerExit(-9, ""))
    assert case.context.kinds()[-1] == "done"


def test_who_does_not_end_its_training_after_the_first_has_is_stopped_and_reported() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.hear(one, {"type": "done", "step": 60})
    case.lifecycle.exited(one, WorkerExit(0, ""))
    for _ in range(3):
        case.tick(FAREWELL_S + 0.1)
    assert case.context.stopped == [(other, 10.0)]
    assert len(case.context.notes()) == 1
    case.lifecycle.exited(other, WorkerExit(-9, ""))
    assert case.context.kinds()[-1] == "done"


@pytest.mark.parametrize("how", ["by its word", "by its exit code", "by its file"])
def test_a_program_that_says_it_is_finished_is_done_however_it_ends(how: str) -> None:
    case = Play("a", "b")
    case.lifecycle = NativeLifecycle(
        "t", LauncherJob(argv=("s.py",), folder="/f", finish_code=7, finish_file="end"), case.context
    )
    one, other = case.running("a", "b")
    if how == "by its word":
        case.hear(one, {"type": "finished"})
        case.lifecycle.exited(one, WorkerExit(1, "crashed later", finished=True))
    else:
        case.lifecycle.exited(one, WorkerExit(7 if how == "by its exit code" else 0, finished=True))
    case.ready(other, 5, 1, reason="Connection closed by peer")
    assert case.context.take_sent("leave") == [(other, {"type": "leave", "save": False, "grace_s": 0.0})]
    case.lifecycle.exited(other, WorkerExit(0))
    case.tick(60)
    assert case.context.kinds()[-1] == "done"
    assert len(case.context.spawned) == 0
    assert case.context.notes() == []


def test_who_waits_for_one_that_is_finished_is_cut_off() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.hear(one, {"type": "finished"})
    case.lifecycle.exited(one, WorkerExit(0, finished=True))
    case.tick(ABORT_S + 0.1)
    assert case.context.take_sent("abort") == [(other, {"type": "abort"})]


def test_who_leaves_while_a_file_says_that_it_is_finished_is_not() -> None:
    case = Play("a")
    case.lifecycle = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="/f", finish_file="end"), case.context)
    (only,) = case.running("a")
    case.set_nodes()
    case.ready(only, 5, 1)
    assert case.context.take_sent("leave") == [(only, {"type": "leave", "save": True, "grace_s": 10.0})]
    case.lifecycle.exited(only, WorkerExit(0, finished=True))
    assert case.context.kinds()[-1] == "paused"


def test_a_state_that_could_not_be_written_is_reported_with_where_it_goes_on() -> None:
    case = Play("a")
    (only,) = case.running("a")
    case.hear(only, {"type": "on_disk", "step": 3, "took_s": 0.1})
    case.set_nodes()
    case.ready(only, 50, 1)
    case.lifecycle.exited(only, WorkerExit(74, "bftrain: no space\n"))
    (note,) = case.context.notes()
    assert "ended with 74 before the state of step 50 was on disk (bftrain: no space)" in note
    assert note.endswith("the task continues from step 3")


def test_writes_that_fail_are_reported_once_and_that_they_work_again() -> None:
    case = Play("a")
    (only,) = case.running("a")
    for step in (4, 5):
        case.hear(only, {"type": "not_on_disk", "step": step, "reason": "No space left on device"})
    for step in (6, 7):
        case.hear(only, {"type": "on_disk", "step": step, "took_s": 1.0})
    failed, works = case.context.notes()
    assert "step 4 is not on disk" in failed
    assert "works again, since step 6" in works


def test_a_worker_that_writes_much_has_the_time_for_it() -> None:
    case = Play("a")
    (only,) = case.running("a")
    case.hear(only, {"type": "on_disk", "step": 3, "took_s": 100.0})
    case.set_nodes()
    case.ready(only, 50, 1)
    case.tick(300)
    assert case.context.stopped == []
    case.tick(300)
    assert case.context.stopped == [(only, 0.0)]


@pytest.mark.parametrize("code", [1, -9])
def test_an_end_that_went_wrong_is_tried_again(code: int) -> None:
    case = Play("a")
    (only,) = case.running("a")
    case.hear(only, {"type": "done", "step": 60})
    case.lifecycle.exited(only, WorkerExit(code, "OSError: disk full"))
    assert "done" not in case.context.kinds()
    assert len(case.context.spawned) == 1


def test_nodes_are_given_up_in_the_middle_of_the_end_too() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    for worker in (one, other):
        case.hear(worker, {"type": "done", "step": 60})
    case.set_nodes()
    assert case.context.stopped == [(one, 10.0), (other, 10.0)]
    case.lifecycle.exited(other, WorkerExit(0, ""))
    case.lifecycle.exited(one, WorkerExit(-15, ""))
    assert case.context.kinds()[-1] == "paused", "it was not through with its end"


def test_done_is_reported_when_all_have_ended() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.hear(one, {"type": "done", "step": 60})
    case.lifecycle.exited(one, WorkerExit(0, ""))
    assert "done" not in case.context.kinds()
    case.lifecycle.exited(other, WorkerExit(0, ""))
    assert case.context.messages[-1] == {"type": "done", "step": 60, "finished": True}
    case.tick(1.0)
    assert case.context.kinds().count("done") == 1


@pytest.mark.parametrize("what", ["ready", "confirmed", "report"])
def test_words_of_a_worker_that_is_gone_change_nothing(what: str) -> None:
    case = Play("a")
    (only,) = case.running("a")
    case.set_nodes()
    case.lifecycle.exited(only, WorkerExit(-9, ""))
    messages = list(case.context.messages)
    step = {"t": 1.0, "size": 1, "samples": 1, "loss": None, "step": 99}
    case.hear(only, {"type": what, **step, "generation": 1, "store": ["a", 1], "reason": ""})
    assert case.context.messages == messages
