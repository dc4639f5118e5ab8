"""A live run on slots of two kinds, as its site file says: the command itself, agents and tasks that are processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from bftrain import BftrainError, Client
from bftrain.live.model.resource_views import KindView
from bftrain.live.model.schemas import StatusView

PATIENCE_S: Final = 120.0
SITE: Final = """
name = "kinds"
folder = "shared"
state = "state"
launcher = "process"
[kinds]
fast = "slot[1-2]"
slow = ["slot3", "slot4"]
[scheduler]
name = "local"
nodes = 4
idle = "2@0"
[agents]
preload = []
"""
TASKS: Final = """
[[task]]
name = "picky"
command = "sleep"
args = ["600"]
nodes = "1:2"
curves.slow = { nodes = [1, 2], rate = [10.0, 20.0] }
[[task]]
name = "both"
command = "sleep"
args = ["600"]
nodes = "1:2"
curves.fast = { nodes = [1, 2], rate = [40.0, 70.0] }
curves.slow = { nodes = [1, 2], rate = [1.0, 2.0] }
"""
OTHER: Final = """
name = "other"
command = "sleep"
nodes = "1:2"
curves.tpu = { nodes = [1], rate = [1.0] }
"""


class Run:
    """``bftrain live`` in a folder whose path is short enough for a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "state" / "api.sock")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, site: str) -> None:
        (self.folder / "site.toml").write_text(site)
        with (self.folder / "live.log").open("ab") as log:
            words = [sys.executable, "-m", "bftrain", "live", "--config", "site.toml"]
            self._process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.until(lambda: self.status.state == "running", "it runs")

    def end(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def status(self) -> StatusView:
        with closing(Client(self.socket)) as client:
            return client.status()

    def nodes(self, kind: str) -> set[str]:
        with closing(Client(self.socket)) as client:
            return {node.name for node in client.nodes() if node.kind == kind}

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "BFTRAIN_LIVE": self.socket}
        return subprocess.run(
            [sys.executable, "-m", "bftrain", *words],
            cwd=self.folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def submit(self, text: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "tasks.toml").write_text(text)
        return self.say("submit", "tasks.toml")

    def held(self, task: str) -> set[str]:
        with closing(Client(self.socket)) as client:
            return set(client.task(task).nodes)

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if true():
                    return
            except BftrainError:
                pass
            assert time.monotonic() < deadline, f"{what}\n{(self.folder / 'live.log').read_text()[-3000:]}"
            time.sleep(0.1)


@pytest.fixture
def run() -> Iterator[Run]:
    with TemporaryDirectory(prefix="bftrain-kinds-", dir="/tmp") as folder:
        one = Run(Path(folder))
        try:
            yield one
        finally:
            one.kill()


def test_tasks_run_on_slots_of_their_kind(run: Run) -> None:
    run.start(SITE)
    submitted = run.submit(TASKS)
    assert submitted.returncode == 0, submitted.stderr
    run.until(lambda: run.held("both") == {"slot1", "slot2"}, "two fast slots are idle, one task runs there")
    assert run.held("picky") == set()
    status = run.status
    assert dict(status.kinds) == {"fast": KindView(pool=2, used=2), "slow": KindView(pool=0, used=0)}
    assert "2 of 2 fast, 0 of 0 slow" in run.say("status").stdout
    assert run.nodes("fast") == {"slot1", "slot2"}
    assert "(2 of 2 fast, 0 of 0 slow)" in run.say("top", "--once").stdout
    refused = run.submit(OTHER)
    assert refused.returncode == 3
    assert "curves: it needs 1 node of one kind and runs on tpu only; there are 2 fast, 2 slow" in refused.stderr

    assert run.end() == 0
    run.start(SITE.replace('idle = "2@0"', 'idle = "4@0"'))  # all slots from now on
    run.until(lambda: run.held("picky") == {"slot3", "slot4"}, "the other task runs on the slow ones")
    run.until(lambda: run.held("both") == {"slot1", "slot2"}, "and this one stays where it is fast")
    assert run.nodes("slow") == {"slot3", "slot4"}
    assert run.end() == 0


def test_a_node_of_two_kinds_is_refused_with_its_line_and_nothing_is_started(run: Run) -> None:
    (run.folder / "site.toml").write_text(SITE.replace('"slot3", "slot4"', '"slot2"'))
    ended = run.say("live", "--config", "site.toml")
    assert ended.returncode == 3
    assert "site.toml:8: kinds.slow: node 'slot2' is of kind 'fast' already (give every node one kind)" in ended.stderr
    assert not (run.folder / "state").exists()
