"""Native workers, real processes with scripted agents: what is kept, what is reported, and how they end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.processes import descendants
from tests.helpers.saved import saved_step
from tests.helpers.workers import PATIENCE_S, SOON_S, Workers

pytestmark = [pytest.mark.torch, pytest.mark.apart]

SCRIPT = """
import json, os, signal, sys, time
import torch
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def note(**values):
    print(json.dumps(values), flush=True)

def train(state):
    parallel = state.parallel()
    while state.position < {steps}:
        loss = parallel(torch.ones(6, 4)[state.rank::state.workers]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep({step_s})
        state.position += 1
        {body}
        report(samples=6, loss=loss)
        state.commit()

{before}
run(State(model=model, optimizer=optimizer, position=0, evals=0, best={{}}, table=torch.zeros(3)), train)
{after}
"""


def script(body: str = "pass", *, steps: int = 100000, step_s: float = 0.01, before: str = "", after: str = "") -> str:
    return SCRIPT.format(body=body.replace("\n", "\n        "), steps=steps, step_s=step_s, before=before, after=after)


EVALUATES = """
if state.rank == 0:
    state.evals += 1
    state.best = {"loss": [state.evals, "x" * state.evals], "large": torch.full((20_000,), state.evals)}
    state.table[1] += 1
best = state.best | {"large": state.best.get("large", state.table).unique().tolist()}
note(position=state.position, evals=state.evals, best=best, table=state.table.tolist(), workers=state.workers)
"""


@pytest.mark.parametrize("planned", [True, False], ids=["the first node leaves", "the first node is lost"])
def test_what_only_the_first_worker_counts_survives_it(tmp_path: Path, *, planned: bool) -> None:
    with Workers(tmp_path, script(EVALUATES)) as workers:
        alone = workers.go_on_without_first(planned=planned)
        first, second = workers.all
        assert first.of("in_memory"), "two nodes have it in memory"
        assert second.of("on_disk")[0]["step"] <= alone[0]["position"], "the other node's copy is gone"
    assert alone[0]["position"] >= 20
    for one in alone:
        assert one["evals"] == one["position"], "nothing of it was lost, and it goes on"
        assert one["best"] == {"loss": [one["evals"], "x" * one["evals"]], "large": [one["evals"]]}
        assert one["table"] == [0, one["evals"], 0]


def test_the_script_sees_the_batch_that_was_decided_for_its_group(tmp_path: Path) -> None:
    with Workers(tmp_path, script("note(batch=state.decided_batch)"), count=1) as workers:
        workers.ready()
        workers.go(1)
        (worker,) = workers.all
        worker.hear("report")
        workers.gather(2)
        workers.go(2, batch=640)
        worker.hear("confirmed")
        worker.hear("report")
        seen = [line["batch"] for line in worker.lines() if "batch" in line]
    assert (seen[0], seen[-1]) == (None, 640)


def test_two_workers_of_one_node_do_not_save_each_other(tmp_path: Path) -> None:
    with Workers(tmp_path, script()) as workers:
        workers.ready()
        workers.go(1, size=1)
        workers.all[0].hear("report", lambda one: one["step"] >= 40)
        assert workers.all[0].of("in_memory") == []
        assert workers.all[0].of("on_disk")


def test_a_worker_killed_in_the_middle_of_a_save_leaves_a_whole_commit(tmp_path: Path) -> None:
    """Its state is large, and it is stopped while a file is there that was not before."""
    body = "state.table.fill_(state.position)\nnote(position=state.position, table=state.table.unique().tolist())"
    text = script(body).replace("torch.zeros(3)", "torch.zeros(2_000_000)")
    noted = "note(begins=state.position, table=state.table.unique().tolist())\n    while"
    with Workers(tmp_path, text.replace("while", noted, 1)) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1, [first], size=1)
        on_disk = first.hear("on_disk")["step"]
        before = {path.name for path in workers.folder.iterdir()}
        deadline = time.monotonic() + PATIENCE_S
        while {path.name for path in workers.folder.iterdir()} <= before and time.monotonic() < deadline:
            time.sleep(0.001)
        first.process.kill()
        first.process.wait()
        workers.go(2, [second], size=1)
        second.hear("report")
        begins = next(one for one in second.lines() if "begins" in one)
        assert begins["begins"] >= on_disk > 0
        assert begins["table"] == [begins["begins"]], "all of it is of one commit"


FULL = """
full = os.path.exists(os.environ["BFTRAIN_FOLDER"] + "/../full")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000 if full else resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_is_remarked_on_and_ends_nothing(tmp_path: Path) -> None:
    text = script(FULL, before="import resource").replace("torch.zeros(3)", "torch.zeros(500_000)")
    with Workers(tmp_path, text, count=1) as workers:
        (worker,) = workers.all
        workers.ready()
        workers.go(1)
        worker.hear("on_disk")
        (tmp_path / "full").touch()
        failed = worker.hear("not_on_disk")
        assert "File too large" in failed["reason"]
        (tmp_path / "full").unlink()
        worker.hear("on_disk", lambda one: one["step"] > failed["step"])  # it is written when there is room


def test_a_cut_off_worker_writes_down_what_it_has_and_ends(tmp_path: Path) -> None:
    """It does not notice that the others are gone: its own step takes for ever."""
    body = "if state.position == 8 and state.rank == 1:\n    wait_for_ever()"
    with Workers(tmp_path, script(body, before="def wait_for_ever():\n    time.sleep(1000)")) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1)
        first.hear("report", lambda one: one["step"] >= 7)
        second.is_at(lambda one: "wait_for_ever" in one["line"])
        first.process.kill()
        first.process.wait()
        for path in workers.folder.iterdir():  # as if it had been written long ago
            path.unlink()
        second.tell(type="abort")
        assert second.ends() == os.EX_TEMPFAIL
        assert saved_step(workers.folder) == 7


