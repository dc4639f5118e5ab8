"""The hub, with scripted agents: what each may do to it, and what it does with workers that others left."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bftrain_elastic.courses import Exit, Floor, GroupPlace, Left
from bftrain_elastic.errors import BadJob
from bftrain_elastic.guests import RunningWorker
from bftrain_elastic.hub import Hub
from bftrain_elastic.jobs import Job
from bftrain_elastic.launchers import AgentLauncher
from bftrain_elastic.messages import Message
from bftrain_elastic.sealed import Sealed

SECRET = b"s" * 32
PATIENCE_S = 30.0

Comes = Callable[..., "Agent"]


class Agent:
    """An agent that says what the test says."""

    def __init__(self, hub: Hub, node: str, *workers: Message, ended: tuple[Message, ...] = (), epoch: int = 0) -> None:
        self._connection = socket.create_connection(hub.address, timeout=PATIENCE_S)
        self._sealed = Sealed(SECRET, "agent")
        self._heard: deque[Message] = deque()
        self._connection.sendall(self._sealed.greeting)
        while not self._sealed.greeted:
            self._heard.extend(self._sealed.feed(self._connection.recv(65536)))
        register = {"say": "register", "node": node, "address": "127.0.0.1", "slots": 2, "pid": 1, "epoch": epoch}
        self.say(**register, workers=list(workers), ended=list(ended))

    def say(self, **message: object) -> None:
        self._connection.sendall(self._sealed.seal(message))

    def hear(self, what: str) -> Message:
        """Wait until the manager says ``what``."""
        while True:
            while self._heard:
                message = self._heard.popleft()
                if message["do"] == what:
                    return message
            data = self._connection.recv(65536)
            assert data, f"the hub went away, and '{what}' was waited for"
            self._heard.extend(self._sealed.feed(data))

    def is_sent_away(self) -> bool:
        """Wait until the hub ends the connection."""
        while data := self._connection.recv(65536):
            list(self._sealed.feed(data))
        return True

    def hears_nothing(self) -> bool:
        """Tell whether nothing arrives for a moment."""
        self._connection.settimeout(0.2)
        try:
            return not self._heard and not self._connection.recv(65536)
        except TimeoutError:
            return True
        finally:
            self._connection.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._connection.close()


class Told:
    """What the manager is told."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self.breaks = False
        self._news = threading.Condition()

    def __call__(self, told: Message) -> None:
        with self._news:
            self.all.append(told)
            self._news.notify_all()
        if self.breaks:
            raise ValueError("the manager stumbles")

    def until(self, what: str, count: int = 1) -> Message:
        def enough() -> bool:
            return len([one for one in self.all if one["told"] == what]) >= count

        with self._news:
            assert self._news.wait_for(enough, PATIENCE_S), f"{count} of {what}: {self.all}"
        return [one for one in self.all if one["told"] == what][count - 1]


