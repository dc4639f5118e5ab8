"""A live task tells its noise scale, is handed a larger batch for it, and is done by progress, not by samples."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from bftrain import BatchScaling, Run, SpeedCurve, Submission
from tests.helpers.local_daemon import LocalDaemon

pytestmark = [pytest.mark.torch]

SITE: Final = """\
[scheduler]
name = "local"
nodes = 1

[agents]
preload = []

[deciding]
objective = "goodput"
"""
INITIAL, NOISE = 50, 6400.0
# The batch before the report is the best one for the noise scale that the task was handed in with
SCRIPT: Final = f"""\
import time
from bftrain_elastic import State, report, run

def train(state):
    batch = state.decided_batch
    print("batch", batch, flush=True)
    while state.done < 30_000 or batch == 141:
        state.done += batch * ({NOISE} + {INITIAL}) / ({NOISE} + batch)
        state.position += 1
        time.sleep(0.01)
        report(samples=batch, noise_scale={NOISE})
        state.commit()
    print("done", state.done, flush=True)

run(State(position=0, done=0.0), train)
"""


def test_the_noise_scale_that_a_task_reports_changes_its_batch_and_it_is_done_by_progress(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = Run(argv=(str(tmp_path / "train.py"),), cwd=str(tmp_path), env={"PYTHONPATH": os.pathsep.join(sys.path)})
    # A step of the initial batch takes as long to exchange as to compute: the best batch is sqrt(noise * 50)
    batch = BatchScaling(initial=INITIAL, noise_scale=400.0, largest=1000, fixed_share=0.5)
    task = Submission(
        run=run, max_nodes=1, name="t", curve=SpeedCurve(nodes=(1,), rate=(100.0,)), work_samples=30_000.0, batch=batch
    )
    with LocalDaemon(tmp_path, SITE) as live:
        live.client.submit(task)
        live.until(lambda: live.client.task("t").state in {"done", "failed"}, "it is over")
        view = live.client.task("t")
        (log,) = live.client.logs("t")
        said = [line.split() for line in live.client.log("t", log.name, 0).decode().splitlines()]
    assert view.state == "done", said
    batches = [int(words[1]) for words in said if words[0] == "batch"]
    assert batches[0] == 141
    assert batches[-1] == 566
    assert float(said[-1][1]) >= 30_000.0
    assert view.samples > 30_000.0, "samples of larger batches count less"
