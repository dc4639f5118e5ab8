"""The native course, told on paper what happens: who is asked to gather, who goes on with whom, and who leaves."""

from __future__ import annotations

import pytest

from bftrain_elastic.courses.health import HANG_S, UNHEEDED
from bftrain_elastic.courses.native import (
    ABORT_S,
    ASTRAY,
    COMPANY_S,
    FAREWELL_S,
    REPEAT_S,
    NativeCourse,
)
from bftrain_elastic.jobs import Job
from tests.unit.elastic.floor import PaperFloor

NOBODY: frozenset[str] = frozenset()


class Play:
    """A course, its floor, and workers that do as they are told."""

    def __init__(self, *nodes: str) -> None:
        self.floor = PaperFloor(*nodes)
        self.course = NativeCourse("t", Job(argv=("s.py",), folder="f"), self.floor)
        self.step: dict[str, int] = {}

    def want(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.course.want(nodes, at_once=frozenset(at_once))

    def ready(self, worker: str, step: int = -1, generation: int = 0, reason: str = "") -> None:
        message = {"say": "ready", "step": step, "generation": generation, "store": [worker, 1], "reason": reason}
        self.course.said(worker, message)

    def all_new_ready(self) -> None:
        new, self.floor.spawned = self.floor.spawned, []
        for worker in new:
            self.ready(worker)

    def go(self, step: int) -> list[str]:
        """Let the group form that was told to go; gives its members in the order of their ranks."""
        orders = sorted(self.floor.heard("go"), key=lambda order: order[1]["rank"])
        assert [order["rank"] for _, order in orders] == list(range(orders[0][1]["workers"]))
        leader, order = orders[0]
        assert all(other["store"] == [leader, 1] for _, other in orders), "all meet where rank 0 is"
        self.course.said(leader, {"say": "confirmed", "generation": order["generation"], "step": step})
        return [worker for worker, _ in orders]

    def running(self, *nodes: str, step: int = 0) -> list[str]:
        self.want(*nodes)
        self.all_new_ready()
        return self.go(step)

    def tick(self, seconds: float) -> None:
        self.floor.time += seconds
        self.course.tick(self.floor.time)


def at(worker: str) -> str:
    return worker.split("/")[1]


def test_a_start_waits_for_all_that_are_coming_but_not_for_ever() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.floor.spawned
    play.ready(first)
    assert play.floor.heard("go") == []
    play.tick(COMPANY_S + 0.1)
    assert play.go(0) == [first]
    play.ready(second)
    assert [worker for worker, _ in play.floor.heard("gather")] == [first]


def test_a_planned_change_gathers_at_a_commit_and_an_old_member_leads() -> None:
    play = Play("a", "b", "c")
    (old,) = play.running("a")
    play.want("a", "b", "c")
    assert play.floor.said == [], "the old one trains on while the new ones come"
    play.all_new_ready()
    assert play.floor.heard("gather") == [(old, {"do": "gather", "generation": 2})]
    play.ready(old, step=7, generation=1)
    members = play.go(7)
    assert members[0] == old
    assert sorted(map(at, members)) == ["a", "b", "c"]
    assert play.floor.told[-1] == {
        "told": "confirmed", "generation": 2, "size": 3, "nodes": ["a", "b", "c"], "step": 7,
    }  # fmt: skip


def test_who_gives_up_its_node_leaves_and_the_rest_need_no_state() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want("b")
    play.floor.heard("gather")
    play.ready(one, 5, 1)
    play.ready(other, 5, 1)
    assert [order["sync"] for _, order in play.floor.said if order["do"] == "go"] == [False]
    assert play.go(5) == [other]
    assert play.floor.heard("leave") == [(one, {"do": "leave", "save": False})]
    play.course.exited(one, 0, "")
    assert play.floor.told[-1] == {"told": "vacated", "nodes": ["a"]}


def test_moving_altogether_takes_an_old_member_along_once() -> None:
    play = Play("a", "b")
    (old,) = play.running("a")
    play.want("b")
    play.all_new_ready()
    play.ready(old, 4, 1)
    first, new = play.go(4)
    assert (first, at(new)) == (old, "b")
    play.ready(old, 5, 2)
    play.ready(new, 5, 2)
    assert play.go(5) == [new]


def test_a_change_waits_until_the_one_before_is_confirmed() -> None:
    play = Play("a", "b")
    play.want("a")
    play.all_new_ready()
    play.want("a", "b")
    play.all_new_ready()
    assert play.floor.heard("gather") == []
    play.go(0)
    assert len(play.floor.heard("gather")) == 1


def test_a_notice_that_was_not_followed_is_repeated() -> None:
    play = Play("a", "b")
    play.running("a")
    play.want("a", "b")
    play.all_new_ready()
    play.floor.heard("gather")
    play.tick(REPEAT_S / 2)
    assert play.floor.heard("gather") == []
    play.tick(REPEAT_S)
    assert len(play.floor.heard("gather")) == 1


def test_when_a_member_dies_the_furthest_leads_and_a_new_one_joins_later() -> None:
    play = Play("a", "b", "c")
    one, two, three = play.running("a", "b", "c")
    play.course.exited(one, -9, "")
    assert [at(worker) for worker in play.floor.spawned] == ["a"], "another takes its place"
    play.ready(two, step=5, generation=1, reason="Connection reset by peer")
    assert play.floor.heard("go") == []
    play.ready(three, step=6, generation=1, reason="Connection reset by peer")
    assert play.go(6) == [three, two]
    play.all_new_ready()
    assert len(play.floor.heard("gather")) == 2


def test_who_waits_for_a_dead_member_is_cut_off_and_at_last_killed() -> None:
    play = Play("a", "b", "c")
    one, two, three = play.running("a", "b", "c")
    play.course.exited(one, -9, "")
    play.ready(two, 5, 1, "Connection reset by peer")
    play.tick(ABORT_S + 0.1)
    assert play.floor.heard("abort") == [(three, {"do": "abort"})]
    play.tick(HANG_S)
    assert (three, 0.0) in play.floor.stopped


def test_preempted_nodes_are_cleared_at_once_and_the_rest_go_on_by_themselves() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want("b", at_once=("a",))
    assert play.floor.stopped == [(one, 0.0)]
    play.ready(other, 3, 1, "Connection reset by peer")
    assert play.go(3) == [other]
    play.course.exited(one, -9, "")
    assert "note" not in play.floor.kinds()[-1:], "it died because it was told to"


def test_giving_up_all_nodes_writes_the_state_down_and_pauses() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want()
    assert len(play.floor.heard("gather")) == 2
    play.ready(other, 9, 1)
    play.ready(one, 9, 1)
    assert play.floor.heard("leave") == [(one, {"do": "leave", "save": True}), (other, {"do": "leave", "save": False})]
    play.course.exited(one, 0, "")
    assert "paused" not in play.floor.kinds()
    play.course.exited(other, 0, "")
    assert play.floor.kinds()[-2:] == ["vacated", "paused"]


def test_losing_all_nodes_pauses_and_the_next_start_reads_the_folder() -> None:
    play = Play("a", "b")
    (only,) = play.running("a")
    del play.floor.there["a"]
    play.course.exited(only, -9, "")
    play.course.node_gone("a")
    assert play.floor.spawned == []
    play.want()
    assert play.floor.kinds()[-1] == "paused"
    play.want("b")
    play.all_new_ready()
    assert [order["sync"] for _, order in play.floor.said] == [True]


def test_a_group_that_breaks_again_and_again_though_nobody_dies_is_a_mistake_of_the_script() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b", step=5)
    for generation in (1, 2, 3):
        for worker in (one, other):
            play.ready(worker, step=5, generation=generation, reason="could not connect to the gloomy database")
        if generation < 3:
            assert play.go(5) == [one, other]
    assert play.floor.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        play.course.exited(worker, -9, "")
    assert "lost each other again and again: could not connect" in play.floor.told[-1]["reason"]


def test_a_group_that_breaks_because_one_dies_is_not_even_if_the_others_say_so_first() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    for generation in range(1, 10, 2):
        play.ready(other, step=5, generation=generation, reason="Connection closed by peer")
        play.course.want(("a", "b"), at_once=frozenset())
        play.floor.there["a"] = 0
        play.course.exited(one, -9, "")
        assert play.go(5) == [other]
        play.floor.there["a"] = 1
        play.floor.spawned.clear()
        play.course.node_up("a")
        (one,) = play.floor.spawned
        play.ready(one)
        play.ready(other, step=5, generation=generation + 1)
        assert play.go(5) == [other, one]
    assert "failed" not in play.floor.kinds()


def test_three_deaths_without_a_step_further_are_a_failure() -> None:
    play = Play("a")
    play.want("a")
    for _ in range(2):
        play.course.exited(play.floor.spawned[-1], 1, "ValueError: odd")
    assert play.floor.kinds().count("note") == 2
    play.course.exited(play.floor.spawned[-1], 1, "ValueError: odd")
    assert play.floor.told[-1]["told"] == "failed"
    assert play.floor.told[-1]["reason"].endswith("ended with 1\nValueError: odd")
    play.tick(1.0)
    assert len(play.floor.spawned) == 3
    play.want("a")
    assert len(play.floor.spawned) == 4, "another start is another try"


def test_deaths_with_steps_between_them_are_not() -> None:
    play = Play("a")
    for step in range(1, 6):
        (worker,) = play.running("a", step=step)
        play.course.exited(worker, -9, "")
    assert "failed" not in play.floor.kinds()


def test_a_script_that_never_calls_run_fails_at_once() -> None:
    play = Play("a")
    play.want("a")
    play.course.exited(play.floor.spawned[-1], 0, "hello")
    assert play.floor.kinds() == ["vacated", "failed"]
    assert "never called bftrain_elastic.run\nhello" in play.floor.told[-1]["reason"]


def test_a_script_that_trains_by_itself_on_each_node_fails_at_once() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    one, other = play.floor.spawned
    for step in range(1, ASTRAY + 1):
        play.course.said(one, {"say": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None})
    assert play.floor.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        play.course.exited(worker, -9, "")
    assert play.floor.told[-1]["reason"] == f"{one} trains by itself: its script never called bftrain_elastic.run"
    assert "report" not in play.floor.kinds()


def test_a_death_is_told_with_its_last_word() -> None:
    play = Play("a")
    play.want("a")
    play.course.exited(play.floor.spawned[-1], 1, "Traceback ...\nValueError: odd\n")
    assert "ended with 1 (ValueError: odd); it is started again" in play.floor.told[0]["text"]


def test_who_trains_on_without_a_commit_after_it_was_asked_to_gather_is_told_of_once() -> None:
    play = Play("a", "b")
    (old, _) = play.running("a", "b")
    play.want("a")
    for step in range(1, 3 * UNHEEDED):
        play.course.said(old, {"say": "report", "t": 1.0, "step": step, "size": 2, "samples": 1, "loss": None})
    (note,) = [one["text"] for one in play.floor.told if one["told"] == "note"]
    assert f"{UNHEEDED} steps" in note
    assert "state.commit()" in note


def test_the_script_may_take_its_time_after_the_training_but_the_others_only_as_long_as_the_first() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(other, {"say": "done", "step": 60})
    play.course.said(one, {"say": "done", "step": 60})
    play.tick(100 * FAREWELL_S)
    assert play.floor.stopped == [], "the first one evaluates what it has"
    play.course.exited(one, 0, "")
    play.tick(FAREWELL_S + 0.1)
    assert play.floor.stopped == [(other, 0.0)]
    play.course.exited(other, -9, "")
    assert play.floor.kinds()[-1] == "done"


@pytest.mark.parametrize("code", [1, -9])
def test_an_end_that_went_wrong_is_tried_again(code: int) -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.course.said(only, {"say": "done", "step": 60})
    play.course.exited(only, code, "OSError: disk full")
    assert "done" not in play.floor.kinds()
    assert len(play.floor.spawned) == 1


def test_nodes_are_given_up_in_the_middle_of_the_end_too() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    for worker in (one, other):
        play.course.said(worker, {"say": "done", "step": 60})
    play.want()
    assert play.floor.stopped == [(one, 10.0), (other, 10.0)]
    play.course.exited(other, 0, "")
    play.course.exited(one, -15, "")
    assert play.floor.kinds()[-1] == "paused", "it was not through with its end"


def test_done_is_told_when_all_have_ended() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.course.said(one, {"say": "done", "step": 60})
    play.course.exited(one, 0, "")
    assert "done" not in play.floor.kinds()
    play.course.exited(other, 0, "")
    assert play.floor.told[-1] == {"told": "done", "step": 60}
    play.tick(1.0)
    assert play.floor.kinds().count("done") == 1


@pytest.mark.parametrize("what", ["ready", "confirmed", "report"])
def test_words_of_a_worker_that_is_gone_change_nothing(what: str) -> None:
    play = Play("a")
    (only,) = play.running("a")
    play.want()
    play.course.exited(only, -9, "")
    told = list(play.floor.told)
    play.course.said(only, {"say": what, "step": 99, "generation": 1, "store": ["a", 1], "reason": ""})
    assert play.floor.told == told
