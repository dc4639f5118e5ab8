"""Real Horovod workers with scripted agents: what rank 0 counts is kept, groups form, and errors end a worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import listening
from tests.helpers.saved import saved_step
from tests.helpers.workers import PATIENCE_S, SOON_S, Worker, Workers

pytestmark = [pytest.mark.torch, pytest.mark.horovod, pytest.mark.apart]

SCRIPT = """
import json, os, time
import horovod.torch as hvd
import torch
from bftrain_elastic import report
hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

def note(**values):
    print(json.dumps(values), flush=True)

@hvd.elastic.run
def train(state):
    while state.position < {steps}:
        loss = model(torch.ones(6, 4)[hvd.rank()::hvd.size()]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        state.position += 1
        {body}
        report(samples=6, loss=loss)
        state.commit()

train(hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0, evals=0, best={{}}))
"""
EVALUATES = """
if hvd.rank() == 0:
    state.evals += 1
    state.best = {"loss": [state.evals, "x" * state.evals]}
note(position=state.position, evals=state.evals, best=state.best, workers=hvd.size())
"""
HOROVOD = {"BFTRAIN_LAUNCHER": "horovod"}


def script(body: str = "pass", *, steps: int = 100000) -> str:
    return SCRIPT.format(body=body.replace("\n", "\n        "), steps=steps)


def until(true: Callable[[], bool], words: str) -> None:
    """Wait until something is true; ``words`` say what."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, words
        time.sleep(0.01)


def meeting_of(worker: Worker) -> Any:  # noqa: ANN401 - a store of torch
    """Return where the members of the second group meet."""
    distributed = pytest.importorskip("torch.distributed")
    host, port = worker.of("ready")[-1]["store"]
    store = distributed.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=PATIENCE_S))
    return distributed.PrefixStore("horovod/2", store)


@pytest.mark.parametrize("planned", [True, False], ids=["the first node leaves", "the first node is lost"])
def test_what_only_the_first_worker_counts_survives_it(tmp_path: Path, *, planned: bool) -> None:
    with Workers(tmp_path, script(EVALUATES), **HOROVOD) as workers:
        first, second = workers.all
        alone = workers.go_on_without_first(planned=planned)
        assert first.of("in_memory")
        assert all(one["total"] == 6 * one["step"] for one in second.of("report"))
        assert second.of("on_disk")[0]["step"] <= alone[0]["position"], "the other node's copy is gone"
    assert alone[0]["position"] >= 20
    for one in alone:
        assert one["evals"] == one["position"], "nothing of it was lost, and it goes on"
        assert one["best"] == {"loss": [one["evals"], "x" * one["evals"]]}


def test_an_old_member_forms_a_group_with_a_fresh_one_after_one_that_did_not_form(tmp_path: Path) -> None:
    """What it reduces without a name is counted by each process: the counts must be the same too."""
    body = "note(mean=hvd.allreduce(torch.ones(1) * hvd.rank()).item(), workers=hvd.size())"
    with Workers(tmp_path, script(body), **HOROVOD) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1, [first])
        first.hear("report", lambda one: one["step"] >= 10)
        workers.gather(2, [first])
        first.tell(type="go", generation=2, rank=0, workers=2, size=2, store=first.of("ready")[-1]["store"], sync=True)
        meeting = meeting_of(first)
        until(lambda: meeting.add("arrived", 0) == 1, "it waits for the other one")
        first.tell(type="abort")  # which is dead
        assert workers.ready([first])[0]["step"] >= 10
        workers.go(3)
        first.hear("report", lambda one: one["size"] == 2)
        first.hear("in_memory")
        together = [one for one in second.lines() if one["workers"] == 2]
        assert together
        assert all(one["mean"] == 0.5 for one in together)


def test_a_member_that_dies_while_a_group_forms_fails_no_script(tmp_path: Path) -> None:
    """Horovod aborts the process then. What is in memory is written down, and it does not look like a failure."""
    with Workers(tmp_path, script(), **HOROVOD) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1, [first])
        first.hear("report", lambda one: one["step"] >= 10)
        workers.gather(2, [first])
        (workers.folder / "state").unlink()  # as if it had been written long ago
        store = first.of("ready")[-1]["store"]
        first.tell(type="go", generation=2, rank=0, workers=2, size=2, store=store, sync=True)
        second.process.send_signal(signal.SIGKILL)
        meeting = meeting_of(first)
        until(lambda: meeting.add("arrived", 0) == 1, "the first one waits")
        meeting.add("arrived", 1)  # another says that it is there, and is dead then
        until(lambda: len(listening([first.process.pid])) > 1, "Horovod waits for the other one")
        first.tell(type="abort")
        assert first.ends() == os.EX_TEMPFAIL
        assert "the group did not form" in first.log.read_text()
        assert saved_step(workers.folder) == first.of("ready")[-1]["step"]


@pytest.mark.parametrize("stopped", [False, True], ids=["the other works", "the other does not answer"])
def test_an_error_of_the_script_is_what_its_log_ends_with(tmp_path: Path, *, stopped: bool) -> None:
    body = "if state.position == 5 and hvd.rank() == 1:\n    time.sleep(1)\n    raise ValueError('no such picture')"
    with Workers(tmp_path, script(body), **HOROVOD) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1)
        first.hear("report", lambda one: one["step"] >= 5)
        if stopped:
            first.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert second.ends() == 1
        assert time.monotonic() - begun < SOON_S
        assert second.log.read_text().rstrip().endswith("ValueError: no such picture")
        if not stopped:
            assert workers.ready([first])[0]["reason"]
