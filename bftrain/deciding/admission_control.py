"""AdmissionControl: asks the admission which tasks compete, and reports events to an admission that keeps state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bftrain.deciding.admission_view import AdmissionView
from bftrain.deciding.task_table import TaskEntry, TaskTable
from bftrain.errors import BadInput, BftrainError, BrokenPlugin
from bftrain.exception_text import raised
from bftrain.ports import Admission, ChoosingAdmission, NotingAdmission
from bftrain.values.admission_update import AdmissionUpdate, TaskInfo
from bftrain.values.events import (
    Event,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSubmitted,
)
from bftrain.values.problem import CompetingTask

NO_LIMIT: Final = 0  # of the nodes that a task may get


class AdmissionSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The books of an admission that keeps some."""

    admission: str
    books: Any


class AdmissionControl:
    """Stands before a roster. It changes nothing there."""

    def __init__(self, admission: Admission | ChoosingAdmission, roster: TaskTable) -> None:
        self._admission = admission
        self._ask = _asked(admission)
        self._books = admission if isinstance(admission, NotingAdmission) else None
        self._roster = roster
        self._known: set[str] = set()  # tasks that the admission knows

    # -- who competes

    def chosen(self, time_s: float, pools: Mapping[str, int]) -> Mapping[str, int]:
        """Name who competes, each with the most nodes that it may get or ``NO_LIMIT``; perhaps some who are unknown."""
        queue = AdmissionView(time_s, pools, self._roster)
        try:
            found = self._ask(queue)
            return dict(found) if isinstance(found, Mapping) else dict.fromkeys(found, NO_LIMIT)
        except Exception as error:
            raise self._broken(error) from error

    def limited(self, tasks: Iterable[CompetingTask], most: Mapping[str, int]) -> tuple[CompetingTask, ...]:
        """Give the tasks as they compete if each may get so many nodes at most."""
        if not any(most.values()):
            return tuple(tasks)
        return tuple(self._limited(task, most[task.name]) for task in tasks)

    def _limited(self, task: CompetingTask, most: int) -> CompetingTask:
        if most == NO_LIMIT or most >= task.max_nodes:
            return task
        if most < task.min_nodes:
            what = f"lets task '{task.name}' have {most} nodes, and it needs {task.min_nodes}"
            raise BrokenPlugin(what, where=self._where, fix="exclude tasks whose limit is below min_nodes")
        return msgspec.structs.replace(task, max_nodes=most)

    # -- what happened

    def passed(self, time_s: float) -> None:
        """Tell that time went on up to here with the nodes that are held now; before these change."""
        if self._books is not None:
            self._note(AdmissionUpdate(time_s=time_s, used=self._roster.used))

    def happened(self, events: Iterable[Event], time_s: float) -> Iterator[str]:
        """Tell what the roster has taken in; gives remarks on what was submitted."""
        events = tuple(events)
        if self._books is not None:
            self._tell(events, time_s)
        remark = getattr(self._admission, "remark", None)
        if remark is None:
            return
        for event in events:
            if isinstance(event, TaskSubmitted):
                said = remark(event.spec)
                if said:
                    yield f"task '{event.spec.name}' {said}"

    def _tell(self, events: tuple[Event, ...], time_s: float) -> None:
        finished: list[str] = []
        dropped: list[str] = []
        changed: dict[str, None] = {}
        for event in events:
            task = getattr(event, "task", None)
            if task not in self._known:
                continue
            if isinstance(event, TaskMeasured):
                changed[task] = None
                continue
            if isinstance(event, TaskFinished):
                finished.append(task)
            elif isinstance(event, TaskCancelled) or (isinstance(event, TaskFailed) and self._given_up(task)):
                dropped.append(task)
            else:
                continue
            self._known.remove(task)  # from here on, another one may have its name
            changed.pop(task, None)
        submitted = (event.spec.name for event in events if isinstance(event, TaskSubmitted))
        entered = [name for name in dict.fromkeys(submitted) if name in self._roster and name not in self._known]
        self._known.update(entered)
        if finished or dropped or entered or changed:
            news = AdmissionUpdate(
                time_s=time_s,
                finished=tuple(finished),
                dropped=tuple(dropped),
                entered=tuple(map(self._info, entered)),
                changed=tuple(map(self._info, changed)),
            )
            self._note(news)

    def _given_up(self, task: str) -> bool:
        member = self._roster.get(task)
        return member is None or not member.failures  # else it is another one, submitted under its name

    # -- what survives

    @property
    def kept(self) -> AdmissionSnapshot | None:
        """The admission's books, if it keeps any."""
        return (
            None if self._books is None else AdmissionSnapshot(admission=self._admission.name, books=self._books.kept())
        )

    def take_up(self, kept: AdmissionSnapshot | None, time_s: float) -> None:
        """Go on with this state; an admission that takes over from one without state receives all present tasks."""
        if self._books is None:
            return
        self._known = set(self._roster)
        if kept is None or kept.admission != self._admission.name:
            self._note(AdmissionUpdate(time_s=time_s, entered=tuple(map(self._info, self._roster))))
            return
        try:
            self._books.take_up(kept.books)
        except Exception as error:
            raise self._broken(error) from error

    # -- inside

    def _note(self, news: AdmissionUpdate) -> None:
        if self._books is not None:
            try:
                self._books.note(news)
            except Exception as error:
                raise self._broken(error) from error

    def _info(self, name: str) -> TaskInfo:
        member: TaskEntry = self._roster[name]
        return TaskInfo(spec=member.spec, work_left_samples=member.work_left_samples)

    @property
    def _where(self) -> str:
        return f"admission '{self._admission.name}'"

    def _broken(self, error: Exception) -> BftrainError:
        if isinstance(error, BadInput):
            return error
        return BrokenPlugin(raised(error), where=self._where, fix="use a built-in one")


def _asked(admission: Admission | ChoosingAdmission) -> Callable[[AdmissionView], Sequence[str] | Mapping[str, int]]:
    """Say how it is asked. Found out once: to hold it to a protocol takes longer than most of them need to answer."""
    if isinstance(admission, ChoosingAdmission):
        return admission.choose
    return lambda queue: admission.admit(iter(queue), queue.pool)
