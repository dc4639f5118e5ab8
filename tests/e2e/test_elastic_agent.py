"""The agent on its own: starts at once, leaves nothing behind, listens only where it should, admits no stranger."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, make_secret
from tests.helpers import launcher_conformance as conformance
from tests.helpers.launcher_conformance import MessageLog
from tests.helpers.pace import busy_s
from tests.helpers.processes import children, descendants
from tests.helpers.program import PROGRAM

pytestmark = pytest.mark.torch

# A training whose worker has a child in its group, one in a session of its own, and one that lost its parent
FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
subprocess.run(["setsid", "--fork", sys.executable, "-c", "import time; time.sleep(600)"])
from bftrain_elastic import report
while True:
    report(samples=1)
    time.sleep(0.05)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[conformance.LocalStage]:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    with conformance.LocalStage(launchers.process, [str(script)], nodes=("n1", "n2"), preload=()) as running:
        yield running


def family(stage: conformance.LocalStage, node: str = "n1") -> set[int]:
    """Start a training on a node; return all its processes, the agent and the prefork server included."""
    task = stage.new()
    stage.do("start", task, node)
    stage.messages.steps(task, 1)
    agent = stage.agents.running[node].pid
    until(lambda: len(list(descendants(agent))) == 5, "prefork server, worker and its three children are there")
    return {agent, *descendants(agent)}


def until(true: object, words: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]  # a callable
        assert time.monotonic() < deadline, words
        time.sleep(0.002)


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if state(pid) not in {"", "Z"}}


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_asked_to_go_it_is_gone_at_once_with_every_child_and_says_so(stage: conformance.LocalStage) -> None:
    took = []
    for node in ("n1", "n2"):
        pids = family(stage, node)
        begun = time.monotonic()
        stage.agents.running[node].send_signal(signal.SIGTERM)
        code = stage.agents.running[node].wait(60)
        took.append(time.monotonic() - begun)
        del stage.agents.running[node]
        assert (code, alive(pids)) == (0, set())
        stage.messages.until(
            lambda node=node: any(
                one["type"] == "gone" and one["node"] == node and "SIGTERM" in one["reason"]
                for one in stage.messages.all
            ),
            "it says so",
        )
    assert min(took) < busy_s(10)  # and not as long as a worker may take to save


@pytest.mark.parametrize("victim", ["agent", "prefork", "worker"])
def test_a_kill_of_any_process_leaves_nothing_behind(stage: conformance.LocalStage, victim: str) -> None:
    pids = family(stage)
    agent = stage.agents.running["n1"].pid
    prefork = children(agent)[0]
    worker = next(pid for pid in children(prefork) if children(pid))
    os.kill({"agent": agent, "prefork": prefork, "worker": worker}[victim], signal.SIGKILL)
    gone = pids if victim == "agent" else pids - {agent} if victim == "prefork" else pids - {agent, prefork}
    until(lambda: not alive(gone), f"everything below the {victim} is gone")
    if victim == "agent":
        stage.agents.running.pop("n1").wait()
    else:  # and the task goes on
        task = f"{stage.launcher.name}1"
        stage.messages.steps(task, 1)


# A training that needs no torch
PLAIN = """
import time
from bftrain_elastic import report
while True:
    report(samples=1)
    time.sleep(0.05)
