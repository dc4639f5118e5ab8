"""A daemon that is killed and comes back finds workers that went on without it, and not one step is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from bftrain.errors import NotAvailable
from bftrain.live.client import Client
from bftrain.live.documents import Submission
from bftrain.live.kept import Run
from bftrain.values.curve import SpeedCurve

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch

STEPS = 800
STEP_S = 0.01
PATIENCE_S = 180.0
SCRIPT = """
import os, sys, time
import torch
from bftrain_elastic import State, report, run

network = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

def train(state):
    model = state.parallel()
    while state.position < {steps}:
        loss = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep({step_s})
        state.position += 1
        if state.rank == 0:
            with open({done!r}, "a") as done:
                done.write(f"{{state.position}} {{os.getpid()}} {{time.time()}}\\n")
        report(samples=2, loss=loss)
        state.commit()

run(State(model=network, optimizer=optimizer, position=0), train)
"""


class Live:
    """``bftrain live`` with two slots of this machine, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        home.mkdir(mode=0o700)
        self._site = folder / "site.toml"
        self._site.write_text(f'state = "{home}"\n[scheduler]\nname = "local"\nnodes = 2\n')
        self._words = folder / "words"
        self.client = Client(str(home / "api.sock"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def start(self) -> None:
        """Start it, and wait until it runs."""
        with self._words.open("ab") as words:
            command = [sys.executable, "-m", "bftrain", "live", "--config", str(self._site)]
            self.process = subprocess.Popen(command, stdout=words, stderr=words)
        self.until(self._runs)

    def kill(self) -> None:
        """Kill it as nothing expects it."""
        self.client.close()
        self.process.kill()
        self.process.wait()

    def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so, while it runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert self.process.poll() is None, self.words
            assert time.monotonic() < deadline, self.words
            time.sleep(0.05)

    @property
    def words(self) -> str:
        """What it said."""
        return self._words.read_text()

    def _runs(self) -> bool:
        with suppress(NotAvailable):
            return self.client.status().state == "running"
        return False


def lines(done: Path) -> list[tuple[int, int, float]]:
    """Give each step that was done: its number, by which process, and when."""
    found = []
    for line in done.read_text().splitlines() if done.exists() else ():
        step, pid, at_s = line.split()
        found.append((int(step), int(pid), float(at_s)))
    return found


def test_workers_go_on_while_the_daemon_is_dead_and_are_taken_over(tmp_path: Path) -> None:
    done, script = tmp_path / "done", tmp_path / "train.py"
    script.write_text(SCRIPT.format(steps=STEPS, step_s=STEP_S, done=str(done)))
    curve = SpeedCurve(nodes=(1, 2), rate=(100.0, 190.0))
    with Live(tmp_path) as live:
        run = Run(argv=(str(script),), cwd=str(tmp_path))
        live.client.submit(Submission(run=run, name="a", min_nodes=2, max_nodes=2, curve=curve))
        live.until(lambda: len(lines(done)) > STEPS // 8)
        live.kill()
        killed_s, before = time.time(), lines(done)
        worker = before[-1][1]
        deadline = time.monotonic() + PATIENCE_S
        while len(lines(done)) < len(before) + STEPS // 8:
            assert time.monotonic() < deadline, "they do not go on"
            time.sleep(0.02)
        live.start()
        back_s = time.time()
        live.until(lambda: live.client.task("a").running == 2)
        assert sorted(live.client.task("a").nodes) == ["slot1", "slot2"]
        assert os.kill(worker, 0) is None, "the same processes as before"
        taken_over = len(lines(done))
        assert taken_over < STEPS, "they were found while they trained"
        live.until(lambda: live.client.task("a").state == "done")
        task = live.client.task("a")
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(PATIENCE_S) == 0
    found = lines(done)
    assert [step for step, _, _ in found] == list(range(1, STEPS + 1)), "each step was done, and once"
    assert {pid for _, pid, _ in found} == {worker}
    assert (task.step, task.failures, task.preemptions) == (STEPS, 0, 0)
    without = [at_s for _, _, at_s in found if killed_s < at_s < back_s]
    gap_s = max(after - at for (_, _, at), (_, _, after) in pairwise(found))
    print(f"{len(without)} steps without a daemon, 0 lost; longest step {gap_s:.2f} s")  # noqa: T201 - figures
