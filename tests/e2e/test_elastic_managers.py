"""The manager is killed with -9 while a task trains, and another takes its place: the task goes on, and runs once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain_elastic.wire.authenticated_stream import make_secret
from tests.helpers import sample_scripts
from tests.helpers.manager import TASK, Manager
from tests.helpers.pace import busy_s
from tests.helpers.processes import children, descendants
from tests.helpers.saved import saved_step

pytestmark = [pytest.mark.torch, pytest.mark.apart]

NODES = ("n1", "n2")
LAUNCHERS = [
    pytest.param("native", sample_scripts.TORCH[0], id="native"),
    pytest.param("process", sample_scripts.TORCH[0], id="process", marks=pytest.mark.soak),
    pytest.param("horovod", sample_scripts.HOROVOD[0], id="horovod", marks=pytest.mark.horovod),
]
PLAIN = ("process", sample_scripts.PLAIN[0])  # which launcher it is does not matter, and this needs no torch


class Site:
    """Agents that are children of the test alone, and one manager after the other at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_secret(folder / "secret")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = str(probe.getsockname()[1])
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.managers: list[Manager] = []

    def agent(self, node: str, *words: str) -> None:
        where = ["--manager", f"127.0.0.1:{self.port}", "--secret", str(self.folder / "secret"), "--node", node]
        command = [sys.executable, "-m", "bftrain_elastic.agent", *where, "--parent", str(os.getpid()), *words]
        self.agents[node] = subprocess.Popen(command, start_new_session=True)

    def manager(self, launcher: str, script: str, *nodes: str, keep_s: float | None = None) -> Manager:
        """Start a manager whose task holds these nodes."""
        words = (launcher, self.port, str(self.folder / "secret"), str(self.folder / "task"), script, ",".join(nodes))
        self.managers.append(Manager(*words, *([] if keep_s is None else [str(keep_s)])))
        return self.managers[-1]

    def workers(self) -> set[int]:
        """Return all processes below the agents that are neither agents nor prefork servers."""
        preforks = [prefork for agent in self.agents.values() for prefork in children(agent.pid)]
        return {pid for prefork in preforks for pid in descendants(prefork)}

    def close(self) -> None:
        with ExitStack() as left:  # all of them, even if one does not end
            for agent in self.agents.values():
                left.callback(agent.wait, 60)
                left.callback(agent.terminate)
            for manager in self.managers:
                if manager.process.poll() is None:
                    left.callback(manager.close)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()


def steps(manager: Manager) -> list[int]:
    return [one["step"] for one in manager.of("report")]


@pytest.mark.parametrize(("launcher", "script"), LAUNCHERS)
def test_the_task_goes_on_under_another_manager_and_nothing_runs_twice(site: Site, launcher: str, script: str) -> None:
    for node in NODES:
        site.agent(node)
    first = site.manager(launcher, script, *NODES)
    first.steps(2, 20)
    trained = site.workers()
    assert len(trained) == 2
    first.kill()
    second = site.manager(launcher, script, *NODES)
    second.steps(2, 20)
    assert steps(second)[0] > steps(first)[-1], "what was reported is not done again"
    assert all(later == earlier + 1 for earlier, later in pairwise(steps(second))), "one task, one line of steps"
    assert not second.of("failed")
    assert site.workers() == trained, "these very processes were taken over"
    second.first("confirmed")  # workers may report steps sooner than the last of them that it is still there
    assert len(second.of("confirmed")) == 1, "without so much as a new group"
    # And it is not only watched, but moved again
    second.do({"action": "shrink", "task": TASK, "nodes": ["n1"], "cause": "decided"})
    second.steps(1, 5)
    second.close()
    assert not site.workers()


