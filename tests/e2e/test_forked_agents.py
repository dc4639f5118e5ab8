"""Agents of one program that are forked from one process: modules are imported once, and workers see what they saw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.agent.forked_agents import AgentForkServer
from bftrain_elastic.agent.process_tree import children, descendants
from bftrain_elastic.tryout.local_agents import LocalAgents, alive
from tests.helpers.one_node import SAVES, SLEEPS, SPEAKS, OneNode, until

# Writes a line when it is imported, which takes until the file ``wait`` is gone
SLOW = """
import os, time
from pathlib import Path
folder = Path(__file__).parent
with (folder / "imports").open("a") as file:
    file.write(f"{os.getpid()}\\n")
while (folder / "wait").exists():
    time.sleep(0.01)
"""
# Writes down what a process has from those before it
PROBE = """
import json, os, resource, signal, sys
from pathlib import Path
own = [name for name in os.environ if name not in ("BFTRAIN_WORKER", "BFTRAIN_SOCKET")]
found = {
    "environment": {name: os.environ[name] for name in own},
    "folder": os.getcwd(),
    "path": sys.path,
    "argv": sys.argv,
    "main": sys.modules["__main__"].__dict__.get("__file__"),
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
    "umask": os.umask(0o77),
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "handlers": {int(one): str(signal.getsignal(one)).split(" at ")[0] for one in signal.valid_signals()},
    "kernel": [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Sig")][1:],
    "descriptors": sorted((int(one), os.readlink(f"/proc/self/fd/{one}")) for one in "012"),
    "others": [one for one in os.listdir("/proc/self/fd") if int(one) > 2 and os.path.exists(f"/proc/self/fd/{one}")],
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
}
Path("probe.new").write_text(json.dumps(found))
os.rename("probe.new", "probe")
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a module ``slow``; return the file that has a line for each time it was imported."""
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "imports"


@pytest.fixture
def unstarted(slow: Path) -> Iterator[OneNode]:
    """Yield a node whose agents have not been started, and will import ``slow`` until the file ``wait`` is gone."""
    node = OneNode(slow.parent)
    (node.folder / "wait").touch()
    node.agents = LocalAgents(node.hub, node.folder / "secret", preload=("slow",), tmp=node.folder)
    yield node
    node.agents.close()
    node.hub.abandon()


def test_all_agents_share_one_import_and_their_workers_have_it(one_node: OneNode, slow: Path) -> None:
    one_node.start(preload=("slow",))
    one_node.agents.start("n2", "n3")
    until(lambda: len(one_node.watched.all("warm")) == 3, "all agents are warm")
    one_node.spawn(f"import slow\n{SPEAKS}")
    assert one_node.watched.until("exited")[2].finished
    assert len(slow.read_text().split()) == 1
    one_node.agents.close()
    one_node.agents.start("n1")
    one_node.agent = one_node.agents.running["n1"]


def probed(one_node: OneNode, preload: tuple[str, ...]) -> dict[str, Any]:
    """Return what a worker has of an agent with this preloaded."""
    one_node.start(preload=preload)
    one_node.spawn(PROBE, env={"ASKED": "for"})
    one_node.watched.until("exited")
    found: dict[str, Any] = json.loads((one_node.folder / "probe").read_text())
    return found


@pytest.mark.usefixtures("slow")
def test_a_worker_of_a_forked_agent_has_what_one_of_an_agent_of_its_own_has(tmp_path: Path) -> None:
    found = []
    for preload in ((), ("slow",)):
        one_node = OneNode(tmp_path)
        found.append(probed(one_node, preload))
        one_node.close()
        (tmp_path / "secret").unlink()
    assert found[1] == found[0]
    assert found[0]["environment"]["ASKED"] == "for"


def test_agents_and_workers_go_on_when_the_fork_server_is_killed(one_node: OneNode, slow: Path) -> None:
    one_node.start(preload=("slow",))
    worker = one_node.started(SAVES, "0")
    (server,) = map(int, slow.read_text().split())
    os.kill(server, signal.SIGKILL)
    until(lambda: not alive([server]), "it is dead")
    one_node.agents.start("n2")
    until(lambda: len(one_node.watched.all("warm")) == 2, "another agent is forked by another server")
    assert len(slow.read_text().split()) == 2
    assert alive([worker])
    one_node.hub.call(lambda: one_node.hub.stop(one_node.ordered, 15.0))
    end = one_node.watched.until("exited")[2]
    assert (end.code, end.stopped) == (0, True)
    one_node.agents.terminate("n2")


def test_another_prefork_server_of_a_forked_agent_imports_nothing_again(one_node: OneNode, slow: Path) -> None:
    one_node.start(preload=("slow",))
    worker = one_node.started(SLEEPS)
    os.kill(one_node.prefork, signal.SIGKILL)
    assert one_node.watched.until("exited")[2].code == -signal.SIGKILL
    assert not alive([worker])
    one_node.watched.until("warm", 2)
    one_node.prefork = children(one_node.agent.pid)[0]
    one_node.spawn(SPEAKS)
    assert one_node.watched.until("exited", 2)[2].finished
    assert len(slow.read_text().split()) == 1


def test_agents_are_started_by_themselves_if_the_fork_server_dies_while_it_imports(
    unstarted: OneNode, slow: Path
) -> None:
    unstarted.agents.start("n1", "n2")
    until(lambda: slow.exists() and slow.read_text(), "it imports")
    os.kill(int(slow.read_text()), signal.SIGKILL)
    (unstarted.folder / "wait").unlink()
    unstarted.agents.replace_lost(wait=True)
    until(lambda: len(unstarted.watched.all("warm")) == 2, "both are there all the same")
    assert all(isinstance(agent, subprocess.Popen) for agent in unstarted.agents.running.values())


def test_an_agent_that_is_ended_before_it_begins_never_begins(unstarted: OneNode, slow: Path) -> None:
    unstarted.agents.start("n1", "n2")
    until(lambda: slow.exists() and slow.read_text(), "it imports")
    unstarted.agents.terminate("n1")
    (unstarted.folder / "wait").unlink()
    unstarted.watched.until("warm")
    assert [heard[1] for heard in unstarted.watched.all("registered")] == ["n2"]


PROGRAM = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from bftrain_elastic.tryout.local_agents import LocalAgents
port, secret, folder = sys.argv[1:]
hub = SimpleNamespace(address=("127.0.0.1", int(port)))
agents = LocalAgents(hub, Path(secret), preload=("slow",), remove=Path(folder))
agents.start("n1")
time.sleep(600)
"""


@pytest.mark.parametrize("imported", [True, False])
def test_what_a_killed_program_had_started_ends(unstarted: OneNode, slow: Path, *, imported: bool) -> None:
    if imported:
        (unstarted.folder / "wait").unlink()
    folder = unstarted.folder / "own"
    folder.mkdir()
    words = [str(unstarted.port), str(unstarted.folder / "secret"), str(folder)]
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *words])
    try:
        until(lambda: slow.exists() and slow.read_text(), "it imports")
        if imported:
            unstarted.watched.until("warm")
        pids = list(descendants(program.pid))
        assert len(pids) == (3 if imported else 1), "fork server, agent and prefork server, or the first of them"
    finally:
        program.kill()
        program.wait()
    until(lambda: not alive(pids), "no process is left")
    until(lambda: not folder.exists(), "nor the folder")


def test_without_modules_there_is_nothing_to_share() -> None:
    assert not AgentForkServer((), os.environ).useful
    assert AgentForkServer(("json",), os.environ).useful
