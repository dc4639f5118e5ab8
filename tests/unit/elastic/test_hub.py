"""The hub, with scripted agents: what each may do to it, and what it does with workers that others left."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager.agent_connection import RunningWorker
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from tests.helpers.scripted_agents import (
    PATIENCE_S,
    SECRET,
    Agent,
    Comes,
    Simple,
    Told,
    left,
    report,
    start,
    started,
)


def test_a_report_bears_the_time_of_both_clocks(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    agent, worker = started(comes, launcher)
    agent.say(**report(worker, 1))
    heard = told.until("report")
    assert heard["t"] == 5.0
    assert abs(heard["heard"] - time.time()) < PATIENCE_S


def test_a_worker_that_says_what_cannot_be_harms_no_other(comes: Comes, told: Told, launcher: AgentLauncher) -> None:
    agent, worker = started(comes, launcher)
    agent.say(type="said", worker=worker, message={"type": "report", "step": "many"})
    assert "said 'report' with t = None" in told.until("note")["text"]
    agent.say(**report(worker, 2))
    assert told.until("report")["step"] == 2


@pytest.mark.parametrize(
    "message", [{"type": "said"}, {"type": "exited", "worker": "w"}, {"type": "spawned", "worker": 3}]
)
def test_an_agent_that_says_what_cannot_be_is_sent_away_and_the_others_stay(
    hub: AgentHub, comes: Comes, told: Told, message: dict[str, Any]
) -> None:
    odd, _ = comes("odd"), comes("other")
    told.until("registered", 2)
    hub.ask(lambda: hub.agent("odd").workers.update(w=RunningWorker("t", 0)))
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
    hub: AgentHub, comes: Comes, told: Told, launcher: AgentLauncher, capfd: pytest.CaptureFixture[str]
) -> None:
    agent, worker = started(comes, launcher)
    agent.say(type="said", worker=worker, message={"type": "done", "step": 1})
    assert told.until("failed")["reason"] == "the simple launcher broke: ZeroDivisionError: a mistake in the course"
    assert agent.hear("stop") == {"type": "stop", "worker": worker, "grace_s": 0.0}
    assert hub.nodes() == {"n1": 2}
    assert "a mistake in the course" in capfd.readouterr().err
    agent.say(type="exited", worker=worker, code=-9, tail="")
    start(launcher, "n1")
    assert agent.hear("spawn")["worker"] != worker, "whoever starts it again finds a new course"


def test_who_stops_workers_that_wait_hears_of_their_end_later(hub: AgentHub, comes: Comes, tmp_path: Path) -> None:
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
    running = AgentHub(told, SECRET)
    write = os.write

    def late(file: int, data: bytes) -> int:
        running._thread.join(PATIENCE_S)  # noqa: SLF001 - the moment matters
        return write(file, data)

    monkeypatch.setattr("bftrain_elastic.manager.thread_calls.os.write", late)
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
    comes: Comes, told: Told, hub: AgentHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes("n1")
    told.until("registered")
    monkeypatch.setattr("bftrain_elastic.manager.agent_listener._SILENCE_S", 0.1)
    gone = told.until("gone")
    assert (gone["node"], gone["reason"].startswith("nothing heard for")) == ("n1", True)
    assert hub.nodes() == {}


def test_a_hub_without_free_descriptors_goes_on_and_accepts_agents_later(
    comes: Comes, told: Told, hub: AgentHub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    comes("n1")
    told.until("registered")
    tries: list[float] = []

    def fails(_: socket.socket) -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", fails)
        coming = threading.Thread(target=comes, args=("n2",))
        coming.start()
        deadline = time.monotonic() + PATIENCE_S
        while not tries and time.monotonic() < deadline:
            hub.ask(lambda: None)
        assert hub.nodes() == {"n1": 2}, "it serves the agents that it has"
    coming.join(PATIENCE_S)
    assert told.until("registered", 2)["node"] == "n2"
    assert len(tries) < 5, "it does not try without end"
    assert "no agent can connect: Too many open files" in capfd.readouterr().err


@pytest.mark.parametrize(("reason", "noticed"), [("SIGTERM", True), ("no manager for 30 s", False)])
def test_an_agent_that_the_scheduler_told_to_go_is_told_apart(
    comes: Comes, told: Told, reason: str, *, noticed: bool
) -> None:
    comes("n1").say(type="leaving", reason=reason)
    gone = told.until("gone")
    assert (gone["reason"], gone["noticed"]) == (f"it left: {reason}", noticed)


def test_what_was_said_on_one_connection_is_refused_on_another(hub: AgentHub, told: Told) -> None:
    """Whoever listens on the network has all that an agent sent, but not the secret."""
    sealed = AuthenticatedStream(SECRET, "agent")
    recorded = sealed.greeting
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(sealed.greeting)
        while not sealed.greeted:
            list(sealed.feed(connection.recv(65536)))
        register = sealed.seal({"type": "register", "node": "n1", "address": "", "slots": 1, "pid": 1})
        recorded += register
        connection.sendall(register)
        told.until("registered")
    told.until("gone")
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(recorded)
        while connection.recv(65536):  # its greeting, and then the end
            pass
    assert hub.nodes() == {}
    assert len([one for one in told.all if one["type"] == "registered"]) == 1


def test_a_task_that_was_never_added_fails(told: Told, launcher: AgentLauncher) -> None:
    launcher.apply([{"action": "start", "task": "u", "nodes": ["n1"]}])
    assert told.until("failed") | {"t": 0} == {
        "type": "failed", "task": "u", "reason": "the simple launcher does not know what to run for it", "t": 0,
    }  # fmt: skip


def test_a_closed_hub_lets_agents_in_when_it_is_opened(told: Told) -> None:
    hub = AgentHub(told, SECRET, closed=True)
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


def test_a_worker_that_a_task_knows_is_taken_over(
    hub: AgentHub, comes: Comes, told: Told, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    agent = comes("n1", left("t/n1/0/1-41"))
    assert agent.hear("tell") == {"type": "tell", "worker": "t/n1/0/1-41", "message": {"type": "hello"}}
    agent.say(**report("t/n1/0/1-41", 8))
    assert told.until("report")["step"] == 8
    assert hub.ask(lambda: hub.new_name("t", "n1", 0)) == "t/n1/0/1-42", "no name is used twice"
    agent.say(type="exited", worker="t/n1/0/1-41", code=0, tail="")
    assert told.until("note")["text"] == "t/n1/0/1-41 exited with 0"


@pytest.mark.parametrize("why", ["the task does not want the node", "the course refuses it", "no such task"])
def test_a_worker_that_nobody_knows_is_killed_before_anything_starts_there(
    comes: Comes, told: Told, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    start(launcher, "n2" if why == "the task does not want the node" else "n1")
    monkeypatch.setattr(Simple, "adopts", why != "the course refuses it")
    agent = comes("n1", left("t/n1/0/1-41", task="u" if why == "no such task" else "t"))
    assert agent.hear("stop") == {"type": "stop", "worker": "t/n1/0/1-41", "grace_s": 0.0}
    start(launcher, "n1")
    assert agent.hears_nothing(), "the new one waits"
    agent.say(type="exited", worker="t/n1/0/1-41", code=-9, tail="")
    assert agent.hear("spawn")["worker"] != "t/n1/0/1-41"
    assert not [one for one in told.all if one["type"] == "note"], "the end of a stranger is nobody's"


def test_a_task_runs_on_fewer_of_its_nodes_for_a_while(launcher: AgentLauncher, hub: AgentHub) -> None:
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
    assert [one["nodes"] for one in told.all if one["type"] == "vacated"] == [["n3"]]
