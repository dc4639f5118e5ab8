"""The process course on paper: everybody stops, and the next generation starts from the checkpoint."""

from __future__ import annotations

from bftrain_elastic.courses import Left
from bftrain_elastic.courses.process import COMPANY_S, SILENT_S, ProcessCourse
from bftrain_elastic.courses.torchrun import TorchrunCourse
from bftrain_elastic.jobs import Job
from tests.unit.elastic.floor import PaperFloor


class Play:
    """A process course and its floor."""

    def __init__(self, *nodes: str) -> None:
        self.floor = PaperFloor(*nodes)
        self.course = ProcessCourse("t", Job(argv=("./train",), folder="f"), self.floor)

    def want(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.course.want(nodes, at_once=frozenset(at_once))

    def started(self, port: int = 4000) -> list[str]:
        """Give rank 0's port, and all that were started then."""
        first = self.floor.spawned[0]
        self.course.spawned(first, port)
        new, self.floor.spawned = self.floor.spawned, []
        return new

    def report(self, worker: str, step: int) -> None:
        self.course.said(worker, {"say": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None})


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
    play.course.exited(first, 143, "")
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
    play.floor.time += COMPANY_S + 0.1
    play.course.tick(play.floor.time)
    assert len(play.floor.spawned) == 1


def test_it_is_done_when_all_ended_well() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.course.exited(second, 0, "")
    assert "done" not in play.floor.kinds()
    play.course.exited(first, 0, "")
    assert play.floor.kinds()[-1] == "done"


def test_a_death_stops_the_others_soon_and_the_third_is_a_failure() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    for _ in range(3):
        first, second = play.started()
        play.course.exited(second, 1, "KeyError")
        assert play.floor.stopped[-1] == (first, 2.0)
        play.course.exited(first, -15, "")
    assert play.floor.told[-1]["told"] == "failed"
    assert play.floor.told[-1]["reason"].endswith("KeyError")


def test_preempted_nodes_are_cleared_at_once() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.started()
    play.want("a", at_once=("b",))
    assert (second, 0.0) in play.floor.stopped
    play.course.exited(second, -9, "")
    play.course.exited(first, 1, "")
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


def test_who_went_on_without_a_manager_may_write_its_checkpoint_and_is_started_again() -> None:
    play = Play()
    play.want("a", "b")
    for number, node in enumerate("ab"):
        play.floor.there[node] = 1
        left = Left(f"t/{node}/0/{number}", 0, 40, 0, 0, 0, None, done=False)
        assert play.course.adopt(node, left)
        play.course.node_up(node)
    assert play.floor.stopped == [("t/a/0/0", 10.0), ("t/b/0/1", 10.0)]
    assert play.floor.spawned == [], "nothing runs twice"
    play.course.exited("t/a/0/0", 0, "")
    assert play.floor.spawned == []
    play.course.exited("t/b/0/1", 0, "")
    assert len(play.started()) == 2
    assert not {"done", "note", "failed"} & set(play.floor.kinds())
    assert not play.course.adopt("a", left), "it runs already"


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
