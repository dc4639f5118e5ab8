"""Workers of this machine: they share what is loaded, and no death among them loses the sweep."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain import NotAvailable, save_log, save_tasks, sweep
from bftrain_replay.sweeping.executors import local_processes
from bftrain_replay.sweeping.executors.local_processes import LocalExecutor
from tests.unit.replay.sweeping.sweep_case import (
    PassOutcome,
    PassStatus,
    PreparedSweep,
    SweepPass,
    WorkerActivity,
    done,
    small,
)

OBJECTIVES = """\
import os, signal, sys, time
from pathlib import Path

def killed(task, sizes):
    os.kill(os.getpid(), signal.SIGKILL)

def ends(task, sizes):
    os._exit(7)

def slow(task, sizes):
    Path(__file__).with_name(f"at-work-{os.getpid()}").touch()
    time.sleep(60)
    return sizes

def chatty(task, sizes):
    print("a word")
    return sizes
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(OBJECTIVES)
    return tmp_path


def jobs_of(folder: Path, **spec: object) -> list[SweepPass]:
    return list(PreparedSweep.of(small(yardsticks=False) | spec, folder).plan.passes.values())


def outcomes(
    folder: Path,
    jobs: list[SweepPass],
    workers: int = 2,
    *,
    tell: Callable[[WorkerActivity], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, PassOutcome]:
    found = LocalExecutor(workers, folder / "workers.log").outcomes(jobs, tell, stopping)
    return {outcome.id: outcome for outcome in found}


def processes_at_work() -> set[str]:
    """Name our processes that are foremen and workers, which all have the same command line; others run tests too."""
    parents, at_work = {}, set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"sweeping.executors.fork_server" in words:
            at_work.add(entry.name)
    return {pid for pid in at_work if str(os.getpid()) in ancestors(pid, parents)}


def ancestors(pid: str, parents: dict[str, str]) -> list[str]:
    found = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found


def test_the_figures_are_those_of_one_process(folder: Path) -> None:
    before = processes_at_work()
    jobs = jobs_of(folder, grid={"seed": [1, 2], "max_tasks": [1, 2]}, yardsticks=True)
    found = outcomes(folder, jobs)
    assert {name: outcome.figures for name, outcome in found.items()} == {job.id: done(job).figures for job in jobs}
    assert {name: outcome.yardsticks for name, outcome in found.items()} == {
        job.id: done(job).yardsticks for job in jobs
    }
    assert processes_at_work() <= before
    assert not (folder / "workers.log").exists()


def test_files_are_read_once_and_not_by_each_worker(folder: Path) -> None:
    first = PreparedSweep.of(small())
    save_log(first.spec.log("small").load(0), folder / "log.npz")
    save_tasks(first.spec.tasks("mix").load(0), folder / "tasks.toml")
    jobs = jobs_of(folder, log="log.npz", tasks="tasks.toml", grid={"max_tasks": [1, 2, 3]})

    def remove(_: WorkerActivity) -> None:
        for name in ("log.npz", "tasks.toml"):
            (folder / name).unlink(missing_ok=True)

    found = outcomes(folder, jobs, tell=remove)
    assert [found[job.id].reason for job in jobs] == ["", "", ""]


def test_a_worker_that_dies_costs_its_pass_alone(folder: Path) -> None:
    grid = {"objective": ["bad.py:killed", "throughput", "bad.py:ends"], "max_tasks": [1, 2]}
    jobs = jobs_of(folder, grid=grid)
    found = outcomes(folder, jobs)
    assert [found[job.id].reason for job in jobs] == [
        "its worker was killed by SIGKILL, as happens when memory runs out",
        "its worker was killed by SIGKILL, as happens when memory runs out",
        "",
        "",
        "its worker ended with exit code 7",
        "its worker ended with exit code 7",
    ]
    assert [found[job.id].status for job in jobs[2:4]] == [PassStatus.DONE] * 2


def test_a_foreman_who_is_killed_is_replaced(folder: Path) -> None:
    """Its workers go on; the next worker that is needed has another foreman."""

    def is_foreman(pid: str) -> bool:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return int(parent) == os.getpid()

    killed: list[str] = []

    def kill_once(_: WorkerActivity) -> None:
        if not killed:
            killed.extend(filter(is_foreman, processes_at_work()))
            for pid in killed:
                os.kill(int(pid), signal.SIGKILL)

    jobs = jobs_of(folder, grid={"objective": ["throughput", "bad.py:ends"], "max_tasks": [1, 2, 3]})
    found = outcomes(folder, jobs, tell=kill_once)
    assert killed
    assert [found[job.id].status for job in jobs[:3]] == [PassStatus.DONE] * 3
    reasons = {found[job.id].reason for job in jobs[3:]}
    assert reasons <= {"its worker died", "its worker ended with exit code 7"}
    assert len(found) == len(jobs)


def test_stopping_ends_all_workers_at_once(folder: Path) -> None:
    before = processes_at_work()
    jobs = jobs_of(folder, grid={"objective": ["bad.py:slow"], "max_tasks": [1, 2, 3]})
    found = outcomes(folder, jobs, stopping=lambda: len(list(folder.glob("at-work-*"))) == 2)
    assert found == {}
    for path in folder.glob("at-work-*"):
        pid = int(path.name.rpartition("-")[2])
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert processes_at_work() <= before


def test_no_more_workers_than_passes(folder: Path) -> None:
    names = set()
    outcomes(folder, jobs_of(folder, grid={"seed": [1, 2]}), 9, tell=lambda what: names.add(what.worker))
    assert {"worker 1"} <= names <= {"worker 1", "worker 2"}  # the first may have done both before the other is there


def test_where_no_worker_lives_that_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(folder)
    monkeypatch.setattr(local_processes.sys, "executable", "/bin/false")
    with pytest.raises(NotAvailable, match="no worker can be started here: exit code 1"):
        outcomes(folder, jobs)


def test_from_python(folder: Path) -> None:
    spec = folder / "sweep.toml"
    spec.write_text(
        'log = "l"\ntasks = "t"\nlogs = { l = { nodes = 8, days = 0.1 } }\ntask_sets = { t = { count = 2 } }\n'
        "[grid]\nmax_tasks = [1, 2]\n"
    )
    found = sweep(spec, folder / "out", jobs=2)
    assert found.complete
    assert found.frame()["max_tasks"].tolist() == [1, 2]
    assert {path.name for path in (folder / "out").iterdir()} >= {"points.jsonl", "sweep.json", "table.csv"}
    stopped = sweep({**small(), "grid": {"seed": [1, 2]}}, folder / "two", stopping=lambda: True)
    assert not stopped.complete


def test_workers_that_die_before_they_begin_are_not_replaced_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hired(_crew: object, name: str, _jobs: object) -> local_processes.WorkerProcess:
        worker = fork_worker(_crew, name, _jobs)
        worker.hand = lambda _: False
        local_processes.WorkerPool.listen(_crew, 60)
        os.kill(worker.pid, signal.SIGKILL)
        return worker

    fork_worker = local_processes.WorkerPool.fork_worker
    monkeypatch.setattr(local_processes.WorkerPool, "fork_worker", hired)
    with pytest.raises(NotAvailable, match="no worker lives here: its worker was killed by SIGKILL"):
        outcomes(folder, jobs_of(folder))