class Simple:
    """A course that starts one worker on every node, and takes over what it is told to."""

    made: ClassVar[list[Simple]] = []
    adopts = True

    def __init__(self, _task: str, _job: Job, floor: Floor) -> None:
        self.floor = floor
        self.wanted: tuple[str, ...] = ()
        self.started: set[str] = set()
        self.offered: list[Left] = []
        self.made.append(self)

    def want(self, nodes: tuple[str, ...], **_: object) -> None:
        self.wanted = nodes
        for node in nodes:
            self.node_up(node)

    def node_up(self, node: str) -> None:
        if self.floor.slots(node) and node not in self.started:
            self.started.add(node)
            self.spawn(node)

    def spawn(self, node: str) -> None:
        how: dict[str, Any] = {"place": GroupPlace(3, 0, 1), "finish_code": 7, "finish_file": "/f/over"}
        self.floor.spawn(node, self.floor.name(node, 0), argv=["x.py"], env={}, **how)

    def node_gone(self, node: str) -> None:
        self.started.discard(node)

    def adopt(self, node: str, left: Left) -> bool:
        self.offered.append(left)
        if left.exit is not None:
            return self.adopts
        if self.adopts:
            self.started.add(node)
            self.floor.say(left.worker, {"do": "hello"})
        return self.adopts

    def spawned(self, *_: object) -> None: ...

    def said(self, _worker: str, message: Message) -> None:
        if message["say"] == "done":
            raise ZeroDivisionError("a mistake in the course")
        self.floor.tell({"told": "report", **message})

    def notice(self, node: str, grace_s: float) -> None:
        self.floor.tell({"told": "note", "text": f"{node} goes in {grace_s} s"})

    def inspected(self, worker: str, process_state: str) -> None:
        self.floor.tell({"told": "note", "text": f"{worker} is {process_state}"})

    def exited(self, worker: str, exit: Exit) -> None:  # noqa: A002 - as in Course
        words = "finished" if exit.finished else "stopped" if exit.stopped else "exited"
        self.floor.tell({"told": "note", "text": f"{worker} {words} with {exit.code}"})

    def tick(self, now: float) -> None: ...


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def hub(told: Told, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("bftrain_elastic.hub._SILENCE_S", 600.0)  # these agents have no heartbeat
    running = Hub(told, SECRET)
    yield running
    running.close()


@pytest.fixture
def comes(hub: Hub) -> Iterator[Callable[..., Agent]]:
    """Give what lets an agent come: its node, and the workers it has."""
    agents: list[Agent] = []

    def come(node: str, *workers: Message, **more: Any) -> Agent:  # noqa: ANN401 - as Agent takes them
        agents.append(Agent(hub, node, *workers, **more))
        return agents[-1]

    yield come
    for agent in agents:
        agent.close()


@pytest.fixture
def launcher(hub: Hub, tmp_path: Path) -> AgentLauncher:
    launches = AgentLauncher("simple", Simple, hub)
    launches.add("t", {"argv": ["x.py"], "folder": str(tmp_path / "t")})
    return launches


def start(launcher: AgentLauncher, *nodes: str) -> None:
    launcher.apply([{"action": "start", "task": "t", "nodes": list(nodes)}])


def left(worker: str, **more: object) -> Message:
    return {"worker": worker, "task": "t", "slot": 0, "step": 7, "go": None, "ready": None, "done": False, **more}


def report(worker: str, step: int) -> dict[str, Any]:
    words = {"say": "report", "t": 5.0, "step": step, "size": 1, "samples": 1, "loss": None}
    return {"say": "said", "worker": worker, "message": words}


def test_a_report_bears_the_time_of_both_clocks(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.say(**report(worker, 1))
    heard = told.until("report")
    assert heard["t"] == 5.0
    assert abs(heard["heard"] - time.time()) < PATIENCE_S


def test_a_worker_that_says_what_cannot_be_harms_nobody(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.say(say="said", worker=worker, message={"say": "report", "step": "many"})
    assert "said 'report' with t = None" in told.until("note")["text"]
    agent.say(**report(worker, 2))
    assert told.until("report")["step"] == 2


@pytest.mark.parametrize(
    "message", [{"say": "said"}, {"say": "exited", "worker": "w"}, {"say": "spawned", "worker": 3}]
)
def test_an_agent_that_says_what_cannot_be_is_sent_away_and_the_others_stay(
    hub: Hub, comes: Comes, told: Told, message: dict[str, Any]
) -> None:
    odd, _ = comes("odd"), comes("other")
    told.until("registered", 2)
    hub.ask(lambda: hub.agent("odd").workers.update(w=RunningWorker("t", 0)))  # type: ignore[union-attr]  # it is there
    odd.say(**message)
    assert odd.is_sent_away()
    assert told.until("gone")["node"] == "odd"
    assert hub.nodes() == {"other": 2}


def test_a_manager_that_stumbles_over_what_it_is_told_is_told_the_next(
    comes: Comes, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    told.breaks = True
    comes("n1")
    told.until("registered")
    told.breaks = False
    comes("n2")
    told.until("registered", 2)
    assert "the manager stumbles" in capfd.readouterr().err


def test_a_course_with_a_mistake_fails_its_own_task(
    hub: Hub, comes: Comes, told: Told, launcher: AgentLauncher, capfd: pytest.CaptureFixture[str]
) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.say(say="said", worker=worker, message={"say": "done", "step": 1})
    assert told.until("failed")["reason"] == "the simple launcher broke: ZeroDivisionError: a mistake in the course"
    assert agent.hear("stop") == {"do": "stop", "worker": worker, "grace_s": 0.0}
    assert hub.nodes() == {"n1": 2}
    assert "a mistake in the course" in capfd.readouterr().err
    agent.say(say="exited", worker=worker, code=-9, tail="")
    start(launcher, "n1")
    assert agent.hear("spawn")["worker"] != worker, "whoever starts it again finds a new course"


def test_who_stops_workers_that_wait_hears_of_their_end_later(hub: Hub, comes: Comes, tmp_path: Path) -> None:
    """A course that goes through its workers may not have them taken away meanwhile."""
    ended: list[str] = []

    class Stopping(Simple):
        def want(self, nodes: tuple[str, ...], **_: object) -> None:
            names = [self.floor.name(node, 0) for node in nodes]
            for node, name in zip(nodes, names, strict=True):
                self.floor.spawn(node, name, argv=["x.py"], env={})
            for name in names:
                self.floor.stop(name, grace_s=0.0)
                ended.append(f"asked for {name[0]}")

        def exited(self, worker: str, *_: object) -> None:
            ended.append(f"heard of {worker[0]}")

    for task, course in (("a", Simple), ("b", Stopping)):
        launcher = AgentLauncher("some", course, hub)
        launcher.add(task, {"argv": ["x.py"], "folder": str(tmp_path / task)})
        launcher.apply([{"action": "start", "task": task, "nodes": ["n1", "n2"]}])
        if task == "a":
            for agent in (comes("n1"), comes("n2")):
                agent.hear("spawn")  # so that the other task has to wait for these nodes
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < 4:
        assert time.monotonic() < deadline, ended
        time.sleep(0.005)
    assert ended == ["asked for b", "asked for b", "heard of b", "heard of b"]


def test_an_end_that_comes_before_the_wakening_harms_nobody(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may see that it is to end, and be gone, before whoever asked for it has written to wake it."""
    running = Hub(told, SECRET)
    write = os.write

    def late(file: int, data: bytes) -> int:
        running._thread.join(PATIENCE_S)  # noqa: SLF001 - the moment matters
        return write(file, data)

    monkeypatch.setattr("bftrain_elastic.thread_calls.os.write", late)
    running.close()
    running.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        running.call(lambda: None)


def test_a_job_that_cannot_be_is_refused_when_it_is_added(launcher: AgentLauncher) -> None:
    with pytest.raises(BadJob, match="is there already"):
        launcher.add("t", {"argv": ["x.py"], "folder": "f"})
    with pytest.raises(BadJob, match="argv"):
        launcher.add("u", {"argv": [], "folder": "f"})


def test_an_agent_that_falls_silent_is_lost(
    comes: Comes, told: Told, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes("n1")
    told.until("registered")
    monkeypatch.setattr("bftrain_elastic.hub._SILENCE_S", 0.1)
    gone = told.until("gone")
    assert (gone["node"], gone["reason"].startswith("nothing heard for")) == ("n1", True)
    assert hub.nodes() == {}


@pytest.mark.parametrize(("reason", "noticed"), [("SIGTERM", True), ("no manager for 30 s", False)])
def test_an_agent_that_the_scheduler_told_to_go_is_told_apart(
    comes: Comes, told: Told, reason: str, *, noticed: bool
) -> None:
    comes("n1").say(say="leaving", reason=reason)
    gone = told.until("gone")
    assert (gone["reason"], gone["noticed"]) == (f"it left: {reason}", noticed)


def test_what_was_said_on_one_connection_is_refused_on_another(hub: Hub, told: Told) -> None:
    """Whoever listens on the network has all that an agent sent, but not the secret."""
    sealed = Sealed(SECRET, "agent")
    recorded = sealed.greeting
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(sealed.greeting)
        while not sealed.greeted:
            list(sealed.feed(connection.recv(65536)))
        register = sealed.seal({"say": "register", "node": "n1", "address": "", "slots": 1, "pid": 1})
        recorded += register
        connection.sendall(register)
        told.until("registered")
    told.until("gone")
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(recorded)
        while connection.recv(65536):  # its greeting, and then the end
            pass
    assert hub.nodes() == {}
    assert len([one for one in told.all if one["told"] == "registered"]) == 1


def test_a_task_that_was_never_added_fails(told: Told, launcher: AgentLauncher) -> None:
    launcher.apply([{"action": "start", "task": "u", "nodes": ["n1"]}])
    assert told.until("failed") | {"t": 0} == {
        "told": "failed", "task": "u", "reason": "the simple launcher was not told what to run for it", "t": 0,
    }  # fmt: skip


def test_a_closed_hub_lets_agents_in_when_it_is_opened(told: Told) -> None:
    hub = Hub(told, SECRET, closed=True)
    came: list[Agent] = []
    coming = threading.Thread(target=lambda: came.append(Agent(hub, "n1")))
    coming.start()
    assert hub.ask(lambda: hub.agent("n1")) is None
    assert told.all == []
    hub.open()
    hub.open()
    coming.join(PATIENCE_S)
    assert told.until("registered")["node"] == "n1"
    came[0].close()
    hub.close()


def test_a_worker_that_a_task_knows_is_taken_over(hub: Hub, comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1", left("t/n1/0/1-41"))
    assert agent.hear("tell") == {"do": "tell", "worker": "t/n1/0/1-41", "message": {"do": "hello"}}
    agent.say(**report("t/n1/0/1-41", 8))
    assert told.until("report")["step"] == 8
    assert hub.ask(lambda: hub.new_name("t", "n1", 0)) == "t/n1/0/1-42", "no name is used twice"
    agent.say(say="exited", worker="t/n1/0/1-41", code=0, tail="")
    assert told.until("note")["text"] == "t/n1/0/1-41 exited with 0"


@pytest.mark.parametrize("why", ["the task does not want the node", "the course refuses it", "no such task"])
def test_a_worker_that_nobody_knows_is_killed_before_anything_starts_there(
    comes: Comes, told: Told, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    start(launcher, "n2" if why == "the task does not want the node" else "n1")
    monkeypatch.setattr(Simple, "adopts", why != "the course refuses it")
    agent = comes("n1", left("t/n1/0/1-41", task="u" if why == "no such task" else "t"))
    assert agent.hear("stop") == {"do": "stop", "worker": "t/n1/0/1-41", "grace_s": 0.0}
    start(launcher, "n1")
    assert agent.hears_nothing(), "the new one waits"
    agent.say(say="exited", worker="t/n1/0/1-41", code=-9, tail="")
    assert agent.hear("spawn")["worker"] != "t/n1/0/1-41"
    assert not [one for one in told.all if one["told"] == "note"], "the end of a stranger is nobody's"


def test_a_task_runs_on_fewer_of_its_nodes_for_a_while(launcher: AgentLauncher, hub: Hub) -> None:
    course = Simple.made[-1]

    def runs_on() -> tuple[str, ...]:
        return hub.ask(lambda: course.wanted)

    start(launcher, "n1", "n2", "n3", "n4")
    assert runs_on() == ("n1", "n2", "n3", "n4")
    launcher.narrow("t", 2)
    assert runs_on() == ("n1", "n2")
    launcher.apply([{"action": "shrink", "task": "t", "nodes": ["n1"], "cause": "preempted"}])
    assert runs_on() == ("n2", "n3")
    launcher.apply([{"action": "grow", "task": "t", "nodes": ["n5"]}, {"action": "grow", "task": "t", "nodes": ["n5"]}])
    launcher.narrow("t", None)
    assert runs_on() == ("n2", "n3", "n4", "n5"), "and no node twice"


def test_a_node_that_a_task_leaves_without_a_worker_there_is_vacated_at_once(
    comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n1", "n2", "n3")
    launcher.narrow("t", 1)
    agent = comes("n1")
    agent.hear("spawn")
    launcher.apply([{"action": "shrink", "task": "t", "nodes": ["n1", "n3"], "cause": "decided"}])
    assert told.until("vacated")["nodes"] == ["n3"], "of the other its course tells when the worker has ended"
    launcher.apply([{"action": "stop", "task": "t", "nodes": ["n2"], "cause": "preempted"}])
    launcher.apply([{"action": "start", "task": "nobody", "nodes": ["n2"]}])
    told.until("failed")
    assert [one["nodes"] for one in told.all if one["told"] == "vacated"] == [["n3"]]


# -- epochs


def test_a_worker_bears_the_epoch_of_its_manager_in_its_name(told: Told) -> None:
    hub = Hub(told, SECRET, epoch=7, settle_s=2.5)
    assert hub.ask(lambda: hub.new_name("t", "n1", 0)) == "t/n1/0/7-1"
    assert hub.settle_s == 2.5
    agent = Agent(hub, "n1", left("t/n1/0/6-99"))
    assert agent.hear("welcome") == {"do": "welcome", "epoch": 7}
    told.until("registered")
    assert hub.ask(lambda: hub.new_name("t", "n1", 0)) == "t/n1/0/7-2", "numbers of other epochs do not count"
    agent.close()
    hub.close()


def test_an_agent_that_obeys_a_newer_manager_is_not_registered(comes: Comes, hub: Hub, told: Told) -> None:
    agent = comes("n1", epoch=2)
    assert agent.hear("welcome")["epoch"] == 1, "so it knows why"
    assert agent.is_sent_away()
    assert hub.nodes() == {}
    assert told.all == []


def test_an_abandoned_hub_says_nothing_to_anybody(hub: Hub, comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    agent.hear("spawn")
    before = len(told.all)
    hub.abandon()
    assert agent.is_sent_away()
    assert len(told.all) == before


# -- ends


def exit_(**more: object) -> Message:
    return {"code": 0, "tail": "", "finished": False, "stopped": False, **more}


def test_how_a_worker_ended_is_handed_on(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    order = agent.hear("spawn")
    assert order["place"] == {"generation": 3, "rank": 0, "workers": 1}
    assert (order["finish_code"], order["finish_file"]) == (7, "/f/over")
    agent.say(say="exited", worker=order["worker"], **exit_(code=7, finished=True))
    assert told.until("note")["text"] == f"{order['worker']} finished with 7"


def test_an_end_that_no_manager_saw_is_told_once_and_kept_for_the_next_manager(
    comes: Comes, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    ended = left("t/n1/0/0-5", go={"generation": 3, "rank": 1, "workers": 2}, exit=exit_(finished=True, ago_s=4.5))
    report_ = {"say": "report", "t": 1.0, "step": 7, "size": 1, "samples": 1, "loss": None, "total": 7}
    first = comes("n1", ended=(ended | {"report": report_},))
    first.hear("welcome")
    assert first.hear("spawn"), "the course starts another one"
    offered = Simple.made[-1].offered
    assert [(one.worker, one.generation, one.rank, one.exit, one.step) for one in offered] == [
        ("t/n1/0/0-5", 3, 1, Exit(0, finished=True, ago_s=4.5), 7)
    ]
    assert offered[0].report is not None
    assert offered[0].report["total"] == 7
    first.close()
    again = comes("n1", ended=(ended,))
    again.hear("spawn")
    assert again.hears_nothing(), "it is not told twice, and not forgotten either"
    assert len(offered) == 1


@pytest.mark.parametrize("why", ["the course refuses it", "no such task"])
def test_an_end_that_is_no_news_to_anybody_is_forgotten(
    comes: Comes, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(Simple, "adopts", why != "the course refuses it")
    start(launcher, "n2")
    task = "u" if why == "no such task" else "t"
    agent = comes("n1", ended=(left("w/n1/0/0-5", task=task, exit=exit_()),))
    assert agent.hear("forget") == {"do": "forget", "task": task, "worker": "w/n1/0/0-5"}


def test_the_end_of_a_worker_whose_connection_broke_is_told_when_it_is_known(
    comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.close()
    assert told.until("note")["text"] == f"{worker} exited with -9", "as far as the manager knows"
    comes("n1", ended=(left(worker, exit=exit_(finished=True)),)).hear("welcome")
    told.until("registered", 2)
    assert [one.exit for one in Simple.made[-1].offered] == [Exit(0, finished=True)]


def test_an_end_that_was_said_and_is_listed_again_is_told_once(
    comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    for _ in range(2):
        agent.say(say="exited", worker=worker, **exit_())
    told.until("note")
    agent.close()
    comes("n1", ended=(left(worker, exit=exit_()),)).hear("welcome")
    told.until("registered", 2)
    assert Simple.made[-1].offered == []
    assert len([one for one in told.all if one["told"] == "note"]) == 1


def test_the_ends_of_a_dropped_task_are_forgotten(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    agent = comes("n1")
    told.until("registered")
    launcher.drop("t")
    assert agent.hear("forget") == {"do": "forget", "task": "t"}


# -- notices and inspection


def test_a_notice_is_told_and_nothing_starts_on_that_node_any_more(
    hub: Hub, comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n1", "n2")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.say(say="notice", grace_s=4.5)
    notice = told.until("notice")
    assert (notice["node"], notice["grace_s"]) == ("n1", 4.5)
    assert told.until("note")["text"] == "n1 goes in 4.5 s"
    agent.say(say="exited", worker=worker, **exit_(stopped=True))
    assert told.until("note", 2)["text"] == f"{worker} stopped with 0"
    hub.ask(lambda: Simple.made[-1].spawn("n1"))
    assert agent.hears_nothing()
    agent.close()
    assert told.until("note", 3)["text"] == "t/n1/0/1-2 exited with -9", "it never started"


def test_a_notice_of_a_node_that_no_task_wants_is_told_to_the_manager_alone(
    comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n2")
    comes("n1").say(say="notice", grace_s=1)
    told.until("notice")
    comes("n2").hear("spawn")
    assert not [one for one in told.all if one["told"] == "note"]


def test_a_worker_is_inspected(hub: Hub, comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    hub.ask(lambda: Simple.made[-1].floor.inspect(worker))
    assert agent.hear("inspect") == {"do": "inspect", "worker": worker}
    agent.say(say="inspected", worker=worker, state="T")
    assert told.until("note")["text"] == f"{worker} is T"


def test_a_worker_waits_until_the_one_before_it_on_its_slot_has_ended(
    hub: Hub, comes: Comes, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    hub.ask(lambda: Simple.made[-1].spawn("n1"))
    assert agent.hears_nothing()
    agent.say(say="exited", worker=worker, **exit_(code=-9))
    assert agent.hear("spawn")["worker"] == "t/n1/0/1-2"


def test_workers_that_are_held_back_start_later(hub: Hub, comes: Comes, launcher: AgentLauncher) -> None:
    hub.hold_workers()
    start(launcher, "n1")
    agent = comes("n1")
    agent.hear("welcome")
    assert agent.hears_nothing()
    hub.start_workers()
    assert agent.hear("spawn")