# tests/soak kills agents and managers of all launchers
def test_if_the_agents_are_gone_too_it_goes_on_from_its_last_commit(site: Site) -> None:
    launcher, script = "native", sample_scripts.TORCH[0]
    for node in NODES:
        site.agent(node)
    first = site.manager(launcher, script, *NODES)
    first.steps(2, 30)
    below = {pid for agent in site.agents.values() for pid in descendants(agent.pid)}
    first.kill()
    for agent in site.agents.values():
        agent.kill()
        agent.wait(60)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "nothing outlives its agent")
    safe = saved_step(site.folder / "task")
    assert safe > 0
    site.agent("n3")
    second = site.manager(launcher, script, "n3")
    second.steps(1, 5)
    assert steps(second)[0] == safe + 1


# Notes each start, and ends well when it is asked to
ENDS = """
import os, sys, time
from pathlib import Path
from bftrain_elastic import report
folder = Path(os.environ["BFTRAIN_FOLDER"])
with open(folder / "starts", "a") as starts:
    starts.write(os.environ["RANK"])
while not (folder / "end").exists():
    report(samples=1)
    time.sleep(0.02)
"""


def test_a_command_that_ended_while_no_manager_was_there_is_done_and_not_run_again(site: Site) -> None:
    (site.folder / "ends.py").write_text(ENDS)
    for node in NODES:
        site.agent(node, "--preload", "")
    words = ("process", str(site.folder / "ends.py"), *NODES)
    first = site.manager(*words)
    first.steps(2, 5)
    first.kill()
    (site.folder / "task" / "end").touch()
    until(lambda: not site.workers(), "all ranks ended")
    second = site.manager(*words)
    until(lambda: second.of("done") or second.of("failed"), "its end is reported")
    assert second.of("done")
    assert sorted((site.folder / "task" / "starts").read_text()) == ["0", "1"], "each rank ran once"


def test_a_task_that_the_new_manager_does_not_know_is_ended(site: Site) -> None:
    site.agent("n1", "--preload", "")
    first = site.manager(*PLAIN, "n1")
    first.steps(1, 5)
    trained = site.workers()
    first.kill()
    second = site.manager(*PLAIN, "n2")  # its task holds another node now
    until(lambda: not site.workers() & trained, "the worker of the manager before is gone")
    assert second.first("registered")["node"] == "n1"


def test_without_a_manager_workers_train_on_for_as_long_as_their_agent_has_patience(site: Site) -> None:
    site.agent("n1", "--patience", "6", "--preload", "")
    first = site.manager(*PLAIN, "n1")
    first.steps(1, 5)
    first.kill()
    last_step = steps(first)[-1]
    agent = site.agents.pop("n1")
    agent.wait(90)
    assert not list(descendants(agent.pid))
    assert saved_step(site.folder / "task") > last_step, "it went on meanwhile"


def test_workers_that_only_a_manager_may_keep_end_with_it_and_their_agent_stays(site: Site) -> None:
    site.agent("n1", "--preload", "")
    first = site.manager(*PLAIN, "n1", keep_s=0.0)
    first.steps(1, 5)
    first.kill()
    killed_at = time.monotonic()
    until(lambda: not site.workers(), "its workers are gone")
    assert time.monotonic() - killed_at < busy_s(10.0), "a job of others may start there"
    assert site.agents["n1"].poll() is None
    second = site.manager(*PLAIN, "n1", keep_s=0.0)
    second.steps(1, 60)  # for longer than a death waits for its verdict
    assert not second.of("note"), "these ends are no fault of the program"


def test_workers_that_only_a_manager_may_keep_end_when_it_stands_still(site: Site) -> None:
    site.agent("n1", "--preload", "")
    manager = site.manager(*PLAIN, "n1", keep_s=0.0)
    manager.steps(1, 5)
    trained = site.workers()
    time.sleep(4.0)
    assert site.workers() == trained, "signs of life suffice"
    manager.process.send_signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    until(lambda: not site.workers(), "its workers are gone")
    assert 1.5 < time.monotonic() - stopped_at < busy_s(10.0), "a job of others may start there"
    assert site.agents["n1"].poll() is None
    manager.process.send_signal(signal.SIGCONT)
    manager.steps(1, len(steps(manager)) + 5)
    assert not manager.of("note"), "this end is no fault of the program"


def until(true: Callable[[], object], words: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)
