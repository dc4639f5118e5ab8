"""TaskEditor: changes that owners make to tasks which hold no nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, BadValue, BftrainError
from bftrain.live import timeouts
from bftrain.live.model.background_thread import within
from bftrain.live.model.callers import Caller, check_weight
from bftrain.live.model.schemas import NotNow, TaskEdit
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.live.nodes.node_manager import NodeManager
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.live.tasks.task_manager import TaskManager
from bftrain.live.tasks.task_store import TaskStore
from bftrain.values.events import TaskEdited


@dataclass(frozen=True, eq=False, repr=False)
class TaskEditor:
    """Changes stored tasks; callers that are no operators may set weights up to ``max_weight``."""

    _store: TaskStore
    _harvester: Harvester
    _tasks: TaskManager
    _nodes: NodeManager
    _launchers: LauncherPool
    _max_weight: float

    async def edit(
        self, caller: Caller, find: Callable[[], LiveTaskRecord], given: TaskEdit
    ) -> tuple[LiveTaskRecord, TaskEdited]:
        """Change the stored task that ``find`` returns; return it with the event for the decisions.

        Raise if the change cannot be. A launcher that knows the task by an earlier name is to drop that one.
        """
        record, event = self._changed(caller, find(), given)
        if name := event.renamed:
            pool, folder = self._launchers, f"the folder '{record.run.folder}'"
            added = record
            await within(timeouts.TIMEOUTS.file_system_s, lambda: pool.add(added), folder, undo=lambda: pool.drop(name))
            try:
                record, event = self._changed(caller, find(), given)  # it may have been given nodes meanwhile
            except BftrainError:
                pool.drop(name)
                raise
            self._store.rename(event.task, record)
            self._tasks.rename(event.task, record)
        else:
            self._store.change(record)
        self._tasks.tracks[record.name].record = record
        return record, event

    def _changed(self, caller: Caller, record: LiveTaskRecord, given: TaskEdit) -> tuple[LiveTaskRecord, TaskEdited]:
        track, harvester, name = self._tasks.tracks[record.name], self._harvester, self._name(record, given)
        vacates = name != record.name and self._launchers.lingers(record.name)
        if track.held or vacates or record.name not in harvester.unfinished:
            fix = f"bftrain pause {record.name}, then change it, and resume it"
            raise NotNow(f"task '{record.name}' holds nodes, and only waiting tasks can be changed", fix=fix)
        if given.weight is not None and given.weight != record.spec.weight:
            check_weight(caller, given.weight, self._max_weight)
        known = harvester.spec(record.name)  # with what was measured
        changes = given.changes
        try:
            if record.guessed and not track.speeds and given.max_nodes is not None:
                others = [harvester.spec(task).curve for task in harvester.unfinished if task != record.name]
                changes["curve"] = speed_estimates.first_curve(given.max_nodes, others)
            spec, decided = replace(record.spec, name=name, **changes), replace(known, **changes)
        except BadValue as error:
            raise BadInput(error.what, where=(error.where or "").rpartition(".")[2], fix=error.fix) from error
        if unfit := self._nodes.kinds.unfit(spec.min_nodes, spec.curves):
            raise BadInput(unfit, where="min_nodes", fix="give fewer nodes")
        renamed = name if name != record.name else ""
        event = TaskEdited(time_s=self._tasks.now, spec=decided, renamed=renamed)
        return replace(record, name=name, spec=spec), event

    def _name(self, record: LiveTaskRecord, given: TaskEdit) -> str:
        """Return the name of a task after a change; an ending with its user stays."""
        stem, at, user = record.name.partition("@")
        name = f"{stem if given.name is None else given.name}{at}{user}"
        if name == record.name:
            return name
        if self._store.get(name) is not None:
            raise NotNow(f"an unfinished task is called '{name}' already", where="name", fix="choose another name")
        if why := self._tasks.held_up.get(record.name):
            raise NotNow(f"task '{record.name}' cannot go on for now: {why}", where="name", fix="name it later")
        return name
