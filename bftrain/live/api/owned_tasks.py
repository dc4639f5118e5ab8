"""Tasks as shown to their owners: views, reasons for waiting, edits, and worker output."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput
from bftrain.live.daemon.decision_loop import DecisionLoop
from bftrain.live.daemon.task_manager import TaskManager, TaskProgressTrack
from bftrain.live.model.schemas import LogFile, NotFound, TaskView, state_of
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.node_units import word_of
from bftrain.text_formats import counted

_CHUNK: Final = 256 * 1024  # bytes of a log per request
_MOST_FILES: Final = 10_000


def task_figures(
    record: LiveTaskRecord, tasks: TaskManager
) -> tuple[TaskProgressTrack | None, Progress, dict[str, Any]]:
    """Return what is known of a task now, and its fields of TaskFigures."""
    track = tasks.tracks.get(record.name) if record.unfinished else None
    progress = record.progress if track is None else track.advance_to(tasks.now)
    return (
        track,
        progress,
        {
            "number": record.number,
            "name": record.name,
            "user": record.user,
            "state": state_of(record, 0 if track is None else len(track.held)),
            "min_nodes": record.spec.min_nodes,
            "max_nodes": record.spec.max_nodes,
            "ended_s": record.ended_s,
            "work_samples": record.spec.work_samples,
            "samples": progress.samples,
            "done_samples": progress.done_samples,
            "step": progress.step,
            "loss": progress.loss,
            "speed": 0.0 if track is None else track.speed(tasks.now),
            "node_s": progress.node_s,
            "rescales": progress.rescales,
            "preemptions": progress.preemptions,
            "failures": progress.failures,
        },
    )


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
        track, progress, figures = task_figures(record, self._tasks)
        held = () if track is None else track.held
        copied_step = 0 if track is None else track.copied_step
        committed_step = max(progress.committed_step, copied_step)
        return TaskView(
            **figures,
            launcher=record.launcher,
            unit=self._site.unit,
            nodes=held,
            running=0 if track is None else track.running,
            submitted_s=record.submitted_s,
            started_s=progress.started_s,
            in_memory_step=max(progress.in_memory_step, committed_step),
            committed_step=committed_step,
            copied_step=copied_step,
            speeds=progress.speeds if track is None else track.speeds,
            costs=progress.costs,
            weight=record.spec.weight,
            deadline_s=record.spec.deadline_s,
            campaign=record.spec.campaign,
            folder=record.run.folder,
            argv=record.run.argv,
            reason=record.reason,
            waits="" if held or not record.unfinished else self._why_waiting(record),
        )

    def _why_waiting(self, record: LiveTaskRecord) -> str:
        """Return the reason why a task has no nodes, as text; the first reason to fix has priority."""
        if record.state is LiveTaskState.PAUSED:
            return f"it is paused: bftrain task resume {record.name}"
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
            raise BadInput("is not a plain file", where=name)
        return os.pread(file, _CHUNK, max(0, about.st_size + offset) if offset < 0 else offset)
    finally:
        os.close(file)
