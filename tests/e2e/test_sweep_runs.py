"""``bftrain sweep`` as it is lived with: interrupted, killed, its workers killed, and run again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.processes import alive
from tests.helpers.program import ANSI, bftrain, on_terminal, start
from tests.helpers.sweeping import at_work, outcomes, prepare, release, repeatable, wait_until

SWEEP = ("sweep", "sweep.toml", "-o", "out", "--jobs", "2")


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the table of the sweep that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder)
    release(folder)
    ended = bftrain(*SWEEP, cwd=folder)
    assert ended.code == 0, ended.err
    return repeatable(folder / "out")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(
    tmp_path: Path, in_one_go: str, number: signal.Signals
) -> None:
    prepare(tmp_path)
    running = start(*SWEEP, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2 and len(outcomes(tmp_path / "out")) >= 6, "both are held")
    running.send_signal(number)
    out, err = running.communicate(timeout=180)
    assert running.returncode == 130
    assert b"interrupted; 2 of 4 points are done and kept in out; the same command continues" in err
    assert b"Traceback" not in err
    assert [line.split()[-1] for line in out.decode().strip().splitlines()[4:]] == ["done", "done", "open", "open"]
    assert alive(at_work(tmp_path)) == set()
    kept = outcomes(tmp_path / "out")
    release(tmp_path)
    ended = bftrain(*SWEEP, cwd=tmp_path)
    said = [line for line in ended.err.splitlines() if not line.startswith("warning: ")]
    assert (ended.code, said) == (0, [f"computed before: 2 of 4 points ({len(kept)} of 12 replays)", "result: out"])
    assert outcomes(tmp_path / "out")[: len(kept)] == kept
    assert repeatable(tmp_path / "out") == in_one_go


def test_a_killed_sweep_takes_its_workers_along_and_goes_on(tmp_path: Path, in_one_go: str) -> None:
    prepare(tmp_path)
    running = start(*SWEEP, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "both are held")
    running.kill()
    running.communicate(timeout=180)
    wait_until(lambda: alive(at_work(tmp_path)) == set(), "its workers are gone")
    release(tmp_path)
    assert bftrain(*SWEEP, cwd=tmp_path).code == 0
    assert repeatable(tmp_path / "out") == in_one_go


def test_a_killed_worker_costs_its_points_alone(tmp_path: Path, in_one_go: str) -> None:
    prepare(tmp_path)
    running = start(*SWEEP, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "both are held")
    os.kill(min(at_work(tmp_path)), signal.SIGKILL)
    wait_until(lambda: any(one["status"] == "failed" for one in outcomes(tmp_path / "out")), "that is noted")
    release(tmp_path)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 1
    assert b"its worker was killed by SIGKILL, as happens when memory runs out" in err
    assert bftrain(*SWEEP, cwd=tmp_path).code == 1
    assert bftrain(*SWEEP, "--retry-failed", cwd=tmp_path).code == 0
    assert repeatable(tmp_path / "out") == in_one_go


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    prepare(tmp_path, 'log = "log.npz"\ntasks = "tasks.toml"\n[grid]\nobjective = ["gate.py:slow"]\nseed = [1, 2]\n')
    ended = on_terminal(*SWEEP, columns=100, cwd=tmp_path)
    assert ended.code == 0, ended.out
    said = ANSI.sub("", ended.out)
    for words in ("0 of 4 replays", "%"):
        assert words in said, said
    assert "result: out" in said.splitlines()[-1]


def test_two_sweeps_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    prepare(tmp_path)
    running = start(*SWEEP, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "the first is at work")
    second = bftrain(*SWEEP, cwd=tmp_path)
    assert second.code == 2
    assert f"out: is in use by process {running.pid} on " in second.err
    release(tmp_path)
    running.communicate(timeout=180)
    assert running.returncode == 0
