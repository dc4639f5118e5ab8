"""A real live daemon on slots of this machine, killed with -9 at random points while commands come and go."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bftrain import BftrainError, NotNow, Run, SpeedCurve, Submission, TaskView
from tests.helpers.local_daemon import PATIENCE_S, LocalDaemon

PROGRAMS: Final = Path(__file__).parent / "programs"
SHORT_SAMPLES: Final = 7
TRAINING_SAMPLES: Final = 12
_AT_ONCE: Final = 4  # short commands that are unfinished
SITE: Final = """\
[scheduler]
name = "local"
nodes = 4

[agents]
patience_s = 120

[times]
reunion_s = 20
"""


class KilledDaemon(LocalDaemon):
    """``bftrain live`` with four slots: a long native training on two of them, short commands on the others."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, SITE)
        self._chance = random.Random(seed)  # noqa: S311 - the same kills every time
        self.steps: dict[str, int] = {}  # short command -> how many it does

    def kill_often(self, times: int) -> None:
        """Kill and restart it that many times: a third during its start, the others while it runs."""
        for number in range(times):
            if number % 3 == 2:
                time.sleep(self._chance.uniform(0.0, 1.5))
            else:
                self.until(self.runs, f"it runs after {number} kills")
                self._submit_some()
                time.sleep(self._chance.uniform(0.0, 2.0))
            assert self.process.poll() is None, f"it ended by itself after {number} kills: {self.story()}"
            self.kill()
            self.start()
        self.until(self.runs, f"it runs after {times} kills")

    def submit_training(self) -> None:
        """Submit a native training that lasts until :meth:`finish`."""
        folder = self.record_folder("training")
        argv = (str(PROGRAMS / "training.py"), "--record", str(folder), "--step-s", "0.01")
        # Worth more than the short commands, so that these do not take its nodes while the other slots start
        curve = SpeedCurve(nodes=(1, 2), rate=(1000.0, 1900.0))
        self._submit(
            "training",
            Submission(
                run=Run(argv=argv, cwd=str(self.folder)), name="training", min_nodes=2, max_nodes=2, curve=curve
            ),
        )

    def finish(self) -> int:
        """Let the training end soon, and wait until every task is over; return the training's last step."""
        limit = max(self.task("training").step, *(line["step"] for line in self.record("training"))) + 300
        (self.record_folder("training") / "limit").write_text(str(limit))
        self.until(lambda: not self._unfinished(), "all tasks are over")
        return limit

    def task(self, name: str) -> TaskView:
        return next(view for view in self.client.tasks(over=True) if view.name == name)

    def record_folder(self, name: str) -> Path:
        """Return, and make, the folder of a task's record."""
        folder = self.folder / "records" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def record(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / "records" / name / "record"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _unfinished(self) -> list[TaskView]:
        return list(self.client.tasks())

    def _submit_some(self) -> None:
        with suppress(BftrainError):
            while len(self._unfinished()) < _AT_ONCE + 1:
                name = f"short{len(self.steps)}"
                self.steps[name] = steps = self._chance.randint(5, 80)
                nodes = self._chance.choice([1, 1, 2])
                argv = (str(PROGRAMS / "short.py"), "--record", str(self.record_folder(name)), "--steps", str(steps))
                run = Run(argv=argv, cwd=str(self.folder))
                curve = SpeedCurve(nodes=(nodes,), rate=(100.0,))
                self._submit(
                    name,
                    Submission(run=run, name=name, launcher="process", min_nodes=nodes, max_nodes=nodes, curve=curve),
                )

    def _submit(self, name: str, given: Submission) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                self.client.submit(given)
            except NotNow:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError(f"{name} is not taken in: {self.story()}")


def demand_exactly_once(daemon: KilledDaemon, limit: int) -> dict[str, float]:
    """Demand that every task is done, was run once, and has all its samples; return figures."""
    views = {view.name: view for view in daemon.client.tasks(over=True)}
    wrongs: list[str] = []
    again, doubles = 0, 0
    for name, steps in daemon.steps.items():
        view, record = views.get(name), daemon.record(name)
        if view is None:
            wrongs.append(f"{name} is lost")
            continue
        if (view.state, view.step, view.samples) != ("done", steps, float(steps * SHORT_SAMPLES)):
            wrongs.append(f"{name}: {view.state} {view.reason} at step {view.step} of {steps}, {view.samples} samples")
        ran = _again_after_end(record)
        again += len(ran)
        wrongs += [f"{name}: rank {rank} ran again after all ranks had ended" for rank in ran]
        double = [line for line in record if line["what"] == "double"]
        doubles += len(double)
        wrongs += [f"{name}: rank {line['rank']} ran twice at once: {line}" for line in double]
    training, record = views["training"], daemon.record("training")
    if (training.state, training.step, training.samples) != ("done", limit, float(limit * TRAINING_SAMPLES)):
        wrongs.append(f"training: {training} instead of {limit} steps, {limit * TRAINING_SAMPLES} samples")
    begins = [(line["t"], line["step"]) for line in record if line["what"] == "began"]
    if len(begins) > 1:
        wrongs.append(f"training: it began again, though its nodes stayed: {begins}")
    assert not wrongs, "\n".join([*wrongs[:20], f"{len(wrongs)} in all", daemon.story()])
    return {
        "short commands": float(len(daemon.steps)),
        "ended commands run again": float(again),
        "ranks that ran twice at once": float(doubles),
        "steps of the training": float(limit),
    }


def _again_after_end(record: list[dict[str, Any]]) -> list[str]:
    """Return the ranks that were started after all ranks of a group had ended."""
    ended: set[str] = set()
    found = []
    for line in record:
        if line["what"] == "start" and len(ended) == int(line["workers"]):
            found.append(line["rank"])
        elif line["what"] == "end":
            ended.add(line["rank"])
    return found


def kill_daemon(folder: Path, times: int, *, seed: int) -> dict[str, float]:
    """Kill the daemon repeatedly, check that everything was done exactly once, and return figures."""
    with KilledDaemon(folder, seed) as daemon:
        daemon.submit_training()
        # Agents import PyTorch from one process of the daemon's: killed again and again meanwhile, they never begin
        daemon.until(lambda: bool(daemon.record("training")), "the training begins")
        daemon.kill_often(times)
        limit = daemon.finish()
        figures = demand_exactly_once(daemon, limit)
        assert daemon.end() == 0, daemon.story()
        return {"kills of the daemon": float(times), **figures}
