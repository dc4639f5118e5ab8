"""Tasks as shown to their owners: views, reasons for waiting, edits, and worker output."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, BadValue, BftrainError
from bftrain.live import timeouts
from bftrain.live.daemon.decision_loop import DecisionLoop
from bftrain.live.daemon.launcher_pool import LauncherPool
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.task_manager import TaskManager
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.model.background_thread import within
from bftrain.live.model.callers import Caller, check_weight
from bftrain.live.model.schemas import LogFile, NotFound, NotNow, TaskEdit, TaskView, state_of
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState
from bftrain.node_units import word_of
from bftrain.text_formats import counted
from bftrain.values.events import TaskEdited

_CHUNK: Final = 256 * 1024  # bytes of a log per request
_MOST_FILES: Final = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class TaskViews:
    """Builds the views; ``state`` returns the live run's state, as shown to callers."""

    _site: SiteSettings
    _harvester: Harvester
    _tasks: TaskManager
    _loop: DecisionLoop
    _state: Callable[[], str]

    def view(self, record: LiveTaskRecord) -> TaskView:
        """Return the view of a task."""
        track = self._tasks.tracks.get(record.name) if record.unfinished else None
        held = () if track is None else track.held
        now, spec = self._tasks.now, record.spec
        progress = record.progress if track is None else track.advance_to(now)
        return TaskView(
            number=record.number,
            name=record.name,
            user=record.user,
            state=state_of(record, len(held)),
            launcher=record.launcher,
            unit=self._site.unit,
            nodes=held,
            running=0 if track is None else track.running,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            submitted_s=record.submitted_s,
            started_s=progress.started_s,
            ended_s=record.ended_s,
            work_samples=spec.work_samples,
            samples=progress.samples,
            done_samples=progress.done_samples,
            step=progress.step,
            in_memory_step=max(progress.in_memory_step, progress.committed_step),
            committed_step=progress.committed_step,
            loss=progress.loss,
            speed=0.0 if track is None else track.speed(now),
            speeds=progress.speeds if track is None else track.speeds,
            costs=progress.costs,
            node_s=progress.node_s,
            rescales=progress.rescales,
            preemptions=progress.preemptions,
            failures=progress.failures,
            weight=spec.weight,
            deadline_s=spec.deadline_s,
            campaign=spec.campaign,
            folder=record.run.folder,
            argv=record.run.argv,
            reason=record.reason,
            waits="" if held or not record.unfinished else self._why_waiting(record),
        )

    def _why_waiting(self, record: LiveTaskRecord) -> str:
        """Return the reason why a task has no nodes, as text; the first reason to fix has priority."""
        if record.state is LiveTaskState.PAUSED:
            return f"it is paused: bftrain resume {record.name}"
        if numbers := self._tasks.after.get(record.name):
            return f"it runs after {', '.join(f'#{number}' for number in sorted(numbers))}"
        if held_up := self._tasks.held_up.get(record.name):
            return f"it cannot be run now, and is tried again: {held_up}"
        if record.name not in self._harvester.unfinished:
            return "it was just handed in"
        return self._of_all_tasks() or self._too_few_nodes(record.name) or self._decided(record.name)

    def _of_all_tasks(self) -> str:
        """Return the reason why no task can have nodes; "" if they can."""
        state = self._state()
        if state == "paused":
            return "harvesting is paused by an operator"
        if self._loop.stalled is not None:
            return "the journal cannot be written, so tasks get no more nodes"
        if state != "running":
            return f"the live run is {state}"
        unit = word_of(self._site.unit)
        return "" if self._harvester.pool_size else f"no {unit} is idle now that the live run may use"

    def _too_few_nodes(self, name: str) -> str:
        """Return that it needs more nodes than there are, if it does."""
        harvester, spec = self._harvester, self._harvester.spec(name)
        fitting = {kind: count for kind, count in harvester.pools.items() if spec.curve_on(kind) is not None}
        most = max(fitting.values(), default=0) if harvester.pools else harvester.pool_size
        if most >= spec.min_nodes:
            return ""
        kinds = f" of kind {' or '.join(spec.curves)}" if spec.curves else ""
        return f"it needs {counted(spec.min_nodes, word_of(self._site.unit))}{kinds}, and the live run has {most} now"

    def _decided(self, name: str) -> str:
        """Return the result of the last decision, as text."""
        harvester, deciding, unit = self._harvester, self._site.deciding, word_of(self._site.unit)
        last = self._loop.last_decision
        if last is None or last.time_s < harvester.spec(name).submit_s:
            return "nothing was decided since it was handed in"
        if name not in harvester.competed:
            before = f"{counted(len(harvester.competed), 'other task')} compete before it"
            return f"{before}, by admission {deciding.admission} with max_tasks = {deciding.max_tasks}"
        held = harvester.held
        used = sum(map(len, held.values()))
        others = f"{counted(used, unit)} went to {counted(len(held), 'other task')} by objective {deciding.objective}"
        free = harvester.pool_size - used
        return f"{others}, and starting it on the {counted(free, unit)} left gains nothing" if free else others


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
                record, event = self._changed(caller, find(), given)  # it may have received nodes meanwhile
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
        known = harvester.spec(record.name)  # including measurements
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


def log_files(record: LiveTaskRecord) -> tuple[LogFile, ...]:
    """List a task's log files by name."""
    try:
        with os.scandir(Path(record.run.folder, "logs")) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return ()
    return tuple(
        LogFile(name=name, size=about.st_size, changed_s=about.st_mtime)
        for name, about in sorted(found)[:_MOST_FILES]
        if stat.S_ISREG(about.st_mode)
    )


def read_log(record: LiveTaskRecord, name: str, offset: int) -> bytes:
    """Read a chunk of a log file from a byte offset (from the end if below 0); empty at the current end."""
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'")
    try:
        # No links: a task must not redirect the read to another file
        file = os.open(
            Path(record.run.folder, "logs", name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError as error:
        raise NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'") from error
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("is no plain file", where=name)
        return os.pread(file, _CHUNK, max(0, about.st_size + offset) if offset < 0 else offset)
    finally:
        os.close(file)