"""


def test_a_killed_trial_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "tmp").mkdir()
    command = [PROGRAM, "train", str(tmp_path / "plain.py"), "--launcher", "process"]
    trial = subprocess.Popen(
        [*command, "--nodes", "2"], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, stderr=subprocess.DEVNULL
    )

    def logs() -> list[Path]:
        return list((tmp_path / "tmp").glob("bftrain-try-*/task/logs/*.log"))

    try:
        until(lambda: len(logs()) == 2, "two workers run")
        pids = {trial.pid, *descendants(trial.pid)}
    finally:
        trial.kill()
        trial.wait()
    until(lambda: not alive(pids), "all its processes are gone")
    until(lambda: not list((tmp_path / "tmp").glob("bftrain*")), "its folders are gone")


# A training that says which GPUs it sees
SEES = """
import os, sys, time
from pathlib import Path
from bftrain_elastic import report
said = [os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
(Path(os.environ["BFTRAIN_FOLDER"]) / f"sees{os.getpid()}").write_text(" ".join(said).strip())
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("launcher", "sees"),
    [
        (launchers.native, {"5", "7"}),  # one GPU each, which is the only one it sees
        (launchers.process, {"5,7 0 2", "5,7 1 2"}),  # as under torchrun: all, and its own is that of its local rank
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_each_gpu_has_a_worker_that_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: launchers.LauncherFactory, sees: set[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")  # torch for CPUs does not look at it
    script = tmp_path / "sees.py"
    script.write_text(SEES)
    with conformance.LocalStage(launcher, [str(script)], nodes=("n1",), preload=(), slots=0) as stage:
        assert stage.hub.nodes() == {"n1": 2}
        task = stage.new()
        stage.do("start", task, "n1")
        folder = stage.folder / task

        def seen() -> set[str]:
            return {path.read_text() for path in folder.glob("sees*")}

        until(lambda: seen() == sees, f"{sees} are seen")


def test_who_does_not_know_the_secret_is_sent_away(tmp_path: Path) -> None:
    messages = MessageLog()
    hub = AgentHub(messages, make_secret(tmp_path / "secret"))
    try:
        for line in (b"hello\n", b"x" * 5000, b'{"nonce": "00"}\n', stranger_registers):
            with socket.create_connection(hub.address, timeout=10) as connection:
                greeting = connection.recv(4096)
                assert set(json.loads(greeting)) == {"nonce"}
                connection.sendall(line(greeting) if callable(line) else line)
                assert connection.recv(4096) == b"", "the hub stops the connection"
        assert hub.nodes() == {}
        assert messages.all == []
    finally:
        hub.close()


def stranger_registers(greeting: bytes) -> bytes:
    wrong = AuthenticatedStream(b"?" * 32, "agent")
    list(wrong.feed(greeting))
    register = {"type": "register", "node": "n1", "address": "", "slots": 1, "pid": 1}
    return wrong.greeting + wrong.seal(register)


@pytest.mark.parametrize("why", ["it rejects this agent; does it use the same secret?", "Connection refused"])
def test_without_a_manager_that_lets_it_in_an_agent_ends_and_says_why(tmp_path: Path, why: str) -> None:
    hub = AgentHub(MessageLog(), make_secret(tmp_path / "one"))
    make_secret(tmp_path / "other")
    place = f"127.0.0.1:{hub.address[1]}"
    if "refused" in why:
        hub.close()
    command = [sys.executable, "-m", "bftrain_elastic.agent", "--manager", place, "--secret", str(tmp_path / "other")]
    done = subprocess.run(
        [*command, "--patience", "3", "--preload", "", "--node", "n1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    hub.close()
    assert done.returncode == 1
    assert f"bftrain agent n1: no manager for 3 s: {'' if 'secret' in why else place + ': '}{why}" in done.stderr


def test_a_second_agent_of_a_node_ends_and_says_which_one_is_there(tmp_path: Path) -> None:
    messages = MessageLog()
    hub = AgentHub(messages, make_secret(tmp_path / "secret"))
    place = ("--manager", f"127.0.0.1:{hub.address[1]}", "--secret", str(tmp_path / "secret"), "--preload", "")
    command = [sys.executable, "-m", "bftrain_elastic.agent", *place, "--node", "n1"]
    with subprocess.Popen(command) as first, closing(hub):  # closed, the hub ends the first agent
        messages.until(lambda: bool(hub.nodes()), "an agent")
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert f"bftrain agent n1: another agent is on node 'n1', process {first.pid}" in second.stderr
        assert hub.nodes() == {"n1": 1}
    seen = [one["type"] for one in messages.all if one["type"] not in {"warm", "agent_ended"}]
    assert seen == ["registered", "refused", "gone"]


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    (tmp_path / "secret").chmod(0o644)
    command = [
        sys.executable,
        "-m",
        "bftrain_elastic.agent",
        "--manager",
        "127.0.0.1:1",
        "--secret",
        tmp_path / "secret",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"chmod 600 {tmp_path}/secret" in done.stderr
