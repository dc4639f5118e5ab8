"""Pilots and a training under a real OpenPBS, where one runs: ``tools/openpbs.sh`` builds it and starts it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from bftrain import Run, SpeedCurve, Submission
from tests.helpers.local_daemon import LocalDaemon

pytestmark = [pytest.mark.torch]

SITE: Final = """\
name = "test"
folder = "shared"

[scheduler]
name = "pbs"
queue = "{queue}"
pending = 1
poll_s = 1

[agents]
listen = "0.0.0.0"
reach = "{host}"
address = "auto"
preload = []
"""
STEPS: Final = 1_000_000
SCRIPT: Final = f"""\
import time
from bftrain_elastic import State, report, run

def train(state):
    while state.position < {STEPS}:
        state.position += 1
        time.sleep(0.02)
        report(samples=10)
        state.commit()

run(State(position=0), train)
"""
MAIN: Final = (
    "qsub",
    "-q",
    "workq",
    "-l",
    "select=3:ncpus=1",
    "-l",
    "place=scatter:exclhost",
    "-j",
    "oe",
    "-o",
    "/dev/null",
)


def pbs(*words: str) -> str:
    """Run a command of PBS and return what it printed."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(autouse=True)
def _server() -> None:
    if shutil.which("qstat") is None:
        pytest.skip("no command of PBS here: tools/openpbs.sh builds it")
    if os.geteuid() == 0:
        pytest.skip("PBS runs no jobs of root: run this as another user")
    asked = subprocess.run(["qstat", "-Q", "preempt"], capture_output=True, text=True, timeout=60, check=False)
    if asked.returncode:
        pytest.skip(f"no PBS with a queue 'preempt' answers: {asked.stderr.strip()}")


def test_main_jobs_of_a_real_pbs_get_their_nodes_and_no_step_is_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = Run(argv=(str(tmp_path / "train.py"),), cwd=str(tmp_path), env={"PYTHONPATH": os.pathsep.join(sys.path)})
    curve = SpeedCurve(nodes=(1, 2, 3), rate=(100.0, 200.0, 300.0))
    site = SITE.format(queue="preempt", host=socket.gethostname())
    with LocalDaemon(tmp_path, site) as live:
        live.client.submit(Submission(run=run, max_nodes=3, name="t", curve=curve))
        live.until(lambda: live.client.task("t").running == 3, "it trains on all nodes")
        assert len(pbs("qselect", "-N", "bftrain-test").split()) == 3, "no pilot more than the task can use"
        for ran in (tmp_path / "first", tmp_path / "second"):
            live.until(lambda: live.client.task("t").step > 20, "it has commits")
            before = live.client.task("t").committed_step
            pbs(*MAIN, "--", "/usr/bin/touch", str(ran))
            live.until(ran.exists, "the main job has run")  # not asked of PBS: each connection takes scarce ports
            live.until(lambda: live.client.task("t").running == 3, "it trains on all nodes again")
            assert live.client.task("t").committed_step >= before
        assert live.client.task("t").preemptions >= 2
        assert live.client.task("t").failures == 0
        assert live.client.status().remarks == ()
        assert live.end() == 0
    assert pbs("qselect", "-N", "bftrain-test") == "", "no pilot is left"


def test_a_queue_that_preempts_others_is_refused_by_a_real_pbs(tmp_path: Path) -> None:
    live = LocalDaemon(tmp_path, SITE.format(queue="workq", host=socket.gethostname()))
    live.start()
    assert live.process.wait(60) == 4
    assert "preempt other jobs" in live.story()
    live.client.close()
