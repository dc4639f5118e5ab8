"""TaskManager: tracks the state of each task by its launcher's reports; stores and learns from them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from bftrain.deciding.harvester import Harvester
from bftrain.launcher_orders import event_of
from bftrain.live.daemon.launcher_pool import LauncherPool
from bftrain.live.daemon.task_progress import TaskProgressTrack
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.daemon.usage_ledger import UsageLedger, day_of, midnight_before
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState
from bftrain.values.events import Event, TaskCancelled, TaskFailed, TaskFinished, TaskMeasured, TaskResumed
from bftrain_elastic.errors import BadJob

_log = logging.getLogger(__name__)
_NEVER_DONE: Final = frozenset({LiveTaskState.FAILED, LiveTaskState.CANCELLED})
_REASON_LETTERS: Final = 4000
_NOTED_STARTS: Final = frozenset({3, 10, 30, 100, 300, 1000})  # counts of starts without steps that trigger a notice
_ALL_OF_IT: Final = 0.999  # share of the work: whole batches seldom add up to it exactly


@dataclass(eq=False, repr=False)
class TaskManager:
    """Updates stored tasks, progress and hours together."""

    _task_store: TaskStore
    _harvester: Harvester
    _launcher_pool: LauncherPool
    ledger: UsageLedger

    def __post_init__(self) -> None:
        self.tracks: dict[str, TaskProgressTrack] = {}  # unfinished tasks
        self._counted: set[str] = set()  # tasks with counted hours but unwritten progress
        self._ended: list[str] = []  # finished tasks that launchers still know
        self.held_up: dict[str, str] = {}  # unfinished tasks that cannot be run now -> why
        self.after: dict[str, set[int]] = {}  # unfinished tasks -> numbers of their unfinished dependencies
        self._attempts: dict[str, asyncio.Future[None]] = {}  # pending registrations at launchers; each may hang

    @property
    def now(self) -> float:
        """The time on the clock of the events, which never runs backwards."""
        return max(self._harvester.time_s, time.time())

    async def restore(self, record: LiveTaskRecord, patience_s: float) -> None:
        """Resume a task after a restart.

        A task with a rejected job has failed. A task that cannot run at present (missing file system, broken launcher)
        is put on hold and retried.
        """
        name, track = record.name, self.tracks.get(record.name) or self.begin(record)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = self._attempts[name] = asyncio.ensure_future(
                run_in_daemon_thread(lambda: self._launcher_pool.add(record))
            )
        await asyncio.wait((attempt,), timeout=patience_s)
        if self.tracks.get(name) is not track:
            return  # cancelled meanwhile
        if not attempt.done():
            self._hold_up(name, f"its folder '{record.run.folder}' does not answer")
            return
        del self._attempts[name]
        error = attempt.exception()
        if error is None:
            self.held_up.pop(name, None)
            held = self._harvester.held.get(name)
            if held:
                track.held, track.held_since_s, track.skip_start = held, self.now, True
        elif isinstance(error.__cause__, BadJob):
            _log.warning("task '%s' cannot continue: %s", name, error)
            self.finish(name, LiveTaskState.FAILED, str(error))
        else:
            self._hold_up(name, str(error) or type(error).__name__)

    def _hold_up(self, name: str, why: str) -> None:
        if self.held_up.get(name) != why:
            _log.warning("task '%s' cannot continue for now and is retried: %s", name, why)
        self.held_up[name] = why

    def begin(self, record: LiveTaskRecord) -> TaskProgressTrack:
        """Start to track a task."""
        if left := {number for number in record.after if self._state_of(number) is not LiveTaskState.DONE}:
            self.after[record.name] = left
        self.ledger.begin(record, record.progress)
        track = self.tracks[record.name] = TaskProgressTrack(record, record.progress)
        return track

    @property
    def blocked(self) -> frozenset[str]:
        """Unfinished tasks that cannot run now, or wait for dependencies."""
        return frozenset(self.held_up).union(self.after)

    def _state_of(self, number: int) -> LiveTaskState | None:
        record = self._task_store.find(f"#{number}")
        return None if record is None else record.state

    def released(self) -> list[Event]:
        """Return events that release or finish tasks after their dependencies have finished."""
        events: list[Event] = []
        now = self.now
        for name, numbers in list(self.after.items()):
            states = {number: self._state_of(number) for number in numbers}
            self.after[name] = {number for number, state in states.items() if state is not LiveTaskState.DONE}
            lost = [number for number, state in states.items() if state is None or state in _NEVER_DONE]
            record = self._task_store.get(name)
            if record is None or not self.after[name]:
                del self.after[name]
                if record is not None and record.state is LiveTaskState.SUBMITTED and name not in self.held_up:
                    events.append(TaskResumed(time_s=now, task=name))
            elif lost:
                self.trouble(name, f"it was to run after task #{lost[0]}, which is {states[lost[0]] or 'gone'}")
                events.append(TaskCancelled(time_s=now, task=name))
        return events

    def on_event(self, event: Event) -> None:
        """Apply an event to its task."""
        match event:
            case TaskFinished():
                self.finish(event.task, LiveTaskState.DONE)
            case TaskCancelled():
                self.finish(event.task, LiveTaskState.CANCELLED)
            case TaskFailed():
                self._failed(event.task, event.reason)

    def hold(self, time_s: float, *, decided: bool = False, gone: AbstractSet[str] = frozenset()) -> None:
        """Record the tasks' nodes since ``time_s``: after a decision, or after events with ``gone`` nodes."""
        holdings = self._harvester.held
        self._cut_day(time_s)
        for name, track in self.tracks.items():
            before, nodes = track.held, holdings.get(name, ())
            if nodes is not before and nodes != before:  # true for few tasks
                track.hold(nodes, time_s, decided=decided, gone=gone)
                if before:
                    self._count(track, before)

    def _cut_day(self, time_s: float) -> None:
        """Assign all work until midnight to the previous day."""
        day, before = day_of(time_s), self.ledger.day
        if before and day > before:
            midnight = midnight_before(time_s)
            for track in self.tracks.values():
                track.advance_to(midnight)
                self._count(track, track.held)
        self.ledger.day = max(day, before)

    def finish(self, name: str, state: LiveTaskState, reason: str = "") -> None:
        """Record that a task has finished, and drop state that only unfinished tasks need."""
        record, track = self._task_store.get(name), self.tracks.pop(name, None)
        self._ended.append(name)
        self.held_up.pop(name, None)
        self.after.pop(name, None)

        def attempted(done: asyncio.Future[None]) -> None:
            """Let the launcher forget a task that it learns of only now."""
            if not done.cancelled() and done.exception() is None and self._task_store.get(name) is None:
                self._launcher_pool.drop(name)

        if (attempt := self._attempts.pop(name, None)) is not None:
            attempt.add_done_callback(attempted)
        if record is None or track is None:
            return
        now, before = self.now, track.held
        track.hold((), now)
        self._count(track, before)
        self.ledger.forget(record.number)
        record = replace(record, state=state, progress=track.progress, ended_s=now, reason=reason or record.reason)
        self._task_store.change(record)
        self.progress(())

    def _count(self, track: TaskProgressTrack, held: Collection[str]) -> None:
        """Count a task's work on its previous nodes, in the same write as its progress."""
        self.ledger.count(track.record, track.progress, next(iter(held), ""))
        self._counted.add(track.record.name)

    def written(self) -> None:
        """Let launchers forget finished tasks whose final state is on disk."""
        while self._ended:
            self._launcher_pool.drop(self._ended.pop())

    def _failed(self, name: str, reason: str) -> None:
        record, track = self._task_store.get(name), self.tracks.get(name)
        if record is None or track is None:
            return
        reason = reason[-_REASON_LETTERS:]
        _log.warning("task '%s' failed: %s", name, reason.partition("\n")[0])
        track.progress = replace(track.progress, failures=track.progress.failures + 1)
        if name in self._harvester.unfinished:  # it is retried
            progress = track.advance_to(self.now)
            self._count(track, track.held)
            self._task_store.change(replace(record, reason=reason, progress=progress))
            self.progress(())
        else:
            self.finish(name, LiveTaskState.FAILED, reason)

    def trouble(self, name: str, text: str) -> None:
        """Record the latest problem of a task."""
        record, text = self._task_store.get(name), text[-_REASON_LETTERS:]
        if record is not None and record.reason != text:
            self._task_store.change(replace(record, reason=text))

    def on_message(self, message: Mapping[str, Any]) -> Event | None:
        """Apply a launcher's message; return the event that follows from it."""
        name = message["task"]
        track = self.tracks.get(name)
        if track is None:
            return None  # it has finished
        track.on_message(message)
        notice = ""
        match message["type"]:
            case "note":
                notice = f": {message['text']}"
                self.trouble(name, message["text"])
            case "starting" if track.starts in _NOTED_STARTS:
                notice = f" started {track.starts} times without a step"
            case "done":
                notice = _missing(track)
        if notice:
            _log.warning("task '%s'%s", name, notice)
            if message["type"] != "note":
                self.trouble(name, notice.strip())
        return event_of(message, self.now)

    def learned(self) -> list[TaskMeasured]:
        """Return measurements for the decision core, and narrow tasks where a speed is to be measured."""
        now, events = self.now, []
        for name, track in self.tracks.items():
            # The time of an unfinished start counts as start cost, which protects the task
            starting = self._harvester.uses_history and track.starting_since is not None
            if (track.news or starting) and name in self._harvester.unfinished:
                event = track.learn(self._harvester.spec(name), now, self._harvester.longest_start_s)
                events += [] if event is None else [event]
                self._narrow(track)
        return events

    def narrow(self) -> None:
        """Limit tasks to sizes whose speed is being measured."""
        for track in self.tracks.values():
            self._narrow(track)

    def _narrow(self, track: TaskProgressTrack) -> None:
        name = track.record.name
        size = track.size_to_run()
        if size != track.narrowed:
            track.narrowed = size
            self._launcher_pool.narrow(name, size)

    def hand_batches(self, batches: Mapping[str, int]) -> None:
        """Set the decided batches of tasks with measured speeds and batches."""
        for name, batch in batches.items():
            track = self.tracks.get(name)
            if track is not None and not track.record.guessed:
                track.batch_decided = True
                self._launcher_pool.set_batch(name, batch)

    def work_left(self, time_s: float) -> list[TaskMeasured]:
        """Return the remaining work of running tasks, for objectives that use it."""
        return [
            TaskMeasured(
                time_s=time_s, task=track.record.name, work_left_samples=max(0.0, work - track.progress.done_samples)
            )
            for track in self.tracks.values()
            if track.held and (work := track.record.spec.work_samples) is not None
        ]

    def progress(self, names: Collection[str] | None = None) -> None:
        """Store the progress of ``names`` and of tasks with newly counted hours, or of all tasks."""
        now = self.now
        self._cut_day(now)
        for name in list(self.tracks) if names is None else self._counted.union(names):
            track = self.tracks.get(name)
            if track is not None and (track.held or track.progress != track.record.progress):
                self._task_store.progressed(name, track.advance_to(now))
                self._count(track, track.held)
        self._counted.clear()
        self._task_store.add_writes(self.ledger.due())


def _missing(track: TaskProgressTrack) -> str:
    """Return how much work a finished task has left undone, as text; "" if none."""
    work, progress = track.record.spec.work_samples, track.progress
    if work is None or not progress.step or progress.samples >= work * _ALL_OF_IT:
        return ""  # the progress of a task that never reports is unknown
    return f" ended well after {progress.samples:,.0f} of {work:,.0f} samples"
