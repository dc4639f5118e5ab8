"""Scripts with a State that are started again for each group, under scripted agents: what they say when they end."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.saved import saved_step
from tests.helpers.workers import Worker

pytestmark = [pytest.mark.torch, pytest.mark.apart]

SCRIPT = """
import json, multiprocessing, os, signal, sys, time
import torch
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)

def train(state):
    parallel = state.parallel()
    while state.position < {steps}:
        parallel(torch.ones(6, 4)).pow(2).mean().backward()
        time.sleep(0.01)
        state.position += 1
        {body}
        report(samples=6, loss=1.0)
        state.commit()

{before}
run(State(model=model, position=0), train)
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
print("after run", flush=True)
"""


def script(body: str = "pass", *, steps: int = 100000, before: str = "") -> str:
    return SCRIPT.format(body=body.replace("\n", "\n        "), steps=steps, before=before)


@contextmanager
def group(folder: Path, text: str, count: int) -> Iterator[list[Worker]]:
    """Start the workers of a group as the process launcher does, each on a node of its own."""
    path = folder / "script.py"
    path.write_text(text)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"BFTRAIN_LAUNCHER": "process", "WORLD_SIZE": str(count), "BFTRAIN_SIZE": str(count)}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers = [Worker(f"w{rank}", folder / "task", path, RANK=str(rank), **env) for rank in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.parametrize("count", [1, 2])
def test_asked_to_stop_it_saves_and_says_so(tmp_path: Path, count: int) -> None:
    with group(tmp_path, script(), count) as workers:
        workers[0].hear("report", lambda one: one["step"] >= 5)
        workers[-1].process.send_signal(signal.SIGTERM)  # all leave at the same commit, whichever was signalled
        for worker in workers:
            assert worker.ends() == 0
            assert [one["type"] for one in worker.said][-1] == "stopped"
            assert not worker.of("done")
            assert not worker.of("in_memory"), "all are started again from what is on disk"
            assert "after run" not in worker.log.read_text()
        assert workers[0].of("on_disk")[-1]["step"] == workers[0].of("stopped")[0]["step"]
        assert saved_step(tmp_path / "task") == workers[0].of("stopped")[0]["step"] >= 5


@pytest.mark.parametrize("count", [1, 2])
def test_when_it_has_trained_all_it_says_so(tmp_path: Path, count: int) -> None:
    with group(tmp_path, script(steps=8), count) as workers:
        for worker in workers:
            assert worker.ends() == 0, worker.log.read_text()
            assert worker.said[-1] == {"type": "done", "step": 8}
            assert worker.log.read_text().endswith("after run\n")
        assert saved_step(tmp_path / "task") == 8


def test_without_the_first_worker_the_others_write_what_all_committed(tmp_path: Path) -> None:
    with group(tmp_path, script(), 2) as (first, second):
        first.hear("report", lambda one: one["step"] >= 10)
        first.process.kill()
        assert second.ends() == os.EX_TEMPFAIL
        assert second.log.read_text().splitlines()[-1].startswith("bftrain: the other workers are lost: ")
        saved = saved_step(tmp_path / "task")
        assert saved >= 9
        # Nothing is left to write if the first had just written the same
        assert second.of("on_disk") in ([], [{"type": "on_disk", "step": saved, "took_s": 0.0}])


FINISHES = """
import sys
from bftrain_elastic import finish, report
for _ in range(3):
    report(samples=2, loss=float("nan"), step=40 + _)
finish()
"""


def test_any_program_can_say_that_it_is_finished(tmp_path: Path) -> None:
    with group(tmp_path, FINISHES, 1) as (worker,):
        worker.hear("report")
        assert (worker.said[-1]["total"], worker.said[-1]["since"], worker.said[-1]["nan"]) == (2, 39, True)
        worker.hear("report", lambda one: one["total"] == 6)
        worker.next_connection()
        worker.hear("finished")
        assert worker.process.wait(20) == 0
