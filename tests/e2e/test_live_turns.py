"""Under a fair objective more tasks than nodes take turns in a real live run: no start is wasted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from bftrain import Run, Submission
from tests.helpers.local_daemon import LocalDaemon

SITE: Final = """\
[scheduler]
name = "local"
nodes = 3

[agents]
preload = []

[deciding]
objective = "hierarchical"
turn_s = 4.0
"""
SCRIPT: Final = """\
import sys, time
from bftrain_elastic import report
history = open(sys.argv[1], "a")
print("start", file=history, flush=True)
time.sleep(2.0)  # a long import
while True:
    time.sleep(0.02)
    report(samples=1)
    print("step", file=history, flush=True)
"""


def submit(live: LocalDaemon, name: str, *argv: str) -> None:
    run = Run(argv=argv, cwd=str(live.folder), env={"PYTHONPATH": os.pathsep.join(sys.path)}, stop_grace_s=0.0)
    live.client.submit(Submission(run=run, max_nodes=1, name=name, launcher="process"))


def histories(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().split() for path in folder.glob("history-*")}


def test_each_command_starts_once(tmp_path: Path) -> None:
    with LocalDaemon(tmp_path, SITE) as live:
        for number in range(12):
            submit(live, f"c{number}", "/bin/sh", "-c", f"echo start >> history-{number}; sleep 0.5")
        live.until(lambda: all(task.state == "done" for task in live.client.tasks(over=True)), "all are done")
    assert histories(tmp_path) == {f"history-{number}": ["start"] for number in range(12)}


def test_each_task_makes_steps_before_any_task_starts_a_second_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with LocalDaemon(tmp_path, SITE) as live:
        for number in range(5):
            submit(live, f"t{number}", sys.executable, "train.py", f"history-{number}")
        live.until(
            lambda: [words.count("step") >= 25 for words in histories(tmp_path).values()] == [True] * 5, "all run"
        )
        starts = [words.count("start") for words in histories(tmp_path).values()]
    assert starts == [1] * 5