SIGTERM = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
"""


def test_a_worker_survives_sigterm_while_it_trains_and_its_children_do_not(tmp_path: Path) -> None:
    body = f"if state.position == 3:\n{SIGTERM}".replace("\n", "\n    ")
    body += "\n    note(child=child.pid)\n    child.terminate(); child.join(20); note(code=child.exitcode)"
    after = "note(default=signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)\ntime.sleep(60)"
    with Workers(tmp_path, script(body, steps=60, after=after), count=1) as workers:
        (worker,) = workers.all
        workers.ready()
        worker.process.send_signal(signal.SIGTERM)  # while it waits
        workers.go(1)
        worker.hear("report")
        worker.process.send_signal(signal.SIGTERM)
        worker.hear("report", lambda one: one["step"] >= 30)
        worker.hear("done")
        assert [one["type"] for one in worker.said][-2:] == ["on_disk", "done"], "what is done is on disk"
        deadline = time.monotonic() + 20
        while not [one for one in worker.lines() if "default" in one] and time.monotonic() < deadline:
            time.sleep(0.05)
        noted = {name: value for one in worker.lines() for name, value in one.items()}
        assert noted["code"] == -signal.SIGTERM
        assert noted["default"] is True
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ends() == -signal.SIGTERM


def test_a_worker_says_where_it_is_while_it_hangs(tmp_path: Path) -> None:
    body = "if state.position == 5 and state.rank == 1:\n    wait_for_ever(state)"
    before = "def wait_for_ever(state):\n    time.sleep(1000)"
    with Workers(tmp_path, script(body, before=before)) as workers:
        first, second = workers.all
        workers.ready()
        second.tell(type="position")
        assert second.hear("position")["place"] == "script"
        workers.go(1)
        first.hear("report", lambda one: one["step"] >= 4)
        where = [first.is_at(lambda one: one["commits"] == 5), second.is_at(lambda one: "wait" in one["line"])]
        line = next(
            number for number, text in enumerate(script(body, before=before).splitlines(), 1) if "sleep(1000)" in text
        )
        assert where[1] == {
            "type": "position",
            "place": "script",
            "line": f"script.py:{line} in wait_for_ever",
            "commits": 4,
        }
        assert (where[0]["place"], where[0]["commits"]) == ("commit", 5)
        assert where[0]["line"].endswith(" in train")


def test_replicas_that_differ_are_reported(tmp_path: Path) -> None:
    body = "if state.rank == 1 and state.position == 2:\n    with torch.no_grad(): model.weight[0, 2] += 0.5"
    with Workers(tmp_path, script(body)) as workers:
        workers.ready()
        workers.go(1)
        drift = workers.all[0].hear("drift")
        assert drift["step"] == 2
        assert drift["rank"] == 1


def test_samples_are_counted_through_everything(tmp_path: Path) -> None:
    with Workers(tmp_path, script()) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1)
        first.hear("report", lambda one: one["step"] >= 15)
        first.process.kill()
        workers.ready([second])
        workers.go(2, [second], sync=False)
        second.hear("report", lambda one: one["step"] >= 25)
        second.hear("on_disk")
        second.process.kill()
        for worker in workers.all:
            assert all(
                (one["total"], one["since"], one["nan"]) == (6 * one["step"], 0, False) for one in worker.of("report")
            )
    (tmp_path / "again").mkdir()
    (tmp_path / "task").rename(tmp_path / "again" / "task")
    with Workers(tmp_path / "again", script(), count=1) as workers:
        workers.ready()
        workers.go(1)
        report = workers.all[0].hear("report")
        assert report["step"] > 15
        assert report["total"] == 6 * report["step"]


def test_an_error_ends_a_worker_though_another_does_not_answer(tmp_path: Path) -> None:
    body = "if state.position == 5 and state.rank == 1:\n    open_picture()"
    before = "def open_picture():\n    time.sleep(1); raise ValueError('no such picture')"
    with Workers(tmp_path, script(body, before=before)) as workers:
        first, second = workers.all
        workers.ready()
        workers.go(1)
        first.hear("report", lambda one: one["step"] >= 4)
        second.is_at(lambda one: "open_picture" in one["line"])  # not in a step that it has in common with the first
        first.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert second.ends() == 1
        assert time.monotonic() - begun < SOON_S
        assert second.log.read_text().rstrip().endswith("ValueError: no such picture")


LOADER = """
import time
import torch
from torch.utils.data import DataLoader, Dataset
from bftrain_elastic import State, report, run
torch.set_num_threads(1)

