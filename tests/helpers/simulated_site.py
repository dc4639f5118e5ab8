"""Days and weeks of a site in a moment: a fake clock, scheduler and launcher around a real daemon, journal and disk.

Time goes in steps of ten minutes. At each step nodes come and go, users hand tasks in, tasks report and end. Now and
then the daemon is killed. What tasks held and did is counted here a second time.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest import mock

from bftrain import Journal, Rerun, Run, SpeedCurve, Submission
from bftrain.config import LiveSettings
from bftrain.live.model.schemas import Caller
from bftrain.live.model.site_config import KeepSettings
from tests.helpers.live_callers import CHIEF
from tests.helpers.live_inside import Inside, World, decided, live_inside

STEP_S: Final = 600.0
STEPS_A_DAY: Final = 144
COMMIT_BYTES: Final = 50_000
_SIZES: Final = (1, 2, 4, 8, 16)
CURVE: Final = SpeedCurve(nodes=_SIZES, rate=tuple(10.0 * size**0.9 for size in _SIZES))


@dataclass
class SimulatedSite:
    """One site; ``run`` lets it go. ``wrongs`` collects what must never happen."""

    folder: Path
    days: int
    nodes: int
    users: int
    tasks: int
    seed: int
    kill_every_days: int = 5
    keep: KeepSettings = field(default_factory=KeepSettings)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)  # noqa: S311 - the same weeks every time
        self._clock = time.mktime((2026, 9, 1, 0, 0, 0, 0, 0, -1))
        self._world = World()
        self._left: dict[str, float] = {}  # samples of unfinished tasks
        self._done: dict[str, float] = {}
        self._steps: dict[str, int] = defaultdict(int)
        self.node_s: dict[str, float] = defaultdict(float)  # by user, counted here
        self.samples: dict[str, float] = defaultdict(float)
        self.disk_bytes: list[int] = []  # at the end of each day
        self.wrongs: list[str] = []

    async def run(self) -> None:
        """Simulate all days, and then the rest of the tasks."""
        settings = LiveSettings(objective="hierarchical", max_tasks=20)
        step, steps = 0, self.days * STEPS_A_DAY
        with mock.patch.object(time, "time", self._now):
            while step < steps or self._left:
                async with live_inside(self.folder, self._world, deciding=settings, keep=self.keep) as inside:
                    for _ in range(self.kill_every_days * STEPS_A_DAY):
                        await self._step(inside, arrivals=self.tasks / steps, step=step)
                        step += 1
                        if step >= steps and not self._left:
                            break
                    await self._check(inside)

    def _now(self) -> float:
        return self._clock

    async def _step(self, inside: Inside, *, arrivals: float, step: int) -> None:
        for task, held in self._world.held.items():
            if task in self._left:
                self.node_s[task.partition("-")[0]] += STEP_S * len(held)
        self._clock += STEP_S
        self._report()
        await decided(inside.daemon)
        idle = self._dice.randrange(self.nodes // 4, self.nodes) if step % 6 == 0 else len(self._world.allowed)
        names = [f"n{number}" for number in range(self.nodes)]
        if idle < len(self._world.allowed):
            self._world.take(*self._dice.sample(sorted(self._world.allowed), len(self._world.allowed) - idle))
        elif idle > len(self._world.allowed):
            others = sorted(set(names) - self._world.allowed)
            self._world.lend(*self._dice.sample(others, idle - len(self._world.allowed)))
        while len(self._done) + len(self._left) < min(self.tasks, arrivals * (step + 1)):
            await self._submit(inside)
        await decided(inside.daemon)
        inside.daemon.task_manager.progress()
        inside.daemon.decision_loop.write(sync=False)
        for _ in range(5):  # of the ten minutes of seconds in which it is asked to
            inside.daemon.housekeeping.apply()
        if (step + 1) % STEPS_A_DAY == 0:
            await inside.daemon.housekeeping.tidy()
            self.disk_bytes.append(_bytes_in(self.folder))

    async def _submit(self, inside: Inside) -> None:
        number = len(self._done) + len(self._left)
        user = f"u{number % self.users}"
        work = float(self._dice.randrange(20, 400)) * STEP_S
        given = Submission(
            run=Run(argv=("train.py",)), name=f"{user}-{number}", max_nodes=16, curve=CURVE, work_samples=work
        )
        caller = Caller(uid=70_000 + number % self.users, user=user, operator=False)
        view = await inside.service.submit(caller, given)
        self._left[given.name] = work
        _leave_files(view.folder)

    def _report(self) -> None:
        """Report ten minutes of work of all running tasks, and end those that are done."""
        for task, held in list(self._world.held.items()):
            if task not in self._left or not held:
                continue
            did = min(self._left[task], round(STEP_S * 10.0 * len(held) ** 0.9))
            self._steps[task] += 1
            self.samples[task.partition("-")[0]] += did
            self._left[task] -= did
            self._world.tell(task, "report", step=self._steps[task], size=len(held), samples=did, loss=None)
            if self._left[task] <= 0:
                self._done[task] = self._left.pop(task)
                self._world.tell(task, "done", step=self._steps[task])

    async def _check(self, inside: Inside) -> None:
        """Compare hours and tasks with what was counted here."""
        used = {row.of: row for row in inside.service.usage(CHIEF, by="user")}
        for user, node_s in self.node_s.items():
            if abs(used[user].node_s - node_s) > 1.0:
                self.wrongs.append(f"{user}: {used[user].node_s} node-seconds, and it held {node_s}")
            if used[user].samples != self.samples[user]:
                self.wrongs.append(f"{user}: {used[user].samples} samples, and {self.samples[user]} were reported")
        unfinished = {view.name for view in inside.service.tasks(CHIEF, all=False)}
        if unfinished != set(self._left):
            self.wrongs.append(f"lost: {sorted(unfinished ^ set(self._left))[:5]}")
        self.wrongs += [remark.text for remark in inside.daemon.notices.latest if "failed" in remark.text]

    def verify(self) -> int:
        """Decide all steps again that are still there; give how many came out otherwise."""
        with Journal.open(self.folder / "live" / "live.db") as journal:
            journal.check_integrity()
            return len(list(Rerun(journal).differences()))

    @property
    def figures(self) -> Mapping[str, float]:
        with Journal.open(self.folder / "live" / "live.db") as journal:
            steps, first = len(journal), journal.first
        return {
            "tasks done": len(self._done),
            "node-hours": sum(self.node_s.values()) / 3600,
            "largest disk, MB": max(self.disk_bytes) / 1e6,
            "last disk, MB": self.disk_bytes[-1] / 1e6,
            "journal steps": steps,
            "removed steps": first,
            "wrongs": len(self.wrongs),
        }


def _leave_files(given: str) -> None:
    folder = Path(given)
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "n0.0.log").write_text("it began\n")
    (folder / "commit").write_bytes(b"x" * COMMIT_BYTES)


def _bytes_in(folder: Path) -> int:
    """Return the bytes of all files but of SQLite's log of writes, which is 4 MB at most."""
    files = (Path(path, name) for path, _, names in os.walk(folder) for name in names if not name.endswith("-wal"))
    return sum(file.lstat().st_size for file in files)
