"""The hub, with scripted agents: what each may do to it, and what it does with workers that others left."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.hub_inputs import RunningWorker
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import VERSION
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from tests.helpers.scripted_agents import (
    PATIENCE_S,
    SECRET,
    Agent,
    Comes,
    MessageInbox,
    Simple,
    left,
    report,
    start,
    started,
)


def test_a_report_bears_the_time_of_both_clocks(comes: Comes, inbox: MessageInbox, launcher: AgentLauncher) -> None:
    agent, worker = started(comes, launcher)
    agent.send(**report(worker, 1))
    heard = inbox.until("report")
    assert heard["t"] == 5.0
    assert abs(heard["received_at"] - time.time()) < PATIENCE_S


def test_a_worker_that_says_what_cannot_be_harms_no_other(
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    agent, worker = started(comes, launcher)
    agent.send(type="worker_message", worker=worker, message={"type": "report", "step": "many"})
    assert "message 'report': 't' must be a valid float" in inbox.until("note")["text"]
    agent.send(**report(worker, 2))
    assert inbox.until("report")["step"] == 2


@pytest.mark.parametrize(
    "message", [{"type": "worker_message"}, {"type": "exited", "worker": "w"}, {"type": "spawned", "worker": 3}]
)
def test_an_agent_that_says_what_cannot_be_is_sent_away_and_the_others_stay(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, message: dict[str, Any]
) -> None:
    odd, _ = comes("odd"), comes("other")
    inbox.until("registered", 2)
    hub.ask(lambda: hub.agent("odd").workers.update(w=RunningWorker("t", "odd", 0)))
    odd.send(**message)
    assert odd.is_sent_away()
    assert inbox.until("gone")["node"] == "odd"
    assert hub.nodes() == {"other": 2}


def test_a_manager_that_fails_at_one_message_receives_the_next(
    comes: Comes, inbox: MessageInbox, capfd: pytest.CaptureFixture[str]
) -> None:
    inbox.breaks = True
    comes("n1")
    inbox.until("registered")
    inbox.breaks = False
    comes("n2")
    inbox.until("registered", 2)
    assert "the manager stumbles" in capfd.readouterr().err


def test_a_lifecycle_with_a_mistake_fails_its_own_task(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher, capfd: pytest.CaptureFixture[str]
) -> None:
    agent, worker = started(comes, launcher)
    agent.send(type="worker_message", worker=worker, message={"type": "done", "step": 1})
    assert inbox.until("failed")["reason"] == "the simple launcher broke: ZeroDivisionError: a mistake in the lifecycle"
    assert agent.hear("stop") == {"type": "stop", "worker": worker, "grace_s": 0.0}
    assert hub.nodes() == {"n1": 2}
    assert "a mistake in the lifecycle" in capfd.readouterr().err
    agent.send(type="exited", worker=worker, code=-9, tail="")
    start(launcher, "n1")
    assert agent.hear("spawn")["worker"] != worker, "the next start has a new lifecycle"


def test_who_stops_workers_that_wait_hears_of_their_end_later(hub: AgentHub, comes: Comes, tmp_path: Path) -> None:
    """A lifecycle that goes through its workers may not have them taken away meanwhile."""
    ended: list[str] = []

    class Stopping(Simple):
        def set_nodes(self, nodes: tuple[str, ...], **_: object) -> None:
            names = [self.context.name(node, 0) for node in nodes]
            for node, name in zip(nodes, names, strict=True):
                self.context.spawn(node, name, env={})
            for name in names:
                self.context.stop(name, grace_s=0.0)
                ended.append(f"asked for {name[0]}")

        def exited(self, worker: str, *_: object) -> None:
            ended.append(f"heard of {worker[0]}")

    for task, lifecycle in (("a", Simple), ("b", Stopping)):
        launcher = AgentLauncher("some", lifecycle, hub)
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


def test_a_job_that_cannot_be_is_refused_when_it_is_added(launcher: AgentLauncher) -> None:
    with pytest.raises(BadJob, match="already exists"):
        launcher.add("t", {"argv": ["x.py"], "folder": "f"})
    with pytest.raises(BadJob, match="argv"):
        launcher.add("u", {"argv": [], "folder": "f"})


def test_an_agent_that_falls_silent_is_lost(
    comes: Comes, inbox: MessageInbox, hub: AgentHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes("n1")
    inbox.until("registered")
    monkeypatch.setattr("bftrain_elastic.manager.hub_inputs.TIMEOUTS", replace(TIMEOUTS, agent_silence_s=0.1))
    gone = inbox.until("gone")
    assert (gone["node"], gone["reason"].startswith("no message for")) == ("n1", True)
    assert hub.nodes() == {}


def test_an_agent_that_spoke_while_the_hub_stood_still_is_not_silent(
    comes: Comes, inbox: MessageInbox, hub: AgentHub
) -> None:
    agent = comes("n1")
    inbox.until("registered")

    def stands_still() -> None:
        agent.send(type="alive")
        connection = hub.agent("n1")
        assert connection is not None
        connection.heard_at -= 100.0
        time.sleep(0.15)  # so that the hub looks for silent agents before it reads

    hub.ask(stands_still)
    assert hub.nodes() == {"n1": 2}


def test_a_hub_without_free_descriptors_goes_on_and_accepts_agents_later(
    comes: Comes, inbox: MessageInbox, hub: AgentHub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    comes("n1")
    inbox.until("registered")
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
    assert inbox.until("registered", 2)["node"] == "n2"
    assert len(tries) < 5, "it does not try without end"
    assert "no agent can connect: Too many open files" in capfd.readouterr().err


@pytest.mark.parametrize(("reason", "noticed"), [("SIGTERM", True), ("no manager for 30 s", False)])
def test_an_agent_that_the_scheduler_ended_is_distinguished(
    comes: Comes, inbox: MessageInbox, reason: str, *, noticed: bool
) -> None:
    comes("n1").send(type="leaving", reason=reason)
    gone = inbox.until("gone")
    assert (gone["reason"], gone["noticed"]) == (f"it left: {reason}", noticed)


def test_the_end_of_an_agent_that_left_is_reported(comes: Comes, inbox: MessageInbox) -> None:
    agent = comes("n1")
    agent.send(type="leaving", reason="SIGTERM", after_s=0.25)
    gone = inbox.until("gone")
    assert gone["after_s"] == 0.25, "what it took to kill its workers"
    assert "agent_ended" not in [one["type"] for one in inbox.all], "its process is still there"
    agent.close()
    ended = inbox.until("agent_ended")
    assert (ended["node"], ended["after_s"] > 0) == ("n1", True)


def test_what_was_said_on_one_connection_is_refused_on_another(hub: AgentHub, inbox: MessageInbox) -> None:
    """An eavesdropper on the network has all that an agent sent, but not the secret."""
    sealed = AuthenticatedStream(SECRET, "agent")
    recorded = sealed.greeting
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(sealed.greeting)
        while not sealed.greeted:
            list(sealed.feed(connection.recv(65536)))
        register = sealed.seal({"type": "register", "node": "n1", "address": "", "slots": 1, "pid": 1})
        recorded += register
        connection.sendall(register)
        inbox.until("registered")
    inbox.until("gone")
    with socket.create_connection(hub.address, timeout=PATIENCE_S) as connection:
        connection.sendall(recorded)
        while connection.recv(65536):  # its greeting, and then the end
            pass
    assert hub.nodes() == {}
    assert len([one for one in inbox.all if one["type"] == "registered"]) == 1


def test_a_task_that_was_never_added_fails(inbox: MessageInbox, launcher: AgentLauncher) -> None:
    launcher.apply([{"action": "start", "task": "u", "nodes": ["n1"]}])
    assert inbox.until("failed") | {"t": 0} == {
        "type": "failed", "task": "u", "reason": "the simple launcher does not know what to run for it", "t": 0,
    }  # fmt: skip


def test_a_closed_hub_lets_agents_in_when_it_is_opened(inbox: MessageInbox) -> None:
    hub = AgentHub(inbox, SECRET, closed=True)
    came: list[Agent] = []
    coming = threading.Thread(target=lambda: came.append(Agent(hub, "n1")))
    coming.start()
    assert hub.ask(lambda: hub.agent("n1")) is None
    assert inbox.all == []
    hub.open()
    hub.open()
    coming.join(PATIENCE_S)
    assert inbox.until("registered")["node"] == "n1"
    came[0].close()
    hub.close()


def test_a_worker_that_a_task_knows_is_taken_over(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    agent = comes("n1", left("t/n1/0/1-41"))
    assert agent.hear("message") == {"type": "message", "worker": "t/n1/0/1-41", "message": {"type": "position"}}
    agent.send(**report("t/n1/0/1-41", 8))
    assert inbox.until("report")["step"] == 8
    assert hub.ask(lambda: hub.workers.new_name("t", "n1", 0)) == "t/n1/0/1-42", "no name is used twice"
    agent.send(type="exited", worker="t/n1/0/1-41", code=0, tail="")
    assert inbox.until("note")["text"] == "t/n1/0/1-41 exited with 0"


@pytest.mark.parametrize("why", ["the task does not want the node", "the lifecycle refuses it", "no such task"])
def test_an_unknown_worker_is_killed_before_anything_starts_there(
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    start(launcher, "n2" if why == "the task does not want the node" else "n1")
    monkeypatch.setattr(Simple, "adopts", why != "the lifecycle refuses it")
    agent = comes("n1", left("t/n1/0/1-41", task="u" if why == "no such task" else "t"))
    assert agent.hear("stop") == {"type": "stop", "worker": "t/n1/0/1-41", "grace_s": 0.0}
    start(launcher, "n1")
    assert agent.hears_nothing(), "the new one waits"
    agent.send(type="exited", worker="t/n1/0/1-41", code=-9, tail="")
    assert agent.hear("spawn")["worker"] != "t/n1/0/1-41"
    assert not [one for one in inbox.all if one["type"] == "note"], "the end of an unknown worker is not reported"


def test_a_task_runs_on_fewer_of_its_nodes_for_a_while(launcher: AgentLauncher, hub: AgentHub) -> None:
    lifecycle = Simple.made[-1]

    def runs_on() -> tuple[str, ...]:
        return hub.ask(lambda: lifecycle.wanted)

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
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    start(launcher, "n1", "n2", "n3")
    launcher.narrow("t", 1)
    agent = comes("n1")
    agent.hear("spawn")
    launcher.apply([{"action": "shrink", "task": "t", "nodes": ["n1", "n3"], "cause": "decided"}])
    assert inbox.until("vacated")["nodes"] == ["n3"], "of the other its lifecycle tells when the worker has ended"
    launcher.apply([{"action": "stop", "task": "t", "nodes": ["n2"], "cause": "preempted"}])
    launcher.apply([{"action": "start", "task": "unknown", "nodes": ["n2"]}])
    inbox.until("failed")
    assert [one["nodes"] for one in inbox.all if one["type"] == "vacated"] == [["n3"]]


def test_an_agent_of_a_later_version_is_refused_in_words(comes: Comes, inbox: MessageInbox) -> None:
    assert comes("n1", version=VERSION).hear("welcome")["version"] == VERSION
    later = comes("n2", version=VERSION + 1)
    assert f"messages of version {VERSION + 1}, and the manager version {VERSION}" in later.hear("refused")["reason"]
    assert later.is_sent_away()
    assert inbox.until("refused")["node"] == "n2"


def test_an_agent_that_says_no_version_is_one_of_the_first_release(comes: Comes, inbox: MessageInbox) -> None:
    comes("n1", version=0).hear("welcome")
    assert inbox.until("registered")["node"] == "n1"
