"""AdmissionControl: asks the admission for the competing tasks, and reports events to an admission with state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bftrain.deciding.admission import FirstComeAdmission
from bftrain.deciding.task_table import TaskTable
from bftrain.errors import BadInput, BftrainError, BrokenPlugin, raised
from bftrain.ports import Admission, NotingAdmission
from bftrain.values.events import (
    AdmissionUpdate,
    Event,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskInfo,
    TaskMeasured,
    TaskSubmitted,
)
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """The unfinished tasks that are not paused, by submission, at one moment.

    ``pool`` counts the idle nodes, including allocated ones; ``pools`` the same by kind.
    """

    time_s: float
    pools: Mapping[str, int]
    _task_table: TaskTable

    @property
    def pool(self) -> int:
        """The number of idle nodes of all kinds, including allocated nodes."""
        return sum(self.pools.values())

    def __iter__(self) -> Iterator[str]:
        return self._task_table.unpaused()

    def __contains__(self, task: str) -> bool:
        member = self._task_table.get(task)
        return member is not None and not member.paused

    def spec(self, task: str) -> TaskSpec:
        """Return the latest description of a task, measurements included."""
        return self._task_table[task].spec

    def size(self, task: str) -> int:
        """Return the number of nodes allocated to a task."""
        return self._task_table[task].size

    def work_left(self, task: str) -> float | None:
        """Return the samples that a task still has to process; ``None`` if unknown or endless."""
        return self._task_table[task].work_left_samples

    def most_nodes(self, task: str) -> int:
        """Return the size of a task if it had all idle nodes; 0 if they are too few."""
        spec = self.spec(task)
        most = max((count for kind, count in self.pools.items() if spec.curve_on(kind) is not None), default=0)
        return min(most, spec.max_nodes) if most >= spec.min_nodes else 0


NO_LIMIT: Final = 0  # marks a task without a limit on its size


class AdmissionSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The saved state of an admission that has state."""

    admission: str
    books: Any


class AdmissionControl:
    """Calls the admission and checks its results. Reads the task table and never changes it."""

    def __init__(self, admission: Admission, task_table: TaskTable) -> None:
        self._admission = admission
        self._stateful = admission if isinstance(admission, NotingAdmission) else None
        self._task_table = task_table
        self._known: set[str] = set()  # tasks that the admission knows

    def chosen(self, time_s: float, pools: Mapping[str, int]) -> Mapping[str, int]:
        """Return the admission's choice, possibly with unknown tasks: the size limit by task, or ``NO_LIMIT``."""
        queue = AdmissionView(time_s, pools, self._task_table)
        try:
            found = self._admission.choose(queue)
            return dict(found) if isinstance(found, Mapping) else dict.fromkeys(found, NO_LIMIT)
        except Exception as error:
            raise self._plugin_error(error) from error

    @property
    def oldest_tasks(self) -> int | None:
        """The number of tasks that compete if these are simply the oldest ones, otherwise ``None``."""
        return self._admission.max_tasks if type(self._admission) is FirstComeAdmission else None

    def with_limits(self, tasks: list[CompetingTask], limits: Mapping[str, int]) -> tuple[CompetingTask, ...]:
        """Return the tasks with ``max_nodes`` reduced to their limits."""
        if any(limits.values()):
            for place, task in enumerate(tasks):
                most = limits[task.name]
                if most != NO_LIMIT and most < task.min_nodes:
                    what = f"limits task '{task.name}' to {most} node{'s' * (most > 1)}, but it needs {task.min_nodes}"
                    raise BrokenPlugin(what, where=self._where, fix="exclude tasks with a limit below min_nodes")
                if most != NO_LIMIT and most < task.max_nodes:
                    tasks[place] = msgspec.structs.replace(task, max_nodes=most)
        return tuple(tasks)

    def advance_time(self, time_s: float) -> None:
        """Report the passing of time with the allocation until now; call before it changes."""
        if self._stateful is not None:
            self._send_update(AdmissionUpdate(time_s=time_s, used=self._task_table.used))

    def on_events(self, events: Iterable[Event], time_s: float) -> Iterator[str]:
        """Report events that the task table has processed; yield warnings about submitted tasks."""
        events = tuple(events)
        if self._stateful is not None:
            self._report_events(events, time_s)
        remark: Callable[[TaskSpec], str] = getattr(self._admission, "remark", lambda _: "")
        for event in events:
            if isinstance(event, TaskSubmitted) and (text := remark(event.spec)):
                yield f"task '{event.spec.name}' {text}"

    def _report_events(self, events: tuple[Event, ...], time_s: float) -> None:
        finished: list[str] = []
        dropped: list[str] = []
        changed: dict[str, None] = {}
        for event in events:
            task = getattr(event, "task", None)
            if task not in self._known:
                continue
            member = self._task_table.get(task)
            match event:
                case TaskFinished():
                    finished.append(task)
                case TaskCancelled():
                    dropped.append(task)
                case TaskEdited() if event.renamed and member is None:
                    dropped.append(task)
                # A failed task without recorded failures is a new task submitted under the same name
                case TaskFailed() if member is None or not member.failures:
                    dropped.append(task)
                case _:
                    if isinstance(event, TaskMeasured | TaskEdited):
                        changed[task] = None
                    continue
            self._known.remove(task)  # the name is free for a new task now
            changed.pop(task, None)
        new = [event.spec.name for event in events if isinstance(event, TaskSubmitted)]
        new += [event.renamed for event in events if isinstance(event, TaskEdited)]
        entered = [name for name in dict.fromkeys(new) if name in self._task_table and name not in self._known]
        self._known.update(entered)
        if finished or dropped or entered or changed:
            self._send_update(
                AdmissionUpdate(
                    time_s=time_s,
                    finished=tuple(finished),
                    dropped=tuple(dropped),
                    entered=tuple(map(self._task_info, entered)),
                    changed=tuple(map(self._task_info, changed)),
                )
            )

    @property
    def kept(self) -> AdmissionSnapshot | None:
        """The state of the admission, or ``None`` if it has no state."""
        stateful = self._stateful
        return None if stateful is None else AdmissionSnapshot(admission=self._admission.name, books=stateful.kept())

    def restore(self, kept: AdmissionSnapshot | None, time_s: float) -> None:
        """Restore the state; an admission that replaces one without state receives all present tasks."""
        if self._stateful is None:
            return
        self._known = set(self._task_table)
        if kept is None or kept.admission != self._admission.name:
            self._send_update(AdmissionUpdate(time_s=time_s, entered=tuple(map(self._task_info, self._task_table))))
            return
        try:
            self._stateful.take_up(kept.books)
        except Exception as error:
            raise self._plugin_error(error) from error

    def _send_update(self, news: AdmissionUpdate) -> None:
        if self._stateful is not None:
            try:
                self._stateful.note(news)
            except Exception as error:
                raise self._plugin_error(error) from error

    def _task_info(self, name: str) -> TaskInfo:
        member = self._task_table[name]
        return TaskInfo(spec=member.spec, work_left_samples=member.work_left_samples)

    @property
    def _where(self) -> str:
        return f"admission '{self._admission.name}'"

    def _plugin_error(self, error: Exception) -> BftrainError:
        if isinstance(error, BadInput):
            return error
        return BrokenPlugin(raised(error), where=self._where, fix="use a built-in one")