class Data(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, place):
        time.sleep(0.005)
        return torch.ones(4)

def train(state):
    for x in DataLoader(Data(), batch_size=4, num_workers=2):
        state.position += 1
        report(samples=4)
        state.commit()

run(State(model=torch.nn.Linear(4, 1), position=0), train)
"""


@pytest.mark.parametrize("launcher", ["native", "process"])
def test_a_sigterm_that_ends_the_processes_of_a_loader_loses_nothing(tmp_path: Path, launcher: str) -> None:
    with Workers(tmp_path, LOADER, count=1, BFTRAIN_GRACE_S="8", BFTRAIN_LAUNCHER=launcher) as workers:
        (worker,) = workers.all
        if launcher == "native":
            workers.ready()
            workers.go(1)
        worker.hear("report", lambda one: one["step"] >= 30)
        for pid in [*descendants(worker.process.pid), worker.process.pid]:
            os.kill(pid, signal.SIGTERM)
        if launcher == "native":
            ready = worker.hear("ready")
            assert "after SIGTERM the script raised RuntimeError: DataLoader worker" in ready["reason"]
            worker.tell(type="leave", save=True, grace_s=5.0)
        assert worker.ends() == 0
        last = worker.of("report")[-1]["step"]
        assert saved_step(workers.folder) >= last - 1 >= 29
        assert worker.of("on_disk")[-1]["step"] >= last - 1
        assert launcher == "native" or worker.of("stopped")
