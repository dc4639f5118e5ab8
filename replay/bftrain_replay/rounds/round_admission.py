"""Admission in rounds: selects the competing tasks through an admission, and reports events to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, cast

import numpy as np

from bftrain import text_formats
from bftrain.deciding.admission_control import AdmissionControl
from bftrain.deciding.task_table import TaskTable
from bftrain.errors import BftrainError, BrokenPlugin, raised
from bftrain.parts import resolve_admission
from bftrain.values.events import TaskFinished, TaskSubmitted
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_inputs import Ints, TaskGangs, TaskProgressColumns
from bftrain_replay.rounds.round_settings import RoundSettings


class _PresentTask(NamedTuple):
    """A task with its one size in rounds; ``size`` is the number of nodes in the previous round."""

    spec: TaskSpec
    size: int
    work_left_samples: float | None
    paused: bool = False
    failures: int = 0


class _PresentTasks:
    """The tasks that have arrived and not finished, as :class:`AdmissionControl` reads a task table."""

    def __init__(self, gangs: TaskGangs, progress: TaskProgressColumns) -> None:
        self._gangs, self._progress = gangs, progress
        self.place: dict[str, int] = {}  # index of each task, in arrival order
        self.used = 0  # allocated nodes

    def unpaused(self) -> Iterator[str]:
        return iter(self.place)

    def __contains__(self, task: str) -> bool:
        return task in self.place

    def get(self, task: str) -> _PresentTask | None:
        return self[task] if task in self.place else None

    def __getitem__(self, task: str) -> _PresentTask:
        place, progress = self.place[task], self._progress
        size, left = int(self._gangs.nodes[place]), float(progress.left[place])
        size = size if progress.kind[place] >= 0 else 0
        return _PresentTask(self._gangs.specs[place], size, left if math.isfinite(left) else None)


class RoundAdmission:
    """Applies an admission before the policy: a rejected task waits as if it had not arrived."""

    def __init__(self, gangs: TaskGangs, progress: TaskProgressColumns, settings: RoundSettings) -> None:
        self._gangs = gangs
        # The policy limits the number of competing tasks, so admission never rejects a task for exceeding a limit
        admission = resolve_admission(settings.admission, max(1, len(gangs)), settings.entities)
        self._where = f"admission '{admission.name}'"
        self._tasks = _PresentTasks(gangs, progress)
        self._control = AdmissionControl(admission, cast("TaskTable", self._tasks))  # it reads only this
        self.remarks: list[str] = []  # warnings about arrived tasks

    def chosen(self, here: Ints, time_s: float, count: Ints) -> Ints:
        """Return the competing tasks, in arrival order."""
        chosen = self._control.chosen(time_s, dict(zip(self._gangs.kinds, count.tolist(), strict=True)))
        specs = [self._gangs.specs[place] for place in here.tolist()]
        for spec in specs:
            if 0 < chosen.get(spec.name, 0) < spec.min_nodes:
                limit = text_formats.counted(chosen[spec.name], "node")
                what = f"limits task '{spec.name}' to {limit}, but it needs {spec.min_nodes}"
                raise BrokenPlugin(what, where=self._where, fix="exclude tasks with a limit below min_nodes")
        competing: Ints = here[np.array([spec.name in chosen for spec in specs], dtype=bool)]
        return competing

    def arrived(self, places: Ints, time_s: float) -> None:
        """Report arrivals."""
        specs = [self._gangs.specs[place] for place in places.tolist()]
        self._tasks.place |= {spec.name: place for spec, place in zip(specs, places.tolist(), strict=True)}
        try:
            self.remarks += self._control.on_events([TaskSubmitted(time_s=time_s, spec=spec) for spec in specs], time_s)
        except BftrainError:
            raise
        except Exception as error:
            raise BrokenPlugin(raised(error), where=self._where, fix="use a built-in one") from error

    def advance_time(self, time_s: float, used: int) -> None:
        """Report that time has passed with this many nodes in use."""
        self._tasks.used = used
        self._control.advance_time(time_s)

    def done(self, places: Ints, time_s: float) -> None:
        """Report completions."""
        names = [self._gangs.specs[place].name for place in places.tolist()]
        for name in names:
            del self._tasks.place[name]
        list(self._control.on_events([TaskFinished(time_s=time_s, task=name) for name in names], time_s))
