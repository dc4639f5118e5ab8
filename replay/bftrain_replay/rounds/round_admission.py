"""Admission in rounds: selects the competing tasks through an admission, and reports events to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bftrain.errors import BadInput, BrokenPlugin, raised
from bftrain.parts import resolve_admission
from bftrain.ports import ChoosingAdmission, NotingAdmission
from bftrain.values.events import AdmissionUpdate, TaskInfo
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_inputs import Places, TaskGangs, TaskProgressColumns
from bftrain_replay.rounds.round_settings import RoundSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundQueue:
    """The view of an admission on the present tasks (``bftrain.ports.Queue``)."""

    time_s: float
    pools: Mapping[str, int]
    place: Mapping[str, int]  # present tasks, in arrival order
    gangs: TaskGangs
    progress: TaskProgressColumns

    @property
    def pool(self) -> int:
        """The number of nodes of all kinds."""
        return sum(self.pools.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.place)

    def __contains__(self, task: str) -> bool:
        return task in self.place

    def spec(self, task: str) -> TaskSpec:
        """Return the task's spec, with its one size in rounds."""
        return self.gangs.specs[self.place[task]]

    def size(self, task: str) -> int:
        """Return the number of nodes allocated in the previous round."""
        place = self.place[task]
        return int(self.gangs.nodes[place]) if self.progress.kind[place] >= 0 else 0

    def work_left(self, task: str) -> float | None:
        """Return the remaining samples, or ``None`` for an endless task."""
        left = float(self.progress.left[self.place[task]])
        return left if math.isfinite(left) else None

    def most_nodes(self, task: str) -> int:
        """Return the number of nodes that it could use now; 0 if below its minimum."""
        spec = self.spec(task)
        most = max((count for kind, count in self.pools.items() if spec.curve_on(kind) is not None), default=0)
        return min(most, spec.max_nodes) if most >= spec.min_nodes else 0


class RoundAdmission:
    """Applies an admission before the policy: a rejected task waits as if it had not arrived."""

    def __init__(self, gangs: TaskGangs, progress: TaskProgressColumns, settings: RoundSettings) -> None:
        self._gangs, self._progress = gangs, progress
        # The policy limits the number of competing tasks, so admission never rejects a task for exceeding a limit
        self._admission = resolve_admission(settings.admission, max(1, len(gangs)), settings.entities)
        self._stateful = self._admission if isinstance(self._admission, NotingAdmission) else None
        self.remarks: list[str] = []  # warnings about arrived tasks

    def chosen(self, here: Places, time_s: float, count: Places) -> Places:
        """Return the competing tasks, in arrival order."""
        names = [self._gangs.specs[place].name for place in here.tolist()]
        queue = RoundQueue(
            time_s=time_s,
            pools=dict(zip(self._gangs.kinds, count.tolist(), strict=True)),
            place=dict(zip(names, here.tolist(), strict=True)),
            gangs=self._gangs,
            progress=self._progress,
        )
        try:
            if isinstance(self._admission, ChoosingAdmission):
                found = self._admission.choose(queue)
            else:
                found = self._admission.admit(iter(queue), queue.pool)
            chosen = dict(found) if isinstance(found, Mapping) else dict.fromkeys(found)
        except Exception as error:
            raise self._broken(error) from error
        for name, most in chosen.items():
            if name in queue and most is not None and most < queue.spec(name).min_nodes:
                what = f"lets task '{name}' have {most} nodes, and it needs {queue.spec(name).min_nodes}"
                raise BrokenPlugin(what, where=self._where, fix="exclude tasks whose limit is below min_nodes")
        competing: Places = here[np.array([name in chosen for name in names], dtype=bool)]
        return competing

    def came(self, places: Places, time_s: float) -> None:
        """Report arrivals."""
        specs = self._gangs.specs
        came = [specs[place] for place in places.tolist()]
        entered = tuple(TaskInfo(spec=spec, work_left_samples=spec.work_samples) for spec in came)
        self._note(AdmissionUpdate(time_s=time_s, entered=entered))
        self.remarks.extend(self._remarks(came))

    def advance_time(self, time_s: float, used: int) -> None:
        """Report that time has passed with this many nodes in use."""
        self._note(AdmissionUpdate(time_s=time_s, used=used))

    def done(self, places: Places, time_s: float) -> None:
        """Report completions."""
        names = tuple(self._gangs.specs[place].name for place in places.tolist())
        self._note(AdmissionUpdate(time_s=time_s, finished=names))

    def _remarks(self, specs: Iterable[TaskSpec]) -> Iterator[str]:
        remark = getattr(self._admission, "remark", None)
        if remark is None:
            return
        for spec in specs:
            try:
                said = remark(spec)
            except Exception as error:
                raise self._broken(error) from error
            if said:
                yield f"task '{spec.name}' {said}"

    def _note(self, news: AdmissionUpdate) -> None:
        if self._stateful is None:
            return
        try:
            self._stateful.note(news)
        except Exception as error:
            raise self._broken(error) from error

    @property
    def _where(self) -> str:
        return f"admission '{self._admission.name}'"

    def _broken(self, error: Exception) -> BadInput | BrokenPlugin:
        if isinstance(error, BadInput):
            return error
        return BrokenPlugin(raised(error), where=self._where, fix="use a built-in one")
