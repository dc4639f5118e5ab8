"""Worker processes on this machine: they share loaded inputs, and a killed worker costs its own pass only."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bftrain import NotAvailable, generate_log, generate_mix, save_log, save_tasks, sweep
from tests.helpers.processes import alive
from tests.helpers.sweeping import wait_until
from tests.unit.replay.sweeping.sweep_case import SweepResult, small, swept

OBJECTIVES = """\
import os, signal, sys, time
from pathlib import Path

def killed(task, sizes):
    os.kill(os.getpid(), signal.SIGKILL)

def ends(task, sizes):
    os._exit(7)

def naps(task, sizes, naps=[0.5]):
    time.sleep(naps.pop() if naps else 0)
    return sizes

def waits(task, sizes):
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    return sizes

def slow(task, sizes):
    Path(__file__).with_name(f"at-work-{os.getpid()}").touch()
    time.sleep(60)
    return sizes
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bad.py").write_text(OBJECTIVES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def worked(folder: Path, workers: int = 2, *, watch: Any = None, **spec: object) -> SweepResult:  # noqa: ANN401 - as sweep() takes it
    return sweep(small(yardsticks=False) | spec, folder / "out", jobs=workers, watch=watch)


def processes_at_work() -> set[str]:
    """Return the IDs of our runners and workers, which all have the same command line; other programs run tests too."""
    parents, at_work = {}, set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"sweeping.local_executor" in words:
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
    grid = {"seed": [1, 2], "max_tasks": [1, 2]}
    found = worked(folder, grid=grid, yardsticks=True)
    assert found.figures_sha256 == swept(small(grid=grid), folder / "here").figures_sha256
    assert processes_at_work() <= before
    assert not (folder / "out" / "workers.log").exists()


def test_files_are_read_once_and_not_by_each_worker(folder: Path) -> None:
    save_log(generate_log(12, 0.1, seed=3), folder / "log.npz")
    save_tasks(generate_mix(3, seed=0), folder / "tasks.toml")

    def remove(status: Any) -> None:  # noqa: ANN401 - the progress of a sweep
        for name in ("log.npz", "tasks.toml") if status.at_work else ():
            (folder / name).unlink(missing_ok=True)

    found = worked(folder, watch=remove, log="log.npz", tasks="tasks.toml", grid={"max_tasks": [1, 2, 3]})
    assert not (folder / "log.npz").exists()
    assert [row.error for row in found.rows] == ["", "", ""]


def test_a_worker_that_dies_costs_its_pass_alone(folder: Path) -> None:
    grid = {"objective": ["bad.py:killed", "throughput", "bad.py:ends"], "max_tasks": [1, 2]}
    found = worked(folder, grid=grid)
    assert [row.error for row in found.rows] == [
        "its worker was killed by SIGKILL, as happens when memory runs out",
        "its worker was killed by SIGKILL, as happens when memory runs out",
        "",
        "",
        "its worker exited with code 7",
        "its worker exited with code 7",
    ]
    assert [row.state for row in found.rows[2:4]] == ["done"] * 2


def test_a_killed_runner_ends_the_sweep_and_the_same_command_continues(folder: Path) -> None:
    def kill(_: object) -> None:
        for pid in filter(is_runner, processes_at_work()):
            os.kill(int(pid), signal.SIGKILL)

    spec: dict[str, Any] = {"grid": {"objective": ["bad.py:waits"], "max_tasks": [1, 2]}}
    with pytest.raises(NotAvailable, match="the workers are lost: the runner was killed by SIGKILL"):
        worked(folder, watch=kill, **spec)
    (folder / "go").touch()
    assert [row.state for row in worked(folder, **spec).rows] == ["done"] * 2


def is_runner(pid: str) -> bool:
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return int(parent) == os.getpid()


def test_an_error_of_the_display_is_no_lost_runner(folder: Path) -> None:
    def fail(status: Any) -> None:  # noqa: ANN401 - the progress of a sweep
        if status.at_work:
            raise OSError("the terminal is gone")

    before = processes_at_work()
    with pytest.raises(OSError, match="the terminal is gone"):
        worked(folder, watch=fail, grid={"seed": [1, 2]})
    assert processes_at_work() <= before


def test_a_runner_that_closes_its_connection_and_goes_on_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "hangs"
    lines = ("import os, sys, time", "os.close(int(sys.argv[-1]))", "time.sleep(600)")
    program.write_text("\n".join((f"#!{sys.executable}", *lines)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr("bftrain_replay.sweeping.local_executor._PATIENCE_S", 0.1)
    with pytest.raises(NotAvailable, match="the runner was killed by SIGKILL"):
        worked(folder)


def test_progress_is_shown_only_where_it_changes(folder: Path) -> None:
    seen: list[tuple[int, dict[str, object]]] = []

    def watch(status: Any) -> None:  # noqa: ANN401 - the progress of a sweep
        seen.append((status.passes_over, dict(status.at_work)))

    worked(folder, watch=watch, grid={"objective": ["bad.py:naps"], "seed": [1, 2]})
    assert all(status != following for status, following in pairwise(seen))


def test_stopping_ends_all_workers_at_once(folder: Path) -> None:
    before = processes_at_work()
    spec = small(yardsticks=False, grid={"objective": ["bad.py:slow"], "max_tasks": [1, 2, 3]})
    found = sweep(spec, folder / "out", jobs=2, stopping=lambda: len(list(folder.glob("at-work-*"))) == 2)
    assert {row.state for row in found.rows} == {"open"}
    pids = {int(path.name.rpartition("-")[2]) for path in folder.glob("at-work-*")}
    wait_until(lambda: not alive(pids), "the workers are gone")
    assert processes_at_work() <= before


def test_no_more_workers_than_passes(folder: Path) -> None:
    counts: set[int] = set()
    worked(folder, 9, watch=lambda status: counts.add(len(status.at_work)), grid={"seed": [1, 2]})
    assert max(counts) in {1, 2}  # the first may have done both before the other is there


def test_where_no_worker_lives_that_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(NotAvailable, match="the workers are lost: the runner exited with code 1"):
        worked(folder)


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
