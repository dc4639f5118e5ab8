"""A cluster without a batch scheduler: a head, and nodes whose agents come, are killed, cut off, and come again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import pytest

from bftrain import Client
from bftrain_elastic.wire.network_interfaces import free_port
from tests.helpers import hosts
from tests.helpers.local_daemon import PATIENCE_S, LocalDaemon
from tests.helpers.pages import ROOT, page
from tests.helpers.program import bftrain
from tests.helpers.reading import Watcher, section

PROGRAM: Final = Path(__file__).parents[1] / "helpers" / "programs" / "given_speed.py"
SITE: Final = """
name = "lab"
folder = "shared"
launcher = "process"
[scheduler]
name = "cluster"
[agents]
port = PORT
listen = "HEAD"
"""
KINDS: Final = {"n1": "fast", "n2": "slow", "n3": "slow"}
SPEEDS: Final = {"fast": 20.0, "slow": 10.0}
NAMES: Final = ("a", "b", "c", "d")
HOSTS_MISSING: Final = hosts.missing()

IN_ROUNDS: Final = """
[deciding]
policy = "max-min"
round_s = 2
"""
needs_hosts = pytest.mark.skipif(bool(HOSTS_MISSING), reason=HOSTS_MISSING)


def task(name: str, folder: Path) -> str:
    speeds = ", ".join(f'"{node}={SPEEDS[kind]}"' for node, kind in KINDS.items())
    curves = "\n".join(f"curves.{kind} = {{ nodes = [1], rate = [{rate}] }}" for kind, rate in SPEEDS.items())
    return f"""
