"""What the hub knows of workers: which manager started them, how they ended, and when the next one may start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.timeouts import TIMEOUTS
from tests.helpers.lifecycles import WorkerExit
from tests.helpers.scripted_agents import SECRET, Agent, Comes, MessageInbox, Simple, exit_, left, start, started


def test_a_worker_bears_the_epoch_of_its_manager_in_its_name(inbox: MessageInbox) -> None:
    hub = AgentHub(inbox, SECRET, epoch=7, settle_s=2.5)
    assert hub.ask(lambda: hub.workers.new_name("t", "n1", 0)) == "t/n1/0/7-1"
    assert hub.settle_s == 2.5
    agent = Agent(hub, "n1", left("t/n1/0/6-99"))
    assert agent.hear("welcome") == {"type": "welcome", "epoch": 7, "keep_s": None, "silence_s": None, "version": 1}
    inbox.until("registered")
    assert hub.ask(lambda: hub.workers.new_name("t", "n1", 0)) == "t/n1/0/7-2", "numbers of other epochs do not count"
    agent.close()
    hub.close()


def test_agents_hear_how_long_workers_may_outlive_the_manager(inbox: MessageInbox) -> None:
    hub = AgentHub(inbox, SECRET, keep_s=30.0)
    agent = Agent(hub, "n1", kind="v100", gpus=4)
    welcome = agent.hear("welcome")
    assert welcome["keep_s"] == 30.0
    assert welcome["silence_s"] + TIMEOUTS.heartbeat_s < TIMEOUTS.agent_silence_s, "cut off, they stop in time"
    registered = inbox.until("registered")
    assert (registered["kind"], registered["gpus"]) == ("v100", 4)
    agent.close()
    hub.close()


def test_an_agent_that_obeys_a_newer_manager_is_not_registered(
    comes: Comes, hub: AgentHub, inbox: MessageInbox
) -> None:
    agent = comes("n1", epoch=2)
    assert agent.hear("welcome")["epoch"] == 1, "so it knows why"
    assert agent.is_sent_away()
    assert hub.nodes() == {}
    assert inbox.all == []


def test_two_agents_on_one_node_do_not_push_each_other_out(
    comes: Comes, inbox: MessageInbox, hub: AgentHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = comes("n1", instance="first")
    inbox.until("registered")
    for count in (1, 2):
        second = comes("n1", instance="second")
        assert "another agent is on node 'n1'" in second.hear("refused")["reason"]
        assert second.is_sent_away()
        assert inbox.until("refused", count)["node"] == "n1"
    assert [one["type"] for one in inbox.all if one["type"] in {"registered", "gone"}] == ["registered"]
    first.send(type="alive")
    comes("n1", instance="first")
    assert inbox.until("registered", 2), "one that connects again is no second one"
    assert first.is_sent_away()
    monkeypatch.setattr("bftrain_elastic.manager.agent_hub.TIMEOUTS", replace(TIMEOUTS, successor_s=0.0))
    comes("n1", instance="second")
    assert inbox.until("registered", 3), "one that has been silent has left its node to the next one"
    assert hub.nodes() == {"n1": 2}


def test_how_a_worker_ended_is_handed_on(comes: Comes, inbox: MessageInbox, launcher: AgentLauncher) -> None:
    start(launcher, "n1")
    agent = comes("n1")
    order = agent.hear("spawn")
    assert order["place"] == {"generation": 3, "rank": 0, "workers": 1}
    assert (order["finish_code"], order["finish_file"]) == (7, "/f/over")
    agent.send(type="exited", worker=order["worker"], **exit_(code=7, finished=True))
    assert inbox.until("note")["text"] == f"{order['worker']} finished with 7"


def test_an_end_that_no_manager_saw_is_reported_once_and_kept_for_the_next_manager(
    comes: Comes, launcher: AgentLauncher
) -> None:
    start(launcher, "n1")
    ended = left("t/n1/0/0-5", go={"generation": 3, "rank": 1, "workers": 2}, exit=exit_(finished=True, ago_s=4.5))
    heard_before = {"type": "report", "t": 1.0, "step": 7, "size": 1, "samples": 1, "loss": None, "total": 7}
    first = comes("n1", ended=(ended | {"report": heard_before},))
    first.hear("welcome")
    assert first.hear("spawn"), "the lifecycle starts another one"
    offered = Simple.made[-1].offered
    assert [(one.worker, one.place.generation, one.place.rank, one.exit, one.step) for one in offered] == [
        ("t/n1/0/0-5", 3, 1, WorkerExit(0, finished=True, ago_s=4.5), 7)
    ]
    assert offered[0].report is not None
    assert offered[0].report.total == 7
    first.close()
    again = comes("n1", ended=(ended,))
    again.hear("spawn")
    assert again.hears_nothing(), "it is not inbox twice, and not forgotten either"
    assert len(offered) == 1


@pytest.mark.parametrize("why", ["the lifecycle refuses it", "no such task"])
def test_an_end_that_every_manager_knows_is_forgotten(
    comes: Comes, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(Simple, "adopts", why != "the lifecycle refuses it")
    start(launcher, "n2")
    task = "u" if why == "no such task" else "t"
    agent = comes("n1", ended=(left("w/n1/0/0-5", task=task, exit=exit_()),))
    assert agent.hear("forget") == {"type": "forget", "task": task, "worker": "w/n1/0/0-5"}


def test_the_end_of_a_worker_whose_connection_broke_is_reported_when_it_is_known(
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    agent, worker = started(comes, launcher)
    agent.close()
    assert inbox.until("note")["text"] == f"{worker} exited with -9", "as far as the manager knows"
    comes("n1", ended=(left(worker, exit=exit_(finished=True)),)).hear("welcome")
    inbox.until("registered", 2)
    assert [one.exit for one in Simple.made[-1].offered] == [WorkerExit(0, finished=True)]


def test_an_end_that_was_said_and_is_listed_again_is_reported_once(
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    agent, worker = started(comes, launcher)
    for _ in range(2):
        agent.send(type="exited", worker=worker, **exit_())
    inbox.until("note")
    agent.close()
    comes("n1", ended=(left(worker, exit=exit_()),)).hear("welcome")
    inbox.until("registered", 2)
    assert Simple.made[-1].offered == []
    assert len([one for one in inbox.all if one["type"] == "note"]) == 1


def test_the_ends_of_a_dropped_task_are_forgotten(comes: Comes, inbox: MessageInbox, launcher: AgentLauncher) -> None:
    agent = comes("n1")
    inbox.until("registered")
    launcher.drop("t")
    assert agent.hear("forget") == {"type": "forget", "task": "t", "worker": ""}


def test_a_notice_is_reported_and_nothing_starts_on_that_node_any_more(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    start(launcher, "n1", "n2")
    agent = comes("n1")
    worker = agent.hear("spawn")["worker"]
    agent.send(type="notice", grace_s=4.5)
    notice = inbox.until("notice")
    assert (notice["node"], notice["grace_s"]) == ("n1", 4.5)
    assert inbox.until("note")["text"] == "n1 goes in 4.5 s"
    agent.send(type="exited", worker=worker, **exit_(stopped=True))
    assert inbox.until("note", 2)["text"] == f"{worker} stopped with 0"
    hub.ask(lambda: Simple.made[-1].spawn("n1"))
    assert agent.hears_nothing()
    agent.close()
    assert inbox.until("note", 3)["text"] == "t/n1/0/1-2 exited with -9", "it never started"


def test_a_notice_of_a_node_that_no_task_wants_is_reported_to_the_manager_alone(
    comes: Comes, inbox: MessageInbox, launcher: AgentLauncher
) -> None:
    start(launcher, "n2")
    comes("n1").send(type="notice", grace_s=1)
    inbox.until("notice")
    comes("n2").hear("spawn")
    assert not [one for one in inbox.all if one["type"] == "note"]


def test_a_worker_is_inspected(hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher) -> None:
    agent, worker = started(comes, launcher)
    hub.ask(lambda: Simple.made[-1].context.inspect(worker))
    assert agent.hear("inspect") == {"type": "inspect", "worker": worker}
    agent.send(type="inspected", worker=worker, state="T")
    assert inbox.until("note")["text"] == f"{worker} is T"


def test_a_worker_waits_until_the_one_before_it_on_its_slot_has_ended(
    hub: AgentHub, comes: Comes, launcher: AgentLauncher
) -> None:
    agent, worker = started(comes, launcher)
    hub.ask(lambda: Simple.made[-1].spawn("n1"))
    assert agent.hears_nothing()
    agent.send(type="exited", worker=worker, **exit_(code=-9))
    assert agent.hear("spawn")["worker"] == "t/n1/0/1-2"


def test_workers_that_are_held_back_start_later(hub: AgentHub, comes: Comes, launcher: AgentLauncher) -> None:
    hub.hold_workers()
    start(launcher, "n1")
    agent = comes("n1")
    agent.hear("expect_scripts")
    assert agent.hears_nothing()
    hub.start_workers()
    assert agent.hear("spawn")


def test_all_workers_that_wait_for_a_node_end_though_the_first_end_stops_the_rest(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exited(self: Simple, worker: str, _: WorkerExit) -> None:
        self.context.emit({"type": "note", "text": worker})
        for other in hub.workers.of({"t"}):
            self.context.stop(other, grace_s=0.0)

    monkeypatch.setattr(Simple, "exited", exited)
    agent, _ = started(comes, launcher)
    two_more = lambda: [Simple.made[-1].spawn("n1") for _ in range(2)]  # noqa: E731 - the first worker has their slot
    hub.ask(two_more)
    launcher.apply([{"action": "release", "nodes": ["n1"]}])
    agent.hear("clear")
    hub.ask(two_more)
    agent.close()
    inbox.until("gone")
    ends = [one.get("text", "gone").rpartition("-")[2] for one in inbox.all if one["type"] in {"note", "gone"}]
    assert ends == ["2", "3", "1", "4", "5", "gone"]


def test_agents_import_for_scripts_while_a_task_has_one(comes: Comes, hub: AgentHub, tmp_path: Path) -> None:
    launcher = AgentLauncher("simple", Simple, hub)
    own = {"argv": ["x.py"], "folder": str(tmp_path / "t"), "python": "/opt/python"}
    launcher.add("command", {**own, "argv": ["sleep", "9"]})
    launcher.add("own", own)
    first = comes("n1")
    hub.nodes()
    launcher.add("script", {**own, "python": ""})
    assert first.hear("expect_scripts") == {"type": "expect_scripts"}
    comes("n2").hear("expect_scripts")
    launcher.drop("script")
    launcher.close()
    third = comes("n3")
    assert third.hear("welcome")
    assert third.hears_nothing()


def test_a_new_task_costs_no_look_at_all_other_tasks(
    hub: AgentHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[LauncherJob] = []
    monkeypatch.setattr(LauncherJob, "has_own_environment", property(lambda job: looks.append(job) or True))
    launcher = AgentLauncher("simple", Simple, hub)
    for number in range(9):
        launcher.add(f"{number}", {"argv": ["x.py"], "folder": str(tmp_path)})
    hub.nodes()
    assert len(looks) == 9
