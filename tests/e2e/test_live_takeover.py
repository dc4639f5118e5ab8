"""A daemon that is killed and comes back finds workers that went on without it, and not one step is done twice."""

from __future__ import annotations

import os
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import Run, SpeedCurve, Submission
from tests.helpers.local_daemon import PATIENCE_S, LocalDaemon

pytestmark = [pytest.mark.torch, pytest.mark.apart]

STEPS = 400
STEP_S = 0.01
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
        while state.position == {hold} and not os.path.exists({go!r}):
            time.sleep(0.01)

run(State(model=network, optimizer=optimizer, position=0), train)
"""
# Writes down each step that it did, as a checkpoint; a second process of the same rank would find its lock taken
COMMAND = """
import fcntl, json, os, signal, sys, time
from pathlib import Path
from bftrain_elastic import report

rank, folder = os.environ["RANK"], Path(os.environ["BFTRAIN_FOLDER"])
with open({done!r}, "a") as done:
    done.write(f"begin {{rank}} {{os.getpid()}}\\n")
lock = open(folder / f"lock{{rank}}", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    with open({done!r}, "a") as done:
        done.write(f"double {{rank}} {{os.getpid()}}\\n")
    time.sleep(1)
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
saved = folder / f"saved{{rank}}"
step = int(saved.read_text()) if saved.exists() else 0
while step < {steps}:
    time.sleep({step_s})
    step += 1
    saved.with_suffix(".new").write_text(str(step))
    saved.with_suffix(".new").rename(saved)
    report(samples=2, loss=1.0, step=step)
with open({done!r}, "a") as done:
    done.write(f"end {{rank}} {{os.getpid()}}\\n")
"""
KILLS = 3


def local_slots(*, idle: str = "", grace_s: float = 0.0) -> str:
    """Return the settings of two slots of this machine."""
    return f'[scheduler]\nname = "local"\nnodes = 2\nidle = "{idle}"\n[agents]\ngrace_s = {grace_s}\n'


def two_slots(folder: Path, *, grace_s: float = 0.0) -> LocalDaemon:
    """Return a daemon with two slots of this machine."""
    return LocalDaemon(folder, local_slots(grace_s=grace_s))


def lines(done: Path) -> list[tuple[int, int, float]]:
    """Return each step that was done: its number, by which process, and when."""
    found = []
    for line in done.read_text().splitlines() if done.exists() else ():
        step, pid, at_s = line.split()
        found.append((int(step), int(pid), float(at_s)))
    return found


def test_workers_go_on_while_the_daemon_is_dead_and_are_taken_over(tmp_path: Path) -> None:
    done, go, script = tmp_path / "done", tmp_path / "go", tmp_path / "train.py"
    hold = STEPS * 3 // 4  # where it waits, so that it is not over before it is taken over
    script.write_text(SCRIPT.format(steps=STEPS, step_s=STEP_S, done=str(done), hold=hold, go=str(go)))
    curve = SpeedCurve(nodes=(1, 2), rate=(100.0, 190.0))
    with two_slots(tmp_path) as live:
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
        live.until(live.runs, "it runs again")
        back_s = time.time()
        live.until(lambda: live.client.task("a").running == 2)
        assert sorted(live.client.task("a").nodes) == ["slot1", "slot2"]
        assert os.kill(worker, 0) is None, "the same processes as before"
        assert len(lines(done)) <= hold, "they were found while they trained"
        go.touch()
        live.until(lambda: live.client.task("a").state == "done")
        task = live.client.task("a")
        assert live.end() == 0
    found = lines(done)
    assert [step for step, _, _ in found] == list(range(1, STEPS + 1)), "each step was done, and once"
    assert {pid for _, pid, _ in found} == {worker}
    assert (task.step, task.failures, task.preemptions) == (STEPS, 0, 0)
    without = [at_s for _, _, at_s in found if killed_s < at_s < back_s]
    gap_s = max(after - at for (_, _, at), (_, _, after) in pairwise(found))
    print(f"{len(without)} steps without a daemon, 0 lost; longest step {gap_s:.2f} s")  # noqa: T201 - figures


def kill_now_and_then(live: LocalDaemon, seed: int) -> None:
    """Kill the daemon at any time, also while it starts, and start it again."""
    dice = random.Random(seed)  # noqa: S311 - the same kills every time
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.0, 1.5))
        live.kill()
        time.sleep(dice.uniform(0.0, 1.0))
        live.start()
        if dice.random() < 0.5:
            live.until(live.runs, "it runs again")
    if live.process.poll() is None:
        live.until(live.runs)


# tests/soak kills the daemon of a native training 500 times
@pytest.mark.parametrize("launcher", [pytest.param("native", marks=pytest.mark.soak), "process"])
def test_samples_are_exact_and_nothing_runs_twice_however_often_the_daemon_is_killed(
    tmp_path: Path, launcher: str
) -> None:
    done, script = tmp_path / "done", tmp_path / "train.py"
    text = SCRIPT if launcher == "native" else COMMAND
    script.write_text(text.format(steps=STEPS, step_s=3 * STEP_S, done=str(done), hold=0, go=""))
    curve = SpeedCurve(nodes=(1, 2), rate=(100.0, 190.0))
    with two_slots(tmp_path) as live:
        run = Run(argv=(str(script),), cwd=str(tmp_path))
        given = Submission(run=run, name="a", min_nodes=2, max_nodes=2, launcher=launcher, work_samples=2.0 * STEPS)
        live.client.submit(replace(given, curve=curve))
        live.until(done.exists)
        kill_now_and_then(live, seed=1)
        live.until(lambda: live.client.task("a").state == "done")
        task = live.client.task("a")
        harvested = live.client.status().harvested
        assert live.end() == 0
    assert (task.samples, task.step, task.failures, task.reason) == (2.0 * STEPS, STEPS, 0, ""), live.story()
    assert sum(day.samples for day in harvested) == 2.0 * STEPS
    if launcher == "native":
        assert [step for step, _, _ in lines(done)] == list(range(1, STEPS + 1)), "each step was done, and once"
    else:
        lines_ = [line.split() for line in done.read_text().splitlines()]
        assert [line for line in lines_ if line[0] == "double"] == []
        assert sorted(line[1] for line in lines_ if line[0] == "end") == ["0", "1"], "no command that ended ran again"


def test_a_slot_that_is_wanted_back_is_left_at_a_commit_within_the_grace(tmp_path: Path) -> None:
    done, script = tmp_path / "done", tmp_path / "train.py"
    script.write_text(SCRIPT.format(steps=STEPS, step_s=6 * STEP_S, done=str(done), hold=0, go=""))
    curve = SpeedCurve(nodes=(1, 2), rate=(100.0, 190.0))
    begun = time.monotonic()
    with two_slots(tmp_path, grace_s=60.0) as live:
        run = Run(argv=(str(script),), cwd=str(tmp_path))
        given = Submission(run=run, name="a", min_nodes=1, max_nodes=2, curve=curve, work_samples=2.0 * STEPS)
        live.client.submit(given)
        # Only now, however long PyTorch took to import, set the time when the next daemon wants the slots back
        live.until(lambda: len(lines(done)) > STEPS // 8)
        live.kill()
        soon = time.monotonic() - begun + 5
        live.write_site(local_slots(idle=f"2@0,0@{soon:.0f}", grace_s=60.0))
        live.start()
        live.until(live.runs, "it runs again")
        live.until(lambda: (task := live.client.task("a")).preemptions and not task.running)
        live.kill()
        live.write_site(local_slots())
        live.start()
        live.until(live.runs, "it runs a third time")
        live.until(lambda: live.client.task("a").state == "done")
        task = live.client.task("a")
        assert live.end() == 0
    assert [step for step, _, _ in lines(done)] == list(range(1, STEPS + 1)), "each step was done, and once"
    assert (task.samples, task.failures) == (2.0 * STEPS, 0), live.story()
    assert len({pid for _, pid, _ in lines(done)}) > 1, "it lost all its nodes, and went on from the disk"