[[task]]
name = "{name}"
command = "{sys.executable}"
args = ["{PROGRAM}", "{folder}/{name}.txt", "inf", {speeds}]
nodes = "1"
{curves}
"""


class Cluster:
    """A live run on the head, and agents on nodes: hosts of their own, or processes of this one."""

    def __init__(self, folder: Path, network: hosts.Hosts | None, settings: str) -> None:
        self.folder, self.network = folder, network
        self.head = network.address("head") if network else "127.0.0.1"
        self.port = 7411 if network else free_port(self.head)
        prefix = network.prefix("head") if network else ()
        site = SITE.replace("HEAD", self.head).replace("PORT", str(self.port)) + settings
        self.run = LocalDaemon(folder, site, prefix)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.run.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.run.__exit__()
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            agent.wait(60)

    def add(self, node: str) -> None:
        """Start the agent of a node."""
        command = [sys.executable, "-m", "bftrain", "agent", "--manager", f"{self.head}:{self.port}", "--name", node]
        command += ["--kind", KINDS[node], "--secret", str(self.folder / "shared" / "secret")]
        prefix = self.network.prefix(node) if self.network else []
        with (self.folder / f"{node}.log").open("ab") as log:
            self.agents[node] = subprocess.Popen([*prefix, *command], stdout=log, stderr=log)

    def add_all(self) -> None:
        for node in KINDS:
            self.add(node)
        self.run.until(lambda: self.has(*KINDS), "all nodes have joined")

    def submit(self, *names: str) -> None:
        (self.folder / "tasks.toml").write_text("".join(task(name, self.folder) for name in names))
        submitted = bftrain("submit", self.folder / "tasks.toml", BFTRAIN_LIVE=self.run.socket)
        assert submitted.code == 0, submitted.err

    def finish(self, *names: str, killed: bool = False) -> None:
        """Let the tasks finish; each ran once at a time, and continued where it had stopped.

        A task that was ``killed`` may have saved its samples without a line in its record.
        """
        (self.folder / "enough").touch()
        self.run.until(lambda: not self.run.client.tasks(), "all tasks are done")
        assert {view.name: view.state for view in self.run.client.tasks(over=True)} == dict.fromkeys(names, "done")
        for name in names:
            lines = (self.folder / f"{name}.txt").read_text().splitlines()
            runs = [tuple(map(float, line.split())) for line in lines]  # another line if it ran twice
            assert all(next_ == end or (killed and next_ > end) for (_, end), (next_, _) in pairwise(runs))
        journal = bftrain("journal", "verify", self.run.state / "live.db")
        assert journal.code == 0, journal.out + journal.err
        assert "every decision the same" in journal.out

    def kill(self, node: str) -> None:
        self.agents[node].kill()
        self.agents[node].wait()

    def has(self, *nodes: str) -> bool:
        return self.pool == set(nodes)

    @property
    def pool(self) -> set[str]:
        return {node.name for node in self.run.client.nodes() if node.state in {"free", "used"}}

    def held(self, task: str) -> set[str]:
        return set(self.run.client.task(task).nodes)

    def tasks_use(self, *nodes: str) -> bool:
        return {node for name in NAMES for node in self.held(name)} == set(nodes)

    def have_run_on(self, seen: dict[str, set[str]]) -> dict[str, set[str]]:
        """Add the kinds that tasks run on now to those ``seen`` before."""
        for name in NAMES:
            seen.setdefault(name, set()).update(KINDS[node] for node in self.held(name))
        return seen


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    where, settings = request.param
    with ExitStack() as stack:
        network = stack.enter_context(hosts.Hosts(["head", *KINDS])) if where == "hosts" else None
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bftrain-lab-", dir="/tmp")))  # a short path
        yield stack.enter_context(Cluster(folder, network, settings))


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(("hosts", IN_ROUNDS), marks=needs_hosts, id="hosts"),
        pytest.param(("processes", IN_ROUNDS), id="processes"),
    ],
    indirect=True,
)
def test_nodes_come_and_go_and_no_task_is_lost_or_runs_twice(cluster: Cluster) -> None:
    run = cluster.run
    assert f"add nodes, on each: bftrain agent --manager {cluster.head}:{cluster.port} --secret " in run.story()
    cluster.add_all()
    kinds = run.client.status().kinds
    assert {kind: (view.pool, view.used) for kind, view in kinds.items()} == {"fast": (1, 0), "slow": (2, 0)}
    cluster.submit(*NAMES)
    seen: dict[str, set[str]] = {}
    both = {name: {*SPEEDS} for name in NAMES}
    run.until(lambda: cluster.have_run_on(seen) == both, "each task has run on both kinds, in turns")

    cluster.kill("n2")
    run.until(lambda: cluster.has("n1", "n3"), "the node of a killed agent has left")
    run.until(lambda: cluster.tasks_use("n1", "n3"), "tasks use the rest")
    cluster.add("n2")
    run.until(lambda: cluster.tasks_use(*KINDS), "a node that joins again is used again")

    drained = bftrain("live", "drain", "n1", BFTRAIN_LIVE=run.socket)
    assert drained.code == 0, drained.err
    run.until(lambda: cluster.tasks_use("n2", "n3"), "tasks have left a drained node")
    assert bftrain("live", "drain", "--end", "n1", BFTRAIN_LIVE=run.socket).code == 0
    run.until(lambda: cluster.tasks_use(*KINDS), "it is used again")

    before = {name: starts(cluster.folder / f"{name}.txt") for name in NAMES}
    run.kill()
    run.start()
    run.until(run.runs, "it runs again")
    assert cluster.has(*KINDS)
    run.until(lambda: cluster.tasks_use(*KINDS), "tasks use all nodes")
    assert all(agent.poll() is None for agent in cluster.agents.values())
    assert sum(starts(cluster.folder / f"{name}.txt") - before[name] for name in NAMES) <= len(KINDS)

    assert run.end() == 0, "a stop in order"
    run.start()
    run.until(run.runs, "it runs again")
    run.until(lambda: cluster.tasks_use(*KINDS), "tasks continue on nodes whose agents have waited")
    cluster.finish(*NAMES)


@pytest.mark.parametrize("cluster", [pytest.param(("hosts", ""), marks=needs_hosts, id="hosts")], indirect=True)
def test_a_node_that_is_cut_off_stops_its_task_before_another_node_continues_it(cluster: Cluster) -> None:
    run, network = cluster.run, cluster.network
    assert network is not None
    cluster.add_all()
    cluster.submit("a")
    run.until(lambda: run.client.task("a").done_samples > 0, "the task runs")
    (node,) = cluster.held("a")
    network.cut_off(node)
    run.until(lambda: not cluster.held("a") <= {node} and not cluster.has(*KINDS), "another node continues the task")
    before = run.client.task("a").done_samples
    run.until(lambda: run.client.task("a").done_samples > before, "it runs there")
    assert cluster.agents[node].poll() is None
    network.connect(node)
    run.until(lambda: cluster.has(*KINDS), "the node is used again")
    cluster.finish("a")


SSH: Final = """\
#!/bin/sh
# ssh -n HOST COMMAND, where hosts are network namespaces
exec {prefix}$2 setsid --wait unshare --uts sh -c "hostname $2; $3"
"""


@needs_hosts
@pytest.mark.torch
def test_the_tutorial_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = page(ROOT / "docs" / "how-to" / "live.md")
    with hosts.Hosts(["head", "n1", "n2"]) as network, TemporaryDirectory(prefix="bftrain-lab-", dir="/tmp") as name:
        home = Path(name)
        (home / "bftrain").symlink_to(ROOT)
        (home / "venv").symlink_to(sys.prefix)
        (home / "bin").mkdir()
        (home / "bin" / "ssh").write_text(SSH.format(prefix=" ".join(network.prefix(""))))
        (home / "bin" / "ssh").chmod(0o755)
        monkeypatch.setenv("HOME", name)
        for variable in ("XDG_STATE_HOME", "BFTRAIN_LIVE"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
        on_head = " ".join(["nohup", *network.prefix("head"), "bftrain live"])

        def moved(text: str) -> str:
            return text.replace("nohup bftrain live", on_head).replace("head:", f"{network.address('head')}:")

        reader = Watcher(section(guide, "A cluster without a scheduler", moved), tmp_path, home)
        try:
            reader.read()
        except AssertionError as error:
            error.add_note("\n".join([reader.seen, *(log.read_text() for log in home.glob("lab/*.log"))]))
            raise
        client = Client(str(home / ".local" / "state" / "bftrain" / "live" / "api.sock"))
        deadline = time.monotonic() + PATIENCE_S
        while client.tasks() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [(view.name, view.state) for view in client.tasks(over=True)] == [("cnn", "done")]
    assert "2 agents, 0 drained" in reader.seen


def starts(record: Path) -> int:
    """Return the number of recorded runs."""
    return len(record.read_text().splitlines()) if record.exists() else 0
