"""Trainings under ``bftrain live`` on a Slurm of the tests, whose nodes are all taken again and again."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from bftrain import BftrainError, Client, TaskView
from tests.helpers.live_run import LiveRun
from tests.helpers.slurm import Slurm, wait_until

PROGRAMS: Final = Path(__file__).parent / "programs"
SAMPLES: Final = 12  # of each step of these programs
_FURTHER: Final = 150  # steps that are left when the last preemption is over
_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 180.0

SITE: Final = """\
name = "preempted"
folder = "{{folder}}/shared"
state = "{{folder}}/state"

[scheduler]
name = "slurm"
partition = "pilot"
pending = 4
poll_s = 1

[deciding]
objective = "speedup"

[agents]
python = "{{python}}"
preload = []
{agents}

[times]
drain_s = 20
"""
TASK: Final = """\
[[task]]
name = "{name}"
script = "{script}"
args = {words}
launcher = "{launcher}"
nodes = "1:{most}"
curve = {{nodes = [1, 2, 3], rate = [100, 190, 270]}}

"""


@dataclass(frozen=True)
class Training:
    """A program of the tests under one launcher."""

    name: str
    script: str
    launcher: str
    most: int  # nodes


TRAININGS: Final = (
    Training("native", "training.py", "native", 2),
    Training("state", "training.py", "process", 1),
    Training("program", "program.py", "process", 1),
    Training("programs", "program.py", "process", 2),
    Training("horovod", "training_horovod.py", "horovod", 2),
)


@dataclass
class Seen:
    """What the API said of one task, and when."""

    views: list[tuple[float, TaskView]] = field(default_factory=list)

    @property
    def last(self) -> TaskView:
        return self.views[-1][1]

    def committed_before(self, t: float) -> int:
        """Return the largest committed step that was reported before a time."""
        return max((committed(view) for at, view in self.views if at < t), default=0)


def committed(view: TaskView) -> int:
    """Return the step that survives the loss of the whole pool, as far as the API tells it: copies are lost with it."""
    return 0 if view.copied_step == view.committed_step else view.committed_step


class PreemptedRun:
    """Trainings on a Slurm whose main partition takes the whole pool; use it in a ``with`` block.

    What the API says is noted all the time by a thread; what the programs do stands in their records.
    """

    def __init__(self, cluster: Slurm, trainings: tuple[Training, ...], *, load_s: float, grace_s: float) -> None:
        self.cluster = cluster
        self.trainings = trainings
        cluster.run("scontrol", "update", "PartitionName=pilot", f"GraceTime={int(grace_s)}")
        agents = f"grace_s = {grace_s - 1:g}" if grace_s else ""
        self.live = LiveRun(cluster, SITE.format(agents=agents))
        self.seen: dict[str, Seen] = {one.name: Seen() for one in trainings}
        self._load_s = load_s
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.live.__enter__()
        try:
            self._hand_in()
        except BaseException:
            self.live.__exit__()
            raise
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join(30)
        self.live.__exit__()

    def take_all_nodes(self, times: int, *, seed: int, within_s: float) -> None:
        """Submit so many jobs of all nodes, each at a random moment of the ``within_s`` seconds after the last one.

        Every third waits until all train again, so that there is something to lose on a slow machine too.
        """
        chance = random.Random(seed)  # noqa: S311 - the same moments every time
        for number in range(times):
            if number % 3 == 0:
                self._wait_until_all_train()
                self._sleep(chance.uniform(0.0, 2.0))
            else:
                self._sleep(chance.uniform(0.0, within_s))
            began = self.cluster.home / f"main-{number}"
            words = f"sleep {chance.uniform(1.0, 2.0):.2f}; touch {began}"
            with busy_machine():
                self.cluster.submit(words, f"-N{len(self.cluster.nodes)}", "--exclusive")
                self.live.until(began.exists, f"main job {number} ran")
            self.demand_no_task_failed(f"after {number + 1} preemptions")

    def finish(self) -> None:
        """Ask for some more steps of each task, and wait until all are over."""
        steps = {name: seen.last.step for name, seen in self.seen.items()}
        for name, step in steps.items():
            furthest = max(step, 0, *(line["step"] for line in self.record(name)))
            (self.folder(name) / "limit").write_text(str(furthest + _FURTHER))
        self.live.until(
            lambda: all(seen.last.state in {"done", "failed", "cancelled"} for seen in self.seen.values()),
            f"all are over: {self.states()}",
            _PATIENCE_S + 4 * self._load_s,
        )

    def demand_no_task_failed(self, when: str) -> None:
        """Demand that nothing was called done or failed: no program is at its end."""
        over = {name: seen.last for name, seen in self.seen.items() if seen.views and seen.last.ended_s is not None}
        said = {name: f"{view.state} at step {view.step} ({view.reason})" for name, view in over.items()}
        assert not over, f"{when} these are over before their end: {said}\n{self.live.tell()}"

    def demand_nothing_is_lost(self) -> None:
        """Demand that all work was done, all of it is counted, and none fell behind a committed step."""
        for name, seen in self.seen.items():
            limit = int((self.folder(name) / "limit").read_text())
            view, record = seen.last, self.record(name)
            story = f"{name}: {view}\n{record[-5:]}\n{self.live.tell()}"
            assert view.state == "done", story
            assert view.step == limit, story
            assert view.samples == limit * SAMPLES, story
            assert view.failures == 0, f"preemptions were counted as failures: {story}"
            ends = [line for line in record if line["what"] == "ended"]
            assert ends, story
            assert all(line["step"] == line["counted"] == limit for line in ends), f"{ends} {story}"
            if name not in {"program", "programs"}:  # which know of no commits
                assert committed(view) > 0, f"nothing was reported as committed: {story}"
            assert not self.lost(name), f"{name} fell behind the reported commit: {self.lost(name)}"

    def lost(self, name: str) -> list[tuple[int, int]]:
        """Return (step reported as committed, step from which it went on) where the second is smaller."""
        found, saved = [], 0
        for line in self.record(name):
            if line["what"] == "saved":
                saved = max(saved, line["step"])
            if line["what"] == "began":
                reached = max(saved, self.seen[name].committed_before(line["t"]))
                found += [(reached, line["step"])] if line["step"] < reached else []
        return found

    def figures(self) -> dict[str, float]:
        """Return how often each began again, and the most steps that it did again after one preemption."""
        found = {}
        for name, seen in self.seen.items():
            begins = [line for line in self.record(name) if line["what"] == "began"]
            again = [
                max((view.step for at, view in seen.views if at < line["t"]), default=0) - line["step"]
                for line in begins
            ]
            found[f"{name}: groups"] = float(len(begins))
            found[f"{name}: most steps done again"] = float(max([0, *again]))
            found[f"{name}: steps"] = float(seen.last.step)
        return found

    def folder(self, name: str) -> Path:
        return self.live.folder / "records" / name

    def record(self, name: str) -> list[dict[str, Any]]:
        file = self.folder(name) / "record"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def states(self) -> dict[str, str]:
        """Return the state, step and last trouble of each."""
        return {
            name: f"{seen.last.state} {seen.last.step} {seen.last.reason}"
            for name, seen in self.seen.items()
            if seen.views
        }

    def _hand_in(self) -> None:
        for file in PROGRAMS.glob("*.py"):
            shutil.copy(file, self.live.folder)
        text = ""
        for one in self.trainings:
            folder = self.folder(one.name)
            folder.mkdir(parents=True)
            folder.chmod(0o777)  # the programs may run as another user than we
            words = json.dumps(["--record", str(folder), "--load-s", str(self._load_s), "--ballast-mb", "4"])
            text += TASK.format(name=one.name, script=one.script, launcher=one.launcher, most=one.most, words=words)
        (self.live.folder / "records").chmod(0o755)
        (self.live.folder / "tasks.toml").write_text(text)
        self.live.call("submit", "tasks.toml")

    def _watch(self) -> None:
        client = Client(self.live.env["BFTRAIN_LIVE"])
        while not self._over.wait(_LOOK_S):
            with suppress(BftrainError):
                views = client.tasks(over=True)
                now = time.time()
                for view in views:
                    self.seen[view.name].views.append((now, view))

    def _wait_until_all_train(self) -> None:
        before = {name: seen.last.step for name, seen in self.seen.items()}
        self.live.until(
            lambda: all(seen.last.step > before[name] for name, seen in self.seen.items()),
            f"all are further than {before}",
            _PATIENCE_S + 4 * self._load_s,
        )

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.live.until(lambda: time.monotonic() >= until, "time passes", seconds + _PATIENCE_S)


@contextmanager
def busy_machine(processes: int = 4) -> Iterator[None]:
    """Keep all processors busy meanwhile, so that the signals of a preemption reach processes at different times."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def survive(nodes: int, times: int, *, load_s: float, grace_s: float, seed: int) -> dict[str, float]:
    """Preempt all nodes repeatedly, check that nothing is lost, and return figures."""
    with Slurm(nodes=nodes) as cluster, PreemptedRun(cluster, TRAININGS, load_s=load_s, grace_s=grace_s) as run:
        wait_until(lambda: all(seen.views for seen in run.seen.values()), "the API tells of all tasks", run.live.tell)
        # Slurm takes some seconds to bring pilots back, and imports some more: a preemption may come at any of them
        run.take_all_nodes(times, seed=seed, within_s=2 * load_s + 12)
        run.finish()
        run.demand_nothing_is_lost()
        assert run.live.end() == 0, run.live.tell()
        run.live.gone()
        return {"preemptions of the whole pool": float(times), **run.figures()}
