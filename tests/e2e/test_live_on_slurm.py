"""The whole of it: two tasks train beside a busy Slurm, while any process may be killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.figures import Figures
from tests.helpers.live_run import LiveRun
from tests.helpers.main_jobs import Stream
from tests.helpers.processes import children
from tests.helpers.slurm import Slurm, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.horovod, pytest.mark.apart]

STEPS: Final = 200
JOBS: Final = 5

SITE: Final = """\
name = "e2e"
folder = "{folder}/shared"
state = "{folder}/state"

[scheduler]
name = "slurm"
partition = "pilot"
pending = 2
poll_s = 1

[deciding]
objective = "speedup"

[agents]
python = "{python}"
preload = []

[times]
drain_s = 20
"""

# A step takes a while, without need for a processor that five nodes share here
NATIVE: Final = """\
import time

import torch

from bftrain_elastic import State, report, run


def train(state):
    model = state.parallel()
    while state.position < {steps}:
        loss = model(torch.ones(4, 8)).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.position += 1
        time.sleep(0.04)
        report(samples=4, loss=loss)
        state.commit()


torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
state = State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), position=0)
run(state, train)
if state.rank == 0:
    print("trained", state.position, "steps", flush=True)
"""
HOROVOD: Final = """\
import time

import horovod.torch as hvd
import torch

from bftrain_elastic import report


@hvd.elastic.run
def train(state):
    while state.position < {steps}:
        loss = state.model(torch.ones(4, 8)).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.position += 1
        time.sleep(0.04)
        report(samples=4, loss=loss)
        state.commit()


hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0)
train(state)
if hvd.rank() == 0:
    print("trained", state.position, "steps", flush=True)
"""


def steps(live: LiveRun) -> dict[str, int]:
    return {name: task["step"] for name, task in live.tasks().items()}


def agents(live: LiveRun) -> list[int]:
    return [pid for pid, words in sorted(live.processes().items()) if "bftrain_elastic.agent" in words]


def workers(live: LiveRun) -> list[int]:
    """Return the children of prefork servers, which are children of agents and, as forks, have their names."""

    def below(pids: Iterable[int]) -> set[int]:
        return {child for pid in pids for child in children(pid)}

    forks = set(agents(live))
    return sorted(below(below(forks - below(forks))))


def kill_one(live: LiveRun, what: Callable[[LiveRun], list[int]], there: str) -> None:
    """Kill one of several processes, as nothing expects it."""

    def killed() -> bool:
        found = what(live)
        # It may end by itself meanwhile: a main job may want its node at any time
        with suppress(ProcessLookupError):
            if len(found) > 1:
                os.kill(found[0], signal.SIGKILL)
                return True
        return False

    live.until(killed, there)


def test_two_tasks_train_beside_a_busy_slurm_while_processes_die(tmp_path: Path, figures: Figures) -> None:
    began = time.monotonic()
    with Slurm(nodes=5) as cluster:
        stream = Stream(cluster, tmp_path / "jobs", jobs=JOBS, seed=3, gap_s=3.0)
        main_jobs = threading.Thread(target=stream.run, daemon=True)
        with LiveRun(cluster, SITE) as live:
            hand_in(live)
            live.until(lambda: max(steps(live).values()) > 5, "the first trains")
            main_jobs.start()

            live.until(lambda: min(steps(live).values()) > 0, "both train")
            before = steps(live)
            live.kill()
            live.start()
            kill_one(live, agents, "agents are there")
            kill_one(live, workers, "workers are there")
            cluster.stop_controller()
            time.sleep(1)
            cluster.start_controller()
            live.until(
                lambda: all(now > before[name] or now == STEPS for name, now in steps(live).items()),
                "both go on after that, or are done",
            )

            main_jobs.join(120)
            assert len(stream.submitted) == JOBS
            assert stream.all_ran(), "every main job ran"
            live.until(lambda: {task["state"] for task in live.tasks().values()} == {"done"}, "both are trained", 240)
            for name, task in live.tasks().items():
                assert task["step"] == STEPS, task
                # Rank 0 may lose its node between its last line and its exit: then another member runs the end again
                assert f"trained {STEPS} steps" in live.call("logs", name).stdout, "it ran to its end"
            status = live.asked("status")
            assert live.end() == 0, live.tell()
            live.gone()
            verified = live.asked("journal", "verify", str(live.state / "live.db"))
        assert verified["different"] == []
        assert verified["steps"] >= status["steps"] >= 10
        waits = stream.waits()
        figures.add("the whole", time.monotonic() - began, "s")
        figures.add("decisions, replayed identically", verified["steps"])
        figures.add(f"longest wait of {JOBS} main jobs, slurmctld's restart too", max(waits), "s")
        wait_until(lambda: cluster.idle() == set(cluster.nodes), "all nodes are idle", cluster.logs)


# Their speeds are given: on nodes that share two processors, what is measured says nothing
TASKS: Final = """\
[[task]]
name = "first"
script = "plain.py"
nodes = "1:3"
curve = {nodes = [1, 2, 3], rate = [100, 190, 270]}

[[task]]
name = "ring"
script = "ring.py"
launcher = "horovod"
nodes = "1:2"
curve = {nodes = [1, 2], rate = [100, 190]}
"""


def hand_in(live: LiveRun) -> None:
    for name, text in (("plain.py", NATIVE), ("ring.py", HOROVOD)):
        (live.folder / name).write_text(text.format(steps=STEPS))
    (live.folder / "tasks.toml").write_text(TASKS)
    live.call("submit", "tasks.toml")
