"""A task runs in an environment of its own: lines of bash, a command in front, and a Python that knows where it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from bftrain import Run, Submission
from tests.helpers.local_daemon import LocalDaemon

pytestmark = [pytest.mark.torch]

SITE: Final = """\
[scheduler]
name = "local"
nodes = 1

[agents]
preload = []

[environments.site]
setup = ["module() { export MODULE=$2; }", "module load cuda"]
"""
SCRIPT: Final = """\
import os, sys
from bftrain_elastic import State, report, run

print("ran", sys.argv[1:], *map(os.environ.get, ("MODULE", "OWN", "FRONT")))

def train(state):
    while state.position < 3:
        state.position += 1
        report(samples=1)
        state.commit()

run(State(position=0), train)
"""


@pytest.mark.parametrize("launcher", [pytest.param("native", marks=pytest.mark.soak), "process"])
def test_a_task_runs_in_its_own_environment(tmp_path: Path, launcher: str) -> None:
    own = tmp_path / "own-python"  # a Python of another name
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    (tmp_path / "train.py").write_text(SCRIPT)
    run = Run(
        argv=(str(tmp_path / "train.py"), "a b"),
        cwd=str(tmp_path),
        environment="site",
        setup=('export OWN="c d"',),
        prefix=("env", "FRONT=1"),
        python=str(own),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with LocalDaemon(tmp_path, SITE) as live:
        live.client.submit(Submission(run=run, max_nodes=1, name="t", launcher=launcher))
        live.until(lambda: live.client.task("t").state in {"done", "failed"}, "it is over")
        task = live.client.task("t")
        (log,) = live.client.logs("t")
        said = live.client.log("t", log.name, 0).decode()
        assert (task.state, task.step) == ("done", 3), said
        assert said.splitlines()[0] == "ran ['a b'] cuda c d 1", said
